"""The lease as an orphan pass asks for it: before every file it touches.

The answer is a read of the ledger, which takes longer than a move on local disk and no time beside one on
an object store. So it is good for a moment: where moves are slow it is asked for each file.
"""

from __future__ import annotations

from collections.abc import Callable

TRUSTED_MS = 100
"""How long an answer is good for. A lease lasts for 45 s and is renewed four times in that, so that one
lost within this was about to be lost anyhow."""


class AskedLease:
    """`holds` of a lease, asked anew whenever the last answer is older than `TRUSTED_MS` by the clock:
    whoever was stopped meanwhile, or put to sleep with the machine, asks before anything else."""

    def __init__(self, holds: Callable[[], bool], now_ms: Callable[[], int]) -> None:
        self._holds, self._now_ms = holds, now_ms
        self._asked_ms: int | None = None

    def __call__(self) -> bool:
        """Whether the lease is still ours."""
        now_ms = self._now_ms()
        if self._asked_ms is None or not 0 <= now_ms - self._asked_ms < TRUSTED_MS:
            # The time before it was asked: who is stopped while it waits for the answer asks again.
            self._asked_ms = now_ms
            if not self._holds():
                self._asked_ms = None
                return False
        return True
