"""Housekeeping: attempts at operations on a whole table, and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from iceberg_maint.core.commits.expire_snapshots import expired
from iceberg_maint.core.decisions.manifests import manifest_findings
from iceberg_maint.core.decisions.retention import Retention
from iceberg_maint.core.model.ids import command_line
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import CommitResult, CommitStatus, OutcomeStatus
from iceberg_maint.core.outcomes.proof import Proof
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import ExpireSnapshots, RemoveOrphanFiles, RewriteManifests
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.removal.clock_agreement import disagreement
from iceberg_maint.errors import FenceLostError, IcebergMaintError, RefusedError
from iceberg_maint.ports.engine import Written
from iceberg_maint.ports.stored import Lease
from iceberg_maint.runner.assess import retention_of
from iceberg_maint.runner.attempt_result import (
    AttemptResult,
    environment_failure,
    one_line,
    pin_same,
    rejected_commit,
    unknown_commit,
)
from iceberg_maint.runner.clocks import checked_clocks, clock_refusal, keep_mark, table_clocks
from iceberg_maint.runner.release import is_held, released_counts, takes_released
from iceberg_maint.runner.runtime import Runtime

NOTHING_WRITTEN = Written(
    (), Proof("metadata", equal=True, input_records=0, output_records=0, removed_records=0)
)
"""The output of housekeeping. Its commit changes metadata only, and the gate checks that change against
the plan."""


def remove_orphans(
    work: RemoveOrphanFiles, batch: Batch, policy: Policy, runtime: Runtime, lease: Lease
) -> AttemptResult:
    """Runs an orphan pass. The trash manifests on storage record its work, even if it is interrupted."""
    state = pin_same(batch, runtime)
    if state is None:
        return AttemptResult(OutcomeStatus.DEFERRED, Reason.STALE, "another table has this name now")
    open_attempts = runtime.ledger.open_attempts(batch.table_uuid)
    limit, started = policy.max_run_seconds, runtime.clock.monotonic_seconds()
    try:
        if doubtful := doubtful_clocks(batch, runtime):
            return doubtful
        orphan_work = runtime.orphan_files(state.table).run(
            state,
            policy.remove_orphan_files,
            in_flight=frozenset(f.path for a in open_attempts for f in a.files or ()),
            sweep=work.sweep,
            takes_released=takes_released(state, runtime),
            holds=lambda: is_held(state, runtime, lease),
            is_over=lambda: limit is not None and runtime.clock.monotonic_seconds() - started >= limit,
        )
    except FenceLostError:
        raise
    except RefusedError as why:
        return environment_failure(why, batch, runtime) or AttemptResult(
            OutcomeStatus.UNSUPPORTED, _reason(why), str(why)
        )
    except Exception as why:  # noqa: BLE001 - every file is in its place or in the trash
        return environment_failure(why, batch, runtime) or AttemptResult(
            OutcomeStatus.FAILED, Reason.ERROR, one_line(why)
        )
    if orphan_work.stopped is not None:
        if failure := environment_failure(orphan_work.stopped, batch, runtime):
            return replace(failure, work=orphan_work)
        refused = isinstance(orphan_work.stopped, RefusedError)
        status = OutcomeStatus.UNSUPPORTED if refused else OutcomeStatus.FAILED
        message = str(orphan_work.stopped) if refused else one_line(orphan_work.stopped)
        return AttemptResult(status, _reason(orphan_work.stopped), message, work=orphan_work)
    if orphan_work.unfinished:
        message = f"stopped after max_run_seconds={limit}; the next run continues the pass"
        return AttemptResult(OutcomeStatus.IMPROVED, Reason.TIME_BUDGET, message, work=orphan_work)
    if orphan_work.needs_approval:
        message = (
            f"ICM-122 {orphan_work.orphan_files} of {orphan_work.listed_files} files look orphaned; "
            f"approve by {command_line('orphans', 'trash', batch.table, '--approve', orphan_work.digest)}"
        )
        return AttemptResult(OutcomeStatus.UNSUPPORTED, Reason.APPROVAL_REQUIRED, message, work=orphan_work)
    released_files = orphan_work.released.released_files if orphan_work.released else 0
    has_effect = orphan_work.trashed_files + orphan_work.swept_files + released_files > 0
    status = OutcomeStatus.IMPROVED if has_effect else OutcomeStatus.NO_OP
    return AttemptResult(status, batch.reasons[0], work=orphan_work)


def _reason(why: Exception) -> Reason:
    if not isinstance(why, RefusedError):
        return Reason.ERROR
    return Reason.CLOCKS_DISAGREE if why.code == "ICM-115" else Reason.REFUSED


def doubtful_clocks(batch: Batch, runtime: Runtime) -> AttemptResult | None:
    """Returns the result of a batch that removes by age while clocks disagree, the store's among them.
    None if they agree. Raises what the store raises."""
    state = pin_same(batch, runtime)
    if state is None:
        return None  # the next step reports it
    clocks = table_clocks(runtime, state, store=True)
    doubt = disagreement(clocks)
    if doubt is None:
        keep_mark(runtime, clocks)
        return None
    message = str(clock_refusal(batch.table, doubt))
    return AttemptResult(OutcomeStatus.UNSUPPORTED, Reason.CLOCKS_DISAGREE, message)


def may_expire(batch: Batch, policy: Policy, runtime: Runtime, metadata_location: str) -> Retention | None:
    """Returns what may expire of the batch's table now. None if its metadata is no longer the one at
    `metadata_location`. Age counts by the slowest clock. Raises RefusedError ICM-115 if clocks disagree."""
    state = pin_same(batch, runtime)
    if state is None or state.metadata_location != metadata_location:
        return None
    clocks = checked_clocks(runtime, state, store=True)
    return retention_of(state, policy, runtime, clocks.earliest_ms)


def judge_expiry(
    work: ExpireSnapshots,
    batch: Batch,
    written: Written,
    result: CommitResult,
    _token: str,
    runtime: Runtime,
    _policy: Policy,
) -> AttemptResult:
    """Returns the result from the table itself: the expired snapshots and refs must be absent. An expiry
    creates no snapshot of its own."""
    if result.status is CommitStatus.REJECTED:
        return rejected_commit(written, result, batch, runtime)
    if result.lost:
        message = str(lost_error(batch.table, result.lost))
        return AttemptResult(OutcomeStatus.FAILED, Reason.REFS_LOST, message, written.proof, written, result)
    state = pin_same(batch, runtime)
    snapshot = state.snapshot if state is not None and expired(work, state) else None
    if snapshot is None:
        return unknown_commit(written, result)
    counts = {"expired_snapshots": len(work.snapshots), "expired_refs": len(work.refs)}
    status, reason = OutcomeStatus.IMPROVED, batch.reasons[0]
    return AttemptResult(status, reason, "", written.proof, written, result, snapshot, counts=counts)


def judge_regrouping(
    work: RewriteManifests,
    batch: Batch,
    written: Written,
    result: CommitResult,
    token: str,
    runtime: Runtime,
    policy: Policy,
) -> AttemptResult:
    """Returns the result from the table itself: the snapshot with the attempt's token, and its manifests."""
    if result.status is CommitStatus.REJECTED:
        return rejected_commit(written, result, batch, runtime)
    state = pin_same(batch, runtime)
    snapshot = state.snapshot_by_token(token) if state is not None else None
    if state is None or snapshot is None:
        return unknown_commit(written, result)
    created_manifests = int(snapshot.summary.get("manifests-created", "0"))
    counts = {"manifests_replaced": len(work.manifests), "manifests_created": created_manifests}
    # The count may stay the same if each manifest then covers fewer partitions.
    better = created_manifests < len(work.manifests) or not manifest_findings(state, policy.rewrite_manifests)
    forced = Reason.FORCED in batch.reasons
    status = OutcomeStatus.IMPROVED if better else OutcomeStatus.COMMITTED
    reason = batch.reasons[0] if better or forced else Reason.NO_EFFECT
    return AttemptResult(status, reason, "", written.proof, written, result, snapshot, counts=counts)


