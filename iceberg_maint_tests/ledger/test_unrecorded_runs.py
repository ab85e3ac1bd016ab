"""Runs that left no record, as the ledger tells of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.outcomes.outcome import BatchOutcome, OutcomeStatus
from iceberg_maint.core.outcomes.record import Settlement
from iceberg_maint.errors import FenceLostError
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.stored import Attempt, BatchStatus, Lease
from iceberg_maint_tests.ledger.conftest import Place
from iceberg_maint_tests.support.ledger.values import (
    COMMITTED,
    CONVERT,
    NAME,
    OTHER_UUID,
    PROOF,
    REJECTED,
    REWRITE,
    UNKNOWN,
    UUID,
    make_batch,
    make_record,
    outcome_of,
    plan_of,
    written,
)

pytestmark = pytest.mark.seconds


def start(ledger: Ledger, lease: Lease, partition: str, operation=REWRITE, snapshot_id: int = 1):
    plan = plan_of(partition, operation=operation, snapshot_id=snapshot_id)
    ledger.work.save_plan(lease, plan)
    return ledger.work.start_attempt(lease, plan.batches[0].batch_id, lease.owner, {})


def swap(ledger: Ledger, lease: Lease, attempt: Attempt) -> None:
    batch = make_batch(attempt.partitions[0], operation=attempt.operation)
    ledger.work.record_intent(lease, attempt.attempt_id, written(batch), PROOF)
    ledger.work.record_try(lease, attempt.attempt_id, 1, "v1.json")


def finish(ledger: Ledger, lease: Lease, attempt: Attempt, status: BatchStatus = BatchStatus.DONE) -> None:
    swap(ledger, lease, attempt)
    batch = make_batch(attempt.partitions[0], operation=attempt.operation)
    ledger.work.finish_attempt(lease, attempt.attempt_id, status, outcome_of(batch), {})


def next_lease(ledger: Ledger, place: Place, lease: Lease, owner: str = "run-2") -> Lease:
    """The run died; another takes over."""
    place.expire(lease)
    return ledger.leases.acquire(UUID, NAME, owner, 60, 0)


def settle_all(ledger: Ledger, lease: Lease, settlement: Settlement) -> None:
    status = BatchStatus.DONE if settlement is COMMITTED else BatchStatus.PLANNED
    for attempt in ledger.work.open_attempts(UUID):
        ledger.work.settle_attempt(lease, attempt.attempt_id, settlement, status)


def record_for(run_id: str, operation=REWRITE, *outcomes: BatchOutcome):
    """A record of these outcomes, by default of the batch of day=1, improved."""
    made = make_record(f"record of {run_id} {operation}")
    batches = outcomes or (outcome_of(make_batch("day=1", operation=operation)),)
    return replace(made, run_id=run_id, operation=operation, outcome=replace(made.outcome, batches=batches))


def test_run_killed_between_batches_is_recorded_with_its_reports(ledger, lease, place: Place):
    finish(ledger, lease, start(ledger, lease, "day=1"))
    finish(ledger, lease, start(ledger, lease, "day=2"))
    after = next_lease(ledger, place, lease)
    (run,) = ledger.records.unrecorded_runs(after)
    assert (run.run_id, run.table_uuid, run.operation, run.recorded) == ("run-1", UUID, REWRITE, False)
    assert run.plan_id == plan_of("day=2").plan_id
    batches = [make_batch("day=1"), make_batch("day=2")]
    assert [a.batch for a in run.attempts] == batches
    assert [a.reported for a in run.attempts] == [outcome_of(b) for b in batches]
    assert [a.settled for a in run.attempts] == [None, None]
    assert [(a.commit_tries, a.output_sizes_bytes, a.proof) for a in run.attempts] == [(1, (140,), PROOF)] * 2
    assert all(a.started_ms <= a.ended_ms for a in run.attempts)


def test_run_killed_in_a_batch_is_reported_once_that_is_settled(ledger, lease, place: Place):
    finish(ledger, lease, start(ledger, lease, "day=1"))
    swap(ledger, lease, start(ledger, lease, "day=2"))
    after = next_lease(ledger, place, lease)
    settle_all(ledger, after, REJECTED)
    (run,) = ledger.records.unrecorded_runs(after)
    assert [(a.reported is None, a.settled) for a in run.attempts] == [(False, None), (True, REJECTED)]


def test_files_are_adopted_where_an_earlier_attempt_at_the_batch_wrote_them(ledger, lease, place: Place):
    own = lease
    for n, day in enumerate(("day=1", "day=1", "day=2")):
        swap(ledger, own, start(ledger, own, day))
        own = next_lease(ledger, place, own, f"later-{n}")
        settle_all(ledger, own, REJECTED)
    told = [a for run in ledger.records.unrecorded_runs(own) for a in run.attempts]
    assert [(a.batch.partitions, a.adopted) for a in told] == [
        (("day=1",), False),
        (("day=1",), True),
        (("day=2",), False),
    ]


def test_attempt_that_is_still_open_is_not_reported(ledger, lease, place: Place):
    start(ledger, lease, "day=1")
    assert ledger.records.unrecorded_runs(next_lease(ledger, place, lease)) == ()


def test_run_that_is_on_record_is_not_recorded_again(ledger, lease, place: Place):
    finish(ledger, lease, start(ledger, lease, "day=1"))
    after = next_lease(ledger, place, lease)
    ledger.records.append(record_for("run-1"))
    assert ledger.records.unrecorded_runs(after) == ()


def test_batch_that_ended_and_is_not_in_its_runs_record_is_reported(ledger, lease, place: Place):
    """The run was interrupted after the ledger had the end of its second batch, before the run had."""
    finish(ledger, lease, start(ledger, lease, "day=1"))
    finish(ledger, lease, start(ledger, lease, "day=2"))
    ledger.records.append(record_for("run-1"))
    after = next_lease(ledger, place, lease)
    (run,) = ledger.records.unrecorded_runs(after)
    assert [a.batch for a in run.attempts] == [make_batch("day=2")]
    told = record_for("run-1", REWRITE, outcome_of(make_batch("day=2")))
    ledger.records.append(replace(told, record_id="second"))
    assert ledger.records.unrecorded_runs(after) == ()


def test_commit_settled_before_its_run_wrote_its_record_is_reported_after_it(ledger, lease, place: Place):
    """The run could not tell, a later batch of its own settled it, and the record says as it was."""
    finish(ledger, lease, start(ledger, lease, "day=1"), BatchStatus.UNKNOWN)
    settle_all(ledger, lease, COMMITTED)
    unknown = replace(outcome_of(make_batch("day=1")), outcome=OutcomeStatus.UNKNOWN)
    ledger.records.append(record_for("run-1", REWRITE, unknown))
    (run,) = ledger.records.unrecorded_runs(next_lease(ledger, place, lease))
    assert [(a.settled, run.recorded) for a in run.attempts] == [(COMMITTED, True)]


def test_batch_handed_back_is_no_news_beside_its_runs_record(ledger, lease, place: Place):
    finish(ledger, lease, start(ledger, lease, "day=1"))
    swap(ledger, lease, handed_back := start(ledger, lease, "day=2"))
    stopped = replace(outcome_of(make_batch("day=2")), outcome=OutcomeStatus.FAILED)
    ledger.work.finish_attempt(lease, handed_back.attempt_id, BatchStatus.PLANNED, stopped, {})
    ledger.records.append(record_for("run-1"))
    assert ledger.records.unrecorded_runs(next_lease(ledger, place, lease)) == ()


def test_run_is_not_reported_for_itself_nor_of_other_tables(ledger, lease, place: Place):
    finish(ledger, lease, start(ledger, lease, "day=1"))
    assert ledger.records.unrecorded_runs(lease) == ()
    other = ledger.leases.acquire(OTHER_UUID, "lake.db.other", "run-2", 60, 7)
    assert ledger.records.unrecorded_runs(other) == ()
    again = next_lease(ledger, place, lease, owner="run-1")
    assert ledger.records.unrecorded_runs(again) == ()


def test_commit_settled_after_its_run_was_recorded_is_reported_once_it_is_known(ledger, lease, place: Place):
    finish(ledger, lease, start(ledger, lease, "day=1"))
    finish(ledger, lease, start(ledger, lease, "day=2"), BatchStatus.UNKNOWN)
    unknown = replace(outcome_of(make_batch("day=2")), outcome=OutcomeStatus.UNKNOWN)
    ledger.records.append(record_for("run-1", REWRITE, outcome_of(make_batch("day=1")), unknown))
    after = next_lease(ledger, place, lease)
    settle_all(ledger, after, UNKNOWN)
    assert ledger.records.unrecorded_runs(after) == ()
    settle_all(ledger, after, COMMITTED)
    (run,) = ledger.records.unrecorded_runs(after)
    (attempt,) = run.attempts
    assert (attempt.reported, attempt.settled) == (outcome_of(make_batch("day=2")), COMMITTED)
    assert run.recorded
    told = record_for("run-1", REWRITE, outcome_of(make_batch("day=2")))
    ledger.records.append(replace(told, record_id="second"))
    assert ledger.records.unrecorded_runs(after) == ()


def test_dead_run_with_an_unknown_commit_is_reported_at_once_and_again_when_it_is_known(ledger, lease, place):
    swap(ledger, lease, start(ledger, lease, "day=1"))
    after = next_lease(ledger, place, lease)
    settle_all(ledger, after, UNKNOWN)
    (run,) = ledger.records.unrecorded_runs(after)
    assert (run.recorded, [a.settled for a in run.attempts]) == (False, [UNKNOWN])
    ledger.records.append(record_for("run-1"))
    settle_all(ledger, after, UNKNOWN)
    assert ledger.records.unrecorded_runs(after) == ()
    settle_all(ledger, after, REJECTED)
    (run,) = ledger.records.unrecorded_runs(after)
    assert (run.recorded, [a.settled for a in run.attempts]) == (True, [REJECTED])


def test_two_operations_of_one_run_are_distinguished_each_until_its_own_record(ledger, lease, place: Place):
    finish(ledger, lease, start(ledger, lease, "day=1", CONVERT))
    finish(ledger, lease, start(ledger, lease, "day=1", REWRITE))
    after = next_lease(ledger, place, lease)
    assert [(r.run_id, r.operation) for r in ledger.records.unrecorded_runs(after)] == [
        ("run-1", CONVERT),
        ("run-1", REWRITE),
    ]
    ledger.records.append(record_for("run-1", CONVERT))
    assert [r.operation for r in ledger.records.unrecorded_runs(after)] == [REWRITE]


def test_unrecorded_runs_need_the_lease(ledger, lease, place: Place):
    place.expire(lease)
    with pytest.raises(FenceLostError):
        ledger.records.unrecorded_runs(lease)


def test_prune_forgets_what_is_on_record_with_the_attempts_themselves(ledger, lease, place: Place):
    """What an operation did last and did well stays longer."""
    failed = replace(outcome_of(make_batch("day=1")), outcome=OutcomeStatus.FAILED)
    finish(ledger, lease, start(ledger, lease, "day=1"), BatchStatus.FAILED)
    ledger.records.append(record_for("run-1", REWRITE, failed))
    place.age("icm_record", "appended_ms", 31 * 86_400_000)
    ledger.records.prune(lease.table_uuid, 30)
    after = next_lease(ledger, place, lease)
    assert ledger.records.unrecorded_runs(after) == ()
    place.age("icm_batch", "updated_ms", 31 * 86_400_000)
    ledger.records.prune(lease.table_uuid, 30)
    assert place.sql("SELECT * FROM icm_recorded") == []
    assert ledger.records.unrecorded_runs(after) == ()
