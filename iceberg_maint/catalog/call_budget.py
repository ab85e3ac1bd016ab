"""The calls that this program makes to one catalog: counted, and spaced where the catalog has a budget.

`catalogs.NAME.calls_per_second` is kept by all processes of a machine that share a home folder. They reserve their calls in one file,
under a lock of the operating system. A call waits until its time has come.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from iceberg_maint.private_files import PRIVATE_FILE, private_folder

_LIMIT_SECONDS = 3600.0
"""A stored time further ahead than this is damaged."""


class CallBudget:
    """The calls to one catalog. Any thread may use it.

    `per_second` is None for a catalog without a budget: then calls are only counted. `file` holds the time of the next
    free call, in seconds of the machine's monotonic clock.
    """

    def __init__(
        self,
        per_second: float | None = None,
        file: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._per_second, self._file = per_second, file
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._next = 0.0
        self.calls = 0

    def take(self, calls: int = 1) -> None:
        """Counts calls that are about to be made, and waits until the first of them may be."""
        with self._lock:
            self.calls += calls
        if self._per_second is None:
            return
        wait = self._reserve(calls, self._per_second)
        if wait > 0:
            self._sleep(wait)

    def _reserve(self, calls: int, per_second: float) -> float:
        if self._file is None:
            with self._lock:
                now = self._clock()
                start = max(self._next, now)
                self._next = start + calls / per_second
            return start - now
        private_folder(self._file.parent)
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            now = self._clock()
            start = max(_stored(descriptor, now), now)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, repr(start + calls / per_second).encode(), 0)
        finally:
            os.close(descriptor)
        return start - now


def _stored(descriptor: int, now: float) -> float:
    try:
        stored = float(os.pread(descriptor, 64, 0))
    except ValueError:
        return now
    return stored if stored <= now + _LIMIT_SECONDS else now
