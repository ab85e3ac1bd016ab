from __future__ import annotations

import pytest
from sqlalchemy import event

from iceberg_maint.core.decisions.history import PartitionHistory, TableHistory
from iceberg_maint.core.model.ids import DATA_OPERATIONS, TableId
from iceberg_maint.core.outcomes.outcome import CommitStatus
from iceberg_maint.core.outcomes.record import Settlement
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.stored import Attempt, BatchStatus, Lease
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

RENAMED = TableId("lake", ("db",), "events_old")
HOUR_MS = 3_600_000


def history(ledger: Ledger, table: str = NAME, table_uuid: str = UUID) -> TableHistory:
    return ledger.health.history(table_uuid, table, REWRITE)


def attempt_on(ledger: Ledger, lease: Lease, partition: str, snapshot_id: int = 1) -> Attempt:
    """An attempt that has reached its commit."""
    batch = make_batch(partition, snapshot_id)
    ledger.work.save_plan(lease, plan_of(partition, snapshot_id=snapshot_id))
    attempt = ledger.work.start_attempt(lease, batch.batch_id, "run-1", {})
    ledger.work.record_intent(lease, attempt.attempt_id, written(batch), PROOF)
    ledger.work.record_try(lease, attempt.attempt_id, 1, "v1.json")
    return attempt


def run(ledger: Ledger, lease: Lease, partition: str, status: BatchStatus, snapshot_id: int = 1) -> Attempt:
    attempt = attempt_on(ledger, lease, partition, snapshot_id)
    outcome = outcome_of(make_batch(partition, snapshot_id))
    ledger.work.finish_attempt(lease, attempt.attempt_id, status, outcome, {})
    return attempt


def test_history_of_an_unknown_table_is_clean(ledger):
    assert history(ledger) == TableHistory()


def test_partition_history_round_trips_and_a_clean_one_leaves_no_row(ledger, place: Place):
    quarantined = PartitionHistory(3, 1, 1_795_263_070_122, quarantined=True, reason="no effect: 'x'")
    waiting = PartitionHistory(ineffective=1, not_before_ms=5)
    ledger.health.set_partition_history(UUID, REWRITE, {"day=1": quarantined, "day=2": waiting})
    assert history(ledger).partitions == {"day=1": quarantined, "day=2": waiting}
    ledger.health.set_partition_history(UUID, REWRITE, {"day=1": PartitionHistory()})
    assert history(ledger).partitions == {"day=2": waiting}
    assert place.sql("SELECT COUNT(*) FROM icm_partition_history") == [(1,)]


def test_partition_history_is_of_one_table_and_operation(ledger):
    ledger.health.set_partition_history(UUID, REWRITE, {"day=1": PartitionHistory(ineffective=1)})
    assert history(ledger, table_uuid=OTHER_UUID).partitions == {}
    assert ledger.health.history(UUID, NAME, "rewrite_manifests").partitions == {}


def test_last_done_is_that_of_the_table(ledger, lease):
    run(ledger, lease, "day=1", BatchStatus.DONE)
    assert ledger.leases.acquire(OTHER_UUID, "lake.db.other", "run-1", 60, 0) is not None
    assert history(ledger).last_done_ms is not None
    assert history(ledger, "lake.db.other", OTHER_UUID).last_done_ms is None


def test_hour_counts_distinct_partitions_and_all_bytes(ledger, lease):
    run(ledger, lease, "day=1", BatchStatus.DONE)
    run(ledger, lease, "day=1", BatchStatus.FAILED, snapshot_id=2)
    run(ledger, lease, "day=2", BatchStatus.UNKNOWN)
    seen = history(ledger)
    assert (seen.hour_partitions, seen.hour_bytes) == (2, 450)


def test_hour_forgets_what_is_older(ledger, lease, place: Place):
    run(ledger, lease, "day=1", BatchStatus.DONE)
    place.age("icm_outcome", "recorded_ms", HOUR_MS - 60_000)
    assert history(ledger).hour_bytes == 150
    place.age("icm_outcome", "recorded_ms", 60_000)
    assert (history(ledger).hour_partitions, history(ledger).hour_bytes) == (0, 0)