def lost_error(table: str, lost: tuple[str, ...]) -> IcebergMaintError:
    """Returns the error for an expiry that also removed refs or snapshots that others set."""
    return IcebergMaintError(
        "ICM-130",
        f"{table}: the expiry also removed {', '.join(lost)}; the catalog does not check the base of a commit.",
        "set each one again from the table's metadata log before its files are swept, then run "
        f"`{command_line('release', table)}`. Until then nothing expires and no trash is swept.",
    )


def counts_of(attempt_result: AttemptResult) -> Mapping[str, int]:
    """Returns the counts of housekeeping by name. For a batch that committed files of another process: the
    number of those files. For a batch that swapped: the milliseconds from its base to its last swap."""
    return {**_work_counts(attempt_result), **_window(attempt_result.commit)}


def _window(commit: CommitResult | None) -> Mapping[str, int]:
    if commit is None or not commit.window_seconds:
        return {}
    return {"base_to_swap_ms": round(commit.window_seconds * 1000)}


def _work_counts(attempt_result: AttemptResult) -> Mapping[str, int]:
    if (
        attempt_result.written is not None
        and attempt_result.written.adopted
        and attempt_result.snapshot is not None
    ):
        return {"adopted_files": len(attempt_result.written.files)}
    if attempt_result.work is None:
        return attempt_result.counts
    names = ("listed_files", "orphan_files", "trashed_files", "trashed_bytes", "swept_files", "swept_bytes")
    counts = {name: getattr(attempt_result.work, name) for name in names}
    released = attempt_result.work.released
    return counts if released is None else {**counts, **released_counts(released)}
