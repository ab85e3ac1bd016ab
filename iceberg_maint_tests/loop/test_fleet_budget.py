"""The budget of the fleet on the loop: what is spent comes from the ledger, and what waits has its reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import pytest

from iceberg_maint.core.decisions.fleet_budget import FleetBudget, Spend
from iceberg_maint.core.decisions.history import FleetWait
from iceberg_maint.core.decisions.priority import Load, Speed
from iceberg_maint.core.model.ids import Operation, PartitionKey, TableId
from iceberg_maint.core.model.reasons import Reason, Verdict
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.policy.runs import WindowsPolicy
from iceberg_maint.errors import ConfigurationError
from iceberg_maint.loop.assess import Demand, assess
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.fleet.budget import allotment, divide_budget, in_budget_order, measured_speed
from iceberg_maint.loop.maintain import Request, maintain
from iceberg_maint.report.explain import Evidence, explain
from iceberg_maint.report.formatting import moment
from iceberg_maint_tests.support.context import changed
from iceberg_maint_tests.support.loop.world import POLICY, TABLE, Killed, Process, World

ONE_BATCH = replace(POLICY, windows=WindowsPolicy(max_partitions_per_batch=1))


def context_of(world: World, budget: FleetBudget | None) -> Context:
    return changed(world.context(Process()), fleet_budget=budget)


def test_budget_of_one_commit_stops_the_run_and_the_next_one() -> None:
    world = World("abc", ONE_BATCH)
    context = context_of(world, FleetBudget(max_commits=1))
    first, second = (maintain(TABLE, Request(run), context) for run in ("r1", "r2"))
    assert [len([b for o in outcomes for b in o.batches]) for outcomes in (first, second)] == [1, 0]
    rewrite = next(o for o in first if o.operation is Operation.REWRITE_DATA_FILES)
    waiting = {p: r for p, status, r in rewrite.partitions if status is OutcomeStatus.NO_OP}
    assert waiting == {"p=b": Reason.FLEET_BUDGET, "p=c": Reason.FLEET_BUDGET}
    assert len(world.ledger.records.fleet_spends(3600)) == 1
    assert world.our_commits() == 1


def test_partition_that_waits_has_its_reason_and_time_and_a_request_waives_it() -> None:
    world = World("ab")
    context = context_of(world, FleetBudget(max_commits=1))
    uuid = assess(TABLE, context).state.uuid
    until_ms = world.ledger.registry.now_ms() + 3_600_000
    world.ledger.registry.replace_fleet_waits({(uuid, "p=a"): FleetWait(5, until_ms)})
    decision = assess(TABLE, context).decision
    held = {p.partition: (p.verdict, p.reason, p.until_ms) for p in decision.partitions}
    assert held["p=a"] == (Verdict.DEFER, Reason.FLEET_BUDGET, until_ms)
    assert held["p=b"][:2] == (Verdict.RUN, Reason.SMALL_FILES)
    assert [p.partition for p in decision.backlog()] == ["p=b", "p=a"]
    requested = assess(TABLE, context, demand=Demand(frozenset({"p=a"}))).decision
    assert [p.partition for p in requested.due()] == ["p=a"]


def test_pass_keeps_when_the_wait_began_and_a_removed_budget_ends_it() -> None:
    world = World("abc", ONE_BATCH)
    assert assess(TABLE, context_of(world, None)).decision.verdict is Verdict.RUN
    budget = FleetBudget(max_commits=1)
    context = context_of(world, budget)
    divide_budget(context)
    first = world.ledger.registry.fleet_waits()
    assert len(first) == 2
    world.ledger.registry.replace_fleet_waits({k: replace(w, since_ms=7) for k, w in first.items()})
    again = allotment(context, budget)
    assert [p for _, p in again.granted] == ["p=b"]
    assert {p: w.since_ms == 7 for (_, p), w in again.waits.items()} == {"p=a": False, "p=c": True}
    assert in_budget_order(context, [TABLE]) == [TABLE]
    divide_budget(context_of(world, None))
    assert (world.ledger.registry.fleet_waits(), world.ledger.registry.fleet_cycle_ms()) == ({}, None)


def test_table_with_a_wrong_policy_has_no_part_of_the_budget_and_ends_no_pass() -> None:
    world = World("ab")
    context = context_of(world, FleetBudget(max_commits=1))
    assert assess(TABLE, context).decision.verdict is Verdict.RUN

    def refuse(table: TableId, properties: Mapping[str, str]) -> Policy:
        raise ConfigurationError("ICM-100", "maintenance.mode is 'off'.", "set it to act.")

    broken = changed(context, policy_for=refuse)
    assert in_budget_order(broken, [TABLE]) == [TABLE]
    assert world.ledger.registry.fleet_waits() == {}


def test_force_ignores_the_budget() -> None:
    world = World("abc", ONE_BATCH)
    context = context_of(world, FleetBudget(max_commits=1))
    outcomes = maintain(TABLE, Request("r1", force=True), context)
    assert [b.outcome for o in outcomes for b in o.batches] == [OutcomeStatus.IMPROVED] * 3


def test_prediction_is_recorded_and_the_next_batch_learns_from_it() -> None:
    world = World("abc", ONE_BATCH)
    maintain(TABLE, Request("r1"), context_of(world, None))
    batches = [b for r in world.ledger.records.newest(str(TABLE), 10) for b in r.outcome.batches]
    predicted = [b.predicted for b in batches if b.predicted is not None]
    assert [(p.output_files, b.output_files) for p, b in zip(predicted, batches, strict=True)] == [(1, 1)] * 3


def test_why_says_when_the_budget_is_expected() -> None:
    world = World("a")
    context = context_of(world, FleetBudget(max_commits=1))
    uuid = assess(TABLE, context).state.uuid
    until_ms = world.ledger.registry.now_ms() + 3_600_000
    world.ledger.registry.replace_fleet_waits({(uuid, PartitionKey("p=a")): FleetWait(5, until_ms)})
    found = assess(TABLE, context)
    now_ms = world.ledger.registry.now_ms()
    shown = explain(
        Evidence(found.decision, found.measured, found.policy, defaultdict(str), found.history, None, now_ms)
    )
    change = shown.partitions[0].change
    assert change == (
        f"the budget, expected at {moment(until_ms)}; raise fleet_budget or windows.read_weight, or at once: "
        "iceberg-maint run lake.db.t --partition p=a"
    )


def reasons(world: World, context: Context) -> dict[str, Reason]:
    return {p.partition: p.reason for p in assess(TABLE, context).decision.partitions}


def test_measured_cpu_seconds_of_a_batch_are_spent() -> None:
    world = World("a", ONE_BATCH)
    readings = iter((10.0, 17.5))
    context = changed(context_of(world, None), cpu_seconds=lambda: next(readings, None))
    maintain(TABLE, Request("r1"), context)
    assert [s.load.cpu_seconds for s in world.ledger.records.fleet_spends(3600)] == [7.5]


def test_batch_without_an_end_spends_its_predicted_seconds() -> None:
    world = World("ab", ONE_BATCH)
    world.clock.ms = world.ledger.registry.now_ms()
    with pytest.raises(Killed):
        world.run(Process("before:finish_attempt"))
    world.expire_leases()
    assert [(s.load.seconds, s.is_open) for s in world.ledger.records.fleet_spends(3600)] == [(0.0, True)]
    assert allotment(context_of(world, None), FleetBudget(max_cpu_seconds=8.0)).granted == ()
    granted = allotment(context_of(world, None), FleetBudget(max_cpu_seconds=20.0)).granted
    assert [p for _, p in granted] == ["p=a", "p=b"]


def test_speed_per_cpu_second_is_measured_from_ten_batches_on() -> None:
    spends = [Spend(0, Load(100, 12.0, 1.0, 7.0))] * 10
    assert measured_speed(spends) == Speed(10.0, 20.0)
    assert measured_speed(spends[1:]) == Speed()
    assert measured_speed([replace(s, load=replace(s.load, cpu_seconds=None)) for s in spends]) == Speed(10.0)


def test_past_work_is_the_newest_of_each_table() -> None:
    world = World("abc", ONE_BATCH)
    uuid = assess(TABLE, context_of(world, None)).state.uuid
    maintain(TABLE, Request("r1"), context_of(world, None))
    assert [len(world.ledger.records.past_work([uuid], 30, n)[uuid]) for n in (1, 2, 3, 30)] == [1, 2, 3, 3]
    assert [w.partitions for w in world.ledger.records.past_work([uuid], 30, 1)[uuid]] == [("p=c",)]
    assert world.ledger.records.past_work(["none"], 30, 30) == {}


def test_one_commit_is_divided_among_the_partitions_of_one_batch_and_the_run_makes_one() -> None:
    world = World("abcde", replace(POLICY, windows=WindowsPolicy()))
    world.clock.ms = world.ledger.registry.now_ms()
    budget = FleetBudget(max_commits=1)
    context = context_of(world, budget)
    assess(TABLE, context)
    allotted = allotment(context, budget)
    assert ([p for _, p in allotted.granted], dict(allotted.waits)) == (
        ["p=a", "p=b", "p=c", "p=d", "p=e"],
        {},
    )
    divide_budget(context)
    batches = [b for o in maintain(TABLE, Request("r1"), context) for b in o.batches]
    assert [b.partitions for b in batches] == [("p=a", "p=b", "p=c", "p=d", "p=e")]
    assert world.our_commits() == 1
