from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.model.codec import loads
from iceberg_maint.core.outcomes.outcome import BatchOutcome, OutcomeStatus
from iceberg_maint.errors import FenceLostError
from iceberg_maint.ledger.batches import OutOfOrderError
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.stored import Attempt, BatchStatus, Lease
from iceberg_maint_tests.ledger.conftest import Place
from iceberg_maint_tests.support.ledger.values import (
    COMMITTED,
    NAME,
    OTHER_UUID,
    PROOF,
    REJECTED,
    REWRITE,
    UNKNOWN,
    UUID,
    make_batch,
    outcome_of,
    plan_of,
    written,
)

pytestmark = pytest.mark.seconds

BATCH = make_batch("day=1")
FILES = written(BATCH)
AHEAD = PartitionHistory(crashes=1, not_before_ms=99, reason="started")


@pytest.fixture
def attempt(ledger: Ledger, lease: Lease) -> Attempt:
    ledger.work.save_plan(lease, plan_of("day=1"))
    return ledger.work.start_attempt(lease, BATCH.batch_id, "run-1", {"day=1": AHEAD})


def intend(ledger: Ledger, lease: Lease, attempt: Attempt) -> None:
    ledger.work.record_intent(lease, attempt.attempt_id, FILES, PROOF)


def try_(ledger: Ledger, lease: Lease, attempt: Attempt) -> None:
    ledger.work.record_try(lease, attempt.attempt_id, 1, "v1.json")


def finish(ledger: Ledger, lease: Lease, attempt: Attempt, status: BatchStatus) -> None:
    outcome = outcome_of(make_batch(attempt.partitions[0]))
    ledger.work.finish_attempt(lease, attempt.attempt_id, status, outcome, {})


STEPS = (intend, try_)


def batch_status(place: Place) -> str:
    return place.sql("SELECT status FROM icm_batch")[0][0]


def outcomes(place: Place) -> list[tuple[object, ...]]:
    rows = place.sql("SELECT status, settled FROM icm_outcome ORDER BY ordinal")
    return [(status, bool(settled)) for status, settled in rows]


def next_run(ledger: Ledger, place: Place, lease: Lease) -> Lease:
    """The run died; another takes over."""
    place.expire(lease)
    return ledger.leases.acquire(UUID, NAME, f"after {lease.owner}", 60, 0)


def test_start_attempt_stores_what_it_returns(ledger, lease, attempt):
    assert ledger.work.open_attempts(UUID) == (attempt,)
    assert (attempt.batch_id, attempt.table_uuid, attempt.operation) == (BATCH.batch_id, UUID, REWRITE)
    assert (attempt.run_id, attempt.fence, attempt.partitions) == ("run-1", 1, ("day=1",))
    assert (attempt.status, attempt.tries, attempt.files) == ("STARTED", (), None)


def test_start_attempt_token_contains_the_attempt_and_is_not_guessable_from_it(attempt):
    head, _, secret = attempt.token.partition("-")
    assert head == attempt.attempt_id
    assert len(secret) == 16


def test_start_attempt_stores_the_write_ahead_back_off(ledger, attempt):
    assert ledger.health.history(UUID, NAME, REWRITE).partitions == {"day=1": AHEAD}


def test_steps_in_order_are_read_back(ledger, lease, attempt):
    intend(ledger, lease, attempt)
    (seen,) = ledger.work.open_attempts(UUID)
    assert (seen.status, seen.files, seen.proof) == ("INTENT", FILES, PROOF)
    ledger.work.record_try(lease, attempt.attempt_id, 1, "v1.json")
    ledger.work.record_try(lease, attempt.attempt_id, 5, "v2.json")
    (seen,) = ledger.work.open_attempts(UUID)
    assert (seen.status, seen.tries) == ("ATTEMPT", ((1, "v1.json"), (5, "v2.json")))
    finish(ledger, lease, attempt, BatchStatus.DONE)
    assert ledger.work.open_attempts(UUID) == ()


