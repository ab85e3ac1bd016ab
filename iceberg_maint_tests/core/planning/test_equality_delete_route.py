"""Which operation takes files under equality deletes, and what a rewrite of them carries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from iceberg_maint.core.decisions.history import PartitionHistory, TableHistory
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import LiveFile
from iceberg_maint.core.planning.batch_memory import MemoryNeed
from iceberg_maint.core.planning.equality_delete_route import file_cost_bytes
from iceberg_maint.core.planning.plan import Leftover
from iceberg_maint.core.policy.data import EqualityDeletesPolicy, RewriteStrategy, Route
from iceberg_maint.core.policy.runs import WindowsPolicy
from iceberg_maint_tests.support.core.equality_deletes import (
    CONVERT,
    EVOLVED,
    REWRITE,
    cleaning,
    dropped,
    equality,
    everywhere,
    global_table,
    healthy,
    inputs,
    kept,
    plans,
    plans_in_order,
)
from iceberg_maint_tests.support.core.values import (
    NOW_MS,
    data,
    decide,
    plan,
    policy_of,
    rewrite_policy,
    small,
    table_of,
)
from iceberg_maint_tests.support.fakes.catalog import FakeTable


def test_small_files_under_deletes_are_rewritten_without_the_rows() -> None:
    converted, rewritten = plans([*small(6), healthy("young", seq=9), equality("e", records=3)])
    assert converted.batches == ()
    assert converted.leftovers == (Leftover("p=a", Reason.OTHER_OPERATION, 6, 60),)
    (batch,) = rewritten.batches
    assert sorted(batch.paths()) == [f"p=a/{i}" for i in range(6)]
    assert (batch.strategy, dropped(batch), kept(batch)) == ("columnar", ["e"], [])
    assert batch.work.memory == MemoryNeed(keys=3, key_bytes=8, rows=60)


def test_one_healthy_file_beside_small_ones_is_worth_a_conversion() -> None:
    """Then the small ones are rewritten; rewriting all would move the healthy one's bytes too."""
    converted, rewritten = plans([*small(6), healthy("a"), equality("e")])
    assert inputs(converted) == [["a", *(f"p=a/{i}" for i in range(6))]]
    assert rewritten.batches == ()


@pytest.mark.parametrize(("healthy_bytes", "converts"), [(7, True), (6, False)])
def test_route_weighs_healthy_bytes_against_one_more_commit(healthy_bytes: int, converts: bool) -> None:
    """Each is read and written by a rewrite; the commit counts as an eighth of a file of 100. Beside `native`, the files
    of a conversion cost nothing more."""
    policy = cleaning(
        rewrite={
            "small_file_ratio": 0.0,
            "max_files": 6,
            "max_files_average_bytes": 5,
            "strategy": RewriteStrategy.NATIVE,
        }
    )
    converted, rewritten = plans([*small(6, 4), data("healthy", healthy_bytes), equality("e")], policy)
    assert (bool(converted.batches), bool(rewritten.batches)) == (converts, not converts)


@pytest.mark.parametrize(
    ("small_files", "by"), [(34, CONVERT), (35, REWRITE)], ids=["thirty-four", "thirty-five"]
)
def test_one_more_small_file_that_is_not_due_makes_the_rewrite_of_a_healthy_one_cheaper(
    small_files: int, by: Operation
) -> None:
    """A conversion costs 25 for each file: 875 for 35 and 900 for 36. Else a rewrite costs 200 and 20 for each small one."""
    converted, rewritten = plans(
        [*small(small_files), healthy("a"), equality("e")], cleaning(rewrite={"min_input_files": 100})
    )
    assert (len(converted.batches), len(rewritten.batches)) == ((1, 0) if by is CONVERT else (0, 1))


def test_small_files_that_are_due_cost_a_conversion_nothing() -> None:
    """They are rewritten before it."""
    converted, _ = plans([*small(50), healthy("a"), equality("e")])
    assert len(converted.batches) == 1


@pytest.mark.parametrize(
    ("target_bytes", "cost"), [(100, 25), (2 * 1024**2, 512 * 1024), (512 * 1024**2, 512 * 1024)]
)
def test_file_of_a_conversion_costs_half_a_mebibyte_and_a_quarter_of_a_small_target(
    target_bytes: int, cost: int
) -> None:
    assert file_cost_bytes(target_bytes) == cost


@pytest.mark.parametrize(("delete_bytes", "converts"), [(13, True), (12, False)])
def test_route_counts_the_deletes_for_every_batch_that_reads_them(delete_bytes: int, converts: bool) -> None:
    files = [*small(30, 10), replace(equality("e"), size_bytes=delete_bytes)]
    table = table_of([replace(f, record_count=1) for f in files])
    table = FakeTable(replace(table.state, key_types={1: "int"}), table.live_files)
    windows = WindowsPolicy(max_bytes_per_batch=150)
    rewrite = {"max_group_bytes": 150, "strategy": RewriteStrategy.NATIVE}
    converted, rewritten = plans(table, cleaning(windows, rewrite=rewrite))
    assert (len(converted.batches), len(rewritten.batches)) == ((1, 0) if converts else (0, 2))


