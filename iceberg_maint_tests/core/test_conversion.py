"""Plans over equality deletes: who takes a partition, what a conversion holds, what is dropped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from iceberg_maint.catalog.fake import FakeTable
from iceberg_maint.core.ids import Operation
from iceberg_maint.core.memory import MemoryNeed
from iceberg_maint.core.partition import PartitionSpec
from iceberg_maint.core.plan import Batch, FileGroup, InputFile, Leftover, Plan
from iceberg_maint.core.planner import plan_operation
from iceberg_maint.core.policy import EqualityDeletesPolicy, Policy, Route, WindowsPolicy
from iceberg_maint.core.reasons import Decision, Reason, Verdict
from iceberg_maint.core.state import FileKind, LiveFile
from iceberg_maint_tests.core.build import (
    BY_P,
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

EQ, POS = FileKind.EQUALITY_DELETES, FileKind.POSITION_DELETES
CONVERT, REWRITE = Operation.CONVERT_EQUALITY_DELETES, Operation.REWRITE_DATA_FILES
EVOLVED = (BY_P, PartitionSpec(1, ()))


def equality(path: str, seq: int = 5, **keys: object) -> LiveFile:
    return delete(path, EQ, seq=seq, **keys)  # type: ignore[arg-type]


def everywhere(path: str, seq: int = 5, **keys: object) -> LiveFile:
    return equality(path, seq, partition="__all__", spec_id=1, **keys)


def healthy(path: str, *, partition: str = "p=a", **keys: object) -> LiveFile:
    return data(path, 100, partition=partition, **keys)  # type: ignore[arg-type]


def cleaning(
    windows: WindowsPolicy | None = None, rewrite: Mapping[str, object] | None = None, **equality_keys: object
) -> Policy:
    """Every equality delete is old enough."""
    return policy_of(
        rewrite_policy(equality_delete_max_age_seconds=0, **(rewrite or {})),
        windows,
        equality_deletes=EqualityDeletesPolicy(**equality_keys),  # type: ignore[arg-type]
    )


def plans(
    files: Iterable[LiveFile] | FakeTable,
    policy: Policy | None = None,
    *,
    requested: frozenset[str] | None = None,
    force: bool = False,
) -> tuple[Plan, Plan]:
    """Both operations' plans of one state."""
    table = files if isinstance(files, FakeTable) else table_of(files)
    policy = policy or cleaning()
    decisions = [
        decide(table, policy, operation=o, requested=requested, force=force) for o in (CONVERT, REWRITE)
    ]
    converted, rewritten = (plan(table, policy, d) for d in decisions)
    return converted, rewritten


def inputs(found: Plan) -> list[list[str]]:
    return [sorted(b.paths()) for b in found.batches]


def dropped(batch: Batch) -> list[str]:
    return [d.path for d in batch.equality_deletes if d.drop]


def kept(batch: Batch) -> list[str]:
    return [d.path for d in batch.equality_deletes if not d.drop]


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
    assert batch.memory == MemoryNeed(keys=9, key_bytes=8, rows=50)
    assert (batch.reasons, batch.partitions) == ((Reason.EQUALITY_DELETES,), ("p=a",))
    assert (batch.snapshot_id, batch.snapshot_sequence_number) == (1005, 5)
    assert converted.leftovers == ()
    assert rewritten.batches == ()
    assert rewritten.leftovers == (Leftover("p=a", Reason.OTHER_OPERATION, 2, 200),)


def test_small_files_under_deletes_are_rewritten_without_the_rows() -> None:
    converted, rewritten = plans([*small(6), healthy("young", seq=9), equality("e", records=3)])
    assert converted.batches == ()
    assert converted.leftovers == (Leftover("p=a", Reason.OTHER_OPERATION, 6, 60),)
    (batch,) = rewritten.batches
    assert sorted(batch.paths()) == [f"p=a/{i}" for i in range(6)]
    assert (batch.strategy, dropped(batch), kept(batch)) == ("anti-join", ["e"], [])
    assert batch.memory == MemoryNeed(keys=3, key_bytes=8, rows=60)


