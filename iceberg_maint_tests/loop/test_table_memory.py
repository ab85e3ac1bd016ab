"""What a run remembers of its table, and what is read of a table before its run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from iceberg_maint.core.model.ids import DATA_OPERATIONS
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.errors import UnreadableTableError
from iceberg_maint.loop import plan_batches
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.maintain import Request, maintain
from iceberg_maint.loop.plan_batches import PreparedTable
from iceberg_maint_tests.support.loop.world import TABLE, Process, World

REQUEST = Request("run-1", operations=DATA_OPERATIONS)


class CountedWorld(World):
    """A world that notes the snapshots that are measured, and the partitions whose files are read."""

    def __init__(self, partitions: str = "ab") -> None:
        super().__init__(partitions)
        self.measured: list[int] = []
        self.read: list[set[str]] = []
        self.before_measure: Callable[[], object] = lambda: None
        measure, live_files = self.catalog.measure, self.catalog.live_files

        def note_measure(state: Any, policy: Any) -> Any:
            self.before_measure()
            self.measured.append(state.snapshot.snapshot_id)
            return measure(state, policy)

        def note_files(state: Any, partitions: Any) -> Any:
            self.read.append(set(partitions))
            return live_files(state, partitions)

        self.catalog.measure = note_measure  # type: ignore[method-assign]
        self.catalog.live_files = note_files  # type: ignore[method-assign]

    def head(self) -> int:
        assert self.now.state.snapshot is not None
        return self.now.state.snapshot.snapshot_id

    def maintain(self, context: Context) -> list[OutcomeStatus]:
        return [o.outcome for o in maintain(TABLE, REQUEST, context)]


IMPROVED = [OutcomeStatus.NO_OP, OutcomeStatus.IMPROVED, OutcomeStatus.NO_OP]


def test_run_measures_each_snapshot_once() -> None:
    world = CountedWorld("ab")
    first = world.head()
    assert world.maintain(world.context(Process())) == IMPROVED
    assert world.measured == [first, first + 1, first + 2]
    assert world.read == [{"p=a", "p=b"}]


def test_next_run_reads_the_table_again() -> None:
    world = CountedWorld("a")
    world.maintain(world.context(Process()))
    world.measured.clear()
    world.maintain(world.context(Process()))
    assert world.measured == [world.head()]


def test_prepared_table_is_read_before_its_run_only() -> None:
    world = CountedWorld("ab")
    first = world.head()
    prepared = PreparedTable(TABLE, REQUEST, world.context(Process())).context()
    assert (world.measured, world.read) == ([first], [{"p=a", "p=b"}])
    assert world.writes == []
    assert world.maintain(prepared) == IMPROVED
    assert world.measured == [first, first + 1, first + 2]
    assert world.read == [{"p=a", "p=b"}]


def test_prepared_table_that_changes_before_its_run_is_read_again() -> None:
    world = CountedWorld("a")
    prepared = PreparedTable(TABLE, REQUEST, world.context(Process())).context()
    world.append("p=b")
    assert world.maintain(prepared) == IMPROVED
    assert world.read == [{"p=a"}, {"p=a", "p=b"}]
    assert world.writes == [("p=a",), ("p=b",)]


def test_prepared_table_is_decided_again_with_what_the_ledger_has_by_then() -> None:
    world = CountedWorld("a")
    prepared = PreparedTable(TABLE, REQUEST, world.context(Process())).context()
    world.ledger.registry.pause(str(TABLE), "migration")
    assert world.maintain(prepared) == [OutcomeStatus.NO_OP] * 3
    assert world.writes == []


def test_table_that_cannot_be_prepared_fails_in_its_own_run() -> None:
    world = CountedWorld("a")

    def fail() -> None:
        raise UnreadableTableError("ICM-101", "manifest m1 is missing.")

    world.before_measure = fail
    prepared = PreparedTable(TABLE, REQUEST, world.context(Process())).context()
    with pytest.raises(UnreadableTableError, match="manifest m1 is missing"):
        world.maintain(prepared)


def test_table_that_takes_too_long_to_read_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_batches, "_WAIT_SECONDS", 0.01)
    world, answers = CountedWorld("a"), threading.Event()
    world.before_measure = lambda: answers.wait(60)
    context = world.context(Process())
    prepared = PreparedTable(TABLE, REQUEST, context)
    assert prepared.context() is context
    answers.set()
    assert world.maintain(context) == IMPROVED
