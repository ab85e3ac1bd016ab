"""What is stored of an attempt at a batch: its outcome, and the histories of its partitions."""

from __future__ import annotations

from collections.abc import Mapping

from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.decisions.waits import (
    environment_failed,
    failed,
    quarantined_history,
    succeeded,
    undone,
)
from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import Snapshot
from iceberg_maint.core.outcomes.outcome import BatchOutcome, OutcomeStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import LayoutGain, RewriteDataFiles, Work, layout_gain
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.loop.attempt import AttemptResult
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.housekeeping_attempt import counts_of
from iceberg_maint.ports.engine import Written


def batch_outcome(batch: Batch, attempt_result: AttemptResult, seconds: float) -> BatchOutcome:
    """Returns the outcome of a batch whose attempt took `seconds`. What the attempt does not know, the caller adds."""
    committed = attempt_result.snapshot is not None
    written = attempt_result.written
    # An earlier batch of the plan, or another writer, may have committed since the plan.
    base = attempt_result.commit.base_snapshot_id if committed and attempt_result.commit else None
    return BatchOutcome(
        batch_id=batch.batch_id,
        partitions=batch.partitions,
        outcome=attempt_result.outcome,
        reason=attempt_result.reason,
        input_files=batch.input_files,
        output_files=len(written.files) if written and committed else 0,
        input_bytes=batch.input_bytes,
        output_bytes=written.output_bytes if written and committed else 0,
        delete_files_removed=removed_deletes_of(attempt_result.snapshot) if attempt_result.snapshot else 0,
        seconds=round(seconds, 3),
        snapshot_before=batch.snapshot_id if base is None else base,
        snapshot_after=attempt_result.snapshot.snapshot_id if attempt_result.snapshot else None,
        commit_tries=attempt_result.commit.tries if attempt_result.commit else 0,
        wasted_bytes=_wasted_bytes(written, committed=committed),
        proof=attempt_result.proof,
        message=attempt_result.message,
        memory=written.memory if written else attempt_result.memory,
        layout=layout_gain_of(batch.work, written) if written and committed else None,
        counts=counts_of(attempt_result),
        held=attempt_result.work.held if attempt_result.work else None,
        unlogged=attempt_result.work.unlogged if attempt_result.work else None,
    )


def layout_gain_of(work: Work, written: Written) -> LayoutGain | None:
    """Returns what a sort gains, None for other work."""
    if not isinstance(work, RewriteDataFiles) or work.layout is None:
        return None
    return layout_gain(work.layout, ((f.group, f.content) for f in written.files))


def histories_after(
    attempt_result: AttemptResult,
    histories: Mapping[PartitionKey, PartitionHistory],
    policy: Policy,
    context: Context,
) -> dict[PartitionKey, PartitionHistory]:
    """Returns the histories of the partitions after an attempt, from those before it. Without an entry, what was stored
    before the attempt stays."""
    # An orphan pass that finds no orphans is a success.
    no_orphans = attempt_result.work is not None and attempt_result.outcome is OutcomeStatus.NO_OP
    if (
        attempt_result.outcome is OutcomeStatus.IMPROVED
        or attempt_result.reason is Reason.FORCED
        or no_orphans
    ):
        return {p: succeeded() for p in histories}
    if attempt_result.outcome is OutcomeStatus.UNKNOWN:
        return {}  # The write-ahead back-off stays until the commit is settled.
    if attempt_result.reason in (Reason.STALE, Reason.CONFLICT):
        # A conflict is counted once, at the end of the run.
        return {p: undone(h) for p, h in histories.items()}
    now_ms = context.clock.now_ms()
    why = attempt_result.message or attempt_result.reason.value
    if attempt_result.reason in (Reason.ENVIRONMENT, Reason.CLOCKS_DISAGREE):
        return {p: environment_failed(h, policy.retry, now_ms, why) for p, h in histories.items()}
    if attempt_result.reason is Reason.REFS_LOST:
        return {p: quarantined_history(h, why) for p, h in histories.items()}
    return {p: failed(h, policy.retry, now_ms, why) for p, h in histories.items()}


def _wasted_bytes(written: Written | None, *, committed: bool) -> int:
    if written is None or written.adopted:
        # The attempt that wrote the files counts their bytes.
        return 0
    return written.scratch_bytes + (0 if committed else written.output_bytes)


def removed_deletes_of(snapshot: Snapshot) -> int:
    """Returns the number of delete files that a commit removed."""
    return int(snapshot.summary.get("removed-delete-files", "0"))
