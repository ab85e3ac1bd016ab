"""What the ledger keeps of readings of clocks."""

from __future__ import annotations

from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.removal.clock_skew import ClockReading
from iceberg_maint.ports.stored import BatchStatus, Lease
from iceberg_maint_tests.ledger.conftest import Place
from iceberg_maint_tests.support.ledger.values import (
    NAME,
    PROOF,
    REWRITE,
    UUID,
    make_batch,
    outcome_of,
    plan_of,
    written,
)

DAY_MS = 86_400_000


def test_new_ledger_has_no_reading(ledger) -> None:
    assert ledger.leases.clock_reading(None) == ClockReading(0, None)
    assert ledger.leases.clock_reading("a") == ClockReading(0, None)


def test_mark_is_the_newest_of_all_boots_and_the_boot_of_its_own(ledger, place: Place) -> None:
    ledger.leases.keep_clock_reading("a", 10, 5000)
    ledger.leases.keep_clock_reading("b", 20, 4000)
    ledger.leases.keep_clock_reading(None, None, 3000)
    assert place.open().leases.clock_reading("a") == ClockReading(5000, 10)
    assert place.open().leases.clock_reading("b") == ClockReading(5000, 20)
    assert place.open().leases.clock_reading("c") == ClockReading(5000, None)
    assert place.open().leases.clock_reading(None) == ClockReading(5000, None)


def test_older_reading_does_not_take_the_place_of_a_newer_one(ledger) -> None:
    ledger.leases.keep_clock_reading("a", 10, 5000)
    ledger.leases.keep_clock_reading("a", 11, 4999)
    assert ledger.leases.clock_reading("a") == ClockReading(5000, 11)


def test_boots_of_long_ago_are_forgotten_with_a_new_one(ledger, place: Place) -> None:
    ledger.leases.keep_clock_reading("a", 10, 5000)
    ledger.leases.keep_clock_reading("b", 20, 5000 + 90 * DAY_MS)
    assert len(place.sql("SELECT boot FROM icm_clock")) == 2
    ledger.leases.keep_clock_reading("c", 30, 5001 + 90 * DAY_MS)
    assert sorted(place.sql("SELECT boot FROM icm_clock")) == [("b",), ("c",)]


def test_boot_that_was_kept_without_a_reading_stays_when_another_machine_forgets(
    ledger, place: Place
) -> None:
    ledger.leases.keep_clock_reading("a", 10, 0)
    ledger.leases.keep_clock_reading("b", 20, 5000 + 90 * DAY_MS)
    assert place.open().leases.clock_reading("a") == ClockReading(5000 + 90 * DAY_MS, 10)


def test_forgotten_marks_are_gone(ledger) -> None:
    ledger.leases.keep_clock_reading("a", 10, 5000)
    ledger.leases.accept_clock()
    assert ledger.leases.clock_reading("a") == ClockReading(0, None)


def test_accepted_clock_ends_what_a_clock_two_days_ahead_dated(ledger, lease: Lease, place: Place) -> None:
    ahead_ms = ledger.registry.now_ms() + 2 * DAY_MS
    batch = make_batch("day=1")
    waiting = PartitionHistory(ineffective=1, not_before_ms=ahead_ms, reason="error")
    ledger.work.save_plan(lease, plan_of("day=1"))
    attempt = ledger.work.start_attempt(lease, batch.batch_id, "run-1", {})
    ledger.work.record_intent(lease, attempt.attempt_id, written(batch), PROOF)
    ledger.work.record_try(lease, attempt.attempt_id, 1, "v1.json")
    ledger.work.finish_attempt(
        lease,
        attempt.attempt_id,
        BatchStatus.DONE,
        outcome_of(batch),
        dict.fromkeys(batch.partitions, waiting),
    )
    place.age("icm_outcome", "recorded_ms", -2 * DAY_MS)
    before = ledger.health.history(UUID, NAME, REWRITE)
    assert before.partitions == {batch.partitions[0]: waiting}
    assert before.last_done_ms >= ahead_ms
    ledger.leases.accept_clock()
    history = ledger.health.history(UUID, NAME, REWRITE)
    assert history.partitions == {batch.partitions[0]: PartitionHistory(ineffective=1, reason="error")}
    assert 0 <= ledger.registry.now_ms() - history.last_done_ms < 60_000
