"""Assessment: the read-only half of the loop, from catalog to decision and plan.

`observe`, `plan`, `why` and `run` all start here. Nothing here changes a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from iceberg_maint.core.decisions.applicability import coexistence_policy, readers_policy
from iceberg_maint.core.decisions.decide import decide
from iceberg_maint.core.decisions.history import TableHistory, combine_histories
from iceberg_maint.core.decisions.housekeeping_decision import decide_housekeeping, may_sweep
from iceberg_maint.core.decisions.rules import Situation
from iceberg_maint.core.decisions.snapshot_retention import (
    Retainer,
    RetainerKind,
    Retention,
    may_be_young,
    retain,
)
from iceberg_maint.core.decisions.table_decision import combine_decisions, rewrites_first
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import (
    DATA_OPERATIONS,
    HOUSEKEEPING_OPERATIONS,
    Operation,
    PartitionKey,
    TableId,
    command_line,
)
from iceberg_maint.core.model.partition_key import decode_partition
from iceberg_maint.core.model.reasons import Decision
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.removal.clock_skew import clock_skew_text
from iceberg_maint.errors import IcebergMaintError, UnknownTableError
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.read_table import (
    TableReading,
    keep_boot,
    measure,
    note_unreadable,
    table_clocks,
    with_order,
)
from iceberg_maint.loop.request import Request

NOTHING_EXPIRES = Retention((), (), (), ())


@dataclass(frozen=True, slots=True)
class Assessment:
    """One table: its state, its policy, its health, its histories and the decisions that follow.

    There is one history and one decision per operation, in the order of a run. With housekeeping
    among the operations, `retention` is what may expire and `sweeps` says whether the trash may be emptied. `situation` is
    what the decisions follow from.
    """

    state: TableState
    policy: Policy
    measured: Measured
    histories: tuple[TableHistory, ...]
    decisions: tuple[Decision, ...]
    situation: Situation
    retention: Retention = NOTHING_EXPIRES
    sweeps: bool = False

    @property
    def history(self) -> TableHistory:
        """The operations' histories as one."""
        return combine_histories(self.histories)

    @property
    def decision(self) -> Decision:
        """The operations' decisions as one view of the table."""
        return combine_decisions(self.decisions)

    def only(self, operations: Sequence[Operation]) -> Assessment:
        """Returns the part of the assessment that concerns these operations."""
        indexes = [n for n, d in enumerate(self.decisions) if d.operation in operations]
        return replace(
            self,
            histories=tuple(self.histories[n] for n in indexes),
            decisions=tuple(self.decisions[n] for n in indexes),
        )

    def rewrites_first(self) -> bool:
        """Returns whether a run of these operations rewrites small files before it converts equality deletes."""
        histories = {d.operation: history for d, history in zip(self.decisions, self.histories, strict=True)}
        decisions = {d.operation: d for d in self.decisions}
        return rewrites_first(decisions, histories, self.policy, self.measured.partitions)

    def in_run_order(self) -> Assessment:
        """Returns the assessment with its decisions in the order in which a run comes to them."""
        if not self.rewrites_first():
            return self
        order = [d.operation for d in self.decisions]
        order.remove(Operation.REWRITE_DATA_FILES)
        order.insert(order.index(Operation.CONVERT_EQUALITY_DELETES), Operation.REWRITE_DATA_FILES)
        indexes = sorted(range(len(self.decisions)), key=lambda n: order.index(self.decisions[n].operation))
        return replace(
            self,
            histories=tuple(self.histories[n] for n in indexes),
            decisions=tuple(self.decisions[n] for n in indexes),
        )


@dataclass(frozen=True, slots=True)
class Demand:
    """What a caller asks for: these partitions, None for all, and also those that are not due. `owner` is that of the
    caller's lease, which does not count as another owner's."""

    partitions: frozenset[PartitionKey] | None = None
    force: bool = False
    owner: str | None = None


def assess(
    table: TableId,
    context: Context,
    operations: Sequence[Operation] = DATA_OPERATIONS,
    *,
    reading: TableReading | None = None,
    demand: Demand | None = None,
) -> Assessment:
    """Pins and measures the table, stores its health and decides on each operation.

    `reading` is what a thread has read of the table just now. Raises
    UnknownTableError for a table that the catalog lacks, or for a requested partition key that the
    table cannot have.
    """
    demand = demand or Demand()
    try:
        state = context.catalogs.pin(table) if reading is None else reading.state
        check_partitions(state, demand.partitions)
        policy = context.policies.of(state)
        state = with_order(state, policy)
        if reading is None or reading.measured is None:
            measured = measure(state, policy, context)
        else:
            measured = reading.measured
            context.ledger.health.put(measured)
    except IcebergMaintError as error:
        note_unreadable(table, error, context)
        raise
    now_ms = context.clock.now_ms()
    policy = coexistence_policy(readers_policy(policy, measured, state.properties), measured.foreign, now_ms)
    stored = context.ledger.health.histories({state.uuid: str(table)}, tuple(Operation))
    retention, sweeps, skew = NOTHING_EXPIRES, False, None
    if not set(operations).isdisjoint(HOUSEKEEPING_OPERATIONS):
        clocks = table_clocks(context, state, store=False)
        skew = clock_skew_text(clocks)
        if skew is None:
            keep_boot(context, clocks)
        retention = retention_of(state, policy, context, clocks.earliest_ms)
        expiry = stored[state.uuid, Operation.EXPIRE_SNAPSHOTS]
        delete_after_seconds = policy.remove_orphan_files.delete_after_seconds
        expires = policy.expire_snapshots.enabled
        sweeps = may_sweep(retention, expiry, delete_after_seconds, now_ms, expires=expires)

    known = {o: stored[state.uuid, o] for o in Operation}
    if demand.owner is not None:
        known = {
            o: replace(h, lease_owner=None) if h.lease_owner == demand.owner else h for o, h in known.items()
        }
    at_pin = replace(measured, format_version=state.format_version)
    situation = Situation(
        at_pin, policy, known, now_ms, demand.partitions, demand.force, context.engine.row_types, skew
    )
    decisions = [
        decide_housekeeping(operation, state, situation, retention)
        if operation in HOUSEKEEPING_OPERATIONS
        else decide(operation, situation)
        for operation in operations
    ]
    histories = tuple(known[operation] for operation in operations)
    return Assessment(state, policy, measured, histories, tuple(decisions), situation, retention, sweeps)


