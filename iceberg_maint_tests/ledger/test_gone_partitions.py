"""The back-off of a partition goes when the partition has been gone for as long as the ledger keeps work."""

from __future__ import annotations

import pytest

from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.ports.stored import BatchStatus
from iceberg_maint_tests.ledger.conftest import Place
from iceberg_maint_tests.support.ledger.values import (
    NAME,
    OTHER_UUID,
    PROOF,
    REWRITE,
    TABLE,
    UUID,
    make_batch,
    measured,
    outcome_of,
    plan_of,
    written,
)

DAY_MS = 86_400_000
FAILED = PartitionHistory(ineffective=1, not_before_ms=1, reason="it failed")


def back_offs(ledger, table_uuid: str = UUID, operation: Operation = REWRITE) -> set[str]:
    return set(ledger.health.history(table_uuid, NAME, operation).partitions)


def observe(ledger, *partitions: str, sequence_number: int) -> None:
    ledger.health.put(measured(*partitions, sequence_number=sequence_number))


def gone(ledger, place: Place, days: int = 31) -> None:
    """The partitions `a` and `b` have a back-off; `b` is missing since as many days, in two observations."""
    observe(ledger, "a", "b", sequence_number=1)
    ledger.health.set_partition_history(UUID, REWRITE, {"a": FAILED, "b": FAILED, "*": FAILED})
    observe(ledger, "a", sequence_number=2)
    observe(ledger, "a", sequence_number=3)
    place.age("icm_partition_missing", "since_ms", days * DAY_MS)


def test_back_off_of_a_partition_gone_longer_than_work_is_kept_is_deleted(ledger, place: Place):
    gone(ledger, place)
    ledger.health.set_partition_history(OTHER_UUID, REWRITE, {"b": FAILED})
    assert ledger.records.prune(UUID, 30) == 2
    assert back_offs(ledger) == {"a", "*"}
    assert back_offs(ledger, OTHER_UUID) == {"b"}
    assert (ledger.health.missing_partitions(TABLE), ledger.records.prune(UUID, 30)) == ((), 0)


def test_back_off_of_a_partition_gone_for_less_stays(ledger, place: Place):
    gone(ledger, place, days=29)
    assert ledger.records.prune(UUID, 30) == 0
    assert (back_offs(ledger), ledger.health.missing_partitions(TABLE)) == ({"a", "b", "*"}, ("b",))


def test_back_off_of_a_partition_that_one_observation_lacks_stays(ledger, place: Place):
    observe(ledger, "a", "b", sequence_number=1)
    ledger.health.set_partition_history(UUID, REWRITE, {"b": FAILED})
    observe(ledger, "a", sequence_number=2)
    place.age("icm_partition_missing", "since_ms", 31 * DAY_MS)
    assert ledger.records.prune(UUID, 30) == 0
    assert (back_offs(ledger), ledger.health.missing_partitions(TABLE)) == ({"b"}, ("b",))


def test_back_off_of_a_partition_that_is_back_stays(ledger, place: Place):
    gone(ledger, place)
    observe(ledger, "a", "b", sequence_number=4)
    assert ledger.records.prune(UUID, 30) == 0
    assert back_offs(ledger) == {"a", "b", "*"}


@pytest.mark.parametrize("form", ["another version", "governed"])
def test_back_off_stays_while_no_stored_health_names_the_partitions(ledger, place: Place, form: str):
    gone(ledger, place)
    place.sql(f"UPDATE icm_health SET form = '{form}'")
    assert ledger.records.prune(UUID, 30) == 0
    assert back_offs(ledger) == {"a", "b", "*"}


@pytest.mark.parametrize("status", [None, BatchStatus.STARTED, BatchStatus.UNKNOWN])
def test_back_off_stays_while_work_of_the_partition_is_open_and_goes_after_it(
    ledger, place: Place, status: BatchStatus | None
):
    gone(ledger, place)
    lease = ledger.leases.acquire(UUID, NAME, "run-1", 60, 0)
    ledger.work.save_plan(lease, plan_of("b"))
    batch = make_batch("b")
    if status is not None:
        attempt = ledger.work.start_attempt(lease, batch.batch_id, "run-1", {"b": FAILED})
    if status is BatchStatus.UNKNOWN:
        ledger.work.record_intent(lease, attempt.attempt_id, written(batch), PROOF)
        ledger.work.record_try(lease, attempt.attempt_id, 1, "v1.json")
        ledger.work.finish_attempt(lease, attempt.attempt_id, status, outcome_of(batch), {"b": FAILED})
        ledger.work.close_batch(lease, batch.batch_id)
    assert ledger.records.prune(UUID, 30) == 0
    assert (back_offs(ledger), ledger.health.missing_partitions(TABLE)) == ({"a", "b", "*"}, ("b",))
    if status is None:
        ledger.work.close_batch(lease, batch.batch_id)
        assert ledger.records.prune(UUID, 30) == 2
        assert back_offs(ledger) == {"a", "*"}


def test_back_off_of_a_partition_that_the_stored_health_has_stays_whatever_is_noted_as_missing(
    ledger, place: Place
):
    gone(ledger, place, days=29)
    place.sql(f"INSERT INTO icm_partition_missing VALUES ('{UUID}', 'a', 5, 0)")
    assert ledger.records.prune(UUID, 30) == 0
    assert back_offs(ledger) == {"a", "b", "*"}
