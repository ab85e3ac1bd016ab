from __future__ import annotations

import pytest

from iceberg_maint.core.outcomes.outcome import CommitStatus, OutcomeStatus
from iceberg_maint.core.outcomes.record import Settlement
from iceberg_maint.ledger.batches import OutOfOrderError
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.stored import BatchStatus, Lease, StoredBatch
from iceberg_maint_tests.ledger.conftest import Place
from iceberg_maint_tests.support.ledger.values import (
    NAME,
    OTHER_UUID,
    PROOF,
    REWRITE,
    UUID,
    make_batch,
    outcome_of,
    plan_of,
    written,
)

DAY_1, DAY_2 = make_batch("day=1"), make_batch("day=2")


def open_ids(ledger: Ledger) -> list[str]:
    return [b.batch.batch_id for b in ledger.work.open_batches(UUID, REWRITE)]


def status_of(place: Place, batch_id: str) -> str:
    return place.sql("SELECT status FROM icm_batch WHERE batch_id = :id", id=batch_id)[0][0]


def run(ledger: Ledger, lease: Lease, batch, status: BatchStatus) -> None:
    """The batch from STARTED to an outcome."""
    attempt = ledger.work.start_attempt(lease, batch.batch_id, "run-1", {})
    ledger.work.record_intent(lease, attempt.attempt_id, written(batch), PROOF)
    ledger.work.record_try(lease, attempt.attempt_id, 1, "v1.json")
    ledger.work.finish_attempt(lease, attempt.attempt_id, status, outcome_of(batch), {})


def test_save_plan_its_batches_are_open_in_plan_order(ledger, lease):
    plan = plan_of("day=2", "day=1")
    ledger.work.save_plan(lease, plan)
    assert ledger.work.open_batches(UUID, REWRITE) == (
        StoredBatch(DAY_2, BatchStatus.PLANNED, plan.plan_id),
        StoredBatch(DAY_1, BatchStatus.PLANNED, plan.plan_id),
    )


def test_save_plan_a_later_plan_comes_behind(ledger, lease, place: Place):
    ledger.work.save_plan(lease, plan_of("day=2"))
    ledger.work.save_plan(lease, plan_of("day=1", "day=3"))
    expected = [make_batch(p).batch_id for p in ("day=2", "day=1", "day=3")]
    assert open_ids(ledger) == expected
    assert place.sql("SELECT ordinal, batch_id FROM icm_batch ORDER BY ordinal") == [*enumerate(expected, 1)]


def test_save_plan_without_batches_stores_nothing(ledger, lease):
    ledger.work.save_plan(lease, plan_of())
    assert ledger.work.open_batches(UUID, REWRITE) == ()


def test_save_plan_of_another_table_than_the_lease_is_refused(ledger, lease):
    with pytest.raises(OutOfOrderError, match="another table"):
        ledger.work.save_plan(lease, plan_of("day=1", table_uuid=OTHER_UUID))


def test_open_batches_are_of_one_table_and_operation(ledger, lease):
    other = ledger.leases.acquire(OTHER_UUID, "lake.db.other", "run-1", 60, 0)
    ledger.work.save_plan(lease, plan_of("day=1"))
    ledger.work.save_plan(other, plan_of("day=9", table_uuid=OTHER_UUID))
    assert open_ids(ledger) == [DAY_1.batch_id]
    assert ledger.work.open_batches(UUID, "rewrite_manifests") == ()


@pytest.mark.parametrize("started", [False, True])
def test_save_plan_an_open_batch_stays_as_it_is(ledger, lease, started: bool):
    ledger.work.save_plan(lease, plan_of("day=1"))
    if started:
        ledger.work.start_attempt(lease, DAY_1.batch_id, "run-1", {})
    before = ledger.work.open_batches(UUID, REWRITE)
    ledger.work.save_plan(lease, plan_of("day=1", "day=2"))
    assert ledger.work.open_batches(UUID, REWRITE)[:1] == before


