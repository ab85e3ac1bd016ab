"""Housekeeping: attempts at operations on a whole table, and the releases of expiries."""

from __future__ import annotations

import logging
from dataclasses import replace

from iceberg_maint.core.commits.expiry_rules import expired
from iceberg_maint.core.decisions.manifests_decision import manifest_findings
from iceberg_maint.core.decisions.snapshot_retention import Retention
from iceberg_maint.core.model.ids import DATA_OPERATIONS, WHOLE_TABLE, Operation, command_line
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.outcomes.outcome import CommitStatus, OutcomeStatus
from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import ExpireSnapshots, RemoveOrphanFiles, RewriteManifests
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.removal.clock_skew import clock_skew_text
from iceberg_maint.core.removal.released_file_rules import release_of
from iceberg_maint.errors import FenceLostError, IcebergMaintError, RefusedError
from iceberg_maint.loop.assess import retention_of
from iceberg_maint.loop.attempts.attempt import (
    AttemptResult,
    Committed,
    environment_failure,
    one_line,
    pin_same,
    rejected_commit,
    released_counts,
    unknown_commit,
)
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.read_table import checked_clocks, clock_refusal, keep_reading, table_clocks
from iceberg_maint.ports.engine import Written
from iceberg_maint.ports.storage import ReleasedWork
from iceberg_maint.ports.stored import Attempt, Lease

_log = logging.getLogger(__name__)


def record_release(work: ExpireSnapshots, batch: Batch, policy: Policy, context: Context) -> None:
    """Stores which snapshots the expiry is about to remove. Without it, their files wait for an orphan scan."""
    if not policy.remove_orphan_files.enabled or not work.snapshots:
        return
    try:
        state = pin_same(batch, context)
        if state is None:
            return
        catalog = context.catalogs.of(state.table)
        document = catalog.metadata_document(state.table, state.metadata_location)
        if not catalog.checks_commit_base and not document.get("metadata-log"):
            # Nothing will show which refs the commit removes. Without a release an orphan scan takes the files.
            return
        release = release_of(batch.batch_id, state, document, work.snapshots)
        context.storage.orphan_files(state.table).record_release(state, policy.remove_orphan_files, release)
    except Exception as why:  # noqa: BLE001 - the expiry does not depend on it
        _log.warning("%s: %s", batch.table, context.process.masked(_waits(why)))


def remove_released(
    ended: AttemptResult, batch: Batch, policy: Policy, context: Context, lease: Lease, attempt: Attempt
) -> AttemptResult:
    """Removes the files that a completed expiry released, and adds their numbers to its result. Raises
    FenceLostError."""
    if ended.outcome is not OutcomeStatus.IMPROVED or not policy.remove_orphan_files.enabled:
        return ended
    try:
        state = pin_same(batch, context)
        if state is None or not takes_released(state, context, attempt.attempt_id):
            return ended
        open_attempts = context.ledger.work.open_attempts(state.uuid)
        done = context.storage.orphan_files(state.table).remove_released(
            state,
            policy.remove_orphan_files,
            in_flight=frozenset(f.path for a in open_attempts for f in a.files or ()),
            holds=lambda: has_lease(state, context, lease),
        )
    except FenceLostError:
        raise
    except Exception as why:  # noqa: BLE001 - the expiry is committed, whatever happens to its files
        done = ReleasedWork(stopped=why)
    message = "" if done.stopped is None else _waits(done.stopped)
    return replace(ended, message=message, counts={**ended.counts, **released_counts(done)})


def takes_released(state: TableState, context: Context, own_attempt_id: str | None = None) -> bool:
    """Whether the files of expiries may be removed: no expiry is unsettled or held for a person. What went with such
    an expiry may be wanted back."""
    expiry = Operation.EXPIRE_SNAPSHOTS
    if context.ledger.health.history(state.uuid, str(state.table), expiry).of(WHOLE_TABLE).quarantined:
        return False
    return not any(
        a.operation == expiry and a.attempt_id != own_attempt_id
        for a in context.ledger.work.open_attempts(state.uuid)
    )


