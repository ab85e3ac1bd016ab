"""Selects the batches of a run: open ones that are still valid, and a plan for the other partitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import assert_never

from iceberg_maint.core.commits.planned_files import (
    is_as_planned,
    is_as_planned_since,
    unknown_deletes,
)
from iceberg_maint.core.decisions.applicability import may_convert
from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.decisions.waits import NO_GAIN_REASONS, backs_off, failed, runs_isolated
from iceberg_maint.core.model.ids import Operation, PartitionKey
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import ChangedFiles, TableState
from iceberg_maint.core.planning.plan import Batch, Plan
from iceberg_maint.core.planning.work import (
    ConvertEqualityDeletes,
    ExpireSnapshots,
    RemoveOrphanFiles,
    RewriteDataFiles,
    RewriteManifests,
    RewritePositionDeleteFiles,
    Work,
)
from iceberg_maint.errors import RefusedError
from iceberg_maint.loop.assess import Assessment
from iceberg_maint.loop.fleet.catalogs import Catalogs
from iceberg_maint.loop.plan_batches import make_plans
from iceberg_maint.loop.record import Results
from iceberg_maint.loop.request import PlanReady, Run
from iceberg_maint.ports.clock import Clock
from iceberg_maint.ports.stored import Lease

_REFUSED_FILES = frozenset({"ICM-120", "ICM-155", "ICM-173"})
"""Codes of live files that no batch may read: listed twice, outside the approved locations, with an ambiguous path."""


class Changes:
    """The changes of one pinned table since earlier snapshots, in the partitions of its open batches. Each
    snapshot is compared once, whatever the number of batches."""

    def __init__(self, state: TableState, catalogs: Catalogs, batches: Collection[Batch]) -> None:
        self.state = state
        self.catalogs = catalogs
        self.ancestor_ids = frozenset(s.snapshot_id for s in state.ancestors())
        self._partitions: dict[int, set[PartitionKey]] = {}
        for batch in batches:
            self._partitions.setdefault(batch.snapshot_id, set()).update(batch.partitions)
        self._changed: dict[int, ChangedFiles | None] = {}

    def since(self, batch: Batch) -> ChangedFiles | None:
        """Returns what changed since the snapshot of the batch. None if that snapshot cannot be read."""
        snapshot_id = batch.snapshot_id
        if snapshot_id not in self._changed:
            partitions = self._partitions[snapshot_id]
            catalog = self.catalogs.of(self.state.table)
            self._changed[snapshot_id] = self.catalogs.interruptible(
                self.state.table, lambda: catalog.changed_files(self.state, snapshot_id, partitions)
            )
        return self._changed[snapshot_id]


def still_valid(batch: Batch, changes: Changes) -> bool:
    """Whether an open batch can be executed without a new plan.

    Table, schema and format version must be the same. The batch's snapshot must be an ancestor of the head.
    Every planned data file and delete file must be live at the head as the same file. The head must have no
    delete file that the plan does not know. A stored batch that lacks these facts is not valid. Only manifests
    that changed since the batch's snapshot are read, or all if that snapshot cannot be read.
    """
    state = changes.state
    if (state.uuid, state.schema_id, state.format_version) != (
        batch.table_uuid,
        batch.schema_id,
        batch.format_version,
    ):
        return False
    if batch.snapshot_id not in changes.ancestor_ids or unknown_deletes(batch):
        return False
    if state.snapshot is not None and state.snapshot.snapshot_id == batch.snapshot_id:
        return True
    changed = changes.since(batch)
    if changed is None:
        return is_as_planned(batch, changes.catalogs.live_files(state, batch.partitions))
    return is_as_planned_since(batch, changed, state.specs)


def with_smaller_batches(assessment: Assessment, replans: int, batches: tuple[Batch, ...]) -> Assessment:
    """Returns the assessment with half the batch size per replan of a rewrite, so that a concurrent commit
    makes less work stale. The size stays large enough for every file and for a gain per group. Conversions
    keep their size: a conversion takes every file that its deletes apply to."""
    if assessment.decision.operation != Operation.REWRITE_DATA_FILES:
        return assessment
    windows, rewrite = assessment.policy.windows, assessment.policy.rewrite_data_files
    largest = max((f.size_bytes for b in batches for g in b.groups for f in g.files), default=0)
    min_bytes = max(4 * assessment.measured.target_file_size_bytes, 2 * largest)
    min_files = 10 * rewrite.min_input_files
    windows = replace(
        windows,
        max_bytes_per_batch=_halve(windows.max_bytes_per_batch, replans, min_bytes),
        max_files_per_batch=_halve(windows.max_files_per_batch, replans, min_files),
    )
    return replace(assessment, policy=replace(assessment.policy, windows=windows))


def _halve(cap: int, times: int, minimum: int) -> int:
    return max(cap >> times, min(cap, minimum))


def select_batches(results: Results, run: Run, lease: Lease) -> tuple[Batch, ...]:
    """Returns the open batches that are still valid, then a plan for the other partitions, and adds the plan to the results.
    The ledger has all of them. Returns none if the files of a batch are refused: their partitions back off with the refusal."""
    try:
        return _select_batches(results, run, lease)
    except RefusedError as why:
        if why.code not in _REFUSED_FILES:
            raise
        message = run.context.process.masked(str(why))
        open_batches = run.context.ledger.work.open_batches(results.assessment.state.uuid, run.operation)
        partitions = {p for s in open_batches for p in s.batch.partitions}
        partitions |= {p.partition for p in results.assessment.decision.due()}
        _back_off(dict.fromkeys(partitions, message), results.assessment, run)
        results.message = message
        results.leave(partitions, Reason.REFUSED)
        return ()


def _select_batches(results: Results, run: Run, lease: Lease) -> tuple[Batch, ...]:
    assessment, ledger = results.assessment, run.context.ledger
    resumed: list[Batch] = []
    requested = run.request.partitions
    open_batches = [s.batch for s in ledger.work.open_batches(assessment.state.uuid, run.operation)]
    changes = Changes(assessment.state, run.context.catalogs, open_batches)
    for batch in open_batches:
        if requested is not None and requested.isdisjoint(batch.partitions):
            continue
        is_requested = requested is None or requested.issuperset(batch.partitions)
        is_dropped = (
            _must_wait(batch, assessment, run)
            or _is_obsolete(batch.work, assessment)
            or _is_to_split(batch, assessment.history)
        )
        if not is_dropped and is_requested and still_valid(batch, changes):
            resumed.append(batch)
        else:
            ledger.work.close_batch(lease, batch.batch_id)
    remaining = _remaining(assessment, resumed)
    (plan,) = make_plans(remaining, run.context, before_conversion=run.step.before_conversion)
    ledger.work.save_plan(lease, plan)
    _back_off_without_gain(plan, assessment, run)
    run.observer(PlanReady(plan, assessment.decision, tuple(resumed)))
    planned, done = _open_and_done(plan, assessment, run)
    results.plan_id = plan.plan_id
    results.leftovers.update((leftover.partition, leftover.reason) for leftover in plan.leftovers)
    results.leave((p for b in done for p in b.partitions), Reason.STALE)
    return (*resumed, *planned)


def _is_obsolete(work: Work, assessment: Assessment) -> bool:
    """Whether the current policy or the current table rules out the work of an open batch."""
    match work:
        case ConvertEqualityDeletes():
            return bool(work.groups) and not may_convert(assessment.policy.equality_deletes)
        case RewriteDataFiles():
            return work.layout is not None and work.layout.order != assessment.state.order
        case RewritePositionDeleteFiles():
            merges = assessment.policy.rewrite_position_delete_files.min_input_files is not None
            return not merges and any(not d.void for d in work.position_deletes)
        case RewriteManifests() | ExpireSnapshots() | RemoveOrphanFiles():
            return True  # Work on the whole table is planned again in each run.
        case _:
            assert_never(work)


def _open_and_done(
    plan: Plan, assessment: Assessment, run: Run
) -> tuple[tuple[Batch, ...], tuple[Batch, ...]]:
    """Returns the plan's open batches, and those that are DONE. A DONE batch in a plan means that main was
    rolled back behind its commit. To commit it again at once would undo the rollback. The next commit to the
    table leads to another plan."""
    if not plan.batches:
        return (), ()
    open_batches = run.context.ledger.work.open_batches(assessment.state.uuid, run.operation)
    open_ids = {stored.batch.batch_id for stored in open_batches}
    return (
        tuple(b for b in plan.batches if b.batch_id in open_ids),
        tuple(b for b in plan.batches if b.batch_id not in open_ids),
    )


def _must_wait(batch: Batch, assessment: Assessment, run: Run) -> bool:
    """Whether a partition of an open batch must wait. Otherwise a batch that kills its process would kill
    the next process too."""
    if run.request.force:
        return False
    if run.request.partitions is None and backs_off_now(batch, assessment.history, run.context.clock):
        return True
    return any(assessment.history.of(p).quarantined for p in batch.partitions)


def _is_to_split(batch: Batch, history: TableHistory) -> bool:
    """Whether the batch has several partitions, and one of them works alone."""
    return len(batch.partitions) > 1 and any(runs_isolated(history.of(p)) for p in batch.partitions)


def backs_off_now(batch: Batch, history: TableHistory, clock: Clock) -> bool:
    """Whether a partition of the batch backs off now."""
    now_ms = clock.now_ms()
    return any(backs_off(history.of(p), now_ms) for p in batch.partitions)


def _back_off_without_gain(plan: Plan, assessment: Assessment, run: Run) -> None:
    """Backs off due partitions that the plan cannot improve, as after ineffective work. Their findings stay,
    so without a back-off they would be due again at once."""
    planned = {p for b in plan.batches for p in b.partitions}
    due = {p.partition for p in assessment.decision.due()} - planned
    reasons = {
        leftover.partition: leftover.reason
        for leftover in plan.leftovers
        if leftover.reason in NO_GAIN_REASONS
    }
    _back_off({p: reason for p, reason in reasons.items() if p in due}, assessment, run)


def back_off_stale(results: Results, run: Run) -> None:
    """Backs off partitions that went stale at every replan, as after a lost commit. Without a back-off each
    run would write them again in vain."""
    last = {p: o.reason for o in results.outcomes for p in o.partitions}
    _back_off({p: reason for p, reason in last.items() if reason is Reason.STALE}, results.assessment, run)


def back_off_conflicts(results: Results, run: Run) -> None:
    """Backs off partitions in which the run committed nothing, because other commits won. A run counts one failure
    per partition, whatever the number of its batches."""
    improved = {p for o in results.outcomes if o.snapshot_after is not None for p in o.partitions}
    lost = {p for o in results.outcomes if o.reason is Reason.CONFLICT for p in o.partitions} - improved
    _back_off(dict.fromkeys(lost, Reason.CONFLICT), results.assessment, run)


def _back_off(why: Mapping[PartitionKey, str], assessment: Assessment, run: Run) -> None:
    now_ms = run.context.clock.now_ms()
    histories = {
        p: failed(assessment.history.of(p), assessment.policy.retry, now_ms, str(reason))
        for p, reason in why.items()
    }
    if histories:
        run.context.ledger.health.set_partition_history(assessment.state.uuid, run.operation, histories)


def _remaining(assessment: Assessment, resumed: list[Batch]) -> Assessment:
    """Returns the assessment without the partitions and the budget of the resumed batches."""
    resumed_partitions = {p for b in resumed for p in b.partitions}
    partitions = tuple(p for p in assessment.decision.partitions if p.partition not in resumed_partitions)
    budget = assessment.decision.budget_bytes
    remaining_bytes = None if budget is None else max(0, budget - sum(b.input_bytes for b in resumed))
    return replace(
        assessment,
        decisions=(replace(assessment.decision, partitions=partitions, budget_bytes=remaining_bytes),),
    )