def test_save_plan_a_done_batch_never_changes(ledger, lease, place: Place):
    ledger.work.save_plan(lease, plan_of("day=1"))
    run(ledger, lease, DAY_1, BatchStatus.DONE)
    before = place.sql("SELECT * FROM icm_batch")
    ledger.work.save_plan(lease, plan_of("day=1"))
    assert place.sql("SELECT * FROM icm_batch") == before


def test_save_plan_a_failed_batch_is_opened_again_at_its_new_place(ledger, lease):
    ledger.work.save_plan(lease, plan_of("day=1"))
    run(ledger, lease, DAY_1, BatchStatus.FAILED)
    assert open_ids(ledger) == []
    plan = plan_of("day=2", "day=1")
    ledger.work.save_plan(lease, plan)
    assert ledger.work.open_batches(UUID, REWRITE)[1] == StoredBatch(DAY_1, BatchStatus.PLANNED, plan.plan_id)


def test_save_plan_a_superseded_batch_that_is_wanted_after_all_is_opened_again(ledger, lease):
    ledger.work.save_plan(lease, plan_of("day=1"))
    ledger.work.close_batch(lease, DAY_1.batch_id)
    ledger.work.save_plan(lease, plan_of("day=1"))
    assert open_ids(ledger) == [DAY_1.batch_id]


def test_start_attempt_starts_the_batch(ledger, lease):
    ledger.work.save_plan(lease, plan_of("day=1"))
    ledger.work.start_attempt(lease, DAY_1.batch_id, "run-7", {})
    (stored,) = ledger.work.open_batches(UUID, REWRITE)
    assert stored.status is BatchStatus.STARTED


def test_close_batch_planned_is_superseded(ledger, lease, place: Place):
    ledger.work.save_plan(lease, plan_of("day=1", "day=2"))
    ledger.work.close_batch(lease, DAY_1.batch_id)
    ledger.work.close_batch(lease, DAY_1.batch_id)
    assert open_ids(ledger) == [DAY_2.batch_id]
    statuses = place.sql("SELECT status FROM icm_batch ORDER BY ordinal")
    assert statuses == [("SUPERSEDED",), ("PLANNED",)]


def test_close_batch_unknown_keeps_its_attempt_open(ledger, lease, place: Place):
    ledger.work.save_plan(lease, plan_of("day=1"))
    run(ledger, lease, DAY_1, BatchStatus.UNKNOWN)
    ledger.work.close_batch(lease, DAY_1.batch_id)
    assert status_of(place, DAY_1.batch_id) == "SUPERSEDED"
    (attempt,) = ledger.work.open_attempts(UUID)
    assert attempt.status == "UNKNOWN"


def test_close_batch_with_an_attempt_that_never_reported_is_refused(ledger, lease):
    ledger.work.save_plan(lease, plan_of("day=1"))
    ledger.work.start_attempt(lease, DAY_1.batch_id, "run-1", {})
    with pytest.raises(OutOfOrderError, match="is STARTED and cannot be superseded"):
        ledger.work.close_batch(lease, DAY_1.batch_id)


@pytest.mark.parametrize("status", [BatchStatus.DONE, BatchStatus.FAILED])
def test_close_batch_that_ended_is_refused(ledger, lease, status: BatchStatus):
    ledger.work.save_plan(lease, plan_of("day=1"))
    run(ledger, lease, DAY_1, status)
    with pytest.raises(OutOfOrderError, match=f"is {status} and cannot be superseded"):
        ledger.work.close_batch(lease, DAY_1.batch_id)


def test_close_batch_unknown_id_is_refused(ledger, lease):
    with pytest.raises(OutOfOrderError, match="has no batch nope"):
        ledger.work.close_batch(lease, "nope")


def test_close_batch_of_another_table_is_refused(ledger, lease, place: Place):
    other = ledger.leases.acquire(OTHER_UUID, "lake.db.other", "run-1", 60, 0)
    ledger.work.save_plan(lease, plan_of("day=1"))
    with pytest.raises(OutOfOrderError, match=r"lake\.db\.other has no batch"):
        ledger.work.close_batch(other, DAY_1.batch_id)
    assert status_of(place, DAY_1.batch_id) == "PLANNED"


