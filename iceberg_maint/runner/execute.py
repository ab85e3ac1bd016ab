"""Execute one batch: write, prove, commit, and judge from the table what happened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

from iceberg_maint.core.decisions.backoff import (
    failed,
    quarantined_history,
    refused,
    succeeded,
    undone,
    write_ahead,
)
from iceberg_maint.core.decisions.history import PartitionHistory, TableHistory
from iceberg_maint.core.health.thresholds import size_limits
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import Snapshot
from iceberg_maint.core.outcomes.outcome import (
    BatchOutcome,
    CommitResult,
    CommitStatus,
    OutcomeStatus,
    gained,
)
from iceberg_maint.core.planning.layout_gain import LayoutGain, layout_gain
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import (
    ConvertEqualityDeletes,
    ExpireSnapshots,
    FileWork,
    MetadataWork,
    RemoveOrphanFiles,
    RewriteDataFiles,
    RewriteManifests,
    RewritePositionDeleteFiles,
    Work,
)
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.errors import FenceLostError, RefusedError, StaleBatchError
from iceberg_maint.ports.engine import CommitContext, MemoryExceededError, Written
from iceberg_maint.ports.ledger import Attempt, BatchStatus, Lease
from iceberg_maint.runner.attempt_result import AttemptResult, not_shown, one_line, pin_same, rejected
from iceberg_maint.runner.housekeeping import (
    NOTHING_WRITTEN,
    counts_of,
    doubtful_clocks,
    judge_expiry,
    judge_regrouping,
    may_expire,
    remove_orphans,
)
from iceberg_maint.runner.release import record_release, remove_released
from iceberg_maint.runner.reuse_files import adopted
from iceberg_maint.runner.runtime import Runtime

_UNSUPPORTED = {"ICM-119": Reason.UNSUPPORTED_KEY, "ICM-124": Reason.MEMORY}
_ENDED = {
    OutcomeStatus.IMPROVED: BatchStatus.DONE,
    OutcomeStatus.NO_OP: BatchStatus.DONE,
    OutcomeStatus.UNSUPPORTED: BatchStatus.FAILED,
    OutcomeStatus.FAILED: BatchStatus.FAILED,
    OutcomeStatus.UNKNOWN: BatchStatus.UNKNOWN,
}


_Run = Callable[[Batch, Policy, Runtime, Lease, str, Attempt, Mapping[str, PartitionHistory]], AttemptResult]


def execute(
    batch: Batch, policy: Policy, history: TableHistory, runtime: Runtime, lease: Lease, run_id: str
) -> BatchOutcome:
    """Runs one persisted batch to an outcome that is persisted too.

    Raises FenceLostError when the lease is gone, what the engine raises when it cannot start, and
    whatever interrupted it (Terminate, KeyboardInterrupt) after stopping the engine. An attempt interrupted while it commits stays
    open, to be settled from the table.
    """
    run: _Run
    match batch.work:
        case RemoveOrphanFiles() as work:
            run = partial(_orphan_pass, work)
        case (
            RewriteDataFiles()
            | ConvertEqualityDeletes()
            | RewritePositionDeleteFiles()
            | RewriteManifests()
            | ExpireSnapshots()
        ) as work:
            # An engine that cannot start is no failure of the partitions: nothing is claimed for it.
            runtime.engine().start()
            run = partial(_write_and_commit, _steps(work))
        case _:
            assert_never(batch.work)
    started = runtime.clock.monotonic_seconds()
    past = {p: history.of(p) for p in batch.partitions}
    now_ms = runtime.clock.now_ms()
    attempt = runtime.ledger.start_attempt(
        lease,
        batch.batch_id,
        run_id,
        {p: write_ahead(h, policy.retry, now_ms) for p, h in past.items()},
    )
    ended = run(batch, policy, runtime, lease, run_id, attempt, past)
    ended = replace(ended, message=runtime.masked(ended.message))
    seconds = runtime.clock.monotonic_seconds() - started
    outcome = _outcome(batch, ended, seconds)
    runtime.ledger.finish_attempt(
        lease,
        attempt.attempt_id,
        _ENDED[ended.outcome],
        outcome,
        _histories(ended, past, policy, runtime),
    )
    return outcome


@dataclass(frozen=True, slots=True)
class _Steps:
    """What differs between works that end in a commit: what is written before it, or why nothing is, how
    the outcome is judged after it, and what is done then."""

    write: Callable[[Batch, Policy, Runtime, Lease], Written | AttemptResult]
    judge: Callable[[Batch, Written, CommitResult, str, Runtime, Policy], AttemptResult]
    finish: Callable[[AttemptResult, Batch, Policy, Runtime, Lease, Attempt], AttemptResult] = (
        lambda ended, *_: ended
    )


def _steps(work: FileWork | MetadataWork) -> _Steps:
    match work:
        case RewriteDataFiles() | ConvertEqualityDeletes() | RewritePositionDeleteFiles():
            return _Steps(_write, _judge)
        case RewriteManifests():
            return _Steps(lambda *_: NOTHING_WRITTEN, partial(judge_regrouping, work))
        case ExpireSnapshots():
            return _Steps(partial(_before_expiry, work), partial(judge_expiry, work), remove_released)
        case _:
            assert_never(work)


def _before_expiry(
    work: ExpireSnapshots, batch: Batch, policy: Policy, runtime: Runtime, _lease: Lease
) -> Written | AttemptResult:
    if doubtful := doubtful_clocks(batch, runtime):
        return doubtful
    record_release(work, batch, policy, runtime)
    return NOTHING_WRITTEN


def _orphan_pass(
    work: RemoveOrphanFiles,
    batch: Batch,
    policy: Policy,
    runtime: Runtime,
    lease: Lease,
    _run_id: str,
    attempt: Attempt,
    past: Mapping[str, PartitionHistory],
) -> AttemptResult:
    try:
        return remove_orphans(work, batch, policy, runtime, lease)
    except FenceLostError:
        raise
    except BaseException:
        _terminated(batch, runtime, lease, attempt, past, "every file is at its place or in the trash")
        raise


def _write_and_commit(
    steps: _Steps,
    batch: Batch,
    policy: Policy,
    runtime: Runtime,
    lease: Lease,
    run_id: str,
    attempt: Attempt,
    past: Mapping[str, PartitionHistory],
) -> AttemptResult:
    engine = runtime.engine()
    try:
        written = steps.write(batch, policy, runtime, lease)
    except FenceLostError:
        raise
    except StaleBatchError as why:
        return AttemptResult(OutcomeStatus.FAILED, Reason.STALE, str(why))
    except RefusedError as why:
        unsupported = _UNSUPPORTED.get(why.code)
        status = OutcomeStatus.UNSUPPORTED if unsupported else OutcomeStatus.FAILED
        return AttemptResult(status, unsupported or Reason.ERROR, str(why))
    except MemoryExceededError as why:
        return AttemptResult(OutcomeStatus.FAILED, Reason.MEMORY, str(why), memory=why.use)
    except Exception as why:  # noqa: BLE001 - any failure to write leaves the table as it was
        return AttemptResult(OutcomeStatus.FAILED, Reason.ERROR, one_line(why))
    except BaseException:
        engine.cancel()
        _terminated(batch, runtime, lease, attempt, past, "stopped before its commit")
        raise
    if isinstance(written, AttemptResult):
        return written
    if not written.proof.equal:
        detail = written.proof.detail
        return AttemptResult(OutcomeStatus.FAILED, Reason.PROOF_MISMATCH, detail, written.proof, written)
    runtime.ledger.record_intent(lease, attempt.attempt_id, written.files, written.proof)
    context = CommitContext(
        token=attempt.token,
        fence=lease.fence,
        run_id=run_id,
        max_tries=policy.retry.commit_tries,
        lease_is_held=lambda: runtime.ledger.holds(lease),
        record_try=lambda base, location: runtime.ledger.record_try(
            lease, attempt.attempt_id, base, location
        ),
        retention=lambda location: may_expire(batch, policy, runtime, location),
        checks_commit_base=runtime.catalog_of(TableId.parse(batch.table)).checks_commit_base,
    )
    result = engine.commit(batch, written, context)
    ended = steps.judge(batch, written, result, attempt.token, runtime, policy)
    return steps.finish(ended, batch, policy, runtime, lease, attempt)


def _write(batch: Batch, policy: Policy, runtime: Runtime, lease: Lease) -> Written:
    return adopted(batch, policy, runtime, lease) or runtime.engine().write(batch, policy)


def _judge(
    batch: Batch,
    written: Written,
    result: CommitResult,
    token: str,
    runtime: Runtime,
    policy: Policy,
) -> AttemptResult:
    """The outcome from the table itself, read by another reader than the one that committed."""
    if result.status is CommitStatus.REJECTED:
        return rejected(written, result)
    state = pin_same(batch, runtime)
    snapshot = state.snapshot_by_token(token) if state is not None else None
    if snapshot is None:
        return not_shown(written, result)
    limits = size_limits(policy.rewrite_data_files, batch.target_file_size_bytes)
    sizes = [f.size_bytes for f in written.files]
    marked = written.proof.removed_records
    removed, large = _removed_deletes(snapshot), limits.large_above_bytes
    better = gained(batch, sizes, removed, marked, large, _layout_gain(batch.work, written))
    forced = Reason.FORCED in batch.reasons
    status = OutcomeStatus.IMPROVED if better else OutcomeStatus.NO_OP
    reason = batch.reasons[0] if better or forced else Reason.NO_EFFECT
    return AttemptResult(status, reason, "", written.proof, written, result, snapshot)


def _outcome(batch: Batch, ended: AttemptResult, seconds: float) -> BatchOutcome:
    committed = ended.snapshot is not None
    written = ended.written
    return BatchOutcome(
        batch_id=batch.batch_id,
        partitions=batch.partitions,
        outcome=ended.outcome,
        reason=ended.reason,
        input_files=batch.input_files,
        output_files=len(written.files) if written and committed else 0,
        input_bytes=batch.input_bytes,
        output_bytes=written.output_bytes if written and committed else 0,
        delete_files_removed=_removed_deletes(ended.snapshot) if ended.snapshot else 0,
        seconds=round(seconds, 3),
        snapshot_before=batch.snapshot_id,
        snapshot_after=ended.snapshot.snapshot_id if ended.snapshot else None,
        commit_tries=ended.commit.tries if ended.commit else 0,
        wasted_bytes=_wasted_bytes(written, committed=committed),
        proof=ended.proof,
        message=ended.message,
        memory=written.memory if written else ended.memory,
        layout=_layout_gain(batch.work, written) if written and committed else None,
        counts=counts_of(ended),
        held=ended.work.held if ended.work else None,
        unlogged=ended.work.unlogged if ended.work else None,
    )


def _layout_gain(work: Work, written: Written) -> LayoutGain | None:
    if not isinstance(work, RewriteDataFiles) or work.layout is None:
        return None
    return layout_gain(work.layout, ((f.group, f.content) for f in written.files))


def _histories(
    ended: AttemptResult, past: Mapping[str, PartitionHistory], policy: Policy, runtime: Runtime
) -> dict[str, PartitionHistory]:
    # An orphan pass that found none is as it should be.
    looked = ended.work is not None and ended.outcome is OutcomeStatus.NO_OP
    if ended.outcome is OutcomeStatus.IMPROVED or ended.reason is Reason.FORCED or looked:
        return {p: succeeded() for p in past}
    if ended.outcome is OutcomeStatus.UNKNOWN:
        return {}  # The write-ahead back-off stays until the commit is settled.
    if ended.reason is Reason.STALE:
        return {p: undone(h) for p, h in past.items()}
    if ended.reason is Reason.CLOCKS_DISAGREE:
        # By the clock that is behind: one that is ahead would make it wait until its time is reached.
        earliest_ms = min(runtime.clock.now_ms(), runtime.ledger.now_ms())
        return {p: refused(h, policy.retry, earliest_ms, ended.message) for p, h in past.items()}
    now_ms = runtime.clock.now_ms()
    why = ended.message or ended.reason.value
    if ended.reason is Reason.REFS_LOST:
        return {p: quarantined_history(h, why) for p, h in past.items()}
    return {p: failed(h, policy.retry, now_ms, why) for p, h in past.items()}


def _terminated(
    batch: Batch,
    runtime: Runtime,
    lease: Lease,
    attempt: Attempt,
    past: Mapping[str, PartitionHistory],
    message: str,
) -> None:
    outcome = _outcome(batch, AttemptResult(OutcomeStatus.FAILED, Reason.TERMINATED, message), 0.0)
    # An attempt that cannot be handed back is settled by the next run; a failure here must not take
    # the place of the interrupt, or the program would go on.
    with suppress(Exception):
        runtime.ledger.finish_attempt(
            lease,
            attempt.attempt_id,
            BatchStatus.PLANNED,
            outcome,
            {p: undone(h) for p, h in past.items()},
        )


def _wasted_bytes(written: Written | None, *, committed: bool) -> int:
    if written is None or written.adopted:
        # What was adopted is told of by the attempt that wrote it.
        return 0
    return written.scratch_bytes + (0 if committed else written.output_bytes)


def _removed_deletes(snapshot: Snapshot) -> int:
    return int(snapshot.summary.get("removed-delete-files", "0"))
