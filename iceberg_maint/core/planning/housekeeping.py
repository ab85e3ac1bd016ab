"""Plan batches of housekeeping: one for the whole table or, of manifests, one for each spec and kind."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.decisions.manifests import due_manifests
from iceberg_maint.core.decisions.retention import Retention
from iceberg_maint.core.model.ids import WHOLE_TABLE, Operation
from iceberg_maint.core.model.reasons import (
    Decision,
    Reason,
    Verdict,
)
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.planning.plan import Batch, Leftover, Plan, batch_at, make_plan
from iceberg_maint.core.policy.data import Policy

REGROUP = "regroup"
EXPIRE = "expire"
MARK = "mark"
SWEEP_AND_MARK = "sweep-and-mark"
"""Only where an expiry ended well since the files were marked; see `may_sweep`."""


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
    """The plan of one operation of housekeeping: its batch where the decision says RUN;
    of manifests one for each spec and kind. `sweeps`: see `may_sweep`."""
    leftovers = tuple(
        Leftover(p.partition, p.reason)
        for p in decision.partitions
        if p.verdict in (Verdict.DEFER, Verdict.REFUSE)
    )
    batches: list[Batch] = []
    if state.snapshot is not None and decision.due():
        reasons = tuple(p.reason for p in decision.due())
        batch = partial(_batch, operation, state, reasons)
        if operation is Operation.REWRITE_MANIFESTS:
            regrouped = due_manifests(state, policy.rewrite_manifests, force=Reason.FORCED in reasons)
            batches += [batch(REGROUP, manifests=due.paths) for due in regrouped]
        elif operation is Operation.REMOVE_ORPHAN_FILES:
            # Storage has no snapshot: each pass is another one, whatever the table is at.
            after = f"after {history.last_done_ms}"
            batches.append(batch(SWEEP_AND_MARK if sweeps else MARK, after=after))
        elif retention.expire or retention.expire_refs:
            batches.append(batch(EXPIRE, snapshots=retention.expire, refs=retention.expire_refs))
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
    operation: Operation,
    state: TableState,
    reasons: tuple[Reason, ...],
    strategy: str,
    *,
    manifests: tuple[str, ...] = (),
    snapshots: tuple[int, ...] = (),
    refs: tuple[str, ...] = (),
    after: str = "",
) -> Batch:
    inputs = frozenset((strategy, *manifests, *map(str, snapshots), *refs, *((after,) if after else ())))
    return replace(
        batch_at(state, operation, strategy, inputs),
        reasons=reasons,
        manifests=manifests,
        snapshots=snapshots,
        refs=refs,
    )