def test_finish_stores_outcome_back_off_status_and_cursor_at_once(ledger, lease, attempt, place):
    intend(ledger, lease, attempt)
    try_(ledger, lease, attempt)
    ledger.work.finish_attempt(
        lease, attempt.attempt_id, BatchStatus.DONE, outcome_of(BATCH), {"day=1": PartitionHistory()}
    )
    assert outcomes(place) == [("DONE", False)]
    assert batch_status(place) == "DONE"
    assert ledger.health.history(UUID, NAME, REWRITE).partitions == {}
    assert ledger.work.cursors(UUID).get(REWRITE).batch_id == BATCH.batch_id


def test_finish_handed_back_batch_is_planned_and_the_attempt_is_over(ledger, lease, attempt, place):
    finish(ledger, lease, attempt, BatchStatus.PLANNED)
    assert batch_status(place) == "PLANNED"
    assert ledger.work.open_attempts(UUID) == ()
    again = ledger.work.start_attempt(lease, BATCH.batch_id, "run-1", {})
    assert again.token != attempt.token


def test_finish_unknown_keeps_the_attempt_open(ledger, lease, attempt, place):
    intend(ledger, lease, attempt)
    try_(ledger, lease, attempt)
    finish(ledger, lease, attempt, BatchStatus.UNKNOWN)
    assert batch_status(place) == "UNKNOWN"
    (seen,) = ledger.work.open_attempts(UUID)
    assert (seen.attempt_id, seen.status) == (attempt.attempt_id, "UNKNOWN")


@pytest.mark.parametrize(
    ("done", "call", "message"),
    [
        ((), try_, "is STARTED, not INTENT or ATTEMPT"),
        ((intend,), intend, "is INTENT, not STARTED"),
        ((intend, try_), intend, "is ATTEMPT, not STARTED"),
    ],
)
def test_steps_out_of_order_are_refused(ledger, lease, attempt, done, call, message):
    for step in done:
        step(ledger, lease, attempt)
    before = ledger.work.open_attempts(UUID)
    with pytest.raises(OutOfOrderError, match=message):
        call(ledger, lease, attempt)
    assert ledger.work.open_attempts(UUID) == before


@pytest.mark.parametrize("status", [BatchStatus.DONE, BatchStatus.UNKNOWN])
@pytest.mark.parametrize("done", [(), (intend,)])
def test_finish_as_committed_without_a_try_is_refused(ledger, lease, attempt, place, status, done):
    for step in done:
        step(ledger, lease, attempt)
    with pytest.raises(OutOfOrderError, match="no commit was attempted"):
        finish(ledger, lease, attempt, status)
    assert (outcomes(place), ledger.work.cursors(UUID).get(REWRITE)) == ([], None)


@pytest.mark.parametrize("done", [(), (intend,), (intend, try_)])
@pytest.mark.parametrize("status", [BatchStatus.FAILED, BatchStatus.SUPERSEDED])
def test_finish_without_a_commit_is_allowed_after_any_step(ledger, lease, attempt, place, done, status):
    for step in done:
        step(ledger, lease, attempt)
    finish(ledger, lease, attempt, status)
    assert (batch_status(place), outcomes(place)) == (status, [(status, False)])
    assert ledger.work.open_attempts(UUID) == ()


def test_finish_as_started_is_refused(ledger, lease, attempt):
    with pytest.raises(OutOfOrderError, match="cannot end STARTED"):
        finish(ledger, lease, attempt, BatchStatus.STARTED)


def test_finish_with_the_outcome_of_another_batch_is_refused(ledger, lease, attempt):
    with pytest.raises(OutOfOrderError, match="another batch"):
        ledger.work.finish_attempt(
            lease, attempt.attempt_id, BatchStatus.FAILED, outcome_of(make_batch("day=2")), {}
        )


@pytest.mark.parametrize("status", [BatchStatus.DONE, BatchStatus.FAILED, BatchStatus.UNKNOWN])
def test_nothing_follows_a_reported_outcome(ledger, lease, attempt, place, status):
    intend(ledger, lease, attempt)
    try_(ledger, lease, attempt)
    finish(ledger, lease, attempt, status)
    for call in (intend, try_, lambda *a: finish(*a, BatchStatus.DONE)):
        with pytest.raises(OutOfOrderError, match=f"is {status}"):
            call(ledger, lease, attempt)
    assert outcomes(place) == [(status, False)]