@pytest.mark.parametrize(
    ("keys", "by"),
    [
        ({"route": Route.CONVERT}, CONVERT),
        ({"route": Route.REWRITE}, REWRITE),
    ],
)
@pytest.mark.parametrize("files", [[healthy("a")], small(6)], ids=["healthy", "small"])
def test_policy_chooses_the_route(files: list[LiveFile], keys: Mapping[str, object], by: Operation) -> None:
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
    assert (batch.strategy, dropped(batch), kept(batch)) == ("columnar", [], ["e"])
    assert plans([healthy("a"), equality("e")], policy_of())[1].batches == ()


def test_groups_with_and_without_equality_deletes_are_never_in_one_batch() -> None:
    files = [
        *small(6),
        equality("e"),
        *small(6, partition="p=b"),
        *small(6, partition="p=c"),
        equality("f", partition="p=c"),
    ]
    _, rewritten = plans(files)
    assert [(b.strategy, b.partitions, dropped(b)) for b in rewritten.batches] == [
        ("columnar", ("p=a", "p=c"), ["e", "f"]),
        ("columnar", ("p=b",), []),
    ]
    assert rewritten.batches[1].work.memory is None


def test_delete_spread_over_two_batches_is_dropped_by_neither() -> None:
    windows = WindowsPolicy(max_bytes_per_batch=60)
    _, rewritten = plans([*small(12), equality("e")], cleaning(windows, route=Route.REWRITE))
    assert [(len(b.paths()), kept(b), dropped(b)) for b in rewritten.batches] == [(6, ["e"], [])] * 2


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
    assert all(b.work.memory is not None for b in rewritten.batches)
    assert {len(paths) for paths in inputs(rewritten)} <= {1, 2}
    insisted, _ = plans(files, cleaning(windows, route=Route.CONVERT))
    assert (insisted.batches, insisted.leftovers) == ((), (Leftover("p=a", Reason.FILE_TOO_LARGE, 3, 300),))


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
    assert all(b.work.memory is not None for b in rewritten.batches)


def test_deletes_everywhere_with_a_partition_that_is_held_are_rewritten_without_it() -> None:
    table = global_table()
    policy = cleaning(WindowsPolicy(cold_after_seconds=5))
    table = FakeTable(
        table.state, table.live_files, {"b": NOW_MS, "a": 0, "all": 0, "e": 0, "g3": 0, "g5": 0}
    )
    converted, rewritten = plans(table, policy)
    assert converted.batches == ()
    assert inputs(rewritten) == [["a", "all"]]
    assert Leftover("p=b", Reason.RECENTLY_CHANGED, bytes=100) in rewritten.leftovers


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


def test_forced_partition_under_young_deletes_is_rewritten_whole() -> None:
    files = [healthy("a"), healthy("b", seq=9), equality("e")]
    converted, rewritten = plans(files, policy_of(), force=True)
    assert converted.leftovers == (Leftover("p=a", Reason.OTHER_OPERATION, 1, 100),)
    assert inputs(rewritten) == [["a", "b"]]
    insisted = policy_of(equality_deletes=EqualityDeletesPolicy(route=Route.CONVERT))
    converted, rewritten = plans(files, insisted, force=True)
    assert inputs(converted) == [["a"]]
    assert rewritten.leftovers == (Leftover("p=a", Reason.OTHER_OPERATION, 1, 100),)


def test_young_partition_is_rewritten_while_the_conversion_of_its_unit_is_not_in_a_window() -> None:
    """p=b takes all of the rewrite's window and p=x, to be rewritten, all of the conversion's: if p=b
    waited for the conversion that p=a asks for, nothing would ever be done."""
    files = [
        healthy("a"),
        *small(30, partition="p=b", seq=9),
        data("b", 10, partition="p=b", seq=4),
        *small(28, partition="p=x", seq=6),
        *(equality(f"x{i}", 7, partition="p=x") for i in range(3)),
        everywhere("old", 2),
        everywhere("young", 5),
    ]
    old = ("old", "x0", "x1", "x2")
    table = table_of(files, specs=EVOLVED)
    table = FakeTable(table.state, table.live_files, {f.path: 0 if f.path in old else NOW_MS for f in files})
    rewrite = rewrite_policy(equality_delete_max_age_seconds=4)
    converted, rewritten = plans(table, policy_of(rewrite, WindowsPolicy(max_bytes_per_run=250)))
    assert {left.partition: left.reason for left in converted.leftovers} == {
        "p=x": Reason.OTHER_OPERATION,
        "p=a": Reason.RUN_BUDGET,
    }
    assert converted.batches == ()
    assert {b.partitions for b in rewritten.batches} == {("p=b",)}
    converted, rewritten = plans(table, policy_of(rewrite, WindowsPolicy(max_bytes_per_run=500)))
    assert ["a", "b"] in inputs(converted)
    assert Leftover("p=b", Reason.OTHER_OPERATION, 1, 10) in rewritten.leftovers


