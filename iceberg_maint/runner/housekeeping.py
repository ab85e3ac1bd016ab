"""Housekeep: attempts at what concerns a table as a whole, and what came of them."""

from __future__ import annotations

from collections.abc import Mapping

from iceberg_maint.core.commits.expire_snapshots import expired
from iceberg_maint.core.decisions.manifests import manifest_findings
from iceberg_maint.core.decisions.retention import Retention
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import CommitResult, CommitStatus, OutcomeStatus
from iceberg_maint.core.outcomes.proof import Proof
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import ExpireSnapshots, RemoveOrphanFiles, RewriteManifests
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.removal.clock_agreement import disagreement
from iceberg_maint.errors import FenceLostError, IcebergMaintError, RefusedError
from iceberg_maint.ports.engine import Written
from iceberg_maint.ports.ledger import Lease
from iceberg_maint.runner.assess import retention_of
from iceberg_maint.runner.attempt_result import AttemptResult, not_shown, one_line, pin_same, rejected
from iceberg_maint.runner.clocks import checked_clocks, clock_refusal, keep_mark, table_clocks
from iceberg_maint.runner.release import is_held, released_counts, takes_released
from iceberg_maint.runner.runtime import Runtime

NOTHING_WRITTEN = Written(
    (), Proof("metadata", equal=True, input_records=0, output_records=0, removed_records=0)
)
"""Of housekeeping: its commit changes metadata only, which the gate holds against the plan."""


def remove_orphans(
    work: RemoveOrphanFiles, batch: Batch, policy: Policy, runtime: Runtime, lease: Lease
) -> AttemptResult:
    """An orphan pass; what it did is on storage in the trash manifests, whatever ends it."""
    state = pin_same(batch, runtime)
    if state is None:
        return AttemptResult(OutcomeStatus.FAILED, Reason.STALE, "the table is another one by now")
    open_attempts = runtime.ledger.open_attempts(batch.table_uuid)
    try:
        if doubtful := doubtful_clocks(batch, runtime):
            return doubtful
        done = runtime.orphan_files(state.table).run(
            state,
            policy.remove_orphan_files,
            in_flight=frozenset(f.path for a in open_attempts for f in a.files or ()),
            sweep=work.sweep,
            takes_released=takes_released(state, runtime),
            holds=lambda: is_held(state, runtime, lease),
        )
    except FenceLostError:
        raise
    except RefusedError as why:
        return AttemptResult(OutcomeStatus.UNSUPPORTED, _reason(why), str(why))
    except Exception as why:  # noqa: BLE001 - every file is at its place or in the trash
        return AttemptResult(OutcomeStatus.FAILED, Reason.ERROR, one_line(why))
    if done.stopped is not None:
        refused = isinstance(done.stopped, RefusedError)
        status = OutcomeStatus.UNSUPPORTED if refused else OutcomeStatus.FAILED
        message = str(done.stopped) if refused else one_line(done.stopped)
        return AttemptResult(status, _reason(done.stopped), message, work=done)
    if done.needs_approval:
        message = (
            f"ICM-122 {done.orphan_files} of {done.listed_files} files look orphaned; "
            f"approve by iceberg-maint orphans trash {batch.table} --approve {done.digest}"
        )
        return AttemptResult(OutcomeStatus.UNSUPPORTED, Reason.APPROVAL_REQUIRED, message, work=done)
    released = done.released.released_files if done.released else 0
    did = done.trashed_files + done.swept_files + released > 0
    status = OutcomeStatus.IMPROVED if did else OutcomeStatus.NO_OP
    return AttemptResult(status, batch.reasons[0], work=done)


def _reason(why: Exception) -> Reason:
    if not isinstance(why, RefusedError):
        return Reason.ERROR
    return Reason.CLOCKS_DISAGREE if why.code == "ICM-115" else Reason.REFUSED


def doubtful_clocks(batch: Batch, runtime: Runtime) -> AttemptResult | None:
    """How a batch that removes something by its age ends where clocks disagree, its store's included; None where
    they agree. Raises what the store raises."""
    state = pin_same(batch, runtime)
    if state is None:
        return None  # told by what follows
    clocks = table_clocks(runtime, state, store=True)
    doubt = disagreement(clocks)
    if doubt is None:
        keep_mark(runtime, clocks)
        return None
    why = str(clock_refusal(batch.table, doubt))
    return AttemptResult(OutcomeStatus.UNSUPPORTED, Reason.CLOCKS_DISAGREE, why)


def may_expire(batch: Batch, policy: Policy, runtime: Runtime, metadata_location: str) -> Retention | None:
    """What may expire of the batch's table at this moment; None when its metadata is no longer that
    at `metadata_location`, so that what is said of it would be of another one. Raises RefusedError
    ICM-115 where clocks disagree; age counts by the clock that is behind."""
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
    """The outcome from the table itself: the absence of what expired, of which no snapshot tells."""
    if result.status is CommitStatus.REJECTED:
        return rejected(written, result)
    if result.lost:
        why = str(lost_error(batch.table, result.lost))
        return AttemptResult(OutcomeStatus.FAILED, Reason.REFS_LOST, why, written.proof, written, result)
    state = pin_same(batch, runtime)
    snapshot = state.snapshot if state is not None and expired(work, state) else None
    if snapshot is None:
        return not_shown(written, result)
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
    """The outcome from the table itself: the snapshot with the attempt's token, and its manifests."""
    if result.status is CommitStatus.REJECTED:
        return rejected(written, result)
    state = pin_same(batch, runtime)
    snapshot = state.snapshot_by_token(token) if state is not None else None
    if state is None or snapshot is None:
        return not_shown(written, result)
    after = int(snapshot.summary.get("manifests-created", "0"))
    counts = {"manifests_replaced": len(work.manifests), "manifests_created": after}
    # As many as before, where each holds fewer partitions than before.
    better = after < len(work.manifests) or not manifest_findings(state, policy.rewrite_manifests)
    forced = Reason.FORCED in batch.reasons
    status = OutcomeStatus.IMPROVED if better else OutcomeStatus.NO_OP
    reason = batch.reasons[0] if better or forced else Reason.NO_EFFECT
    return AttemptResult(status, reason, "", written.proof, written, result, snapshot, counts=counts)


def lost_error(table: str, lost: tuple[str, ...]) -> IcebergMaintError:
    """What a person is told of an expiry with which went what others depend on."""
    return IcebergMaintError(
        "ICM-130",
        f"{table}: with what expired went {', '.join(lost)}; the catalog does not compare what a commit is "
        "based on.",
        "set it again from the table's metadata log before its files are swept; nothing expires and "
        f"no trash is swept until iceberg-maint release {table}.",
    )


def counts_of(ended: AttemptResult) -> Mapping[str, int]:
    """What housekeeping counted, by name; of a batch whose files another process had written, how many."""
    if ended.written is not None and ended.written.adopted and ended.snapshot is not None:
        return {"adopted_files": len(ended.written.files)}
    if ended.work is None:
        return ended.counts
    names = ("listed_files", "orphan_files", "trashed_files", "trashed_bytes", "swept_files", "swept_bytes")
    counts = {name: getattr(ended.work, name) for name in names}
    return counts if ended.work.released is None else {**counts, **released_counts(ended.work.released)}