def test_steps_of_an_attempt_that_is_not_the_tables_are_refused(ledger, lease, attempt):
    other = ledger.leases.acquire(OTHER_UUID, "lake.db.other", "run-1", 60, 0)
    with pytest.raises(OutOfOrderError, match=r"lake\.db\.other has no attempt"):
        intend(ledger, other, attempt)


@pytest.mark.parametrize(
    "status", [BatchStatus.DONE, BatchStatus.FAILED, BatchStatus.SUPERSEDED, BatchStatus.UNKNOWN]
)
def test_start_attempt_of_a_batch_that_is_not_planned_is_refused(ledger, lease, attempt, status):
    with pytest.raises(OutOfOrderError, match="is STARTED, not PLANNED"):
        ledger.work.start_attempt(lease, BATCH.batch_id, "run-1", {})
    intend(ledger, lease, attempt)
    try_(ledger, lease, attempt)
    finish(ledger, lease, attempt, status)
    with pytest.raises(OutOfOrderError, match=f"is {status}, not PLANNED"):
        ledger.work.start_attempt(lease, BATCH.batch_id, "run-1", {})


def test_start_attempt_of_no_batch_is_refused(ledger, lease):
    with pytest.raises(OutOfOrderError, match="has no batch nope"):
        ledger.work.start_attempt(lease, "nope", "run-1", {})


def test_start_attempt_again_under_one_fence_while_the_first_may_be_committed_is_refused(
    ledger, lease, attempt, place
):
    intend(ledger, lease, attempt)
    try_(ledger, lease, attempt)
    finish(ledger, lease, attempt, BatchStatus.UNKNOWN)
    ledger.work.settle_attempt(lease, attempt.attempt_id, UNKNOWN, BatchStatus.PLANNED)
    with pytest.raises(OutOfOrderError, match="may have been committed under fence 1"):
        ledger.work.start_attempt(lease, BATCH.batch_id, "run-1", {})
    later = next_run(ledger, place, lease)
    assert ledger.work.start_attempt(later, BATCH.batch_id, "run-2", {}).fence == 2


@pytest.mark.parametrize("status", [BatchStatus.PLANNED, BatchStatus.FAILED, BatchStatus.SUPERSEDED])
@pytest.mark.parametrize("done", [(), (intend,), (intend, try_)])
def test_settle_rejected_ends_the_attempt_and_gives_the_batch_its_status(
    ledger, lease, attempt, place, status, done
):
    for step in done:
        step(ledger, lease, attempt)
    later = next_run(ledger, place, lease)
    ledger.work.settle_attempt(later, attempt.attempt_id, REJECTED, status)
    assert (batch_status(place), outcomes(place)) == (status, [("FAILED", True)])
    assert ledger.work.open_attempts(UUID) == ()
    assert ledger.work.cursors(UUID).get(REWRITE) is None


def test_settle_keeps_the_write_ahead_back_off_of_the_crash(ledger, lease, attempt, place):
    later = next_run(ledger, place, lease)
    ledger.work.settle_attempt(later, attempt.attempt_id, REJECTED, BatchStatus.PLANNED)
    assert ledger.health.history(UUID, NAME, REWRITE).partitions == {"day=1": AHEAD}


def test_settle_committed_makes_the_batch_done(ledger, lease, attempt, place):
    intend(ledger, lease, attempt)
    try_(ledger, lease, attempt)
    later = next_run(ledger, place, lease)
    ledger.work.settle_attempt(later, attempt.attempt_id, COMMITTED, BatchStatus.DONE)
    assert (batch_status(place), outcomes(place)) == ("DONE", [("DONE", True)])
    assert ledger.work.cursors(UUID).get(REWRITE).snapshot_id == 9


