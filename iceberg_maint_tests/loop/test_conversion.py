"""Conversions and rewrites in one run of the loop: order, outcomes, stored work."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation
from iceberg_maint.core.model.reasons import Reason, Verdict
from iceberg_maint.core.model.table_state import FileKind, LiveFile
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.policy.data import RewriteStrategy, Route
from iceberg_maint.loop.assess import assess
from iceberg_maint.loop.fleet.stored_decisions import decide_stored
from iceberg_maint.loop.maintain import OperationEnded
from iceberg_maint.loop.plan_batches import make_plans
from iceberg_maint_tests.support.core.values import data, delete
from iceberg_maint_tests.support.loop.world import POLICY, TABLE, Killed, Process, World


def captured_changes(partition: str = "c", *, partitions: str = "a") -> World:
    """`partitions` are in need of a rewrite, the other of a conversion: its files are of a good size."""
    rewrite = replace(POLICY.rewrite_data_files, equality_delete_max_age_seconds=0)
    world = World(partitions, replace(POLICY, rewrite_data_files=rewrite))
    number = world.now.state.last_sequence_number
    world.commit(
        (), [data(f"{partition}/{i}", 100, partition=f"p={partition}", seq=number) for i in range(3)]
    )
    world.commit((), [equality_delete(f"{partition}/e", partition, number + 2)])
    return world


def equality_delete(path: str, partition: str, number: int) -> LiveFile:
    made = delete(path, FileKind.EQUALITY_DELETES, partition=f"p={partition}", seq=number)
    return replace(made, equality_ids=(1,))


def kinds(world: World, partition: str) -> list[FileKind]:
    return [f.kind for f in world.now.live_files if f.partition == f"p={partition}"]


def test_conversion_comes_first_and_each_operation_ends_with_its_own_outcome() -> None:
    world = captured_changes()
    world.run()
    assert world.writes == [("p=c",), ("p=a",)]
    ended = [e.outcome for e in world.events if isinstance(e, OperationEnded)]
    assert [(o.operation, o.outcome, o.reason) for o in ended] == [
        (Operation.CONVERT_EQUALITY_DELETES, OutcomeStatus.IMPROVED, Reason.EQUALITY_DELETES),
        (Operation.REWRITE_DATA_FILES, OutcomeStatus.IMPROVED, Reason.SMALL_FILES),
        (Operation.REWRITE_POSITION_DELETE_FILES, OutcomeStatus.NO_OP, Reason.HEALTHY),
    ]
    assert kinds(world, "c") == [FileKind.DATA] * 3 + [FileKind.POSITION_DELETES]
    assert kinds(world, "a") == [FileKind.DATA]


def test_conversion_has_no_second_effect() -> None:
    world = captured_changes()
    world.run()
    again = world.run()
    assert (again.outcome, again.batches) == (OutcomeStatus.NO_OP, ())
    assert world.our_commits() == 2


def test_operation_asked_for_alone_is_done_alone() -> None:
    world = captured_changes()
    world.run(operations=(Operation.REWRITE_DATA_FILES,))
    assert world.writes == [("p=a",)]
    world = captured_changes()
    found = world.run(operations=(Operation.CONVERT_EQUALITY_DELETES,))
    assert world.writes == [("p=c",)]
    assert found.operation == Operation.CONVERT_EQUALITY_DELETES


def test_batches_are_counted_over_the_operations() -> None:
    world = captured_changes()
    found = world.run(max_batches=1)
    assert [b.partitions for b in found.batches] == [("p=c",)]
    assert {p: r for p, _, r in found.partitions}["p=a"] is Reason.RUN_BUDGET


def test_unknown_conversion_stops_the_operations_after_it() -> None:
    world = captured_changes()
    world.unknown = "lost"
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.UNKNOWN, Reason.UNKNOWN_COMMIT)
    assert world.writes == [("p=c",)]


def test_record_is_kept_for_each_operation_that_did_something() -> None:
    world = captured_changes()
    world.run()
    records = world.ledger.records.newest(None, 10)
    assert [r.operation for r in records] == [str(o) for o in reversed(DATA_OPERATIONS[:2])]


def test_conversion_left_open_is_not_resumed_once_the_route_is_a_rewrite() -> None:
    world = captured_changes()
    with pytest.raises(Killed):
        world.run(Process(dies="after:write"))
    world.expire_leases()
    deletes = replace(world.policy.equality_deletes, route=Route.REWRITE)
    world.policy = replace(world.policy, equality_deletes=deletes)
    world.run()
    assert kinds(world, "c") == [FileKind.DATA]
    assert world.open_work() == (0, 0)


def test_windows_are_taken_knowing_what_the_other_operation_holds() -> None:
    """p=c is worse than p=d, but may be left to the rewrite, which has it in quarantine."""
    world = captured_changes()
    number = world.now.state.last_sequence_number
    world.commit(
        (), [equality_delete("c/e2", "c", number + 1), data("d/0", 100, partition="p=d", seq=number)]
    )
    world.commit((), [equality_delete("d/e", "d", number + 2)])
    world.policy = replace(world.policy, windows=replace(world.policy.windows, max_partitions_per_run=1))
    uuid = world.now.state.uuid
    held = {"p=c": PartitionHistory(quarantined=True)}
    world.ledger.health.set_partition_history(uuid, Operation.REWRITE_DATA_FILES, held)
    seen = assess(TABLE, world.context(Process()))
    assert [p.partition for p in seen.decisions[0].due()] == ["p=d"]
    _, stored = decide_stored(seen.measured, world.policy, world.ledger, world.clock.now_ms())
    assert {p.partition: p.verdict for p in stored.partitions}["p=d"] is Verdict.RUN


def changes_beside_small_files() -> World:
    """A healthy file and six small ones under an equality delete: a conversion that a rewrite precedes."""
    world = captured_changes(partitions="")
    add_changes(world)
    return world


def add_changes(world: World) -> None:
    number = world.now.state.last_sequence_number + 1
    added = [data(f"c/{number}-{i}", 10, partition="p=c", seq=number) for i in range(6)]
    world.commit((), added)
    world.commit((), [equality_delete(f"c/e{number}", "c", number + 1)])


def steps(world: World) -> list[tuple[Operation, OutcomeStatus, list[int]]]:
    """The operations that ended, with the files of their batches."""
    return [
        (e.outcome.operation, e.outcome.outcome, [b.input_files for b in e.outcome.batches])
        for e in world.events
        if isinstance(e, OperationEnded)
    ]


CONVERTED, REWRITTEN, MERGED = DATA_OPERATIONS


def test_small_files_are_rewritten_before_the_conversion_of_the_others() -> None:
    world = changes_beside_small_files()
    world.run()
    assert steps(world) == [
        (REWRITTEN, OutcomeStatus.IMPROVED, [6]),
        (CONVERTED, OutcomeStatus.IMPROVED, [3]),
        (MERGED, OutcomeStatus.NO_OP, []),
    ]
    assert sorted(kinds(world, "c")) == [FileKind.DATA] * 4 + [FileKind.POSITION_DELETES]


def test_plan_of_a_run_that_rewrites_first_is_what_the_run_does() -> None:
    world = changes_beside_small_files()
    context = world.context(Process())
    assessment = assess(TABLE, context).in_run_order()
    planned = [(p.operation, [b.input_files for b in p.batches]) for p in make_plans(assessment, context)]
    assert planned == [(REWRITTEN, [6]), (CONVERTED, [3]), (MERGED, [])]
    world.run()
    assert [(operation, files) for operation, _, files in steps(world)] == planned


def test_native_strategy_converts_first() -> None:
    world = changes_beside_small_files()
    rewrite = replace(world.policy.rewrite_data_files, strategy=RewriteStrategy.NATIVE)
    world.policy = replace(world.policy, rewrite_data_files=rewrite)
    world.run()
    assert [(o, files) for o, _, files in steps(world)] == [(CONVERTED, [9]), (REWRITTEN, [6]), (MERGED, [])]


@pytest.mark.parametrize("operation", [CONVERTED, REWRITTEN])
def test_operation_alone_leaves_small_files_to_nothing_else(operation: Operation) -> None:
    world = changes_beside_small_files()
    world.run(operations=(operation,))
    assert [(o, files) for o, _, files in steps(world)] == [
        (operation, [9] if operation is CONVERTED else [])
    ]


def test_conversion_comes_first_once_after_a_run_that_only_rewrote() -> None:
    """Runs of one batch under a busy writer: without a turn of its own the conversion would never come."""
    world = changes_beside_small_files()
    done = []
    for _ in range(4):
        world.events.clear()
        world.run(max_batches=1)
        done += [operation for operation, _, files in steps(world) if files]
        # The database dates outcomes by the clock of this machine.
        add_changes(world)
    assert done == [REWRITTEN, CONVERTED, REWRITTEN, CONVERTED]


def test_rewrite_has_one_turn_within_the_budget_of_a_run() -> None:
    world = changes_beside_small_files()
    windows = replace(world.policy.windows, max_partitions_per_run=2)
    world.policy = replace(world.policy, windows=windows)
    for partition in "def":
        world.append(f"p={partition}", 5)
    world.run()
    assert [(o, files) for o, _, files in steps(world)] == [
        (REWRITTEN, [6, 5]),
        (CONVERTED, [3]),
        (MERGED, []),
    ]
    world.events.clear()
    world.run()
    assert [(o, files) for o, _, files in steps(world) if files] == [(REWRITTEN, [5, 5])]


def test_rewrite_that_finds_nothing_before_the_conversion_comes_after_it() -> None:
    """Their rows cannot be written by `columnar`."""
    world = changes_beside_small_files()
    world.commit(
        [f.path for f in world.now.live_files if f.size_bytes == 10 and f.kind is FileKind.DATA],
        [
            replace(f, file_format="orc")
            for f in world.now.live_files
            if f.size_bytes == 10 and f.kind is FileKind.DATA
        ],
    )
    world.run()
    assert [(o, files) for o, _, files in steps(world)] == [(CONVERTED, [9]), (REWRITTEN, [6]), (MERGED, [])]


@pytest.mark.parametrize("dies", ["after:write", "before:swap", "after:swap", "after:record_outcome"])
@pytest.mark.parametrize("spares", [0, 1])
def test_run_killed_in_either_step_is_finished_by_the_next(dies: str, spares: int) -> None:
    world = changes_beside_small_files()
    with suppress(Killed):
        world.run(Process(dies=dies, spares=spares))
    world.expire_leases()
    world.run()
    assert sorted(kinds(world, "c")) == [FileKind.DATA] * 4 + [FileKind.POSITION_DELETES]
    assert world.open_work() == (0, 0)
