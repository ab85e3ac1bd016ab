"""Record: the append-only account of one operation, also of runs and attempts that died before they wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from iceberg_maint.core.model.codec import digest
from iceberg_maint.core.model.ids import Operation, PartitionKey
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import TableState, metadata_version
from iceberg_maint.core.outcomes.outcome import (
    SUCCESSFUL,
    BatchOutcome,
    CommitStatus,
    OperationOutcome,
    OutcomeStatus,
    gained,
    operation_status,
)
from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import RewriteDataFiles


@dataclass(frozen=True, slots=True)
class Record:
    """The plan, the outcome, the policy digest, the versions and the owner of one run. A written record
    never changes. `started_by` is the user or the automation that started the run; None if not known.
    `catalog_calls` are the calls of the process to all catalogs in the time of the operation; None if not counted."""

    record_id: str
    run_id: str
    table: str
    table_uuid: str
    operation: Operation
    started_ms: int
    ended_ms: int
    plan_id: str | None
    policy_digest: str
    versions: Mapping[str, str]
    outcome: OperationOutcome
    started_by: str | None = None
    catalog_calls: int | None = None


REDACTED = PartitionKey("redacted")
"""Stands for the key of a partition of a table with read restrictions."""


def without_values(record: Record) -> Record:
    """Returns the record without partition keys, and without paths and texts, which may have values of rows."""
    outcome = record.outcome
    partitions = tuple((REDACTED, status, reason) for _, status, reason in outcome.partitions)
    batches = tuple(map(_batch_without_values, outcome.batches))
    return replace(record, outcome=replace(outcome, batches=batches, partitions=partitions, message=""))


def _batch_without_values(batch: BatchOutcome) -> BatchOutcome:
    return replace(
        batch,
        partitions=(REDACTED,) * len(batch.partitions),
        proof=None if batch.proof is None else replace(batch.proof, detail=""),
        message="",
        retained=None,
        unlogged=None,
    )


@dataclass(frozen=True, slots=True)
class AttemptEvidence:
    """The evidence of the ledger and the table about one attempt.

    `token`, `base_snapshot_id` and `base_location` (of the base's metadata) come from the ATTEMPT row.
    `attempted` is False if there is none. `reachable_file` is a file of the intent that is live in some
    retained snapshot.
    """

    attempted: bool
    token: str
    base_snapshot_id: int | None
    reachable_file: str | None = None
    base_location: str | None = None


@dataclass(frozen=True, slots=True)
class Settlement:
    """The settled status. `snapshot_id` is the snapshot that carries the token, if retained. `lost` is as
    in `CommitResult`."""

    status: CommitStatus
    snapshot_id: int | None
    why: str
    lost: tuple[str, ...] = ()


def settle(evidence: AttemptEvidence, state: TableState) -> Settlement:
    """Returns COMMITTED if the token or a file of the attempt is in the table, whatever the ledger says:
    the ledger may be restored from a backup. Returns REJECTED if the commit was never attempted, or if
    main has moved past its base without it, so that a late swap can no longer win. Returns UNKNOWN
    otherwise."""
    committed = state.snapshot_by_token(evidence.token)
    if committed is not None:
        return Settlement(CommitStatus.COMMITTED, committed.snapshot_id, "its token is in the table")
    if evidence.reachable_file is not None:
        return Settlement(CommitStatus.COMMITTED, None, f"its file {evidence.reachable_file} is in the table")
    if not evidence.attempted:
        return Settlement(CommitStatus.REJECTED, None, "no commit was attempted")
    if _moved_past(evidence, state):
        return Settlement(CommitStatus.REJECTED, None, "the table moved past its base without its token")
    if _left_no_trace(evidence, state):
        return Settlement(
            CommitStatus.REJECTED,
            None,
            "its base is no longer an ancestor of the table's snapshot, and none of its files is in the table",
        )
    return Settlement(CommitStatus.UNKNOWN, None, "neither its token nor a later commit is in the table")


def _moved_past(evidence: AttemptEvidence, state: TableState) -> bool:
    """Returns whether the base's successor on main is known. That successor is not the attempt's, because
    it lacks the token."""
    chain = state.ancestors()
    bases = {s.snapshot_id for s in chain[1:]} | {s.parent_id for s in chain[-1:]}
    return evidence.base_snapshot_id is not None and evidence.base_snapshot_id in bases


def _left_no_trace(evidence: AttemptEvidence, state: TableState) -> bool:
    """Returns whether the attempt has no effect now, although its history has expired or was rolled back:
    the table holds nothing of the attempt and can no longer accept its commit. False if the history may
    only be hidden (a catalog may load only referenced snapshots), and if the metadata may be older than
    the base (a cache)."""
    head = state.snapshot
    if head is None or head.snapshot_id == evidence.base_snapshot_id or evidence.base_location is None:
        return False
    history_is_visible = head.parent_id is None or len(state.ancestors()) > 1
    now, base = metadata_version(state.metadata_location), metadata_version(evidence.base_location)
    return history_is_visible and now is not None and base is not None and now > base


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
    least one. `recorded`: the run has a record, and these attempts were settled after it. `lost_lease`: by that record
    the run ended because it had lost its lease."""

    run_id: str
    table_uuid: str
    operation: Operation
    plan_id: str
    attempts: tuple[AttemptTrace, ...]
    recorded: bool = False
    lost_lease: bool = False


def record_of(run: RunTrace, state: TableState) -> Record:
    """Returns the record of these attempts, as far as the ledger and the table know.

    The policy digest and the engine versions stay empty: only the dead run knew them.
    """
    outcomes = tuple(_outcome(a, state, lost_lease=run.lost_lease) for a in run.attempts)
    # The successor of a batch that was planned again counts in its place.
    last = {o.partitions: o for o in outcomes}
    status, reason = operation_status(tuple(last.values()), unsupported=False)
    if not run.recorded and status in SUCCESSFUL:
        # As of a run that was stopped in order: its batches are done, and it may have had others.
        reason = Reason.CRASHED
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


def _outcome(attempt: AttemptTrace, state: TableState, *, lost_lease: bool) -> BatchOutcome:
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
            is_lost = lost_lease and attempt.reported is None
            reason = Reason.CRASHED if attempt.reported is None else Reason.ERROR
            return replace(
                reported,
                outcome=OutcomeStatus.DEFERRED if is_lost else OutcomeStatus.FAILED,
                reason=Reason.LEASE_HELD if is_lost else reason,
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