def retention_of(state: TableState, policy: Policy, context: Context, now_ms: int) -> Retention:
    """Returns what may expire now.

    Retained are the snapshots of recent open plans, the base snapshots of open attempts and the parents of commits
    whose verdict is RED, with every later snapshot: attempts are settled and commits rolled back from those.
    """
    running = {
        stored.plan_id: stored.batch.snapshot_id
        for operation in sorted(context.ledger.work.open_operations(state.uuid).intersection(DATA_OPERATIONS))
        for stored in context.ledger.work.open_batches(state.uuid, operation)
        if may_be_young(state, policy.expire_snapshots, stored.batch.snapshot_id, now_ms)
    }
    unsettled = {
        attempt.attempt_id: attempt.tries[-1][0]
        for attempt in context.ledger.work.open_attempts(state.uuid)
        if attempt.tries and attempt.operation != Operation.EXPIRE_SNAPSHOTS
    }
    attested = context.ledger.attestations.get(state.uuid)
    red = {v.snapshot_id: state.snapshot_by_id(v.snapshot_id) for v in (attested.red if attested else ())}
    return retain(
        state,
        policy.expire_snapshots,
        now_ms,
        work=(
            *(Retainer(RetainerKind.RUNNING, *item) for item in sorted((running | unsettled).items())),
            *(
                Retainer(RetainerKind.ATTESTATION, str(snapshot_id), snapshot.parent_id)
                for snapshot_id, snapshot in red.items()
                if snapshot is not None and snapshot.parent_id is not None
            ),
        ),
        readers=context.ledger.registry.readers(state.uuid),
        publishing=policy.write_audit_publish,
    )


def check_partitions(state: TableState, requested: frozenset[PartitionKey] | None) -> None:
    """Raises UnknownTableError ICM-126 for a key that no partition of this table can have. The partition
    need not have files."""
    for key in sorted(requested or ()):
        try:
            decode_partition(key, state.specs, state.first_spec_id)
        except ValueError as why:
            raise UnknownTableError(
                "ICM-126",
                f"{state.table} has no partition {why}.",
                f"list the keys with `{command_line('observe', str(state.table))}`.",
            ) from why


def assess_requested(
    table: TableId, request: Request, context: Context, operations: Sequence[Operation]
) -> Assessment:
    """Assesses these operations for the request. Raises what `assess` raises."""
    return assess(
        table,
        context,
        operations,
        demand=Demand(request.partitions, request.force, request.run_id),
    )


class AssessmentCache:
    """What the requested operations on a table have to do, read once for all operations on data and once for
    all of housekeeping.

    A run of a healthy table reads it twice instead of six times. An operation that has work takes the lease
    and assesses the table again, so a decision to work never rests on a cache. `forget` drops it, because
    that work changes the table.
    """

    def __init__(self, table: TableId, request: Request, context: Context) -> None:
        self._table = table
        self._request = request
        self._context = context
        self._assessment: Assessment | None = None
        self._has_unsettled_work: bool | None = None
        self._open_operations: frozenset[Operation] | None = None

    def assessment(self, operation: Operation) -> Assessment:
        """The assessment of one requested operation. Raises what `assess` raises."""
        if self._assessment is None or operation not in (d.operation for d in self._assessment.decisions):
            is_data = operation in DATA_OPERATIONS
            kind = tuple(o for o in self._request.operations if (o in DATA_OPERATIONS) is is_data)
            self.forget()
            self._assessment = assess_requested(self._table, self._request, self._context, kind)
        return self._assessment.only((operation,))

    def rewrites_first(self) -> bool:
        """Whether the run rewrites small files before it converts equality deletes. An operation was assessed before."""
        assert self._assessment is not None, "assessed first"
        return self._assessment.rewrites_first()

    def has_unsettled_work(self) -> bool:
        """Whether the table has an open attempt, or a run that died before it was recorded: the next run
        settles and records both, whatever its operation."""
        if self._has_unsettled_work is None:
            assert self._assessment is not None, "assessed first"
            uuid = self._assessment.state.uuid
            ledger = self._context.ledger
            self._has_unsettled_work = bool(
                ledger.work.open_attempts(uuid)
            ) or ledger.records.has_unrecorded_runs(uuid)
        return self._has_unsettled_work

    def has_open_batches(self, operation: Operation) -> bool:
        """Whether earlier runs have left batches of the operation."""
        if self._open_operations is None:
            assert self._assessment is not None, "assessed first"
            self._open_operations = self._context.ledger.work.open_operations(self._assessment.state.uuid)
        return operation in self._open_operations

    def forget(self) -> None:
        """Drops what was read."""
        self._assessment = None
        self._open_operations = None
        self._has_unsettled_work = None
