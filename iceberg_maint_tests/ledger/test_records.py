from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import BigInteger, literal, select

from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.ledger import pruning
from iceberg_maint.ledger.batches import OutOfOrderError
from iceberg_maint.ledger.schema import metadata
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
    make_record,
    measured,
    outcome_of,
    plan_of,
    written,
)

OTHER = TableId("lake", ("db",), "other")
RENAMED = TableId("lake", ("db",), "events_old")
DAY_MS = 86_400_000


def ids(ledger, table: str | None, limit: int = 10) -> list[str]:
    return [r.record_id for r in ledger.records.newest(table, limit)]


def test_records_round_trip_newest_first(ledger):
    first, second = make_record("r1"), make_record("r2")
    ledger.records.append(first)
    ledger.records.append(second)
    assert ledger.records.newest(None, 10) == (second, first)


def test_records_of_one_table_and_up_to_the_limit(ledger):
    for number in range(3):
        ledger.records.append(make_record(f"r{number}"))
        ledger.records.append(make_record(f"o{number}", OTHER, OTHER_UUID))
    assert ids(ledger, NAME) == ["r2", "r1", "r0"]
    assert ids(ledger, str(OTHER), 2) == ["o2", "o1"]
    assert ids(ledger, None, 3) == ["o2", "r2", "o1"]
    assert ids(ledger, "lake.db.nothing") == []


def test_records_follow_a_table_through_a_rename(ledger):
    ledger.records.append(make_record("before"))
    ledger.health.put(measured("day=1", table=RENAMED))
    ledger.records.append(make_record("after", RENAMED))
    assert ids(ledger, str(RENAMED)) == ["after", "before"]


def test_append_record_again_changes_nothing_and_another_under_its_id_is_refused(ledger):
    ledger.records.append(make_record("r1"))
    ledger.records.append(make_record("r1"))
    with pytest.raises(OutOfOrderError, match="r1 already exists with other contents"):
        ledger.records.append(make_record("r1", OTHER))
    assert ledger.records.newest(None, 10) == (make_record("r1"),)


def test_last_proved_is_the_newest_record_with_a_batch_that_is_committed_and_proved(ledger):
    def of_batches(record_id: str, **changes: object) -> Record:
        record = make_record(record_id)
        [batch] = record.outcome.batches
        unproved = replace(batch, batch_id="unproved", proof=None)
        batches = (replace(batch, **changes), unproved)
        return replace(record, outcome=replace(record.outcome, batches=batches))

    ledger.records.append(make_record("proved"))
    ledger.records.append(of_batches("not committed", snapshot_after=None))
    assert ledger.records.last_proved(NAME).record_id == "proved"


