"""Conversions and rewrites of one table, side by side in one ledger."""

from __future__ import annotations

from dataclasses import replace

from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import CommitStatus
from iceberg_maint.core.outcomes.record import Settlement
from iceberg_maint.core.planning.batch_memory import MemoryNeed, MemoryUse
from iceberg_maint.core.planning.batch_trials import BatchSize, CommitTrial
from iceberg_maint.core.planning.plan import make_plan
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.stored import BatchStatus, Lease
from iceberg_maint_tests.ledger.conftest import Place
from iceberg_maint_tests.support.batches import with_work
from iceberg_maint_tests.support.ledger.values import (
    CONVERT,
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

BOTH = (CONVERT, REWRITE)
MIB = 1024 * 1024


def attempt(ledger: Ledger, lease: Lease, operation, history: PartitionHistory | None = None):
    """An attempt on day=1 that has reached its commit."""
    batch = make_batch("day=1", operation=operation)
    ledger.work.save_plan(lease, plan_of("day=1", operation=operation))
    histories = {} if history is None else {"day=1": history}
    started = ledger.work.start_attempt(lease, batch.batch_id, "run-1", histories)
    ledger.work.record_intent(lease, started.attempt_id, written(batch), PROOF)
    ledger.work.record_try(lease, started.attempt_id, 1, "v1.json")
    return started


def test_batches_of_one_partition_are_open_each_for_its_operation(ledger, lease):
    for operation in BOTH:
        ledger.work.save_plan(lease, plan_of("day=1", operation=operation))
    for operation in BOTH:
        (stored,) = ledger.work.open_batches(UUID, operation)
        assert stored.batch == make_batch("day=1", operation=operation)
    ledger.work.close_batch(lease, make_batch("day=1", operation=CONVERT).batch_id)
    assert ledger.work.open_batches(UUID, CONVERT) == ()
    assert len(ledger.work.open_batches(UUID, REWRITE)) == 1


def test_histories_of_one_partition_are_kept_and_released_each_for_its_operation(ledger, lease):
    ahead = {CONVERT: PartitionHistory(crashes=1), REWRITE: PartitionHistory(ineffective=3, quarantined=True)}
    for operation in BOTH:
        attempt(ledger, lease, operation, ahead[operation])
    for operation in BOTH:
        assert ledger.health.history(UUID, NAME, operation).of("day=1") == ahead[operation]
    ledger.health.set_partition_history(UUID, CONVERT, {"day=1": PartitionHistory()})
    assert ledger.health.history(UUID, NAME, CONVERT).partitions == {}
    assert ledger.health.history(UUID, NAME, REWRITE).of("day=1") == ahead[REWRITE]
    ledger.health.set_partition_history(UUID, REWRITE, {"day=1": PartitionHistory()})
    assert ledger.health.history(UUID, NAME, REWRITE).partitions == {}


def test_outcome_of_one_operation_counts_nowhere_in_the_other(ledger, lease):
    converted, rewritten = (attempt(ledger, lease, operation) for operation in BOTH)
    batch = make_batch("day=1", operation=CONVERT)
    ledger.work.finish_attempt(lease, converted.attempt_id, BatchStatus.DONE, outcome_of(batch), {})
    lost = outcome_of(make_batch("day=1"), snapshot_after=None)
    ledger.work.finish_attempt(lease, rewritten.attempt_id, BatchStatus.UNKNOWN, lost, {})
    seen = {o: ledger.health.history(UUID, NAME, o) for o in BOTH}
    assert [(seen[o].hour_partitions, seen[o].unknown_commits) for o in BOTH] == [(1, 0), (1, 1)]
    assert ledger.work.cursors(UUID).get(CONVERT).batch_id == batch.batch_id
    assert ledger.work.cursors(UUID).get(REWRITE) is None
    assert ledger.work.open_batches(UUID, CONVERT) == ()
    assert len(ledger.work.open_batches(UUID, REWRITE)) == 1


def test_open_attempts_are_of_both_with_the_files_that_prove_them(ledger, lease):
    started = [attempt(ledger, lease, operation) for operation in BOTH]
    seen = ledger.work.open_attempts(UUID)
    assert [a.attempt_id for a in seen] == [a.attempt_id for a in started]
    assert [a.operation for a in seen] == list(BOTH)
    assert [a.files for a in seen] == [written(make_batch("day=1", operation=o)) for o in BOTH]


def test_settling_one_operation_leaves_the_others_batch_alone(ledger, lease):
    converted, rewritten = (attempt(ledger, lease, operation) for operation in BOTH)
    done = Settlement(CommitStatus.COMMITTED, 2, "its token is in the table")
    ledger.work.settle_attempt(lease, converted.attempt_id, done, BatchStatus.DONE)
    assert ledger.work.open_batches(UUID, CONVERT) == ()
    (stored,) = ledger.work.open_batches(UUID, REWRITE)
    assert stored.status is BatchStatus.STARTED
    assert [a.attempt_id for a in ledger.work.open_attempts(UUID)] == [rewritten.attempt_id]


def measure(ledger: Ledger, lease: Lease, partition: str, operation, use: MemoryUse | None) -> None:
    """A batch that ended having used so much memory."""
    need = MemoryNeed(keys=1000, key_bytes=16, rows=5000)
    batch = with_work(make_batch(partition, operation=operation), memory=need)
    ledger.work.save_plan(lease, make_plan(NAME, UUID, operation, 1, (batch,), ()))
    started = ledger.work.start_attempt(lease, batch.batch_id, "run-1", {})
    reported = replace(outcome_of(batch), memory=use)
    ledger.work.finish_attempt(lease, started.attempt_id, BatchStatus.FAILED, reported, {})


def test_memory_uses_are_newest_first_of_the_table(ledger, lease):
    uses = [
        MemoryUse(100 * MIB, 80 * MIB, 4, 1),
        MemoryUse(150 * MIB, 150 * MIB, 4, 1, correction=1.5),
        MemoryUse(100 * MIB, 0, 4, 2, exceeded=True),
    ]
    for day, use in enumerate(uses):
        measure(ledger, lease, f"day={day}", (CONVERT, REWRITE)[day % 2], use)
    measure(ledger, lease, "day=9", CONVERT, None)
    assert ledger.records.memory_uses(UUID) == tuple(reversed(uses))
    assert ledger.records.memory_uses(UUID, limit=1) == (uses[-1],)
    assert ledger.records.memory_uses(OTHER_UUID) == ()


def test_commit_trials_are_the_landed_and_the_lost_batches_oldest_first(ledger, lease):
    reported = [
        (BatchStatus.DONE, {"snapshot_after": 2}),
        (BatchStatus.FAILED, {"snapshot_after": None, "reason": Reason.CONFLICT}),
        (BatchStatus.FAILED, {"snapshot_after": None, "reason": Reason.STALE}),
        (BatchStatus.FAILED, {"snapshot_after": None, "reason": Reason.CONFLICT, "input_files": 7}),
    ]
    for day, (status, facts) in enumerate(reported):
        batch = make_batch(f"day={day}")
        ledger.work.save_plan(lease, make_plan(NAME, UUID, REWRITE, 1, (batch,), ()))
        started = ledger.work.start_attempt(lease, batch.batch_id, f"run-{day}", {})
        ledger.work.record_intent(lease, started.attempt_id, (), PROOF)
        ledger.work.record_try(lease, started.attempt_id, 1, "v1.json")
        ledger.work.finish_attempt(lease, started.attempt_id, status, replace(outcome_of(batch), **facts), {})
    size = BatchSize(2, 150, 1)
    assert ledger.records.commit_trials(UUID, REWRITE) == (
        CommitTrial("run-0", size, landed=True),
        CommitTrial("run-1", size, landed=False),
        CommitTrial("run-3", replace(size, files=7), landed=False),
    )
    assert (
        ledger.records.commit_trials(UUID, REWRITE, limit=1)
        == ledger.records.commit_trials(UUID, REWRITE)[-1:]
    )
    assert (
        ledger.records.commit_trials(UUID, CONVERT) == ledger.records.commit_trials(OTHER_UUID, REWRITE) == ()
    )


def test_last_outcomes_are_those_of_the_operation_newest_first(ledger, lease):
    for day in range(4):
        measure(ledger, lease, f"day={day}", (CONVERT, REWRITE)[day % 2], None)
    found = ledger.records.last_outcomes([UUID, OTHER_UUID], REWRITE, 10)
    assert {uuid: [o.partitions for o in outcomes] for uuid, outcomes in found.items()} == {
        UUID: [("day=3",), ("day=1",)]
    }
    assert [o.partitions for o in ledger.records.last_outcomes([UUID], CONVERT, 1)[UUID]] == [("day=2",)]


def test_memory_uses_of_a_settled_attempt_are_none(ledger, lease, place: Place):
    started = attempt(ledger, lease, CONVERT)
    said = Settlement(CommitStatus.REJECTED, None, 'who says "memory":{ here')
    ledger.work.settle_attempt(lease, started.attempt_id, said, BatchStatus.PLANNED)
    assert ledger.records.memory_uses(UUID) == ()
