"""Checks the lease for an orphan pass before every file it changes.

The check reads the ledger. The read takes longer than a move on a local disk, and little time compared
with a move on an object store. An answer therefore counts for a short time: if moves are slow, the lease
is checked for every file.
"""

from __future__ import annotations

from collections.abc import Callable

TRUSTED_MS = 100
"""How long an answer counts. A lease lasts for 45 s and is renewed four times in that time, so a lease
lost within this time was about to be lost anyway."""


class TimeUpError(Exception):
    """The pass has used up its time. It is continued by a later one."""


class TimedLease:
    """Checks the lease, and before it the time of the pass. The first check ignores the time, so that every pass
    makes progress. Raises TimeUpError."""

    def __init__(self, holds: Callable[[], bool], is_over: Callable[[], bool]) -> None:
        self._holds, self._is_over = holds, is_over
        self._is_first = True

    def __call__(self) -> bool:
        """Returns whether this run still has the lease."""
        if not self._is_first and self._is_over():
            raise TimeUpError
        self._is_first = False
        return self._holds()


class AskedLease:
    """Checks the lease through `holds` whenever the last answer is older than `TRUSTED_MS` by the clock.
    A process that was stopped, or slept with the machine, therefore checks before it does anything else."""

    def __init__(self, holds: Callable[[], bool], now_ms: Callable[[], int]) -> None:
        self._holds, self._now_ms = holds, now_ms
        self._asked_ms: int | None = None

    def __call__(self) -> bool:
        """Returns whether this run still has the lease."""
        now_ms = self._now_ms()
        if self._asked_ms is None or not 0 <= now_ms - self._asked_ms < TRUSTED_MS:
            # The time before the check counts: a process that is stopped while it waits for the answer
            # checks again.
            self._asked_ms = now_ms
            if not self._holds():
                self._asked_ms = None
                return False
        return True