def test_settle_committed_with_a_loss_ends_as_failed_and_is_no_progress(ledger, lease, attempt, place):
    intend(ledger, lease, attempt)
    try_(ledger, lease, attempt)
    later = next_run(ledger, place, lease)
    lost = replace(COMMITTED, lost=("tag v on snapshot 1",))
    for settlement, status in ((lost, BatchStatus.DONE), (COMMITTED, BatchStatus.FAILED)):
        with pytest.raises(OutOfOrderError, match=f"is COMMITTED cannot be {status}"):
            ledger.work.settle_attempt(later, attempt.attempt_id, settlement, status)
    ledger.work.settle_attempt(later, attempt.attempt_id, lost, BatchStatus.FAILED)
    assert (batch_status(place), outcomes(place)) == ("FAILED", [("FAILED", True)])
    assert (ledger.work.open_attempts(UUID), ledger.work.cursors(UUID).get(REWRITE)) == ((), None)
    (run,) = ledger.records.unrecorded_runs(later)
    assert run.attempts[0].settled == lost


def test_settle_unknown_then_committed(ledger, lease, attempt, place):
    intend(ledger, lease, attempt)
    try_(ledger, lease, attempt)
    finish(ledger, lease, attempt, BatchStatus.UNKNOWN)
    later = next_run(ledger, place, lease)
    ledger.work.settle_attempt(later, attempt.attempt_id, UNKNOWN, BatchStatus.PLANNED)
    ledger.work.settle_attempt(later, attempt.attempt_id, UNKNOWN, BatchStatus.PLANNED)
    assert outcomes(place) == [("UNKNOWN", False), ("UNKNOWN", True)]
    assert ledger.health.history(UUID, NAME, REWRITE).unknown_commits == 1
    ledger.work.settle_attempt(later, attempt.attempt_id, COMMITTED, BatchStatus.DONE)
    assert outcomes(place) == [("UNKNOWN", False), ("UNKNOWN", True), ("DONE", True)]
    assert ledger.health.history(UUID, NAME, REWRITE).unknown_commits == 0
    assert batch_status(place) == "DONE"


@pytest.mark.parametrize(
    ("settlement", "status"),
    [
        (COMMITTED, BatchStatus.PLANNED),
        (COMMITTED, BatchStatus.FAILED),
        (REJECTED, BatchStatus.DONE),
        (REJECTED, BatchStatus.UNKNOWN),
        (UNKNOWN, BatchStatus.DONE),
        (UNKNOWN, BatchStatus.FAILED),
    ],
)
def test_settle_with_a_status_that_contradicts_it_is_refused(
    ledger, lease, attempt, place, settlement, status
):
    intend(ledger, lease, attempt)
    try_(ledger, lease, attempt)
    with pytest.raises(OutOfOrderError, match=f"is {settlement.status} cannot be {status}"):
        ledger.work.settle_attempt(lease, attempt.attempt_id, settlement, status)
    assert (outcomes(place), batch_status(place)) == ([], "STARTED")


@pytest.mark.parametrize("done", [(), (intend,)])
def test_settle_without_a_try_is_never_unknown(ledger, lease, attempt, done):
    for step in done:
        step(ledger, lease, attempt)
    with pytest.raises(OutOfOrderError, match="never tried to commit"):
        ledger.work.settle_attempt(lease, attempt.attempt_id, UNKNOWN, BatchStatus.UNKNOWN)


@pytest.mark.parametrize("done", [(), (intend,)])
def test_settle_as_committed_without_a_try_is_of_a_ledger_put_back(ledger, lease, attempt, place, done):
    """The backup was made before the ATTEMPT; the table has the commit."""
    for step in done:
        step(ledger, lease, attempt)
    ledger.work.settle_attempt(lease, attempt.attempt_id, COMMITTED, BatchStatus.DONE)
    assert (outcomes(place), batch_status(place)) == ([("DONE", True)], "DONE")


def test_settle_an_attempt_that_ended_is_refused(ledger, lease, attempt, place):
    finish(ledger, lease, attempt, BatchStatus.FAILED)
    with pytest.raises(OutOfOrderError, match="has ended FAILED"):
        ledger.work.settle_attempt(lease, attempt.attempt_id, REJECTED, BatchStatus.PLANNED)
    assert batch_status(place) == "FAILED"