def test_prune_keeps_work_that_ended_exactly_as_long_ago_as_work_is_kept(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    ledger = place.open()
    lease = ledger.leases.acquire(UUID, NAME, "run-1", 60, 0)
    batch = make_batch("superseded")
    ledger.work.save_plan(lease, plan_of("superseded"))
    ledger.work.close_batch(lease, batch.batch_id)
    ledger.records.append(make_record("r1"))
    ledger.records.append(make_record("r2"))
    place.sql("UPDATE icm_batch SET updated_ms = 5000")
    place.sql("UPDATE icm_record SET appended_ms = 5000")
    monkeypatch.setattr(pruning, "NOW", select(literal(5000 + 30 * DAY_MS, BigInteger)))
    assert ledger.records.prune(UUID, 30) == 0
    monkeypatch.setattr(pruning, "NOW", select(literal(5001 + 30 * DAY_MS, BigInteger)))
    assert ledger.records.prune(UUID, 30) == 2
    ledger.close()


def _age_all(place: Place, days: int) -> None:
    for table, column in (
        ("icm_batch", "updated_ms"),
        ("icm_record", "appended_ms"),
        ("icm_partition_missing", "since_ms"),
    ):
        place.age(table, column, days * DAY_MS)


def _run(ledger, lease, partition: str, status: BatchStatus) -> None:
    batch = make_batch(partition)
    attempt = ledger.work.start_attempt(lease, batch.batch_id, "run-1", {partition: PartitionHistory(1)})
    ledger.work.record_intent(lease, attempt.attempt_id, written(batch), PROOF)
    ledger.work.record_try(lease, attempt.attempt_id, 1, "v1.json")
    ledger.work.finish_attempt(lease, attempt.attempt_id, status, outcome_of(batch), {})


def test_prune_drops_ended_work_and_keeps_open_work_cursor_and_fence(ledger, place: Place):
    lease = ledger.leases.acquire(UUID, NAME, "run-1", 60, 0)
    names = ("done", "done later", "failed", "planned", "started", "unknown", "closed unknown", "superseded")
    ledger.work.save_plan(lease, plan_of(*names))
    _run(ledger, lease, "done", BatchStatus.DONE)
    _run(ledger, lease, "done later", BatchStatus.DONE)
    _run(ledger, lease, "failed", BatchStatus.FAILED)
    _run(ledger, lease, "unknown", BatchStatus.UNKNOWN)
    _run(ledger, lease, "closed unknown", BatchStatus.UNKNOWN)
    ledger.work.close_batch(lease, make_batch("closed unknown").batch_id)
    ledger.work.close_batch(lease, make_batch("superseded").batch_id)
    ledger.work.start_attempt(lease, make_batch("started").batch_id, "run-1", {})
    ledger.records.append(make_record("r1"))
    ledger.records.append(make_record("r2"))
    attempts, batches = ledger.work.open_attempts(UUID), ledger.work.open_batches(UUID, REWRITE)
    cursor = ledger.work.cursors(UUID).get(REWRITE)
    last_done_ms = ledger.health.history(UUID, NAME, REWRITE).last_done_ms
    assert ledger.records.prune(UUID, 30) == 0

    _age_all(place, 31)
    # 3 batches, 2 attempts with intent, try and outcome each, and the older record.
    assert ledger.records.prune(UUID, 30) == 3 + 2 * 4 + 1
    assert ledger.records.prune(UUID, 30) == 0
    assert ledger.work.open_attempts(UUID) == attempts
    assert ledger.work.open_batches(UUID, REWRITE) == batches
    assert (cursor.window_batches, cursor.window_done) == (8, 2)
    assert ledger.work.cursors(UUID) == {REWRITE: replace(cursor, window_batches=5, window_done=1)}
    assert ledger.health.history(UUID, NAME, REWRITE).last_done_ms == last_done_ms is not None
    assert set(ledger.health.history(UUID, NAME, REWRITE).partitions) == {
        "done",
        "done later",
        "failed",
        "unknown",
        "closed unknown",
    }
    kept = place.sql("SELECT batch_id FROM icm_batch WHERE status = 'SUPERSEDED'")
    assert kept == [(make_batch("closed unknown").batch_id,)]
    assert ledger.leases.acquire(UUID, NAME, "run-1", 60, 0).fence == 2


def test_prune_keeps_what_is_younger(ledger, place: Place):
    ledger.records.append(make_record("old"))
    _age_all(place, 31)
    ledger.records.append(make_record("new"))
    assert ledger.records.prune(UUID, 30) == 1
    assert ids(ledger, None) == ["new"]


def test_prune_keeps_the_newest_record_and_other_tables(ledger, place: Place):
    ledger.records.append(make_record("only"))
    _age_all(place, 31)
    assert ledger.records.prune(UUID, 30) == 0
    ledger.records.append(make_record("newer"))
    assert ledger.records.prune("another", 30) == 0
    assert ids(ledger, None) == ["newer", "only"]


def test_prune_forgets_partitions_long_gone(ledger, place: Place):
    for sequence_number, keys in enumerate((("a", "b"), ("a",), ("a",)), 1):
        ledger.health.put(measured(*keys, sequence_number=sequence_number))
    assert ledger.health.retired_partitions(TABLE) == ("b",)
    _age_all(place, 31)
    assert ledger.records.prune(UUID, 30) == 1
    assert ledger.health.retired_partitions(TABLE) == ()


def _with_work(ledger, status: BatchStatus) -> None:
    """A table with one attempt, its record, a back-off and a registered reader; no owner has it."""
    lease = ledger.leases.acquire(UUID, NAME, "run-1", 60, 0)
    ledger.work.save_plan(lease, plan_of("day=1"))
    [batch] = plan_of("day=1").batches
    attempt = ledger.work.start_attempt(
        lease, batch.batch_id, "run-1", {"day=1": PartitionHistory(crashes=1)}
    )
    ledger.work.record_intent(lease, attempt.attempt_id, written(batch), PROOF)
    ledger.work.record_try(lease, attempt.attempt_id, 1, "v1.json")
    kept = {"day=1": PartitionHistory(ineffective=1, not_before_ms=1)}
    ledger.work.finish_attempt(lease, attempt.attempt_id, status, outcome_of(batch), kept)
    ledger.records.append(make_record("r1"))
    ledger.registry.put_reader(UUID, "reader", 1)
    ledger.leases.release(lease)


def _age_everything(place: Place) -> None:
    for table, column in (("batch", "updated_ms"), ("record", "appended_ms"), ("outcome", "recorded_ms")):
        place.sql(f"UPDATE icm_{table} SET {column} = {column} - {31 * DAY_MS}")


def test_everything_of_a_table_that_was_dropped_long_ago_goes_but_its_fence(ledger, place: Place):
    _with_work(ledger, BatchStatus.DONE)
    ledger.health.put(measured("day=1"))
    _age_everything(place)
    assert (ledger.records.dropped_tables(), ledger.records.prune_dropped(UUID, 30)) == ((), 0)
    ledger.health.forget_table(TABLE)
    [dropped] = ledger.records.dropped_tables()
    assert (dropped.table_uuid, dropped.name, dropped.idle_seconds // 86_400) == (UUID, NAME, 31)
    assert ledger.records.prune_dropped(UUID, 32) == 0
    assert ledger.records.prune_dropped(UUID, 30) == 10
    assert ledger.records.dropped_tables() == ()
    names = [name for name in metadata.tables if "table_uuid" in metadata.tables[name].columns]
    rows = {
        name: place.sql(f"SELECT COUNT(*) FROM {name}")[0][0] for name in [*names, "icm_try", "icm_intent"]
    }
    assert {name: count for name, count in rows.items() if count} == {"icm_lease": 1}
    assert ledger.leases.acquire(UUID, NAME, "run-2", 60, 0).fence == 2


def test_dropped_table_with_an_open_attempt_or_an_owner_keeps_its_work(ledger, place: Place):
    _with_work(ledger, BatchStatus.UNKNOWN)
    _age_everything(place)
    assert len(ledger.records.dropped_tables()) == 1
    assert ledger.records.prune_dropped(UUID, 30) == 0
    ledger.leases.acquire(UUID, NAME, "run-2", 60, 0)
    assert ledger.records.dropped_tables() == ()
    assert len(ledger.work.open_attempts(UUID)) == 1