def has_lease(state: TableState, context: Context, lease: Lease) -> bool:
    """Whether the lease is still ours, asked before a file goes. Raises RefusedError ICM-115: a clock may
    have been set since the work began."""
    checked_clocks(context, state, store=False)
    return context.ledger.leases.holds(lease)


def _waits(why: Exception) -> str:
    text = str(why) if isinstance(why, IcebergMaintError) else one_line(why)
    return f"the files that the expiry released wait for the next one or an orphan scan: {text}"


NOTHING_WRITTEN = Written(
    (), Proof("metadata", equal=True, input_records=0, output_records=0, removed_records=0)
)
"""The output of housekeeping. Its commit changes metadata only, and the gate checks that change against
the plan."""


def remove_orphans(
    work: RemoveOrphanFiles, batch: Batch, policy: Policy, context: Context, lease: Lease
) -> AttemptResult:
    """Runs an orphan scan. The trash manifests on storage record its work, even if it is interrupted."""
    state = pin_same(batch, context)
    if state is None:
        return AttemptResult(OutcomeStatus.DEFERRED, Reason.STALE, "another table has this name now")
    open_attempts = context.ledger.work.open_attempts(batch.table_uuid)
    limit, started = policy.max_run_seconds, context.clock.monotonic_seconds()
    try:
        if doubtful := doubtful_clocks(batch, context):
            return doubtful
        orphan_files = context.storage.orphan_files(state.table)
        if not takes_released(state, context):
            orphan_files = orphan_files.leaving_released()
        orphan_work = orphan_files.run(
            state,
            policy.remove_orphan_files,
            in_flight=frozenset(f.path for a in open_attempts for f in a.files or ()),
            sweep=work.sweep,
            holds=lambda: has_lease(state, context, lease),
            is_over=lambda: limit is not None and context.clock.monotonic_seconds() - started >= limit,
        )
    except FenceLostError:
        raise
    except RefusedError as why:
        return environment_failure(why, batch, context) or AttemptResult(
            OutcomeStatus.UNSUPPORTED, _reason(why), str(why)
        )
    except Exception as why:  # noqa: BLE001 - every file is in its place or in the trash
        return environment_failure(why, batch, context) or AttemptResult(
            OutcomeStatus.FAILED, Reason.ERROR, one_line(why)
        )
    if orphan_work.stopped is not None:
        if failure := environment_failure(orphan_work.stopped, batch, context):
            return replace(failure, work=orphan_work)
        refused = isinstance(orphan_work.stopped, RefusedError)
        status = OutcomeStatus.UNSUPPORTED if refused else OutcomeStatus.FAILED
        message = str(orphan_work.stopped) if refused else one_line(orphan_work.stopped)
        return AttemptResult(status, _reason(orphan_work.stopped), message, work=orphan_work)
    if orphan_work.unfinished:
        message = f"stopped after {limit} s, the time of a run; the next run continues the scan"
        return AttemptResult(OutcomeStatus.IMPROVED, Reason.TIME_BUDGET, message, work=orphan_work)
    if orphan_work.needs_approval:
        message = (
            f"ICM-122 {orphan_work.orphan_files} of {orphan_work.listed_files} files are orphan files by this scan; "
            f"approve their removal by {command_line('orphans', 'trash', batch.table, '--approve', orphan_work.digest)}"
        )
        return AttemptResult(OutcomeStatus.UNSUPPORTED, Reason.APPROVAL_REQUIRED, message, work=orphan_work)
    released_files = orphan_work.released.released_files if orphan_work.released else 0
    has_effect = orphan_work.trashed_files + orphan_work.swept_files + released_files > 0
    status = OutcomeStatus.IMPROVED if has_effect else OutcomeStatus.NO_OP
    return AttemptResult(status, batch.reasons[0], work=orphan_work)


def _reason(why: Exception) -> Reason:
    if not isinstance(why, RefusedError):
        return Reason.ERROR
    return Reason.CLOCK_SKEW if why.code == "ICM-115" else Reason.REFUSED


def doubtful_clocks(batch: Batch, context: Context) -> AttemptResult | None:
    """Returns the result of a batch that removes by age while clocks disagree, the store's among them.
    None if they agree. Raises what the store raises."""
    state = pin_same(batch, context)
    if state is None:
        return None  # the next step reports it
    clocks = table_clocks(context, state, store=True)
    skew = clock_skew_text(clocks)
    if skew is None:
        keep_reading(context, clocks)
        return None
    message = str(clock_refusal(batch.table, skew))
    return AttemptResult(OutcomeStatus.UNSUPPORTED, Reason.CLOCK_SKEW, message)


