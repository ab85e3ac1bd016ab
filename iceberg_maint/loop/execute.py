"""Executes one batch: writes, proves, commits, and judges the outcome from the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, assert_never

from iceberg_maint.core.decisions.history import PartitionHistory, TableHistory
from iceberg_maint.core.decisions.waits import failed, publish_wait, undone, write_ahead
from iceberg_maint.core.health.thresholds import size_limits
from iceberg_maint.core.model.ids import PartitionKey, TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.outcomes.outcome import (
    BatchOutcome,
    CommitStatus,
    OutcomeStatus,
    gained,
)
from iceberg_maint.core.planning.batch_trials import batch_cost
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
)
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.errors import FenceLostError, IcebergMaintError, RefusedError, StaleBatchError
from iceberg_maint.loop.attempts.attempt import (
    AttemptResult,
    Committed,
    batch_outcome,
    environment_failure,
    expired_plan,
    histories_after,
    layout_gain_of,
    one_line,
    pin_same,
    rejected_commit,
    removed_deletes_of,
    reusable_output,
    unknown_commit,
)
from iceberg_maint.loop.attempts.housekeeping_attempt import (
    NOTHING_WRITTEN,
    doubtful_clocks,
    judge_expiry,
    judge_regrouping,
    may_expire,
    record_release,
    remove_orphans,
    remove_released,
)
from iceberg_maint.loop.attempts.statement_attempt import Choice, choose, run_statements, statement_of
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.fleet.budget import predicted
from iceberg_maint.loop.guards import TableTimeout
from iceberg_maint.ports.engine import (
    CommitContext,
    EngineFailedError,
    MemoryExceededError,
    Written,
)
from iceberg_maint.ports.stored import Attempt, BatchStatus, Lease

_UNSUPPORTED = {
    "ICM-119": Reason.UNSUPPORTED_KEY,
    "ICM-124": Reason.MEMORY,
    "ICM-135": Reason.UNSUPPORTED_TYPE,
    "ICM-180": Reason.WRITER_PROPERTY,
    "ICM-182": Reason.REFUSED,
    "ICM-183": Reason.REFUSED,
}
_BATCH_STATUS = {
    OutcomeStatus.IMPROVED: BatchStatus.DONE,
    OutcomeStatus.COMMITTED: BatchStatus.DONE,
    OutcomeStatus.NO_OP: BatchStatus.DONE,
    OutcomeStatus.DEFERRED: BatchStatus.FAILED,
    OutcomeStatus.UNSUPPORTED: BatchStatus.FAILED,
    OutcomeStatus.FAILED: BatchStatus.FAILED,
    OutcomeStatus.UNKNOWN: BatchStatus.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class LeasedRun:
    """A run that holds the lease of its table."""

    context: Context
    lease: Lease
    run_id: str


def execute(
    batch: Batch,
    policy: Policy,
    history: TableHistory,
    run: LeasedRun,
) -> BatchOutcome:
    """Runs one persisted batch and persists its outcome.

    Raises FenceLostError if the lease is lost, and what the engine raises if it cannot start. On an
    interrupt (Terminate, KeyboardInterrupt) it stops the engine and raises the interrupt. An attempt that is
    interrupted while it commits stays open. A later run settles it from the table.
    """
    context, work = run.context, batch.work
    choice = choose(batch, policy, context)
    if choice.is_own and not isinstance(work, RemoveOrphanFiles):
        # An engine that cannot start is no failure of the partitions, so no attempt has started yet.
        context.engine().start()
    earlier = context.engine.count_batch()
    prediction = predicted(batch, policy, context, earlier)
    started, cpu_before = context.clock.monotonic_seconds(), context.process.cpu_seconds()
    histories = {p: history.of(p) for p in batch.partitions}
    now_ms = context.clock.now_ms()
    stored = context.ledger.work.start_attempt(
        run.lease,
        batch.batch_id,
        run.run_id,
        {p: write_ahead(h, policy.retry, now_ms) for p, h in histories.items()},
    )
    attempt = _Attempt(batch, policy, histories, stored, run, started)
    if not choice.is_own:
        result = choice.result or attempt.run_elsewhere(choice)
    elif isinstance(work, RemoveOrphanFiles):
        result = attempt.remove_orphans(work)
    else:
        result = attempt.write_and_commit(_steps(work))
    message = "; ".join(filter(None, (choice.passed, result.message)))
    result = replace(result, message=context.process.masked(message))
    seconds = attempt.seconds
    cpu_after = context.process.cpu_seconds()
    # The processor time of a JVM that has died is not known.
    if cpu_before is None or cpu_after is None or cpu_after < cpu_before:
        cpu_seconds = None
    else:
        cpu_seconds = cpu_after - cpu_before
    strategy = None if result.written is None else result.written.strategy
    outcome = replace(
        batch_outcome(batch, result, seconds),
        predicted=prediction,
        cost=batch_cost(batch, earlier, cpu_seconds, strategy) if choice.is_own else None,
    )
    context.ledger.work.finish_attempt(
        run.lease,
        stored.attempt_id,
        # The next run takes up an orphan scan that used up its time.
        BatchStatus.PLANNED if result.reason is Reason.TIME_BUDGET else _BATCH_STATUS[result.outcome],
        outcome,
        histories_after(result, histories, policy, context),
    )
    return outcome


@dataclass(frozen=True, slots=True)
class _Steps:
    """What differs between works that end in a commit. `write` writes the files before the commit, or
    returns why it writes none. `judge` returns the result after the commit, and `finish` the result of
    what follows it."""

    write: Callable[[Batch, Policy, Context, Lease], Written | AttemptResult]
    judge: Callable[[Committed, Context, Policy], AttemptResult]
    finish: Callable[[AttemptResult, Batch, Policy, Context, Lease, Attempt], AttemptResult] = (
        lambda judged, *_: judged
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
    work: ExpireSnapshots, batch: Batch, policy: Policy, context: Context, _lease: Lease
) -> Written | AttemptResult:
    if doubtful := doubtful_clocks(batch, context):
        return doubtful
    record_release(work, batch, policy, context)
    return NOTHING_WRITTEN


@dataclass(frozen=True, slots=True)
class _Attempt:
    """An attempt that the ledger knows. `histories` are those of its partitions before it."""

    batch: Batch
    policy: Policy
    histories: Mapping[PartitionKey, PartitionHistory]
    stored: Attempt
    run: LeasedRun
    started_seconds: float

    @property
    def seconds(self) -> float:
        """How long the attempt has taken so far."""
        return self.run.context.clock.monotonic_seconds() - self.started_seconds

    def remove_orphans(self, work: RemoveOrphanFiles) -> AttemptResult:
        """Runs an orphan scan."""
        try:
            return remove_orphans(work, self.batch, self.policy, self.run.context, self.run.lease)
        except FenceLostError:
            raise
        except BaseException as why:
            self._hand_back(why, "every file is in its place or in the trash")
            raise

    def run_elsewhere(self, choice: Choice) -> AttemptResult:
        """Runs the statements of an engine elsewhere. The ledger has the attempt before each of them."""
        ledger, lease, attempt_id = self.run.context.ledger, self.run.lease, self.stored.attempt_id
        sent = False

        def before(state: TableState) -> None:
            nonlocal sent
            assert state.snapshot is not None, "an empty table has no batches"
            if not sent:
                ledger.work.record_intent(lease, attempt_id, (), statement_of(choice.name))
            ledger.work.record_try(lease, attempt_id, state.snapshot.snapshot_id, state.metadata_location)
            sent = True

        try:
            return run_statements(choice, self.batch, self.policy, self.run.context, before)
        except FenceLostError:
            raise
        except BaseException as why:
            self.run.context.engine.cancel()
            if not sent:
                self._hand_back(why, "stopped before its statement")
            raise

    def write_and_commit(self, steps: _Steps) -> AttemptResult:
        """Writes, proves, stores the intent, commits and judges the result from the table."""
        batch, policy, context, lease = self.batch, self.policy, self.run.context, self.run.lease
        engine = context.engine()
        try:
            written = steps.write(batch, policy, context, lease)
        except FenceLostError:
            raise
        except Exception as why:  # noqa: BLE001 - a failed write leaves the table unchanged
            result_of = next(result for kind, result in FAILURES.items() if isinstance(why, kind))
            return result_of(why, batch, context)
        except BaseException as why:
            engine.cancel()
            self._hand_back(why, "stopped before its commit")
            raise
        if isinstance(written, AttemptResult):
            return written
        if not written.proof.equal:
            detail = written.proof.detail
            return AttemptResult(OutcomeStatus.FAILED, Reason.PROOF_MISMATCH, detail, written.proof, written)
        context.ledger.work.record_intent(lease, self.stored.attempt_id, written.files, written.proof)
        result = engine.commit(batch, written, self._commit_context())
        judged = steps.judge(Committed(batch, written, result, self.stored.token), context, policy)
        return steps.finish(judged, batch, policy, context, lease, self.stored)

    def _commit_context(self) -> CommitContext:
        batch, policy, context, lease = self.batch, self.policy, self.run.context, self.run.lease
        ledger, attempt_id = context.ledger, self.stored.attempt_id
        return CommitContext(
            token=self.stored.token,
            fence=lease.fence,
            run_id=self.run.run_id,
            max_tries=policy.retry.commit_tries,
            lease_is_held=lambda: ledger.leases.holds(lease),
            record_try=lambda base, location: ledger.work.record_try(lease, attempt_id, base, location),
            retention=lambda location: may_expire(batch, policy, context, location),
            publish_wait=lambda pending: publish_wait(pending, policy, context.clock.now_ms()),
            checks_commit_base=context.catalogs.of(TableId.parse(batch.table)).checks_commit_base,
            installation=ledger.registry.installation(),
        )

    def _hand_back(self, why: BaseException, message: str) -> None:
        """Stores what interrupted the attempt before its commit, and where that left it: another run takes up its batch."""
        timed_out, context, retry = isinstance(why, TableTimeout), self.run.context, self.policy.retry
        message = f"{why}" if timed_out else message
        now_ms = context.clock.now_ms()
        status = OutcomeStatus.FAILED if timed_out else OutcomeStatus.DEFERRED
        outcome = batch_outcome(self.batch, AttemptResult(status, Reason.TERMINATED, message), self.seconds)
        # If this fails, the next run settles the attempt. A failure here must not replace the interrupt:
        # the program would not stop.
        with suppress(Exception):
            context.ledger.work.finish_attempt(
                self.run.lease,
                self.stored.attempt_id,
                BatchStatus.PLANNED,
                outcome,
                # What used up the time of its table once would use it up in each run.
                {
                    p: failed(h, retry, now_ms, message) if timed_out else undone(h)
                    for p, h in self.histories.items()
                },
            )


def _failed_write(why: Exception, batch: Batch, context: Context) -> AttemptResult:
    # A file that is missing may have gone with the snapshot. No other failure has to do with an expiry.
    is_of_file = isinstance(why, IcebergMaintError) and why.code == "ICM-101"
    if is_of_file and (stale := expired_plan(str(why), batch, context)):
        return AttemptResult(OutcomeStatus.DEFERRED, Reason.STALE, stale)
    if isinstance(why, RefusedError):
        unsupported = _UNSUPPORTED.get(why.code)
        status = OutcomeStatus.UNSUPPORTED if unsupported else OutcomeStatus.FAILED
        return AttemptResult(status, unsupported or Reason.ERROR, str(why))
    if isinstance(why, IcebergMaintError):
        reason = _UNSUPPORTED.get(why.code, Reason.ERROR)
        return AttemptResult(OutcomeStatus.FAILED, reason, str(why))
    message = str(why) if isinstance(why, EngineFailedError) else one_line(why)
    return AttemptResult(OutcomeStatus.FAILED, Reason.ERROR, message)


FAILURES: Mapping[type[Exception], Callable[[Any, Batch, Context], AttemptResult]] = {
    StaleBatchError: lambda why, *_: AttemptResult(OutcomeStatus.DEFERRED, Reason.STALE, str(why)),
    MemoryExceededError: lambda why, *_: AttemptResult(
        OutcomeStatus.FAILED, Reason.MEMORY, str(why), memory=why.use
    ),
    # The JVM has died. A partition that needs too much memory kills it, so this counts.
    ConnectionError: _failed_write,
    Exception: lambda why, batch, context: (
        environment_failure(why, batch, context) or _failed_write(why, batch, context)
    ),
}
"""The result of an attempt whose write fails, by the first kind that the failure is of."""


def _write(batch: Batch, policy: Policy, context: Context, lease: Lease) -> Written:
    return reusable_output(batch, policy, context, lease) or context.engine().write(batch, policy)


def _judge(commit: Committed, context: Context, policy: Policy) -> AttemptResult:
    """Returns the result from the table itself, through another reader than the one that committed."""
    batch, written, result = commit.batch, commit.written, commit.result
    if result.status is CommitStatus.REJECTED:
        return rejected_commit(commit, context)
    state = pin_same(batch, context)
    snapshot = state.snapshot_by_token(commit.token) if state is not None else None
    if snapshot is None:
        return unknown_commit(commit)
    limits = size_limits(policy.rewrite_data_files, batch.target_file_size_bytes)
    sizes = [f.size_bytes for f in written.files]
    removed_records = written.proof.removed_records
    removed_deletes, large = removed_deletes_of(snapshot), limits.large_above_bytes
    better = gained(
        batch, sizes, removed_deletes, removed_records, large, layout_gain_of(batch.work, written)
    )
    forced = Reason.FORCED in batch.reasons
    status = OutcomeStatus.IMPROVED if better else OutcomeStatus.COMMITTED
    reason = batch.reasons[0] if better or forced else Reason.NO_EFFECT
    return AttemptResult(status, reason, written.note, written.proof, written, result, snapshot)
