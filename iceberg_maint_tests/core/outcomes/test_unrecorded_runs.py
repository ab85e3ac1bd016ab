"""What is told of a run that could not tell it itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.model.codec import dumps, loads
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import Snapshot, TableState
from iceberg_maint.core.outcomes.outcome import BatchOutcome, CommitStatus, OutcomeStatus
from iceberg_maint.core.outcomes.record import AttemptTrace, Record, RunTrace, Settlement, record_of
from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.core.planning.plan import Batch, BatchBody
from iceberg_maint.core.planning.work import ExpireSnapshots, FileGroup, InputFile
from iceberg_maint_tests.support.core.values import small, table_of

PROOF = Proof("full", equal=True, input_records=20, output_records=20, removed_records=0)
COMMITTED = Settlement(CommitStatus.COMMITTED, 7, "its token is in the table")
REJECTED = Settlement(CommitStatus.REJECTED, None, "the table moved past its base without its token")
UNKNOWN = Settlement(CommitStatus.UNKNOWN, None, "neither its token nor a later commit is in the table")


def batch(partition: str, files: int = 2, operation: Operation = Operation.REWRITE_DATA_FILES) -> Batch:
    inputs = tuple(InputFile(f"{partition}/{i}", 50, 10, 1) for i in range(files))
    return BatchBody(
        batch_id=f"batch {partition}",
        table="lake.db.t",
        table_uuid="u",
        operation=operation,
        strategy="native",
        format_version=2,
        snapshot_id=5,
        snapshot_sequence_number=1,
        schema_id=0,
        groups=(FileGroup(partition, 0, 0, inputs, 1),),
        target_file_size_bytes=1000,
        reasons=(Reason.SMALL_FILES,),
    ).batch()


def reported(of: Batch, status: OutcomeStatus, reason: Reason, **more: object) -> BatchOutcome:
    outcome = BatchOutcome(of.batch_id, of.partitions, status, reason, 2, 1, 100, 90, 0, 3.5, 5, 6)
    return replace(outcome, **more)  # type: ignore[arg-type]


def trace(
    of: Batch, settled: Settlement | None = None, told: BatchOutcome | None = None, *sizes: int
) -> AttemptTrace:
    proof = PROOF if sizes else None
    return AttemptTrace(of, 1000, 3500, len(sizes), sizes, proof, told, settled)


def state(removed_deletes: int = 0) -> TableState:
    """The table with snapshot 7, which removed so many delete files."""
    base = table_of(small(1)).state
    summary = {"removed-delete-files": str(removed_deletes)} if removed_deletes else {}
    return replace(base, snapshots=(Snapshot(7, 5, 2, 0, "replace", summary, ""),))


def tell(*attempts: AttemptTrace, at: TableState | None = None, recorded: bool = False) -> Record:
    run = RunTrace("run-1", "u", attempts[0].batch.operation, "plan", attempts, recorded)
    return record_of(run, at or state())


def only(record: Record) -> BatchOutcome:
    (one,) = record.outcome.batches
    return one


def test_finished_batches_are_recorded_as_they_were_reported_and_the_last_as_settled() -> None:
    a, b = batch("p=a"), batch("p=b")
    done = reported(a, OutcomeStatus.IMPROVED, Reason.SMALL_FILES)
    record = tell(trace(a, None, done, 90), trace(b, REJECTED, None, 80))
    outcome = record.outcome
    assert outcome.batches[0] == done
    assert outcome.batches[1] == BatchOutcome(
        batch_id="batch p=b",
        partitions=("p=b",),
        outcome=OutcomeStatus.FAILED,
        reason=Reason.CRASHED,
        input_files=2,
        output_files=0,
        input_bytes=100,
        output_bytes=0,
        delete_files_removed=0,
        seconds=2.5,
        snapshot_before=5,
        commit_tries=1,
        wasted_bytes=80,
        proof=PROOF,
        message=REJECTED.why,
    )
    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.FAILED, Reason.CRASHED)
    assert outcome.partitions == (
        ("p=a", OutcomeStatus.IMPROVED, Reason.SMALL_FILES),
        ("p=b", OutcomeStatus.FAILED, Reason.CRASHED),
    )
    assert (outcome.snapshot_before, outcome.snapshot_after) == (5, 6)
    assert outcome.message == "the run ended without a record"
    assert (record.run_id, record.plan_id, record.started_ms, record.ended_ms) == (
        "run-1",
        "plan",
        1000,
        3500,
    )
    assert (record.policy_digest, dict(record.versions)) == ("", {})
    assert loads(Record, dumps(record)) == record


def test_commit_found_in_the_table_is_reported_as_committed() -> None:
    record = tell(trace(batch("p=a"), COMMITTED, None, 90))
    told = only(record)
    assert (told.outcome, told.reason) == (OutcomeStatus.IMPROVED, Reason.SMALL_FILES)
    assert (told.output_files, told.output_bytes, told.snapshot_after, told.wasted_bytes) == (1, 90, 7, 0)
    assert record.outcome.snapshot_after == 7


@pytest.mark.parametrize(
    ("operation", "removed", "expected"),
    [
        (Operation.REWRITE_DATA_FILES, 0, (OutcomeStatus.COMMITTED, Reason.NO_EFFECT)),
        (Operation.REWRITE_DATA_FILES, 1, (OutcomeStatus.IMPROVED, Reason.SMALL_FILES)),
        (Operation.CONVERT_EQUALITY_DELETES, 0, (OutcomeStatus.COMMITTED, Reason.NO_EFFECT)),
        (Operation.CONVERT_EQUALITY_DELETES, 3, (OutcomeStatus.IMPROVED, Reason.SMALL_FILES)),
    ],
)
def test_commit_found_in_the_table_is_judged_from_it(
    operation: Operation, removed: int, expected: tuple[OutcomeStatus, Reason]
) -> None:
    told = only(tell(trace(batch("p=a", 1, operation), COMMITTED, None, 90), at=state(removed)))
    assert (told.outcome, told.reason) == expected
    assert told.delete_files_removed == removed


def test_commit_known_by_its_files_alone_is_reported_as_committed_without_a_snapshot() -> None:
    by_file = Settlement(CommitStatus.COMMITTED, None, "its file x is in the table")
    record = tell(trace(batch("p=a", operation=Operation.CONVERT_EQUALITY_DELETES), by_file, None, 40))
    told = only(record)
    assert (told.outcome, told.snapshot_after, told.message) == (OutcomeStatus.IMPROVED, None, by_file.why)
    assert record.outcome.snapshot_after == 5


def test_run_that_ended_after_its_commits_is_reported_as_crashed_until_it_has_a_record() -> None:
    done = trace(batch("p=a"), None, reported(batch("p=a"), OutcomeStatus.IMPROVED, Reason.SMALL_FILES), 90)
    found = trace(batch("p=b"), COMMITTED, None, 90)
    outcome = tell(done, found).outcome
    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.IMPROVED, Reason.CRASHED)
    assert {b.reason for b in outcome.batches} == {Reason.SMALL_FILES}
    assert tell(done, found, recorded=True).outcome.reason is Reason.SMALL_FILES


def test_commit_that_took_more_with_it_is_reported_as_failed() -> None:
    lost = Settlement(CommitStatus.COMMITTED, None, "ICM-130 …", ("tag v on snapshot 1",))
    expiry = replace(batch("p=a"), work=ExpireSnapshots((1,)))
    record = tell(trace(expiry, lost))
    assert (record.outcome.outcome, record.outcome.reason) == (OutcomeStatus.FAILED, Reason.REFS_LOST)
    assert (only(record).message, only(record).snapshot_after) == ("ICM-130 …", None)


def test_files_that_were_adopted_are_reported_as_reused_and_as_wasted_by_their_writer() -> None:
    first = trace(batch("p=a"), REJECTED, None, 90)
    later = replace(first, adopted=True)
    wasted = [b.wasted_bytes for b in tell(first, later, later).outcome.batches]
    assert wasted == [90, 0, 0]
    told = only(tell(replace(later, settled=COMMITTED)))
    assert (told.outcome, dict(told.counts), told.output_files) == (
        OutcomeStatus.IMPROVED,
        {"adopted_files": 1},
        1,
    )
    assert only(tell(replace(first, settled=COMMITTED))).counts == {}


def test_attempt_that_cannot_be_settled_is_reported_as_unknown() -> None:
    record = tell(trace(batch("p=a"), UNKNOWN, None, 90))
    assert (record.outcome.outcome, record.outcome.reason) == (OutcomeStatus.UNKNOWN, Reason.UNKNOWN_COMMIT)
    assert (only(record).output_files, only(record).wasted_bytes) == (0, 0)


def test_unknown_commit_of_a_recorded_run_is_reported_again_once_it_is_settled() -> None:
    told = reported(
        batch("p=a"),
        OutcomeStatus.UNKNOWN,
        Reason.UNKNOWN_COMMIT,
        output_files=0,
        output_bytes=0,
        snapshot_after=None,
        wasted_bytes=90,
    )
    attempt = trace(batch("p=a"), COMMITTED, told, 90)
    record = tell(attempt, recorded=True)
    assert record.outcome.message == "settled after the run had ended"
    assert only(record) == replace(
        told,
        outcome=OutcomeStatus.IMPROVED,
        reason=Reason.SMALL_FILES,
        output_files=1,
        output_bytes=90,
        snapshot_after=7,
        wasted_bytes=0,
        message=COMMITTED.why,
    )


def test_stale_batch_counts_by_the_one_planned_after_it() -> None:
    stale = reported(batch("p=a"), OutcomeStatus.FAILED, Reason.STALE, snapshot_after=None)
    done = reported(batch("p=a"), OutcomeStatus.IMPROVED, Reason.SMALL_FILES)
    outcome = tell(trace(batch("p=a"), None, stale), trace(batch("p=a"), None, done, 90)).outcome
    assert (outcome.outcome, len(outcome.batches)) == (OutcomeStatus.IMPROVED, 2)
    assert outcome.partitions == (("p=a", OutcomeStatus.IMPROVED, Reason.SMALL_FILES),)


def test_record_reported_twice_is_the_same_and_another_settlement_makes_another() -> None:
    one = tell(trace(batch("p=a"), UNKNOWN, None, 90))
    assert tell(trace(batch("p=a"), UNKNOWN, None, 90)) == one
    assert tell(trace(batch("p=a"), REJECTED, None, 90)).record_id != one.record_id