def may_expire(batch: Batch, policy: Policy, context: Context, metadata_location: str) -> Retention | None:
    """Returns what may expire of the batch's table now. None if its metadata is no longer the one at
    `metadata_location`. Age counts by the slowest clock. Raises RefusedError ICM-115 if clocks disagree."""
    state = pin_same(batch, context)
    if state is None or state.metadata_location != metadata_location:
        return None
    clocks = checked_clocks(context, state, store=True)
    return retention_of(state, policy, context, clocks.earliest_ms)


def judge_expiry(
    work: ExpireSnapshots, commit: Committed, context: Context, _policy: Policy
) -> AttemptResult:
    """Returns the result from the table itself: the expired snapshots and refs must be absent. An expiry
    creates no snapshot of its own."""
    batch, written, result = commit.batch, commit.written, commit.result
    if result.status is CommitStatus.REJECTED:
        return rejected_commit(commit, context)
    if result.lost:
        message = str(lost_error(batch.table, result.lost))
        return AttemptResult(OutcomeStatus.FAILED, Reason.REFS_LOST, message, written.proof, written, result)
    state = pin_same(batch, context)
    snapshot = state.snapshot if state is not None and expired(work, state) else None
    if snapshot is None:
        return unknown_commit(commit)
    counts = {"expired_snapshots": len(work.snapshots), "expired_refs": len(work.refs)}
    status, reason = OutcomeStatus.IMPROVED, batch.reasons[0]
    return AttemptResult(status, reason, "", written.proof, written, result, snapshot, counts=counts)


def judge_regrouping(
    work: RewriteManifests, commit: Committed, context: Context, policy: Policy
) -> AttemptResult:
    """Returns the result from the table itself: the snapshot with the attempt's token, and its manifests."""
    batch, written, result = commit.batch, commit.written, commit.result
    if result.status is CommitStatus.REJECTED:
        return rejected_commit(commit, context)
    state = pin_same(batch, context)
    snapshot = state.snapshot_by_token(commit.token) if state is not None else None
    if state is None or snapshot is None:
        return unknown_commit(commit)
    created_manifests = int(snapshot.summary.get("manifests-created", "0"))
    counts = {"manifests_replaced": len(work.manifests), "manifests_created": created_manifests}
    # The count may stay the same if each manifest then covers fewer partitions.
    better = created_manifests < len(work.manifests) or not manifest_findings(state, policy.rewrite_manifests)
    forced = Reason.FORCED in batch.reasons
    status = OutcomeStatus.IMPROVED if better else OutcomeStatus.COMMITTED
    reason = batch.reasons[0] if better or forced else Reason.NO_EFFECT
    message = _faults_beside(state, context)
    return AttemptResult(status, reason, message, written.proof, written, result, snapshot, counts=counts)


def _faults_beside(state: TableState, context: Context) -> str:
    """Says that operations on data of the table failed or were refused. New manifests list their files as before."""
    history = context.ledger.health.history(state.uuid, str(state.table), Operation.REWRITE_MANIFESTS)
    faults = [f for f in history.faults if f.operation in DATA_OPERATIONS]
    if not faults:
        return ""
    first, more = faults[0], f" ({len(faults)} partitions have a fault)" if len(faults) > 1 else ""
    return (
        "the files of the manifests are as before, also those of a fault that remains: "
        f"{first.operation} of {first.partition or 'the whole table'}{more}: {first.history.reason}"
    )


def lost_error(table: str, lost: tuple[str, ...]) -> IcebergMaintError:
    """Returns the error for an expiry that also removed refs or snapshots that others set."""
    return IcebergMaintError(
        "ICM-130",
        f"{table}: the expiry also removed {', '.join(lost)}; the catalog does not check the base of a commit.",
        "set each one again from the table's metadata log before its files are swept, then run "
        f"`{command_line('release', table)}`. Until then nothing expires and no trash is swept.",
    )