def test_one_healthy_file_beside_small_ones_is_worth_a_conversion() -> None:
    """Then the small ones are rewritten; rewriting all would move the healthy one's bytes too."""
    converted, rewritten = plans([*small(6), healthy("a"), equality("e")])
    assert inputs(converted) == [["a", *(f"p=a/{i}" for i in range(6))]]
    assert rewritten.batches == ()


@pytest.mark.parametrize(("healthy_bytes", "converts"), [(7, True), (6, False)])
def test_route_weighs_healthy_bytes_against_one_more_commit(healthy_bytes: int, converts: bool) -> None:
    """Each is read and written by a rewrite; the commit counts as an eighth of a file of 100."""
    policy = cleaning(rewrite={"small_file_ratio": 0.0, "max_files": 6, "max_files_average_bytes": 5})
    converted, rewritten = plans([*small(6, 4), data("healthy", healthy_bytes), equality("e")], policy)
    assert (bool(converted.batches), bool(rewritten.batches)) == (converts, not converts)


@pytest.mark.parametrize(("delete_bytes", "converts"), [(13, True), (12, False)])
def test_route_counts_the_deletes_for_every_batch_that_reads_them(delete_bytes: int, converts: bool) -> None:
    files = [*small(30, 10), replace(equality("e"), size_bytes=delete_bytes)]
    table = table_of([replace(f, record_count=1) for f in files])
    table = FakeTable(replace(table.state, key_types={1: "int"}), table.live_files)
    windows = WindowsPolicy(max_bytes_per_batch=150)
    converted, rewritten = plans(table, cleaning(windows, rewrite={"max_group_bytes": 150}))
    assert (len(converted.batches), len(rewritten.batches)) == ((1, 0) if converts else (0, 2))


@pytest.mark.parametrize(
    ("keys", "by"),
    [
        ({"route": Route.CONVERT}, CONVERT),
        ({"route": Route.REWRITE}, REWRITE),
        ({"streaming_consumers": ("reader",)}, REWRITE),
        ({"route": Route.CONVERT, "streaming_consumers": ("reader",)}, REWRITE),
    ],
)
@pytest.mark.parametrize("files", [[healthy("a")], small(6)], ids=["healthy", "small"])
def test_policy_and_streaming_consumers_choose_the_route(
    files: list[LiveFile], keys: Mapping[str, object], by: Operation
) -> None:
    converted, rewritten = plans([*files, equality("e")], cleaning(**keys))  # type: ignore[arg-type]
    expected = [sorted(f.path for f in files)]
    assert inputs(converted) == (expected if by is CONVERT else [])
    assert inputs(rewritten) == (expected if by is REWRITE else [])


def test_conversion_is_the_route_where_rewriting_is_disabled() -> None:
    converted, _ = plans([*small(6), equality("e")], cleaning(rewrite={"enabled": False}))
    assert [dropped(b) for b in converted.batches] == [["e"]]


def test_young_deletes_are_applied_only_by_a_rewrite_that_is_due_anyway() -> None:
    files = [*small(6), healthy("a"), equality("e")]
    converted, rewritten = plans(files, policy_of())
    assert (converted.batches, converted.leftovers) == ((), ())
    (batch,) = rewritten.batches
    assert sorted(batch.paths()) == [f"p=a/{i}" for i in range(6)]
    assert (batch.strategy, dropped(batch), kept(batch)) == ("anti-join", [], ["e"])
    assert plans([healthy("a"), equality("e")], policy_of())[1].batches == ()


def test_native_and_anti_join_groups_are_never_in_one_batch() -> None:
    files = [
        *small(6),
        equality("e"),
        *small(6, partition="p=b"),
        *small(6, partition="p=c"),
        equality("f", partition="p=c"),
    ]
    _, rewritten = plans(files)
    assert [(b.strategy, b.partitions, dropped(b)) for b in rewritten.batches] == [
        ("anti-join", ("p=a", "p=c"), ["e", "f"]),
        ("native", ("p=b",), []),
    ]
    assert rewritten.batches[1].memory is None


def test_delete_spread_over_two_batches_is_dropped_by_neither() -> None:
    windows = WindowsPolicy(max_bytes_per_batch=60)
    _, rewritten = plans([*small(12), equality("e")], cleaning(windows, route=Route.REWRITE))
    assert [(len(b.paths()), kept(b), dropped(b)) for b in rewritten.batches] == [(6, ["e"], [])] * 2