def test_cursor_before_the_first_batch_is_none(ledger):
    assert ledger.work.cursors(UUID).get(REWRITE) is None


def test_cursor_moves_with_done_batches_only(ledger, lease):
    ledger.work.save_plan(lease, plan_of("day=1", "day=2", "day=3"))
    run(ledger, lease, DAY_1, BatchStatus.DONE)
    cursor = ledger.work.cursors(UUID).get(REWRITE)
    assert (cursor.batch_id, cursor.snapshot_id, cursor.fence) == (DAY_1.batch_id, 2, 1)
    assert abs(cursor.advanced_ms - ledger.registry.now_ms()) < 5000
    run(ledger, lease, DAY_2, BatchStatus.FAILED)
    assert ledger.work.cursors(UUID).get(REWRITE) == cursor
    run(ledger, lease, make_batch("day=3"), BatchStatus.UNKNOWN)
    assert ledger.work.cursors(UUID).get(REWRITE) == cursor


def test_cursor_moves_when_a_commit_is_found_later(ledger, lease):
    ledger.work.save_plan(lease, plan_of("day=1"))
    run(ledger, lease, DAY_1, BatchStatus.UNKNOWN)
    (attempt,) = ledger.work.open_attempts(UUID)
    later = ledger.leases.acquire(UUID, NAME, "run-1", 60, 0)
    settlement = Settlement(CommitStatus.COMMITTED, 9, "its token is in the table")
    ledger.work.settle_attempt(later, attempt.attempt_id, settlement, BatchStatus.DONE)
    cursor = ledger.work.cursors(UUID).get(REWRITE)
    assert (cursor.batch_id, cursor.snapshot_id, cursor.fence) == (DAY_1.batch_id, 9, 2)


def test_cursor_names_the_window_and_counts_its_batches(ledger, lease):
    plan = plan_of("day=1", "day=2", "day=3")
    ledger.work.save_plan(lease, plan)
    run(ledger, lease, DAY_1, BatchStatus.DONE)
    run(ledger, lease, DAY_2, BatchStatus.DONE)
    ledger.work.save_plan(lease, plan_of("day=4", snapshot_id=2))
    cursor = ledger.work.cursors(UUID)[REWRITE]
    assert (cursor.operation, cursor.plan_id, cursor.partitions) == (REWRITE, plan.plan_id, ("day=2",))
    assert (cursor.window_batches, cursor.window_done) == (3, 2)


def test_cursor_of_a_batch_that_is_gone_has_no_window(ledger, lease, place: Place):
    ledger.work.save_plan(lease, plan_of("day=1"))
    run(ledger, lease, DAY_1, BatchStatus.DONE)
    for name in ("icm_outcome", "icm_try", "icm_intent", "icm_attempt", "icm_batch"):
        place.sql(f"DELETE FROM {name}")
    cursor = ledger.work.cursors(UUID)[REWRITE]
    assert (cursor.plan_id, cursor.window_batches, cursor.window_done) == (None, 0, 0)
    assert (cursor.batch_id, cursor.partitions, cursor.snapshot_id) == (DAY_1.batch_id, (), 2)


def test_done_with_no_effect_moves_the_cursor(ledger, lease):
    ledger.work.save_plan(lease, plan_of("day=1"))
    attempt = ledger.work.start_attempt(lease, DAY_1.batch_id, "run-1", {})
    ledger.work.record_intent(lease, attempt.attempt_id, (), PROOF)
    ledger.work.record_try(lease, attempt.attempt_id, 1, "v1.json")
    no_op = outcome_of(DAY_1, OutcomeStatus.NO_OP, snapshot_after=4)
    ledger.work.finish_attempt(lease, attempt.attempt_id, BatchStatus.DONE, no_op, {})
    assert ledger.work.cursors(UUID).get(REWRITE).snapshot_id == 4
