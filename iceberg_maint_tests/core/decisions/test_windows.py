"""Budgets, order and blackout."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_maint.core.decisions.windows import (
    Budget,
    hour_budget,
    in_blackout,
    in_order,
    plan_budget,
    run_budget,
    take,
)
from iceberg_maint.core.model.reasons import PartitionDecision, Reason, Verdict
from iceberg_maint.core.policy.runs import WindowOrder, WindowsPolicy
from iceberg_maint_tests.support.core.values import due
from iceberg_maint_tests.support.examples import examples

NO_LIMIT = Budget(None, None)


def not_due(partition: str, reason: Reason, *, score: float = 0.0) -> PartitionDecision:
    verdict = Verdict.SKIP if reason is Reason.HEALTHY else Verdict.DEFER
    return replace(due(partition, score=score), verdict=verdict, reason=reason)


def ordered(
    found: Sequence[PartitionDecision],
    beside: Sequence[PartitionDecision] = (),
    either: Collection[str] = (),
    order: WindowOrder = WindowOrder.WORST_FIRST,
) -> list[PartitionDecision]:
    return in_order(found, beside, either, order, {})


def taken(sizes: list[int], run: Budget, hour: Budget = NO_LIMIT) -> list[str]:
    found = take([due(f"p={i}", size=s) for i, s in enumerate(sizes)], run, hour)
    return ["run" if d.verdict is Verdict.RUN else d.reason.value for d in found]


def test_take_passes_over_what_does_not_fit() -> None:
    assert taken([40, 70, 60, 1], Budget(None, 100)) == ["run", "run_budget", "run", "run_budget"]


def test_take_counts_partitions() -> None:
    assert taken([0, 0, 0], Budget(2, None)) == ["run", "run", "run_budget"]


def test_take_first_partition_may_exceed_what_is_left() -> None:
    assert taken([500, 1], Budget(None, 100)) == ["run", "run_budget"]
    assert taken([500], NO_LIMIT, Budget(None, 1)) == ["run"]


def test_take_nothing_left_defers_even_the_first() -> None:
    assert taken([0], Budget(None, 0)) == ["run_budget"]
    assert taken([0], NO_LIMIT, Budget(0, None)) == ["hour_budget"]
    assert taken([500], NO_LIMIT, Budget(None, 0)) == ["hour_budget"]


def test_take_names_the_cap_that_deferred() -> None:
    assert taken([5, 5, 5], Budget(None, 10), Budget(None, 5)) == ["run", "hour_budget", "hour_budget"]


def test_hour_budget_is_what_others_left() -> None:
    policy = WindowsPolicy(max_partitions_per_hour=5, max_bytes_per_hour=100)
    assert hour_budget(policy, 2, 30) == Budget(3, 70)
    assert hour_budget(policy, 9, 900) == Budget(0, 0)
    assert hour_budget(WindowsPolicy(), 9, 900) == NO_LIMIT
    assert run_budget(WindowsPolicy(max_partitions_per_run=None, max_bytes_per_run=7)) == Budget(None, 7)


def test_columnar_batch_of_less_than_128_mib_takes_a_hundred_partitions() -> None:
    most = [WindowsPolicy().partitions_per_columnar_batch((128 << 20) + more) for more in (-1, 0)]
    assert most == [100, 10]


def test_plan_budget_is_the_tighter_cap() -> None:
    assert plan_budget(Budget(None, 10), NO_LIMIT) == (10, Reason.RUN_BUDGET)
    assert plan_budget(Budget(None, 10), Budget(None, 10)) == (10, Reason.RUN_BUDGET)
    assert plan_budget(Budget(None, 10), Budget(None, 9)) == (9, Reason.HOUR_BUDGET)
    assert plan_budget(NO_LIMIT, Budget(None, 9)) == (9, Reason.HOUR_BUDGET)
    assert plan_budget(NO_LIMIT, NO_LIMIT) == (None, Reason.RUN_BUDGET)


@settings(max_examples=examples(300), deadline=None)
@given(
    sizes=st.lists(st.integers(1, 100), max_size=20),
    partitions=st.one_of(st.none(), st.integers(0, 10)),
    size=st.one_of(st.none(), st.integers(0, 300)),
    hour=st.one_of(st.none(), st.integers(0, 300)),
)
def test_take_never_exceeds_a_budget_but_by_the_first(
    sizes: list[int], partitions: int | None, size: int | None, hour: int | None
) -> None:
    found = taken(sizes, Budget(partitions, size), Budget(None, hour))
    chosen = [s for s, d in zip(sizes, found, strict=True) if d == "run"]
    assert partitions is None or len(chosen) <= partitions
    for cap in (size, hour):
        assert cap is None or sum(chosen) <= cap or (len(chosen) == 1 and cap > 0)


def test_order_worst_first_is_by_score_then_key() -> None:
    found = ordered([due("p=c", score=1), due("p=b", score=3), due("p=a", score=1)])
    assert [d.partition for d in found] == ["p=b", "p=a", "p=c"]


def test_order_oldest_first_is_by_last_change_unknown_before_all() -> None:
    changed = {"p=a": 30, "p=b": 10, "p=c": 10}
    oldest = WindowOrder.OLDEST_FIRST
    found = [due(p, score=9) for p in ("p=a", "p=c", "p=b", "p=d")]
    assert [d.partition for d in in_order(found, (), (), oldest, changed)] == ["p=d", "p=b", "p=c", "p=a"]


def test_order_goes_by_the_worse_of_both_operations_scores() -> None:
    beside = [due("p=a", score=9), due("p=b", score=2), not_due("p=c", Reason.HEALTHY, score=99)]
    found = ordered([due("p=a", score=1), due("p=b", score=3), due("p=c", score=4)], beside)
    assert [d.partition for d in found] == ["p=a", "p=c", "p=b"]


@pytest.mark.parametrize("order", list(WindowOrder))
@pytest.mark.parametrize("reason", [Reason.BACK_OFF, Reason.QUARANTINED])
def test_order_puts_last_what_may_be_left_to_an_operation_that_holds_it(
    reason: Reason, order: WindowOrder
) -> None:
    found = [due("p=a", score=9), due("p=b", score=8), due("p=c", score=1)]
    beside = [not_due(p, reason, score=9) for p in ("p=a", "p=b")]
    assert [d.partition for d in ordered(found, beside, {"p=a"}, order)] == ["p=b", "p=c", "p=a"]


def test_order_leaves_out_what_is_not_due() -> None:
    assert ordered([not_due("p=a", Reason.HEALTHY, score=9)]) == []


@pytest.mark.parametrize(
    ("window", "clock", "inside"),
    [
        ("08:00-18:00", "07:59", False),
        ("08:00-18:00", "08:00", True),
        ("08:00-18:00", "17:59", True),
        ("08:00-18:00", "18:00", False),
        ("22:00-06:00", "21:59", False),
        ("22:00-06:00", "22:00", True),
        ("22:00-06:00", "00:00", True),
        ("22:00-06:00", "05:59", True),
        ("22:00-06:00", "06:00", False),
        ("00:00-24:00", "23:59", True),
        ("12:00-12:00", "12:00", False),
    ],
)
def test_blackout_is_half_open_and_may_cross_midnight(window: str, clock: str, inside: bool) -> None:
    hours, minutes = clock.split(":")
    found = in_blackout(["03:00-03:01", window], int(hours) * 60 + int(minutes))
    assert found == (window if inside else None)


def test_blackout_of_no_windows_is_never() -> None:
    assert in_blackout((), 0) is None


def test_budget_holds_exactly_what_is_left() -> None:
    budget = Budget(3, 100)
    assert budget.holds(100, partitions=3)
    assert not budget.holds(101, partitions=1)
    assert not budget.holds(1, partitions=4)
    assert budget.less(60, partitions=2) == Budget(1, 40)
    assert Budget(None, None).less(60, partitions=2).holds(1 << 60, partitions=10**6)