def partitions(count: int) -> list[LiveFile]:
    """Partitions of one healthy file under one delete: 80 bytes of keys and 5 of the delete."""
    keys = [f"p={i}" for i in range(count)]
    return [f for k in keys for f in (healthy(k, partition=k), equality(f"{k}/e", partition=k))]


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


@pytest.mark.parametrize(
    "windows",
    [
        WindowsPolicy(max_files_per_batch=2),
        WindowsPolicy(max_bytes_per_batch=244, max_bytes_per_run=None),
        WindowsPolicy(max_bytes_per_hour=244),
    ],
)
def test_conversion_above_a_batch_is_rewritten_piece_by_piece_unless_policy_insists(
    windows: WindowsPolicy,
) -> None:
    files = [*(healthy(f"{i}") for i in range(3)), equality("e")]
    converted, rewritten = plans(files, cleaning(windows))
    assert converted.leftovers == (Leftover("p=a", Reason.OTHER_OPERATION, 3, 300),)
    assert all(b.strategy == "anti-join" for b in rewritten.batches)
    assert {len(paths) for paths in inputs(rewritten)} <= {1, 2}
    insisted, _ = plans(files, cleaning(windows, route=Route.CONVERT))
    assert (insisted.batches, insisted.leftovers) == ((), (Leftover("p=a", Reason.FILE_TOO_LARGE, 3, 300),))


def global_table(*more: LiveFile) -> FakeTable:
    """Three partitions under a delete of an unpartitioned spec, one of them by it alone."""
    files = [
        healthy("a"),
        healthy("b", partition="p=b"),
        healthy("all", partition="__all__", spec_id=1),
        healthy("young", partition="p=c", seq=9),
        equality("e", 7),
        everywhere("g5", 5),
        everywhere("g3", 3),
    ]
    return table_of([*files, *more], specs=EVOLVED)


def test_deletes_of_an_unpartitioned_spec_are_converted_everywhere_in_one_batch() -> None:
    converted, rewritten = plans(global_table())
    (batch,) = converted.batches
    assert sorted(batch.paths()) == ["a", "all", "b"]
    assert dropped(batch) == ["g3", "g5", "e"]
    assert [(g.partition, g.spec_id) for g in batch.groups] == [("p=a", 0), ("p=b", 0), ("__all__", 1)]
    assert {left.reason for left in rewritten.leftovers} == {Reason.OTHER_OPERATION}
    assert rewritten.batches == ()


def test_request_for_part_of_their_partitions_is_a_rewrite_that_drops_what_nobody_else_needs() -> None:
    converted, rewritten = plans(global_table(), requested=frozenset({"p=a", "p=b"}))
    assert converted.batches == ()
    assert {left.reason for left in converted.leftovers} == {Reason.OTHER_OPERATION}
    (batch,) = rewritten.batches
    assert (sorted(batch.paths()), dropped(batch), kept(batch)) == (["a", "b"], ["e"], ["g3", "g5"])
    whole = frozenset({"p=a", "p=b", "__all__"})
    assert inputs(plans(global_table(), requested=whole)[0]) == [["a", "all", "b"]]


@pytest.mark.parametrize(
    "windows", [WindowsPolicy(max_partitions_per_batch=2), WindowsPolicy(max_files_per_batch=2)]
)
def test_deletes_everywhere_that_no_batch_can_hold_are_rewritten(windows: WindowsPolicy) -> None:
    converted, rewritten = plans(global_table(), cleaning(windows))
    assert converted.batches == ()
    assert sorted(p for paths in inputs(rewritten) for p in paths) == ["a", "all", "b"]
    assert all(b.strategy == "anti-join" for b in rewritten.batches)


def test_deletes_everywhere_with_a_partition_that_is_held_are_rewritten_without_it() -> None:
    table = global_table()
    policy = cleaning(WindowsPolicy(cold_after_seconds=5))
    table = FakeTable(
        table.state, table.live_files, {"b": NOW_MS, "a": 0, "all": 0, "e": 0, "g3": 0, "g5": 0}
    )
    converted, rewritten = plans(table, policy)
    assert converted.batches == ()
    assert inputs(rewritten) == [["a", "all"]]
    assert Leftover("p=b", Reason.HOT, bytes=100) in rewritten.leftovers


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