def test_hour_does_not_count_a_batch_that_was_handed_back(ledger, lease):
    run(ledger, lease, "day=1", BatchStatus.PLANNED)
    assert (history(ledger).hour_partitions, history(ledger).hour_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("commit", "status", "counted"),
    [
        (CommitStatus.COMMITTED, BatchStatus.DONE, (1, 150)),
        (CommitStatus.REJECTED, BatchStatus.PLANNED, (0, 0)),
        (CommitStatus.UNKNOWN, BatchStatus.PLANNED, (0, 0)),
    ],
)
def test_hour_counts_a_crashed_attempt_when_it_is_found_committed(ledger, lease, commit, status, counted):
    attempt = attempt_on(ledger, lease, "day=1")
    ledger.work.settle_attempt(lease, attempt.attempt_id, Settlement(commit, None, "why"), status)
    assert (history(ledger).hour_partitions, history(ledger).hour_bytes) == counted


def test_hour_counts_an_unknown_commit_once(ledger, lease):
    attempt = run(ledger, lease, "day=1", BatchStatus.UNKNOWN)
    committed = Settlement(CommitStatus.COMMITTED, 2, "why")
    ledger.work.settle_attempt(lease, attempt.attempt_id, committed, BatchStatus.DONE)
    assert (history(ledger).hour_partitions, history(ledger).hour_bytes) == (1, 150)


def test_unknown_commits_are_attempts_reported_or_settled_unknown(ledger, lease):
    reported = run(ledger, lease, "day=1", BatchStatus.UNKNOWN)
    dead = attempt_on(ledger, lease, "day=2")
    assert history(ledger).unknown_commits == 1
    unknown = Settlement(CommitStatus.UNKNOWN, None, "neither")
    ledger.work.settle_attempt(lease, dead.attempt_id, unknown, BatchStatus.UNKNOWN)
    ledger.work.settle_attempt(lease, reported.attempt_id, unknown, BatchStatus.UNKNOWN)
    assert history(ledger).unknown_commits == 2
    rejected = Settlement(CommitStatus.REJECTED, None, "moved on")
    ledger.work.settle_attempt(lease, dead.attempt_id, rejected, BatchStatus.PLANNED)
    assert history(ledger).unknown_commits == 1


def test_lease_owner_is_shown_until_the_lease_ends(ledger, lease, place: Place):
    assert history(ledger).lease_owner == "run-1"
    place.expire(lease)
    assert history(ledger).lease_owner is None
    again = ledger.leases.acquire(UUID, NAME, "run-2", 60, 0)
    assert history(ledger).lease_owner == "run-2"
    ledger.leases.release(again)
    assert history(ledger).lease_owner is None


def test_pause_table_holds_until_resume(ledger):
    ledger.registry.pause(NAME, "looking at it")
    assert (history(ledger).paused, history(ledger).paused_reason) == (True, "looking at it")
    assert not history(ledger, "lake.db.other", OTHER_UUID).paused
    ledger.registry.resume(NAME)
    assert history(ledger) == TableHistory()


def test_pauses_name_operator_time_and_note_with_the_tables_own_first(ledger):
    ledger.health.put(measured("day=1"))
    before_ms = ledger.registry.now_ms()
    ledger.registry.pause(NAME, "migration", "anna")
    ledger.registry.pause("*", "catalog moves", "ben")
    own, fleet = history(ledger).pauses
    assert (own.note, own.by, own.fleet) == ("migration", "anna", False)
    assert (fleet.note, fleet.by, fleet.fleet) == ("catalog moves", "ben", True)
    assert before_ms <= own.since_ms <= fleet.since_ms <= ledger.registry.now_ms()
    assert [(p.table, p.table_uuid, p.pause) for p in ledger.registry.pauses()] == [
        ("*", None, fleet),
        (NAME, UUID, own),
    ]


def test_pause_again_replaces_the_note(ledger):
    ledger.registry.pause(NAME, "one")
    ledger.registry.pause(NAME, "two")
    assert history(ledger).paused_reason == "two"


def test_pause_fleet_holds_for_every_table_and_a_tables_own_note_comes_first(ledger):
    ledger.registry.pause(NAME, "this one")
    ledger.registry.pause("*", "all of them")
    assert history(ledger).paused_reason == "this one"
    assert history(ledger, "lake.db.other", OTHER_UUID).paused_reason == "all of them"
    ledger.registry.resume("*")
    assert history(ledger).paused
    assert not history(ledger, "lake.db.other", OTHER_UUID).paused


def test_pause_without_a_note_pauses(ledger):
    ledger.registry.pause(NAME, "")
    assert history(ledger).paused