def test_settle_by_a_lost_lease_is_refused(ledger, lease, attempt, place):
    next_run(ledger, place, lease)
    with pytest.raises(FenceLostError):
        ledger.work.settle_attempt(lease, attempt.attempt_id, REJECTED, BatchStatus.PLANNED)
    assert (outcomes(place), batch_status(place)) == ([], "STARTED")


def _second_attempt(ledger, lease, attempt, place) -> tuple[Lease, Attempt]:
    """The first attempt is UNKNOWN, a second one has been started by the next run."""
    intend(ledger, lease, attempt)
    try_(ledger, lease, attempt)
    later = next_run(ledger, place, lease)
    ledger.work.settle_attempt(later, attempt.attempt_id, UNKNOWN, BatchStatus.PLANNED)
    return later, ledger.work.start_attempt(later, BATCH.batch_id, "run-2", {})


def test_settle_an_old_attempt_as_rejected_leaves_the_batch_to_the_later_one(ledger, lease, attempt, place):
    later, _ = _second_attempt(ledger, lease, attempt, place)
    ledger.work.settle_attempt(later, attempt.attempt_id, REJECTED, BatchStatus.PLANNED)
    assert batch_status(place) == "STARTED"


def test_settle_an_old_attempt_as_committed_makes_the_batch_done_whatever_the_later_one_reports(
    ledger, lease, attempt, place
):
    later, second = _second_attempt(ledger, lease, attempt, place)
    ledger.work.settle_attempt(later, attempt.attempt_id, COMMITTED, BatchStatus.DONE)
    finish(ledger, later, second, BatchStatus.FAILED)
    assert batch_status(place) == "DONE"
    assert ledger.work.cursors(UUID).get(REWRITE).snapshot_id == 9
    assert ledger.work.open_attempts(UUID) == ()


@pytest.mark.parametrize("settlement", [COMMITTED, REJECTED])
def test_settle_leaves_a_batch_that_has_ended(ledger, lease, attempt, place, settlement):
    later, second = _second_attempt(ledger, lease, attempt, place)
    finish(ledger, later, second, BatchStatus.SUPERSEDED)
    status = BatchStatus.DONE if settlement is COMMITTED else BatchStatus.PLANNED
    ledger.work.settle_attempt(later, attempt.attempt_id, settlement, status)
    assert batch_status(place) == "SUPERSEDED"
    assert ledger.work.open_attempts(UUID) == ()


def test_open_attempts_are_oldest_first_and_of_one_table(ledger, lease, attempt):
    ledger.work.save_plan(lease, plan_of("day=2", "day=0"))
    second = ledger.work.start_attempt(lease, make_batch("day=2").batch_id, "run-1", {})
    third = ledger.work.start_attempt(lease, make_batch("day=0").batch_id, "run-1", {})
    assert ledger.work.open_attempts(UUID) == (attempt, second, third)
    assert ledger.work.open_attempts(OTHER_UUID) == ()


def test_outcome_body_is_what_was_reported(ledger, lease, attempt, place):
    reported = outcome_of(BATCH, OutcomeStatus.FAILED, snapshot_after=None)
    ledger.work.finish_attempt(lease, attempt.attempt_id, BatchStatus.FAILED, reported, {})
    ((body,),) = place.sql("SELECT body FROM icm_outcome")
    assert loads(BatchOutcome, body) == reported


def settled(ledger: Ledger, lease: Lease, attempt: Attempt) -> None:
    intend(ledger, lease, attempt)
    ledger.work.settle_attempt(lease, attempt.attempt_id, REJECTED, BatchStatus.PLANNED)


def test_leftover_is_what_a_dead_attempt_at_the_batch_wrote(ledger, lease, attempt):
    settled(ledger, lease, attempt)
    found = ledger.work.uncommitted_output(lease, BATCH.batch_id, 3600)
    assert found == replace(attempt, status="FAILED", files=FILES, proof=PROOF)
    assert ledger.work.attempts_at(UUID, BATCH.batch_id) == (found,)


def test_leftover_is_none_while_its_attempt_has_no_end(ledger, lease, attempt):
    intend(ledger, lease, attempt)
    assert ledger.work.uncommitted_output(lease, BATCH.batch_id, 3600) is None


