"""The port to time."""

from __future__ import annotations

from typing import Protocol

from iceberg_maint.core.removal.clock_skew import Uptime


class Clock(Protocol):
    """Wall clock, monotonic clock and uptime of this machine."""

    def now_ms(self) -> int:
        """Returns milliseconds since the epoch, UTC."""

    def monotonic_seconds(self) -> float:
        """Returns seconds of a monotonic clock, for durations."""

    def uptime(self) -> Uptime | None:
        """Returns how long the machine has run. Setting its clock does not change that. None if the
        machine does not report it."""

    def sleep(self, seconds: float) -> None:
        """Waits."""
