"""An orphan scan that kills itself, as a child process of the tests.

The store is wrapped here, in the test: the product holds no failpoint.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from iceberg_maint.core.removal.orphan_rules import TRASH
from iceberg_maint.ledger.attempts import SqlWork
from iceberg_maint.ports.storage import StoredFile
from iceberg_maint_tests.support.removal.layouts import Lake, LiteralPath, ShiftedStore
from iceberg_maint_tests.support.removal.passes import Passes

POINTS = ("listed", "manifest_written", "half_moved", "moved", "half_swept", "swept")
HALF = 10


class KillingStore(ShiftedStore):
    """Kills the process once the point is reached."""

    def __init__(self, point: str, ahead_ms: int) -> None:
        super().__init__(ahead_ms)
        self._point = point
        self.count = 0

    def list(self, prefix: str) -> Iterator[StoredFile]:
        yield from super().list(prefix)
        self._reach("listed", TRASH not in prefix)

    def create(self, path: str, lines: Iterable[bytes]) -> None:
        super().create(path, lines)
        self._reach("manifest_written", TRASH in path)

    def move(self, source: str, target: str) -> None:
        super().move(source, target)
        self.count += 1
        self._reach("half_moved", self.count == HALF)

    def delete(self, path: str) -> None:
        if path.endswith(".jsonl"):
            self._reach("swept", True)
        super().delete(path)
        if TRASH in path:
            self.count += 1
            self._reach("half_swept", self.count == HALF)

    def _reach(self, point: str, here: bool) -> None:
        if here and point == self._point:
            os.kill(os.getpid(), signal.SIGKILL)


def run(folder: str, point: str, ahead_ms: int) -> None:
    """Runs a pass over the `layouts.Lake` of this folder, and kills the process at the point."""
    store = KillingStore(point, ahead_ms)
    passes = Passes(Lake(LiteralPath(folder)), store)
    if point == "moved":
        finish: Callable[..., Any] = SqlWork.finish_attempt

        def killed(*arguments: Any) -> None:
            os.kill(os.getpid(), signal.SIGKILL)
            finish(*arguments)

        SqlWork.finish_attempt = killed  # type: ignore[method-assign, assignment]
    passes.run()