def test_pause_follows_the_table_through_a_rename_and_ends_by_its_new_name(ledger):
    ledger.health.put(measured("day=1"))
    ledger.registry.pause(NAME, "looking at it")
    ledger.health.put(measured("day=1", sequence_number=2, table=RENAMED))
    assert history(ledger, str(RENAMED)).paused
    ledger.registry.resume(str(RENAMED))
    assert not history(ledger, str(RENAMED)).paused


def test_pause_of_a_renamed_table_that_was_not_measured_since_ends_by_its_uuid(ledger):
    ledger.health.put(measured("day=1"))
    ledger.registry.pause(NAME, "looking at it")
    ledger.registry.resume(str(RENAMED))
    assert history(ledger, str(RENAMED)).paused
    ledger.registry.resume(str(RENAMED), UUID)
    assert not history(ledger, str(RENAMED)).paused


def test_pause_holds_for_a_table_created_again_under_the_name(ledger):
    ledger.health.put(measured("day=1"))
    ledger.registry.pause(NAME, "looking at it")
    assert history(ledger, str(TABLE), OTHER_UUID).paused


def test_last_report_is_the_newest_of_the_operation_that_was_reported(ledger, lease):
    assert ledger.records.last_report(UUID, REWRITE) is None
    run(ledger, lease, "p=1", BatchStatus.DONE)
    run(ledger, lease, "p=2", BatchStatus.FAILED)
    last = ledger.records.last_report(UUID, REWRITE)
    assert last.outcome == outcome_of(make_batch("p=2", 1))
    assert abs(last.recorded_ms - ledger.registry.now_ms()) < HOUR_MS
    died = attempt_on(ledger, lease, "p=3")
    ledger.work.settle_attempt(
        lease, died.attempt_id, Settlement(CommitStatus.REJECTED, None, "never swapped"), BatchStatus.FAILED
    )
    assert ledger.records.last_report(UUID, REWRITE) == last
    assert ledger.records.last_report(OTHER_UUID, REWRITE) is None
    assert ledger.records.last_report(UUID, "expire_snapshots") is None


def test_histories_of_many_tables_are_those_of_each(ledger: Ledger, lease: Lease) -> None:
    run(ledger, lease, "a", BatchStatus.DONE)
    run(ledger, lease, "b", BatchStatus.UNKNOWN)
    run(ledger, lease, "c", BatchStatus.FAILED)
    ledger.health.set_partition_history(
        UUID, REWRITE, {"a": PartitionHistory(ineffective=2, not_before_ms=5)}
    )
    ledger.health.set_partition_history(OTHER_UUID, REWRITE, {"z": PartitionHistory(quarantined=True)})
    ledger.health.put(measured("a"))
    names = {UUID: NAME, OTHER_UUID: "lake.db.other", "unknown": "lake.db.unknown"}
    for paused in ((), (NAME,), ("lake.db.other",), (NAME, "*")):
        for name in paused:
            ledger.registry.pause(name, f"of {name}")
        histories = ledger.health.histories(names)
        assert histories == {
            (uuid, o): ledger.health.history(uuid, name, o)
            for uuid, name in names.items()
            for o in DATA_OPERATIONS
        }
        for name in paused:
            ledger.registry.resume(name)
    assert histories[UUID, REWRITE].lease_owner == "run-1"
    assert histories[UUID, REWRITE].unknown_commits == 1
    assert histories[OTHER_UUID, REWRITE].partitions == {"z": PartitionHistory(quarantined=True)}


def test_histories_of_more_tables_take_no_statement_for_each(ledger: Ledger) -> None:
    ledger.registry.now_ms()
    statements: list[str] = []
    engine = ledger.work._database._open()
    event.listen(engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    ledger.health.histories({f"uuid-{n}": f"lake.db.t{n}" for n in range(400)})
    assert len([s for s in statements if s.startswith("SELECT")]) == 6


def test_reader_reported_again_or_removed_changes_no_other_reader(ledger: Ledger) -> None:
    for uuid, name in ((UUID, "a"), (UUID, "b"), (OTHER_UUID, "a")):
        ledger.registry.put_reader(uuid, name, 1)
    ledger.registry.put_reader(UUID, "a", 2)
    assert not ledger.registry.remove_reader(UUID, "c")
    assert ledger.registry.remove_reader(UUID, "b")
    assert [(r.name, r.snapshot_id) for r in ledger.registry.readers(UUID)] == [("a", 2)]
    assert [(r.name, r.snapshot_id) for r in ledger.registry.readers(OTHER_UUID)] == [("a", 1)]
