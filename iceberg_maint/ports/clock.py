"""The seam to time."""

from __future__ import annotations

from typing import Protocol

from iceberg_maint.core.removal.clock_agreement import Uptime


class Clock(Protocol):
    """Time, injected."""

    def now_ms(self) -> int:
        """Milliseconds since epoch, UTC."""
        ...

    def monotonic_seconds(self) -> float:
        """For durations."""
        ...

    def uptime(self) -> Uptime | None:
        """How long the machine has run, which no setting of its clock changes; None where it does not
        tell."""
        ...

    def sleep(self, seconds: float) -> None:
        """Waits."""
        ...
