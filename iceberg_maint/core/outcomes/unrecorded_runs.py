"""Rebuilds, from the ledger, the record of a run that died before writing it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from iceberg_maint.core.model.codec import digest
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.outcomes.outcome import (
    BatchOutcome,
    CommitStatus,
    OperationOutcome,
    OutcomeStatus,
    gained,
    operation_status,
)
from iceberg_maint.core.outcomes.proof import Proof
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.core.outcomes.settle import Settlement
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import RewriteDataFiles


@dataclass(frozen=True, slots=True)
class AttemptTrace:
    """One attempt at a batch: its report, and its settlement after the report or in its place.

    `started_ms` and `ended_ms` are the first and the last sign of the run itself. `output_sizes_bytes`
    are the sizes of the files that it wrote or, if it `adopted` them, that an earlier attempt wrote.
    """

    batch: Batch
    started_ms: int
    ended_ms: int
    commit_tries: int = 0
    output_sizes_bytes: tuple[int, ...] = ()
    proof: Proof | None = None
    reported: BatchOutcome | None = None
    settled: Settlement | None = None
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class RunTrace:
    """Ended attempts of one run at one table and operation that no record contains yet, in order; at
    least one. `recorded`: the run has a record, and these attempts were settled after it."""

    run_id: str
    table_uuid: str
    operation: Operation
    plan_id: str
    attempts: tuple[AttemptTrace, ...]
    recorded: bool = False


def record_of(run: RunTrace, state: TableState) -> Record:
    """Returns the record of these attempts, as far as the ledger and the table know.

    The policy digest and the engine versions stay empty: only the dead run knew them.
    """
    outcomes = tuple(_outcome(a, state) for a in run.attempts)
    # The successor of a batch that was planned again counts in its place.
    last = {o.partitions: o for o in outcomes}
    status, reason = operation_status(tuple(last.values()), unsupported=False)
    first = run.attempts[0].batch
    after = next((o.snapshot_after for o in reversed(outcomes) if o.snapshot_after is not None), None)
    outcome = OperationOutcome(
        table=first.table,
        operation=run.operation,
        outcome=status,
        reason=reason or Reason.CRASHED,
        snapshot_before=first.snapshot_id,
        snapshot_after=first.snapshot_id if after is None else after,
        batches=outcomes,
        partitions=tuple({p: (p, o.outcome, o.reason) for o in outcomes for p in o.partitions}.values()),
        message="settled after the run had ended" if run.recorded else "the run ended without a record",
    )
    return Record(
        record_id=digest((run.table_uuid, run.operation, run.run_id, outcomes))[:32],
        run_id=run.run_id,
        table=first.table,
        table_uuid=run.table_uuid,
        operation=run.operation,
        started_ms=run.attempts[0].started_ms,
        ended_ms=max(a.ended_ms for a in run.attempts),
        plan_id=run.plan_id,
        policy_digest="",
        versions={},
        outcome=outcome,
    )


def _outcome(attempt: AttemptTrace, state: TableState) -> BatchOutcome:
    reported = attempt.reported or _unreported(attempt)
    settled = attempt.settled
    if settled is None:
        return reported
    match settled.status:
        case CommitStatus.COMMITTED if settled.lost:
            return replace(
                reported, outcome=OutcomeStatus.FAILED, reason=Reason.REFS_LOST, message=settled.why
            )
        case CommitStatus.COMMITTED:
            return _committed(attempt, reported, settled, state)
        case CommitStatus.REJECTED:
            # The attempt that wrote reused files accounts for them.
            written = 0 if attempt.adopted else sum(attempt.output_sizes_bytes)
            return replace(
                reported,
                outcome=OutcomeStatus.FAILED,
                reason=Reason.CRASHED if attempt.reported is None else Reason.ERROR,
                wasted_bytes=max(written, reported.wasted_bytes),
                message=settled.why,
            )
        case CommitStatus.UNKNOWN:
            return replace(
                reported,
                outcome=OutcomeStatus.UNKNOWN,
                reason=Reason.UNKNOWN_COMMIT,
                message=settled.why,
            )


def _committed(
    attempt: AttemptTrace, reported: BatchOutcome, settled: Settlement, state: TableState
) -> BatchOutcome:
    batch, sizes = attempt.batch, attempt.output_sizes_bytes
    snapshot = None if settled.snapshot_id is None else state.snapshot_by_id(settled.snapshot_id)
    removed = int(snapshot.summary.get("removed-delete-files", "0")) if snapshot is not None else 0
    removed_rows = attempt.proof.removed_records if attempt.proof is not None else 0
    # It is no longer known what an expired snapshot removed or how sorted files overlap. The plan
    # expected the batch to improve the table.
    sorts = isinstance(batch.work, RewriteDataFiles) and batch.work.layout is not None
    unknown = snapshot is None or sorts
    better = unknown or gained(batch, sizes, removed, removed_rows, batch.target_file_size_bytes)
    return replace(
        reported,
        outcome=OutcomeStatus.IMPROVED if better else OutcomeStatus.COMMITTED,
        reason=batch.reasons[0] if better else Reason.NO_EFFECT,
        output_files=len(sizes),
        output_bytes=sum(sizes),
        delete_files_removed=removed,
        snapshot_before=reported.snapshot_before if snapshot is None else snapshot.parent_id,
        snapshot_after=settled.snapshot_id,
        wasted_bytes=max(0, reported.wasted_bytes - sum(sizes)),
        message=settled.why,
        counts={"adopted_files": len(sizes)} if attempt.adopted else reported.counts,
    )


def _unreported(attempt: AttemptTrace) -> BatchOutcome:
    """Returns what is known before the attempt is settled: no commit is known."""
    batch = attempt.batch
    return BatchOutcome(
        batch_id=batch.batch_id,
        partitions=batch.partitions,
        outcome=OutcomeStatus.UNKNOWN,
        reason=Reason.UNKNOWN_COMMIT,
        input_files=batch.input_files,
        output_files=0,
        input_bytes=batch.input_bytes,
        output_bytes=0,
        delete_files_removed=0,
        seconds=round((attempt.ended_ms - attempt.started_ms) / 1000, 3),
        snapshot_before=batch.snapshot_id,
        commit_tries=attempt.commit_tries,
        proof=attempt.proof,
    )
