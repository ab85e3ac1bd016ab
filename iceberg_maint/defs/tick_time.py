"""The time of a sensor's tick. Dagster fails a tick after 60 seconds, and nothing of it is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from iceberg_maint.ports.clock import Clock

WORK_SECONDS = 5.0
"""Seconds after which a tick begins no further part of its work. The next tick goes on there."""
_QUICK_SECONDS = 0.5
"""A part that took less time is followed by one of twice the size."""

T = TypeVar("T")


class TickTime:
    """The time of one tick, from the creation of this object."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._end = clock.monotonic_seconds() + WORK_SECONDS

    def is_over(self) -> bool:
        """Whether the tick may begin nothing more."""
        return self._clock.monotonic_seconds() >= self._end

    def parts(self, items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
        """Yields consecutive parts of the items until the time is over: the first one of `size` at any time, later ones of
        more as long as they are quick."""
        start = 0
        while start < len(items) and (start == 0 or not self.is_over()):
            began = self._clock.monotonic_seconds()
            yield items[start : start + size]
            start += size
            if self._clock.monotonic_seconds() - began < _QUICK_SECONDS:
                size *= 2
