"""Plans of conversions: what a batch holds, its caps, what is dropped, what is left over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.model.reasons import Decision, Reason, Verdict
from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint.core.planning.batch_memory import MemoryNeed
from iceberg_maint.core.planning.file_groups import BatchLimits, PlanInputs
from iceberg_maint.core.planning.plan import Leftover
from iceberg_maint.core.planning.planner import partitions_to_read, plan_operation
from iceberg_maint.core.planning.work import FileGroup, InputFile
from iceberg_maint.core.policy.data import RewriteStrategy, Route
from iceberg_maint.core.policy.runs import WindowsPolicy
from iceberg_maint_tests.support.core.equality_deletes import (
    CONVERT,
    EQ,
    REWRITE,
    cleaning,
    dropped,
    equality,
    everywhere,
    global_table,
    healthy,
    inputs,
    partitions,
    plans,
)
from iceberg_maint_tests.support.core.values import (
    NOW_MS,
    data,
    decide,
    delete,
    plan,
    policy_of,
    rewrite_policy,
    small,
    table_of,
)
from iceberg_maint_tests.support.fakes.catalog import FakeTable, measure_files

POS = FileKind.POSITION_DELETES


def test_healthy_files_under_deletes_are_converted_and_left_by_the_rewrite() -> None:
    files = [
        healthy("a", records=20),
        healthy("b", records=30, seq=4),
        healthy("young", seq=5),
        delete("p", POS, of="a"),
        equality("e3", 3, records=7),
        equality("e5", 5, records=2),
    ]
    converted, rewritten = plans(files)
    (batch,) = converted.batches
    assert batch.groups == (
        FileGroup("p=a", 0, 0, (InputFile("a", 100, 20, 1, ("p",)), InputFile("b", 100, 30, 4)), 0),
    )
    assert (batch.operation, batch.strategy) == ("convert_equality_deletes", "convert")
    assert [(d.path, d.drop) for d in batch.equality_deletes] == [("e3", True), ("e5", True)]
    assert batch.work.memory == MemoryNeed(keys=9, key_bytes=8, rows=50)
    assert (batch.reasons, batch.partitions) == ((Reason.EQUALITY_DELETES,), ("p=a",))
    assert (batch.snapshot_id, batch.snapshot_sequence_number) == (1005, 5)
    assert converted.leftovers == ()
    assert rewritten.batches == ()
    assert rewritten.leftovers == (Leftover("p=a", Reason.OTHER_OPERATION, 2, 200),)


@pytest.mark.parametrize(
    ("windows", "batches"),
    [
        (WindowsPolicy(), [5]),
        (WindowsPolicy(max_partitions_per_batch=2), [2, 2, 1]),
        (WindowsPolicy(max_files_per_batch=3), [3, 2]),
        (WindowsPolicy(max_bytes_per_batch=169), [1, 1, 1, 1, 1]),
        (WindowsPolicy(max_bytes_per_batch=170), [2, 2, 1]),
    ],
)
def test_conversion_batches_hold_their_caps_in_key_work(windows: WindowsPolicy, batches: list[int]) -> None:
    converted, _ = plans(partitions(5), cleaning(windows))
    assert [len(b.partitions) for b in converted.batches] == batches
    assert {b.input_bytes for b in converted.batches} == {85 * n for n in batches}


def test_conversion_of_partitions_that_work_alone_shares_no_batch() -> None:
    table, policy = table_of(partitions(5)), cleaning()
    decision = decide(table, policy, operation=CONVERT)
    found = plan(table, policy, decision, alone=frozenset({"p=1", "p=2"}))
    assert [b.partitions for b in found.batches] == [("p=0",), ("p=1",), ("p=2",), ("p=3", "p=4")]


@pytest.mark.parametrize(
    ("windows", "strategy", "small_bytes", "batches"),
    [
        (WindowsPolicy(), RewriteStrategy.COLUMNAR, 10_000, [25]),
        (WindowsPolicy(), RewriteStrategy.COLUMNAR, 12 * 85 + 1, [12, 12, 1]),
        (WindowsPolicy(), RewriteStrategy.NATIVE, 10_000, [10, 10, 5]),
        (WindowsPolicy(max_partitions_per_batch=20), RewriteStrategy.COLUMNAR, 10_000, [20, 5]),
    ],
)
def test_small_batch_of_conversions_holds_more_partitions_where_arrow_finds_the_rows(
    monkeypatch: pytest.MonkeyPatch,
    windows: WindowsPolicy,
    strategy: RewriteStrategy,
    small_bytes: int,
    batches: list[int],
) -> None:
    monkeypatch.setattr("iceberg_maint.core.policy.runs.SMALL_BATCH_BYTES", small_bytes)
    converted, _ = plans(partitions(25), cleaning(windows, {"strategy": strategy}))
    assert [len(b.partitions) for b in converted.batches] == batches


def test_units_of_keys_of_other_widths_are_not_in_one_batch() -> None:
    """The widest would count for all files, and the caps would not hold."""
    table = table_of(
        [*partitions(2), healthy("c", partition="p=c"), equality("wide", partition="p=c", keys=(1, 2))]
    )
    table = FakeTable(replace(table.state, key_types={1: "long", 2: "int"}), table.live_files)
    converted, _ = plans(table)
    assert [(b.partitions, b.input_bytes) for b in converted.batches] == [
        (("p=0", "p=1"), 170),
        (("p=c",), 105),
    ]


def test_conversion_holds_the_run_budget_in_key_work() -> None:
    converted, _ = plans(partitions(3), cleaning(WindowsPolicy(max_bytes_per_run=600)))
    assert [b.partitions for b in converted.batches] == [("p=0", "p=1", "p=2")]
    table, policy = table_of(partitions(3)), cleaning()
    decision = replace(decide(table, policy, operation=CONVERT), budget_bytes=169)
    found = plan(table, policy, decision)
    assert [b.partitions for b in found.batches] == [("p=0",)]
    assert found.leftovers == tuple(Leftover(k, Reason.RUN_BUDGET, 1, 100) for k in ("p=1", "p=2"))


def test_deletes_of_an_unpartitioned_spec_are_converted_everywhere_in_one_batch() -> None:
    converted, rewritten = plans(global_table())
    (batch,) = converted.batches
    assert sorted(batch.paths()) == ["a", "all", "b"]
    assert dropped(batch) == ["g3", "g5", "e"]
    assert [(g.partition, g.spec_id) for g in batch.groups] == [("p=a", 0), ("p=b", 0), ("__all__", 1)]
    assert {left.reason for left in rewritten.leftovers} == {Reason.OTHER_OPERATION}
    assert rewritten.batches == ()


def test_partition_deferred_for_its_estimate_goes_along_when_the_unit_fits() -> None:
    """The decision takes each key for 16 bytes; the plan knows them as 8. Its files are 300 bytes."""
    policy = cleaning(WindowsPolicy(max_bytes_per_run=256, max_bytes_per_batch=256))
    table = global_table()
    decision = decide(table, policy, operation=CONVERT)
    assert [p.verdict for p in decision.partitions].count(Verdict.RUN) < 3
    found = plan(table, policy, decision)
    assert inputs(found) == [["a", "all", "b"]]
    assert found.input_bytes == 255
    assert found.leftovers == ()


def test_deletes_everywhere_wait_for_room_for_all_of_them() -> None:
    table, policy = global_table(), cleaning()
    decision = decide(table, policy, operation=CONVERT)
    for left in ({"budget_partitions": 2}, {"budget_bytes": 254}):
        found = plan(table, policy, replace(decision, **left))  # type: ignore[arg-type]
        assert found.batches == ()
        assert {left.reason for left in found.leftovers} == {Reason.RUN_BUDGET}


@pytest.mark.parametrize("keys", [(), (2,), (1, 2), (9,)])
def test_keys_that_cannot_be_matched_leave_their_files_alone(keys: tuple[int, ...]) -> None:
    files = [*small(6), *small(6, partition="p=b", seq=9), equality("e", keys=keys)]
    table = table_of([*files, *(data(f"y{i}", 10, seq=9) for i in range(6)), equality("ok", 4)])
    table = FakeTable(replace(table.state, key_types={1: "long", 2: "double"}), table.live_files)
    converted, rewritten = plans(table)
    assert converted.batches == ()
    assert converted.leftovers == (Leftover("p=a", Reason.UNSUPPORTED_KEY, 6, 60),)
    assert inputs(rewritten) == [sorted([*(f"p=b/{i}" for i in range(6)), *(f"y{i}" for i in range(6))])]
    assert rewritten.batches[0].strategy == "columnar"
    assert rewritten.leftovers == (Leftover("p=a", Reason.UNSUPPORTED_KEY, 6, 60),)


def test_keys_of_one_partition_that_cannot_be_matched_do_not_hold_the_others() -> None:
    converted, rewritten = plans(global_table(equality("bad", 8, keys=(2,))))
    assert converted.batches == ()
    assert {(left.partition, left.reason) for left in converted.leftovers} == {
        ("p=a", Reason.UNSUPPORTED_KEY),
        ("p=b", Reason.OTHER_OPERATION),
        ("__all__", Reason.OTHER_OPERATION),
    }
    assert inputs(rewritten) == [["all", "b"]]
    assert rewritten.leftovers == (Leftover("p=a", Reason.UNSUPPORTED_KEY, 1, 100),)


def test_old_dangling_deletes_of_all_partitions_are_dropped_by_one_batch_without_groups() -> None:
    files = [
        healthy("a", seq=9),
        healthy("b", partition="p=b", seq=9),
        equality("x"),
        equality("y", partition="p=b"),
    ]
    converted, rewritten = plans(files)
    (batch,) = converted.batches
    assert (batch.groups, dropped(batch), batch.work.memory) == ((), ["x", "y"], None)
    assert batch.partitions == ("p=a", "p=b")
    assert (rewritten.batches, rewritten.leftovers) == ((), ())
    assert plans(files, policy_of())[0].batches == ()
    rewritten_only = cleaning(route=Route.REWRITE)
    assert [dropped(b) for b in plans(files, rewritten_only)[0].batches] == [["x", "y"]]


def test_dangling_deletes_go_apart_from_conversions_which_need_not_read_them() -> None:
    files = [healthy("a", seq=3), equality("x", 2, keys=(9,)), equality("e", 5)]
    assert [(len(b.groups), dropped(b)) for b in plans(files)[0].batches] == [(1, ["e"]), (0, ["x"])]


def test_young_dangling_deletes_of_a_due_partition_wait_for_an_old_one_of_any() -> None:
    files = [healthy("a", seq=3), equality("old", 4), equality("young", 3)]
    other = [healthy("c", partition="p=b", seq=4), equality("oldest", 2, partition="p=b")]
    policy = policy_of(rewrite_policy(equality_delete_max_age_seconds=4))
    times = {"old": NOW_MS - 4000, "oldest": NOW_MS - 4000, "young": NOW_MS}
    for more, found in (([], [["old"]]), (other, [["old"], ["oldest", "young"]])):
        table = table_of([*files, *more])
        table = FakeTable(table.state, table.live_files, times)
        converted, _ = plans(table, policy)
        assert [sorted(dropped(b)) for b in converted.batches] == found


def test_dangling_deletes_go_also_where_the_files_are_rewritten() -> None:
    files = [*small(6, seq=3), equality("x", 2), equality("e", 5)]
    converted, rewritten = plans(files)
    assert [(b.groups, dropped(b)) for b in converted.batches] == [((), ["x"])]
    assert [dropped(b) for b in rewritten.batches] == [["e"]]


def test_delete_that_looks_dangling_because_files_were_not_read_stays() -> None:
    """Health has counted over the whole table; a plan that sees less must not drop."""
    table, policy = global_table(everywhere("g1", 1)), cleaning()
    decision = decide(table, policy, operation=CONVERT)
    only = tuple(p for p in decision.partitions if p.partition == "__all__")
    narrow = replace(decision, partitions=only)
    seen = [f for f in table.live_files if f.partition == "__all__" and f.kind is EQ]
    assert plan_operation(PlanInputs(table.state, narrow, seen, policy, 100)).batches == ()


def test_conversion_with_nothing_due_reads_no_partition() -> None:
    table, policy = global_table(everywhere("g1", 1)), cleaning()
    decision = decide(table, policy, operation=CONVERT)
    measured = measure_files(table, policy.rewrite_data_files)
    assert "__all__" in partitions_to_read(decision, measured)
    assert partitions_to_read(replace(decision, partitions=()), measured) == frozenset()


def test_conversion_of_a_partition_without_files_under_deletes_is_no_gain() -> None:
    """The deletes went between the measurement and the plan."""
    table, policy = table_of([healthy("a"), equality("e")]), cleaning()
    decision = decide(table, policy, operation=CONVERT)
    gone = FakeTable(table.state, tuple(f for f in table.live_files if f.kind is not EQ))
    found = plan(gone, policy, decision)
    assert (found.batches, found.leftovers) == ((), (Leftover("p=a", Reason.NO_GAIN),))


def test_learned_memory_correction_is_part_of_the_need() -> None:
    for files, operation in (([healthy("a")], CONVERT), (small(6), REWRITE)):
        table, policy = table_of([*files, equality("e")]), cleaning()
        decision: Decision = decide(table, policy, operation=operation)
        found = plan_operation(
            PlanInputs(
                table.state, decision, table.live_files, policy, 100, BatchLimits(memory_correction=1.7)
            )
        )
        assert [b.work.memory.correction for b in found.batches if b.work.memory] == [1.7]


def test_deferred_partitions_are_leftovers_of_the_conversion() -> None:
    converted, _ = plans(partitions(2), cleaning(WindowsPolicy(max_partitions_per_run=1)))
    assert converted.leftovers == (Leftover("p=1", Reason.RUN_BUDGET, bytes=105),)
    assert [p.verdict for p in decide(table_of(partitions(1)), cleaning(), operation=CONVERT).due()] == [
        Verdict.RUN
    ]


def test_unit_that_cannot_be_converted_is_unsupported_where_rewriting_is_disabled() -> None:
    """`other_operation` never backs off: the partition would be asked for at every run."""
    table = global_table(equality("float", 7, keys=(3,)))
    table = FakeTable(replace(table.state, key_types={1: "long", 3: "double"}), table.live_files)
    converted, _ = plans(table, cleaning(rewrite={"enabled": False}))
    assert converted.batches == ()
    assert {left.partition: left.reason for left in converted.leftovers} == dict.fromkeys(
        ("__all__", "p=a", "p=b"), Reason.UNSUPPORTED_KEY
    )
