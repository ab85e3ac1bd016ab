"""The budget of the fleet: order, room, waits and the bound on waiting."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.decisions.fleet_budget import (
    DueWork,
    FleetBudget,
    Spend,
    after_blackout,
    allot,
    has_room,
    in_priority,
)
from iceberg_maint.core.decisions.history import FleetWait
from iceberg_maint.core.decisions.priority import (
    Experience,
    Load,
    Prediction,
    Speed,
    conflict_probability,
    in_run,
    predict,
)
from iceberg_maint.core.decisions.windows import BatchPart
from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.model.ids import Operation, PartitionKey
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.policy.runs import WindowsPolicy

NOW = 1_700_000_000_000
HOUR = 3_600_000
BUDGET = FleetBudget(period_seconds=3600, max_bytes=100, max_wait_seconds=86_400)


def work(name: str, gain: int, size: int, *, waited_ms: int = 0, **keys: float) -> DueWork:
    conflict, weight = keys.get("conflict", 0.0), keys.get("weight", 1.0)
    prediction = Prediction(gain, 0, 0, conflict, Load(size, 1.0, 1.0))
    return DueWork((name, "p"), prediction, NOW - waited_ms, weight)


def names(keys: object) -> list[str]:
    return [uuid for uuid, _ in keys]  # type: ignore[attr-defined]


def test_order_is_gain_per_cost() -> None:
    due = [work("large", 50, 100), work("cheap", 20, 10), work("poor", 1, 100)]
    assert [w.key[0] for w in in_priority(due, BUDGET, NOW)] == ["cheap", "large", "poor"]


def test_order_counts_read_weight_and_conflicts() -> None:
    due = [work("plain", 10, 10), work("read", 10, 10, weight=3.0), work("hot", 10, 10, conflict=0.9)]
    assert [w.key[0] for w in in_priority(due, BUDGET, NOW)] == ["read", "plain", "hot"]


def test_work_that_waited_half_of_the_bound_goes_first_the_longest_first() -> None:
    due = [
        work("best", 90, 1),
        work("late", 1, 90, waited_ms=12 * HOUR),
        work("later", 1, 90, waited_ms=13 * HOUR),
        work("young", 1, 90, waited_ms=12 * HOUR - 1),
    ]
    assert [w.key[0] for w in in_priority(due, BUDGET, NOW)] == ["later", "late", "best", "young"]


def test_allotment_holds_the_budget_and_smaller_work_goes_ahead() -> None:
    allotted = allot([work("a", 90, 60), work("b", 50, 60), work("c", 1, 40)], BUDGET, (), NOW)
    assert names(allotted.granted) == ["a", "c"]
    assert allotted.waits == {("b", "p"): FleetWait(NOW, NOW + HOUR)}


def test_late_work_keeps_the_rest_of_the_budget_until_one_of_its_batches_fits() -> None:
    spends = [Spend(NOW - 1000, Load(70, 1.0, 1.0))]
    late, small = work("late", 1, 60, waited_ms=20 * HOUR), work("small", 90, 1)
    allotted = allot([late, small], BUDGET, spends, NOW)
    assert names(allotted.granted) == []
    assert {uuid for uuid, _ in allotted.waits} == {"late", "small"}
    three_batches = replace(late, prediction=Prediction(1, 0, 0, 0.0, Load(60, 3.0, 3.0)))
    assert names(allot([three_batches, small], BUDGET, spends, NOW).granted) == ["late"]


def test_expected_time_is_when_earlier_batches_leave_the_period() -> None:
    spends = [Spend(NOW - 50 * 60_000, Load(60, 1.0, 1.0)), Spend(NOW - 10 * 60_000, Load(40, 1.0, 1.0))]
    allotted = allot([work("a", 9, 50), work("b", 5, 50), work("c", 1, 100)], BUDGET, spends, NOW)
    assert names(allotted.granted) == []
    minutes = {k[0]: (w.until_ms - NOW) / 60_000 for k, w in allotted.waits.items()}
    assert minutes == {"a": 10, "b": 50, "c": 60}


def test_unspent_budget_holds_work_larger_than_it() -> None:
    assert names(allot([work("huge", 1, 1000)], BUDGET, (), NOW).granted) == ["huge"]
    assert has_room(BUDGET, (), Load(1000, 1.0, 1.0), NOW)
    assert not has_room(BUDGET, [Spend(NOW - 1, Load(1, 0.0, 1.0))], Load(100, 1.0, 1.0), NOW)
    assert has_room(BUDGET, [Spend(NOW - HOUR, Load(100, 0.0, 1.0))], Load(100, 1.0, 1.0), NOW)


@pytest.mark.parametrize(
    ("budget", "held"),
    [
        (FleetBudget(max_commits=3), 2),
        (FleetBudget(max_cpu_seconds=2.5), 1),
        (FleetBudget(max_cpu_seconds=2.5, max_commits=3, max_bytes=10), 0),
    ],
)
def test_every_cap_holds(budget: FleetBudget, held: int) -> None:
    spends = [Spend(NOW - 1, Load(1, 1.0, 1.0))]
    due = [work(str(n), 1, 10) for n in range(5)]
    assert len(allot(due, budget, spends, NOW).granted) == held


def test_cpu_budget_charges_measured_cpu_seconds_and_else_the_time() -> None:
    budget = FleetBudget(max_cpu_seconds=100.0)
    spends = [Spend(NOW - 1, Load(1, 50.0, 1.0, 30.0)), Spend(NOW - 1, Load(1, 40.0, 1.0))]
    assert has_room(budget, spends, Load(1, 900.0, 1.0, 30.0), NOW)
    assert not has_room(budget, spends, Load(1, 0.0, 1.0, 30.1), NOW)
    assert not has_room(budget, spends, Load(1, 30.1, 1.0), NOW)
    prediction = Prediction(1, 0, 0, 0.0, Load(1, 900.0, 1.0, 30.0))
    assert names(allot([DueWork(("a", "p"), prediction, NOW)], budget, spends, NOW).granted) == ["a"]


def test_blackout_grants_nothing_and_waits_for_its_end() -> None:
    midnight = NOW - NOW % 86_400_000
    budget = replace(BUDGET, blackout_hours=("06:00-20:00",))
    at = midnight + 7 * HOUR
    allotted = allot([work("a", 1, 1)], budget, (), at)
    assert allotted.granted == ()
    assert allotted.waits[("a", "p")].until_ms == midnight + 20 * HOUR
    assert not has_room(budget, (), Load(), at)
    assert after_blackout(budget, midnight + 21 * HOUR + 5) == midnight + 21 * HOUR + 5


def test_prediction_counts_files_deletes_and_cost() -> None:
    health = PartitionHealth(
        data_files=12, data_bytes=1200, small_files=10, small_bytes=200, position_delete_files=3
    )
    prediction = predict(health, Policy(), 1000, 200, NOW, Experience(speed=Speed(100.0)))
    assert (prediction.files_removed, prediction.delete_files_removed, prediction.gain) == (9, 3, 12.0)
    assert prediction.load == Load(200, 2.0 + 10 * 0.01 + 2.0, 1.0)
    measured = predict(health, Policy(), 1000, 200, NOW, Experience(speed=Speed(100.0, 50.0)))
    assert in_run(measured, 3.0).load == Load(200, 7.1, 1.0, pytest.approx(9.1))


def test_appends_are_no_conflicts_and_quiet_partitions_are_safer() -> None:
    def health(seconds: int, deletes: int) -> PartitionHealth:
        return PartitionHealth(position_delete_files=deletes, last_change_ms=NOW - seconds * 1000)

    assert conflict_probability(health(1, 0), 60, NOW, 0) == 0
    assert conflict_probability(health(60, 1), 60, NOW, 0) == pytest.approx(0.632, abs=0.001)
    assert conflict_probability(health(86_400, 1), 60, NOW, 0) < 0.001
    assert conflict_probability(health(86_400, 1), 60, NOW, 3) == 0.75


def part(files: int = 1, size: int = 10, *, under_deletes: bool = False, **windows: int) -> BatchPart:
    kind = (Operation.REWRITE_DATA_FILES, under_deletes, False)
    return BatchPart(kind, files, size, WindowsPolicy(**windows), is_columnar=False)


def works_of(table: str, parts: list[BatchPart], batches: float = 1.0) -> list[DueWork]:
    prediction = Prediction(5, 0, 0, 0.0, Load(10, 1.0, batches))
    return [
        DueWork((table, PartitionKey(f"p={n:03}")), prediction, NOW, part=one) for n, one in enumerate(parts)
    ]


@pytest.mark.parametrize(
    ("parts", "granted"),
    [
        ([part()] * 30, 20),
        ([part(max_partitions_per_batch=1)] * 30, 2),
        ([part(files=3, max_files_per_batch=10)] * 30, 6),
        ([part(size=6, max_bytes_per_batch=10)] * 30, 2),
        ([part()] * 3 + [part(under_deletes=True)] * 3 + [part()] * 30, 13),
    ],
)
def test_partitions_that_share_a_batch_count_as_one_commit(parts: list[BatchPart], granted: int) -> None:
    allotted = allot(works_of("t", parts), FleetBudget(max_commits=2), (), NOW)
    assert (len(allotted.granted), len(allotted.waits)) == (granted, len(parts) - granted)


def test_columnar_batch_of_few_bytes_holds_a_hundred_partitions() -> None:
    small = replace(part(), is_columnar=True)
    assert len(allot(works_of("t", [small] * 150), FleetBudget(max_commits=1), (), NOW).granted) == 100


def test_partitions_of_two_tables_share_no_batch() -> None:
    due = [*works_of("t", [part()] * 3), *works_of("u", [part()] * 3)]
    allotted = allot(due, FleetBudget(max_commits=1), (), NOW)
    assert [key[0] for key in allotted.granted] == ["t", "t", "t"]


def test_partition_of_several_batches_shares_none() -> None:
    due = works_of("t", [part()] * 3, 2.0)
    assert len(allot(due, FleetBudget(max_commits=5), (), NOW).granted) == 2


def test_partitions_that_wait_for_one_batch_are_expected_at_one_time() -> None:
    spends = [Spend(NOW - n * 60_000, Load(1, 1.0, 1.0)) for n in (10, 20, 30)]
    allotted = allot(works_of("t", [part()] * 25), FleetBudget(max_commits=3), spends, NOW)
    minutes = [(w.until_ms - NOW) // 60_000 for w in allotted.waits.values()]
    assert minutes == [30] * 10 + [40] * 10 + [50] * 5