@pytest.mark.parametrize("cap", ["max_partitions_per_run", "max_partitions_per_hour"])
def test_deletes_on_more_partitions_than_a_run_may_touch_are_rewritten(cap: str) -> None:
    converted, rewritten = plans(global_table(), cleaning(WindowsPolicy(**{cap: 2})))  # type: ignore[arg-type]
    assert converted.batches == ()
    assert len(rewritten.batches[0].partitions) == 2


def test_young_partition_under_deletes_everywhere_is_left_to_the_conversion_too() -> None:
    """The deletes of p=b are younger than the threshold and its files small: the conversion takes
    it along, so the rewrite must not."""
    files = [
        healthy("a"),
        *small(6, partition="p=b", seq=4),
        everywhere("old", 2),
        everywhere("new", 5),
    ]
    table = table_of(files, specs=EVOLVED)
    policy = policy_of(rewrite_policy(equality_delete_max_age_seconds=2))
    converted, rewritten = plans(table, policy)
    assert inputs(converted) == [["a", *(f"p=b/{i}" for i in range(6))]]
    assert rewritten.batches == ()
    assert Leftover("p=b", Reason.OTHER_OPERATION, 6, 60) in rewritten.leftovers


@pytest.mark.parametrize("keys", [(), (2,), (1, 2), (9,)])
def test_keys_that_cannot_be_matched_leave_their_files_alone(keys: tuple[int, ...]) -> None:
    files = [*small(6), *small(6, partition="p=b", seq=9), equality("e", keys=keys)]
    table = table_of([*files, *(data(f"y{i}", 10, seq=9) for i in range(6)), equality("ok", 4)])
    table = FakeTable(replace(table.state, key_types={1: "long", 2: "double"}), table.live_files)
    converted, rewritten = plans(table)
    assert converted.batches == ()
    assert converted.leftovers == (Leftover("p=a", Reason.UNSUPPORTED_KEY, 6, 60),)
    assert inputs(rewritten) == [sorted([*(f"p=b/{i}" for i in range(6)), *(f"y{i}" for i in range(6))])]
    assert rewritten.batches[0].strategy == "native"
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
    assert (batch.groups, dropped(batch), batch.memory) == ((), ["x", "y"], None)
    assert batch.partitions == ("p=a", "p=b")
    assert (rewritten.batches, rewritten.leftovers) == ((), ())
    assert plans(files, policy_of())[0].batches == ()
    streaming = cleaning(streaming_consumers=("reader",))
    assert [dropped(b) for b in plans(files, streaming)[0].batches] == [["x", "y"]]


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
    assert plan_operation(CONVERT, table.state, narrow, seen, policy, 100).batches == ()


def test_forced_partition_under_young_deletes_is_rewritten_whole() -> None:
    files = [healthy("a"), healthy("b", seq=9), equality("e")]
    converted, rewritten = plans(files, policy_of(), force=True)
    assert converted.leftovers == (Leftover("p=a", Reason.OTHER_OPERATION, 1, 100),)
    assert inputs(rewritten) == [["a", "b"]]
    insisted = policy_of(equality_deletes=EqualityDeletesPolicy(route=Route.CONVERT))
    converted, rewritten = plans(files, insisted, force=True)
    assert inputs(converted) == [["a"]]
    assert rewritten.leftovers == (Leftover("p=a", Reason.OTHER_OPERATION, 1, 100),)


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
            operation, table.state, decision, table.live_files, policy, 100, memory_correction=1.7
        )
        assert [b.memory.correction for b in found.batches if b.memory] == [1.7]


def test_deferred_partitions_are_leftovers_of_the_conversion() -> None:
    converted, _ = plans(partitions(2), cleaning(WindowsPolicy(max_partitions_per_run=1)))
    assert converted.leftovers == (Leftover("p=1", Reason.RUN_BUDGET, bytes=105),)
    assert [p.verdict for p in decide(table_of(partitions(1)), cleaning(), operation=CONVERT).due()] == [
        Verdict.RUN
    ]