@pytest.mark.parametrize("status", [BatchStatus.DONE, BatchStatus.FAILED, BatchStatus.UNKNOWN])
def test_leftover_is_none_of_an_attempt_that_reported(ledger, lease, attempt, status: BatchStatus):
    intend(ledger, lease, attempt)
    try_(ledger, lease, attempt)
    finish(ledger, lease, attempt, status)
    assert ledger.work.uncommitted_output(lease, BATCH.batch_id, 3600) is None


def test_leftover_is_none_of_an_attempt_that_is_in_the_table(ledger, lease, attempt):
    intend(ledger, lease, attempt)
    ledger.work.settle_attempt(lease, attempt.attempt_id, COMMITTED, BatchStatus.DONE)
    assert ledger.work.uncommitted_output(lease, BATCH.batch_id, 3600) is None


def test_leftover_is_none_once_the_batch_wants_other_files(ledger, lease, attempt):
    """Opened again under its id, which tells of its inputs only."""
    settled(ledger, lease, attempt)
    ledger.work.close_batch(lease, BATCH.batch_id)
    plan = plan_of("day=1")
    ledger.work.save_plan(lease, plan)
    assert ledger.work.uncommitted_output(lease, BATCH.batch_id, 3600) is not None
    ledger.work.close_batch(lease, BATCH.batch_id)
    larger = tuple(replace(b, target_file_size_bytes=b.target_file_size_bytes + 1) for b in plan.batches)
    ledger.work.save_plan(lease, replace(plan, batches=larger))
    assert ledger.work.uncommitted_output(lease, BATCH.batch_id, 3600) is None


def test_snapshot_before_files_is_the_pinned_one_until_the_batch_has_other_contents(
    ledger, lease, attempt, place
):
    assert ledger.work.snapshot_before_files(attempt) is None
    settled(ledger, lease, attempt)
    assert ledger.work.snapshot_before_files(attempt) == BATCH.snapshot_id == 1
    ledger.work.close_batch(lease, BATCH.batch_id)
    plan = plan_of("day=1")
    later = tuple(replace(b, snapshot_id=7) for b in plan.batches)
    ledger.work.save_plan(lease, replace(plan, batches=later))
    assert ledger.work.snapshot_before_files(attempt) is None
    second = ledger.work.start_attempt(lease, BATCH.batch_id, "run-1", {})
    intend(ledger, lease, second)
    assert ledger.work.snapshot_before_files(second) == 7


def test_leftover_is_as_old_as_the_attempt_that_wrote_it(ledger, lease, attempt, place):
    """One that adopted it has an INTENT of its own; an orphan scan goes by when files were written."""
    settled(ledger, lease, attempt)
    place.age("icm_attempt", "started_ms", 3_601_000)
    place.age("icm_intent", "recorded_ms", 3_601_000)
    second = ledger.work.start_attempt(lease, BATCH.batch_id, "run-1", {})
    settled(ledger, lease, second)
    assert ledger.work.uncommitted_output(lease, BATCH.batch_id, 3600) is None
    assert ledger.work.uncommitted_output(lease, BATCH.batch_id, 7200).attempt_id == second.attempt_id


def test_leftover_that_was_written_again_is_as_young_as_that(ledger, lease, attempt, place):
    settled(ledger, lease, attempt)
    place.age("icm_attempt", "started_ms", 3_601_000)
    place.age("icm_intent", "recorded_ms", 3_601_000)
    second = ledger.work.start_attempt(lease, BATCH.batch_id, "run-1", {})
    rewritten = tuple(replace(f, path=f"{f.path}.rewritten") for f in FILES)
    ledger.work.record_intent(lease, second.attempt_id, rewritten, PROOF)
    ledger.work.settle_attempt(lease, second.attempt_id, REJECTED, BatchStatus.PLANNED)
    assert ledger.work.uncommitted_output(lease, BATCH.batch_id, 3600).files == rewritten


def test_leftover_is_asked_for_under_the_lease(ledger, lease, attempt):
    settled(ledger, lease, attempt)
    ledger.leases.release(lease)
    with pytest.raises(FenceLostError):
        ledger.work.uncommitted_output(lease, BATCH.batch_id, 3600)
