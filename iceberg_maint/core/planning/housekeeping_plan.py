"""Plans batches of housekeeping: one for the whole table. For manifests: one for each spec and kind."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import assert_never

from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.decisions.manifests_decision import due_manifests
from iceberg_maint.core.decisions.snapshot_retention import Retention
from iceberg_maint.core.model.ids import WHOLE_TABLE, Operation
from iceberg_maint.core.model.reasons import (
    Decision,
    Reason,
    Verdict,
)
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.planning.plan import Batch, Leftover, Plan, batch_at, make_plan
from iceberg_maint.core.planning.work import (
    ExpireSnapshots,
    MetadataWork,
    RemoveOrphanFiles,
    RewriteManifests,
)
from iceberg_maint.core.policy.data import Policy


def plan_housekeeping(
    operation: Operation,
    state: TableState,
    decision: Decision,
    policy: Policy,
    retention: Retention,
    history: TableHistory,
    *,
    sweeps: bool,
) -> Plan:
    """Returns the plan of one housekeeping operation. It has a batch if the decision says RUN. For manifests
    it has one for each spec and kind. `sweeps`: see `may_sweep`."""
    leftovers = tuple(
        Leftover(p.partition, p.reason)
        for p in decision.partitions
        if p.verdict in (Verdict.DEFER, Verdict.REFUSE)
    )
    batches: list[Batch] = []
    if state.snapshot is not None and decision.due():
        reasons = tuple(p.reason for p in decision.due())
        batch = partial(_batch, state, reasons)
        match operation:
            case Operation.REWRITE_MANIFESTS:
                regrouped = due_manifests(state, policy.rewrite_manifests, force=Reason.FORCED in reasons)
                batches += [batch(RewriteManifests(due.paths), due.paths) for due in regrouped]
            case Operation.REMOVE_ORPHAN_FILES:
                # Storage has no snapshots. Each pass is a new batch, even at the same snapshot of the table.
                after = f"after {history.last_done_ms}"
                batches.append(batch(RemoveOrphanFiles(sweeps), (after,)))
            case Operation.EXPIRE_SNAPSHOTS:
                work = ExpireSnapshots(retention.expire, retention.expire_refs)
                if work.snapshots or work.refs:
                    batches.append(batch(work, (*map(str, work.snapshots), *work.refs)))
            case (
                Operation.REWRITE_DATA_FILES
                | Operation.CONVERT_EQUALITY_DELETES
                | Operation.REWRITE_POSITION_DELETE_FILES
            ):
                raise ValueError(f"{operation} works on files of partitions: see plan_operation")
            case _:
                assert_never(operation)
        if not batches:
            leftovers += (Leftover(WHOLE_TABLE, Reason.NO_GAIN),)
    return make_plan(
        str(state.table),
        state.uuid,
        operation,
        state.snapshot.snapshot_id if state.snapshot else None,
        tuple(batches),
        leftovers,
    )


def _batch(
    state: TableState,
    reasons: tuple[Reason, ...],
    work: MetadataWork | RemoveOrphanFiles,
    inputs: tuple[str, ...],
) -> Batch:
    return replace(batch_at(state, work, frozenset((work.strategy.value, *inputs))), reasons=reasons)