@pytest.mark.parametrize("by", [CONVERT, REWRITE])
@pytest.mark.parametrize("held", [{"quarantined": True}, {"not_before_ms": NOW_MS + 1}])
def test_unit_of_which_either_operation_holds_a_partition_is_rewritten_without_it(
    by: Operation, held: Mapping[str, object]
) -> None:
    """Were it asked by each operation of its own, each could leave the others of the unit to the other."""
    table, policy = global_table(), cleaning()
    past = {o: TableHistory() for o in (CONVERT, REWRITE)}
    past[by] = TableHistory(partitions={"p=b": PartitionHistory(**held)})  # type: ignore[arg-type]
    decisions = [
        decide(table, policy, past[o], beside=past[other], operation=o)
        for o, other in ((CONVERT, REWRITE), (REWRITE, CONVERT))
    ]
    converted, rewritten = (plan(table, policy, d) for d in decisions)
    assert converted.batches == ()
    assert {"a", "all"} <= {p for paths in inputs(rewritten) for p in paths}


def test_small_files_of_a_conversion_are_rewritten_before_it() -> None:
    """The rewrite keeps the deletes, which the healthy file needs. The conversion has the healthy file alone."""
    files = [
        *small(6),
        healthy("a"),
        equality("e"),
        *small(6, partition="p=b"),
        healthy("b", partition="p=b"),
    ]
    rewritten, converted = plans_in_order([*files, equality("f", 5, partition="p=b")])
    assert inputs(rewritten) == [[*(f"p=a/{i}" for i in range(6)), *(f"p=b/{i}" for i in range(6))]]
    assert [(b.strategy, dropped(b), kept(b)) for b in rewritten.batches] == [("columnar", [], ["e", "f"])]
    assert set(rewritten.leftovers) == {
        Leftover("p=a", Reason.OTHER_OPERATION, 1, 100),
        Leftover("p=b", Reason.OTHER_OPERATION, 1, 100),
    }
    assert inputs(converted) == [["a", "b"]]
    assert [dropped(b) for b in converted.batches] == [["e", "f"]]


def test_delete_that_only_small_files_need_goes_with_their_rewrite_before_a_conversion() -> None:
    files = [*small(6, seq=3), healthy("a", seq=1), healthy("b", seq=6), equality("e", 2), equality("f", 5)]
    rewritten, converted = plans_in_order([*files, equality("late", 7)])
    assert [(dropped(b), kept(b)) for b in rewritten.batches] == [([], ["f", "late"])]
    assert [(sorted(b.paths()), dropped(b)) for b in converted.batches] == [(["a", "b"], ["e", "f", "late"])]
    rewritten, converted = plans_in_order(
        [*small(6), healthy("a", seq=6), equality("e", 5), equality("f", 7)]
    )
    assert [(dropped(b), kept(b)) for b in rewritten.batches] == [(["e"], ["f"])]
    assert [(sorted(b.paths()), dropped(b)) for b in converted.batches] == [(["a"], ["f"])]


def test_small_files_that_columnar_does_not_write_wait_for_the_conversion() -> None:
    orc = [replace(f, file_format="orc") for f in small(6)]
    rewritten, converted = plans_in_order([*orc, healthy("a"), equality("e")])
    assert (rewritten.batches, inputs(converted)) == ((), [["a", *(f"p=a/{i}" for i in range(6))]])
    assert rewritten.leftovers == (Leftover("p=a", Reason.OTHER_OPERATION, 7, 160),)


def test_small_files_beyond_the_budget_of_the_rewrite_are_converted_with_the_healthy_ones() -> None:
    """They do not keep the conversion waiting."""
    table = table_of([*small(12), healthy("a"), equality("e")])
    table = FakeTable(replace(table.state, key_types={1: "boolean"}), table.live_files)
    rewritten, converted = plans_in_order(table, cleaning(WindowsPolicy(max_bytes_per_run=250)))
    assert [len(b.paths()) for b in rewritten.batches] == [12]
    rewritten, converted = plans_in_order(
        table, cleaning(WindowsPolicy(max_bytes_per_run=100), route=Route.CONVERT)
    )
    (batch,) = rewritten.batches
    assert (len(batch.paths()), dropped(batch), kept(batch)) == (10, [], ["e"])
    assert [(len(b.paths()), "a" in b.paths(), dropped(b)) for b in converted.batches] == [(3, True, ["e"])]


def test_deletes_everywhere_are_applied_to_small_files_of_every_partition_before_the_conversion() -> None:
    table = global_table(*small(6, partition="p=b"), *small(6, partition="p=d", seq=2))
    rewritten, converted = plans_in_order(table)
    assert [sorted(b.partitions) for b in rewritten.batches] == [["p=b", "p=d"]]
    assert [(dropped(b), sorted(kept(b))) for b in rewritten.batches] == [([], ["g3", "g5"])]
    assert inputs(converted) == [["a", "all", "b"]]
    assert [sorted(dropped(b)) for b in converted.batches] == [["e", "g3", "g5"]]
