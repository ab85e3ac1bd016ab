"""What the budget of the fleet asks the ledger, on each database: past work, rewrites, spends, entries of a pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from iceberg_maint.core.decisions.fleet_budget import Spend
from iceberg_maint.core.decisions.history import FleetWait
from iceberg_maint.core.decisions.priority import Load
from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import BatchOutcome
from iceberg_maint.core.planning.batch_trials import batch_cost
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.stored import BatchStatus, Lease
from iceberg_maint_tests.support.ledger.values import (
    NAME,
    OTHER_UUID,
    PROOF,
    REWRITE,
    UUID,
    make_batch,
    outcome_of,
    plan_of,
)

DAY = PartitionKey("day=1")


def report(ledger: Ledger, lease: Lease, snapshot_id: int, status: BatchStatus, **facts: Any) -> BatchOutcome:
    """A batch of the partition `day=1` that reported these facts."""
    batch = make_batch(DAY, snapshot_id)
    ledger.work.save_plan(lease, plan_of(DAY, snapshot_id=snapshot_id))
    started = ledger.work.start_attempt(lease, batch.batch_id, "run-1", {})
    ledger.work.record_intent(lease, started.attempt_id, (), PROOF)
    ledger.work.record_try(lease, started.attempt_id, 1, "v1.json")
    outcome = replace(outcome_of(batch), **facts)
    ledger.work.finish_attempt(lease, started.attempt_id, status, outcome, {})
    return outcome


def test_past_work_has_what_landed_and_what_was_lost_the_newest_of_the_table(
    ledger: Ledger, lease: Lease
) -> None:
    report(ledger, lease, 1, BatchStatus.DONE, seconds=1.0)
    report(ledger, lease, 2, BatchStatus.FAILED, seconds=2.0, snapshot_after=None, reason=Reason.CONFLICT)
    report(ledger, lease, 3, BatchStatus.FAILED, seconds=3.0, snapshot_after=None, reason=Reason.ERROR)
    work = sorted(ledger.records.past_work([UUID, OTHER_UUID], 30, 9)[UUID], key=lambda w: w.seconds)
    assert [(w.partitions, w.seconds, w.is_landed, w.is_lost) for w in work] == [
        ((DAY,), 1.0, True, False),
        ((DAY,), 2.0, False, True),
        ((DAY,), 3.0, False, False),
    ]
    assert [w.seconds for w in ledger.records.past_work([UUID], 30, 1)[UUID]] == [3.0]
    assert OTHER_UUID not in ledger.records.past_work([UUID, OTHER_UUID], 30, 9)


def test_rewrites_of_the_fleet_are_those_that_landed_with_their_cost(ledger: Ledger, lease: Lease) -> None:
    cost = batch_cost(make_batch(DAY), 3, 2.5)
    report(ledger, lease, 1, BatchStatus.DONE)
    report(ledger, lease, 2, BatchStatus.DONE, cost=cost, seconds=4.0)
    report(ledger, lease, 3, BatchStatus.FAILED, cost=cost, snapshot_after=None, reason=Reason.CONFLICT)
    (rewrite,) = ledger.records.fleet_rewrites()
    assert (rewrite.seconds, rewrite.cost, rewrite.output_bytes, rewrite.landed) == (4.0, cost, 140, True)
    assert (rewrite.size.files, rewrite.size.input_bytes) == (2, 150)


def test_rewrites_of_the_fleet_serve_a_quarter_as_many_calls(ledger: Ledger, lease: Lease) -> None:
    cost = batch_cost(make_batch(DAY), 3, 2.5)
    known = []
    for number in range(1, 11):
        report(ledger, lease, number, BatchStatus.DONE, cost=cost)
        known.append(len(ledger.records.fleet_rewrites()))
    # Four serve the next call too, eight the next two.
    assert known == [1, 2, 3, 4, 4, 6, 6, 8, 8, 8]


def test_spends_have_measured_cpu_seconds_and_open_attempts_are_marked(ledger: Ledger, lease: Lease) -> None:
    report(ledger, lease, 1, BatchStatus.DONE, cost=batch_cost(make_batch(DAY), 0, 2.5))
    batch = make_batch(DAY, 2)
    ledger.work.save_plan(lease, plan_of(DAY, snapshot_id=2))
    ledger.work.start_attempt(lease, batch.batch_id, "run-1", {})
    ended, running = sorted(ledger.records.fleet_spends(3600), key=lambda s: s.is_open)
    assert ended == Spend(ended.at_ms, Load(150, 1.0, 1.0, 2.5))
    assert running == Spend(running.at_ms, Load(150, 0.0, 1.0), is_open=True)


def test_entries_of_a_pass_say_what_waits(ledger: Ledger) -> None:
    until_ms = ledger.registry.now_ms() + 60_000
    waits = {
        (UUID, DAY): FleetWait(1, until_ms),
        (UUID, PartitionKey("day=2")): FleetWait(2, until_ms),
    }
    ledger.registry.replace_fleet_waits(waits)
    assert ledger.registry.fleet_waits() == waits
    assert ledger.health.history(UUID, NAME, REWRITE).fleet_waits == {k: w for (_, k), w in waits.items()}
