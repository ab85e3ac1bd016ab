"""The product's seams, wrapped: a run on a real table meets its end at one of them.

The product itself holds no failpoint.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import event

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.outcomes.outcome import CommitResult
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.removal.orphan_rules import TRASH
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.maintain import Event, OperationEnded
from iceberg_maint.ports.engine import CommitContext, Written
from iceberg_maint.ports.storage import StoredFile
from iceberg_maint.removal.remove_orphans import OrphanRemoval
from iceberg_maint_tests.qualification.kill.points import Seam
from iceberg_maint_tests.support.context import changed

FEW = 2
"""Orphans that are moved when half of them are."""
_LOOK_SECONDS = 0.001


class LostAnswerError(ConnectionError):
    """What was asked for is done; whoever asked is not told."""


class Failpoint:
    """Acts once, when the seam is passed for the nth time."""

    def __init__(self, seam: Seam, nth: int, act: Callable[[], None]) -> None:
        self.seam, self._left, self._act = seam, nth, act
        self.reached = False

    def reach(self, seam: Seam) -> None:
        """The run is at this seam now."""
        if self.is_next(seam):
            self.reached = True
            self._act()
        elif seam is self.seam:
            self._left -= 1

    def is_next(self, seam: Seam) -> bool:
        """Whether the run meets its end when it comes to this seam."""
        return seam is self.seam and self._left == 1 and not self.reached


def with_failpoint(context: Context, failpoint: Failpoint, data_folder: Path) -> Context:
    """The context of one run on the table whose data files are in this folder."""
    real = context.ledger
    leases, work = _Leases(real.leases, failpoint), _Work(real.work, failpoint)
    ledger: Any = replace(real, leases=leases, work=work)
    engine = _Engine(context.engine, failpoint, data_folder)

    def orphan_files(table: TableId) -> OrphanRemoval:
        real: Any = context.storage.orphan_files(table)
        store_of = real._context.store
        around = replace(real._context, store=lambda state: _Store(store_of(state), failpoint))
        return OrphanRemoval(around)

    return changed(context, ledger=ledger, engine=lambda: engine, orphan_files=orphan_files)


def observer_of(failpoint: Failpoint) -> Callable[[Event], None]:
    """What a run tells of its end between operations."""

    def observe(told: Event) -> None:
        if isinstance(told, OperationEnded):
            failpoint.reach(Seam.BETWEEN)

    return observe


class _Part:
    def __init__(self, part: Any, failpoint: Failpoint) -> None:
        self._part, self._failpoint = part, failpoint

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)


class _Leases(_Part):
    def acquire(self, *arguments: Any) -> Any:
        lease = self._part.acquire(*arguments)
        if lease is not None:
            self._failpoint.reach(Seam.LOCKED)
        return lease

    def holds(self, *arguments: Any) -> bool:
        held: bool = self._part.holds(*arguments)
        self._failpoint.reach(Seam.MANIFESTED)
        return held


class _Work(_Part):
    def __init__(self, part: Any, failpoint: Failpoint) -> None:
        super().__init__(part, failpoint)
        self._finishing = threading.local()
        event.listen(part._database._open(), "commit", self._before_commit)

    def save_plan(self, *arguments: Any) -> None:
        self._part.save_plan(*arguments)
        self._failpoint.reach(Seam.PLANNED)

    def record_intent(self, *arguments: Any) -> None:
        self._part.record_intent(*arguments)
        self._failpoint.reach(Seam.INTENDED)

    def record_try(self, *arguments: Any) -> None:
        self._part.record_try(*arguments)
        self._failpoint.reach(Seam.TRIED)

    def finish_attempt(self, *arguments: Any) -> None:
        for seam in (Seam.FINISHING, Seam.ABORTING, Seam.MOVED):
            self._failpoint.reach(seam)
        self._finishing.now = True
        try:
            self._part.finish_attempt(*arguments)
        finally:
            self._finishing.now = False
        self._failpoint.reach(Seam.FINISHED)

    def _before_commit(self, _connection: object) -> None:
        if getattr(self._finishing, "now", False):
            self._failpoint.reach(Seam.OUTCOME)


_OF_THREAD = threading.local()


def _load_watched(bridge: Bridge, name: str) -> Any:
    table = Bridge.load_table(bridge, name)
    watch: Callable[[Any], Any] | None = getattr(_OF_THREAD, "watch", None)
    return watch(table) if watch else table


class _Engine:
    def __init__(self, engine: Callable[[], Any], failpoint: Failpoint, data_folder: Path) -> None:
        self._real, self._failpoint, self._data_folder = engine, failpoint, data_folder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real(), name)

    def write(self, batch: Batch, policy: Policy) -> Written:
        if self._failpoint.is_next(Seam.WRITING):
            return self._write_watched(batch, policy)
        self._failpoint.reach(Seam.WRITING)
        written: Written = self._real().write(batch, policy)
        if self._failpoint.is_next(Seam.ABORTING):
            return replace(written, proof=replace(written.proof, equal=False, detail="planted"))
        self._failpoint.reach(Seam.WRITTEN)
        return written

    def commit(self, batch: Batch, written: Written, ticket: CommitContext) -> CommitResult:
        bridge = self._real()._activated_bridge()
        # All runs of a process share the bridge, and several commit at a time.
        bridge.load_table = partial(_load_watched, bridge)
        _OF_THREAD.watch = self._watched
        try:
            result: CommitResult = self._real().commit(batch, written, ticket)
        finally:
            del _OF_THREAD.watch
        self._failpoint.reach(Seam.ANSWERED)
        return result

    def _watched(self, table: Any) -> Any:
        """The Java table, whose operations stop between the swap and its answer."""
        operations = table.operations()
        swap = operations.commit

        def commit(base: Any, metadata: Any) -> None:
            swap(base, metadata)
            self._failpoint.reach(Seam.SWAPPED)

        operations.commit = commit
        table.operations = lambda: operations
        return table

    def _write_watched(self, batch: Batch, policy: Policy) -> Written:
        ended = threading.Event()
        watch = threading.Thread(target=self._watch, args=(self._files(), ended), daemon=True)
        watch.start()
        try:
            self._real().write(batch, policy)
            watch.join()
        finally:
            ended.set()
        raise LostAnswerError("the files are written, and nobody says so")

    def _watch(self, before: frozenset[Path], ended: threading.Event) -> None:
        while self._files() <= before:
            if ended.wait(_LOOK_SECONDS):
                return
        self._failpoint.reach(Seam.WRITING)

    def _files(self) -> frozenset[Path]:
        return frozenset(self._data_folder.rglob("*"))


class _Store:
    def __init__(self, store: Any, failpoint: Failpoint) -> None:
        self._store, self._failpoint, self._moved = store, failpoint, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def list(self, prefix: str) -> Iterator[StoredFile]:
        yield from self._store.list(prefix)
        if TRASH not in prefix:
            self._failpoint.reach(Seam.LISTED)

    def create(self, path: str, lines: Iterable[bytes]) -> None:
        self._store.create(path, lines)
        if TRASH in path:
            self._failpoint.reach(Seam.MARKED)

    def move(self, source: str, target: str) -> None:
        self._store.move(source, target)
        self._moved += 1
        if self._moved == FEW:
            self._failpoint.reach(Seam.HALF_MOVED)
