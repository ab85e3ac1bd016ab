"""The plan of each operation: one for the files of partitions, one for the table as a whole."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import assert_never

from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.decisions.manifests_decision import due_manifests
from iceberg_maint.core.decisions.snapshot_retention import Retention
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import UNPARTITIONED_KEY, WHOLE_TABLE, Operation, PartitionKey
from iceberg_maint.core.model.reasons import Decision, Reason
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.planning.convert_equality_deletes import plan_conversion
from iceberg_maint.core.planning.file_groups import PlanInputs
from iceberg_maint.core.planning.plan import Batch, Leftover, Plan, batch_at, leftovers_of, plan_at
from iceberg_maint.core.planning.rewrite_data_files import plan_rewrite
from iceberg_maint.core.planning.rewrite_position_delete_files import plan_position_deletes
from iceberg_maint.core.planning.work import (
    ExpireSnapshots,
    MetadataWork,
    RemoveOrphanFiles,
    RewriteManifests,
)
from iceberg_maint.core.policy.data import Policy


def partitions_to_read(decision: Decision, measured: Measured) -> frozenset[PartitionKey]:
    """Returns the partitions whose live files a plan of this decision needs.

    These are the due partitions. If deletes of an unpartitioned spec are live, these are also all partitions
    that equality deletes apply to: only all of them together show which of these deletes may be dropped.
    """
    due = frozenset(p.partition for p in decision.due())
    if decision.operation is Operation.REWRITE_POSITION_DELETE_FILES:
        return due
    under = {key for key, health in measured.partitions.items() if health.applicable_equality_delete_files}
    everywhere = measured.partitions.get(UNPARTITIONED_KEY)
    touches = decision.operation is Operation.CONVERT_EQUALITY_DELETES or not due.isdisjoint(under)
    if not due or not touches or everywhere is None or not everywhere.equality_delete_files:
        return due
    return due | under


def plan_operation(inputs: PlanInputs) -> Plan:
    """Plans one operation on data for the partitions that its decision says RUN, in its order."""
    match operation := inputs.decision.operation:
        case Operation.REWRITE_DATA_FILES:
            return plan_rewrite(inputs)
        case Operation.CONVERT_EQUALITY_DELETES:
            return plan_conversion(inputs)
        case Operation.REWRITE_POSITION_DELETE_FILES:
            return plan_position_deletes(inputs)
        case Operation.REWRITE_MANIFESTS | Operation.EXPIRE_SNAPSHOTS | Operation.REMOVE_ORPHAN_FILES:
            raise ValueError(f"{operation} works on the table as a whole: see plan_housekeeping")
        case _:
            assert_never(operation)


def plan_housekeeping(
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
    operation, leftovers = decision.operation, leftovers_of(decision)
    batches: list[Batch] = []
    if state.snapshot is not None and decision.due():
        reasons = tuple(p.reason for p in decision.due())
        batch = partial(_batch, state, reasons)
        match operation:
            case Operation.REWRITE_MANIFESTS:
                regrouped = due_manifests(state, policy.rewrite_manifests, force=Reason.FORCED in reasons)
                batches += [batch(RewriteManifests(due.paths), due.paths) for due in regrouped]
            case Operation.REMOVE_ORPHAN_FILES:
                # Storage has no snapshots. Each scan is a new batch, even at the same snapshot of the table.
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
            leftovers.append(Leftover(WHOLE_TABLE, Reason.NO_GAIN))
    return plan_at(state, operation, batches, leftovers)


def _batch(
    state: TableState,
    reasons: tuple[Reason, ...],
    work: MetadataWork | RemoveOrphanFiles,
    inputs: tuple[str, ...],
) -> Batch:
    return replace(batch_at(state, work, frozenset((work.strategy.value, *inputs))), reasons=reasons)
