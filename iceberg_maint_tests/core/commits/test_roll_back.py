"""The plan of a roll-back: which later commits it keeps, and its statements."""

from __future__ import annotations

from dataclasses import replace

from iceberg_maint.core.commits.roll_back import RollBack, plan_roll_back
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import Snapshot, TableState
from iceberg_maint_tests.support.core.values import data, table_of


def state_of(*operations: str, table: TableId | None = None) -> TableState:
    snapshots = tuple(
        Snapshot(n, n - 1 if n > 1 else None, n, n, operation, {"engine-name": "flink"}, "")
        for n, operation in enumerate(operations, 1)
    )
    state = replace(table_of([data("a", 1)]).state, snapshot=snapshots[-1], snapshots=snapshots)
    return state if table is None else replace(state, table=table)


def planned(state: TableState, snapshot_id: int) -> RollBack:
    plan = plan_roll_back(state, snapshot_id)
    assert plan is not None
    return plan


def test_later_appends_are_picked_and_later_maintenance_is_dropped() -> None:
    plan = planned(state_of("append", "replace", "append", "replace", "append"), 2)
    assert (plan.to_snapshot_id, plan.kept, plan.dropped, plan.repeated) == (1, (3, 5), (4,), ())
    assert [s.sql for s in plan.steps if s.sql] == [
        "ALTER TABLE `lake`.`db`.`t` CREATE TAG before_roll_back_5 AS OF VERSION 5",
        "CALL `lake`.system.rollback_to_snapshot(table => '`db`.`t`', snapshot_id => 1)",
        "CALL `lake`.system.cherrypick_snapshot(table => '`db`.`t`', snapshot_id => 3)",
        "CALL `lake`.system.cherrypick_snapshot(table => '`db`.`t`', snapshot_id => 5)",
    ]


def test_appends_after_another_change_must_be_written_again() -> None:
    plan = planned(state_of("append", "replace", "append", "overwrite", "append"), 2)
    assert (plan.kept, plan.repeated) == ((3,), (4, 5))
    assert plan.steps[-2].text == (
        "Let Apache Flink write snapshot 4 (overwrite) again: Iceberg cannot apply it to other files."
    )


def test_snapshot_that_is_no_ancestor_or_has_no_parent_has_no_plan() -> None:
    state = state_of("append", "replace")
    assert plan_roll_back(state, 7) is None
    assert plan_roll_back(state, 1) is None


def test_hostile_table_name_stays_within_its_quotes() -> None:
    plan = planned(state_of("append", "replace", table=TableId("lake", ("d'b",), "t`")), 2)
    assert plan.steps[2].sql == (
        "CALL `lake`.system.rollback_to_snapshot(table => '`d\\'b`.`t```', snapshot_id => 1)"
    )
