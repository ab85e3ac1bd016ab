"""Assessment: the read-only half of the loop, from catalog to decision and plan.

`observe`, `plan`, `why` and `run` all start here. Nothing here changes a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from iceberg_maint.core.decisions.decide import Situation, decide
from iceberg_maint.core.decisions.history import TableHistory, combine_histories
from iceberg_maint.core.decisions.housekeeping_decision import decide_housekeeping, may_sweep
from iceberg_maint.core.decisions.other_engines import coexistence_policy, readers_policy
from iceberg_maint.core.decisions.snapshot_retention import Retention, may_be_young, retain
from iceberg_maint.core.decisions.table_decision import combine_decisions, rewrites_first
from iceberg_maint.core.decisions.waits import works_alone
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
from iceberg_maint.core.outcomes.failures import may_be_too_long
from iceberg_maint.core.planning.batch_memory import learned_correction
from iceberg_maint.core.planning.batch_trials import BatchSize, batch_limit
from iceberg_maint.core.planning.file_groups import BatchLimits, PlanInputs
from iceberg_maint.core.planning.plan import Plan
from iceberg_maint.core.planning.planner import partitions_to_read, plan_housekeeping, plan_operation
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.removal.clock_skew import disagreement
from iceberg_maint.errors import UnknownTableError
from iceberg_maint.loop.clocks import keep_boot, table_clocks
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.fleet.known_tables import UnchangedTable, unreadable_noted
from iceberg_maint.loop.read_table import TableReading, measure, with_order
from iceberg_maint.loop.stored_decisions import decisions_of, stored_decisions
from iceberg_maint.ports.observers import NO_TELEMETRY, Observation

NOTHING_EXPIRES = Retention((), (), (), ())


@dataclass(frozen=True, slots=True)
class Assessment:
    """One table: its state, its policy, its health, its histories and the decisions that follow.

    There is one history and one decision per operation, in the order of the cycle. With housekeeping
    among the operations, `retention` is what may expire and `sweeps` says whether the trash may be emptied.
    """

    state: TableState
    policy: Policy
    measured: Measured
    histories: tuple[TableHistory, ...]
    decisions: tuple[Decision, ...]
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


def assess(
    table: TableId,
    context: Context,
    operations: Sequence[Operation] = DATA_OPERATIONS,
    *,
    reading: TableReading | None = None,
    requested: frozenset[PartitionKey] | None = None,
    force: bool = False,
    owner: str | None = None,
) -> Assessment:
    """Pins and measures the table, stores its health and decides on each operation.

    `reading` is what a thread has read of the table just now. `owner` is the lease owner of the caller. Its own lease does
    not count as another owner's. Raises
    UnknownTableError for a table that the catalog lacks, or for a requested partition key that the
    table cannot have.
    """
    with unreadable_noted(table, context):
        state = context.catalogs.pin(table) if reading is None else reading.state
        check_partitions(state, requested)
        policy = context.policies.of(state)
        state = with_order(state, policy)
        if reading is None or reading.measured is None:
            measured = measure(state, policy, context)
        else:
            measured = reading.measured
            context.ledger.health.put(measured)
    now_ms = context.clock.now_ms()
    policy = coexistence_policy(readers_policy(policy, measured, state.properties), measured.foreign, now_ms)
    stored = context.ledger.health.histories({state.uuid: str(table)}, tuple(Operation))
    retention, sweeps, doubt = NOTHING_EXPIRES, False, None
    if not set(operations).isdisjoint(HOUSEKEEPING_OPERATIONS):
        clocks = table_clocks(context, state, store=False)
        doubt = disagreement(clocks)
        if doubt is None:
            keep_boot(context, clocks)
        retention = retention_of(state, policy, context, clocks.earliest_ms)
        expiry = stored[state.uuid, Operation.EXPIRE_SNAPSHOTS]
        hold_seconds = policy.remove_orphan_files.hold_seconds
        expires = policy.expire_snapshots.enabled
        sweeps = may_sweep(retention, expiry, hold_seconds, now_ms, expires=expires)

    known = {o: stored[state.uuid, o] for o in Operation}
    if owner is not None:
        known = {o: replace(h, lease_owner=None) if h.lease_owner == owner else h for o, h in known.items()}
    at_pin = replace(measured, format_version=state.format_version)
    situation = Situation(at_pin, policy, known, now_ms, requested, force, context.engine.row_types)
    decisions = [
        decide_housekeeping(operation, state, situation, retention, doubt=doubt)
        if operation in HOUSEKEEPING_OPERATIONS
        else decide(operation, situation)
        for operation in operations
    ]
    histories = tuple(known[operation] for operation in operations)
    return Assessment(state, policy, measured, histories, tuple(decisions), retention, sweeps)


def report_observed(assessment: Assessment, context: Context) -> None:
    """Reports the numbers of a table that was measured just now."""
    context.observers.telemetry.table_observed(
        Observation(assessment.measured, context.clock.now_ms(), assessment.decisions, assessment.histories)
    )


def report_unchanged(unchanged: UnchangedTable, context: Context) -> None:
    """Reports the stored numbers of a table that has not changed since, with the decisions that follow now."""
    if context.observers.telemetry is NO_TELEMETRY:
        return
    measured, now_ms = unchanged.measured, context.clock.now_ms()
    policy = context.policies.of_table(measured.table, measured.maintenance_properties)
    decisions = decisions_of(measured, policy, unchanged.histories, now_ms, context.engine.row_types)
    context.observers.telemetry.table_observed(
        Observation(measured, now_ms, decisions, tuple(unchanged.histories.values()))
    )


def stored_observation(table: TableId, context: Context) -> Observation | None:
    """Returns the stored health of a table, with the decisions on its data that follow from it now."""
    measured = context.ledger.health.get(table)
    if measured is None:
        return None
    now_ms = context.clock.now_ms()
    policy = context.policies.of_table(table, measured.maintenance_properties)
    histories, decisions = stored_decisions(
        measured, policy, context.ledger, now_ms, context.engine.row_types
    )
    return Observation(measured, now_ms, decisions, histories)


def make_plans(
    assessment: Assessment, context: Context, *, before_conversion: bool = False
) -> tuple[Plan, ...]:
    """Returns one plan per decision, for the partitions whose verdict is RUN. `run` executes these objects.

    `before_conversion` is that of the step whose decision is planned alone. If a rewrite comes before a conversion, and both
    are planned here, the plan of the conversion has the files that the rewrite leaves to it.
    """
    before_conversion = before_conversion or assessment.rewrites_first()
    pairs = list(zip(assessment.decisions, assessment.histories, strict=True))
    plans: dict[Operation, Plan] = {}
    rewritten: frozenset[str] = frozenset()
    if before_conversion:
        pairs.sort(key=lambda pair: pair[0].operation is not Operation.REWRITE_DATA_FILES)
    for decision, history in pairs:
        plan = _plan(decision, history, assessment, context, before_conversion, rewritten)
        plans[decision.operation] = plan
        if before_conversion and decision.operation is Operation.REWRITE_DATA_FILES:
            rewritten = frozenset(path for b in plan.batches for path in b.paths())
    return tuple(plans[d.operation] for d in assessment.decisions)


def _plan(
    decision: Decision,
    history: TableHistory,
    assessment: Assessment,
    context: Context,
    before_conversion: bool,
    rewritten: frozenset[str],
) -> Plan:
    operation = decision.operation
    if operation in HOUSEKEEPING_OPERATIONS:
        return plan_housekeeping(
            assessment.state,
            decision,
            assessment.policy,
            assessment.retention,
            history,
            sweeps=assessment.sweeps,
        )
    partitions = partitions_to_read(decision, assessment.measured)
    live_files = context.catalogs.live_files(assessment.state, partitions) if partitions else ()
    limits = BatchLimits(
        memory_correction=learned_correction(context.ledger.records.memory_uses(assessment.state.uuid)),
        size=limit_after_conflicts(operation, assessment.state, context),
        alone=frozenset(
            p.partition
            for p in decision.due()
            if may_be_too_long(p.partition) or works_alone(history.of(p.partition))
        ),
        readers=context.engine.row_types,
    )
    inputs = PlanInputs(
        assessment.state,
        decision,
        live_files,
        assessment.policy,
        assessment.measured.target_file_size_bytes,
        limits,
        before_conversion,
        rewritten,
    )
    return plan_operation(inputs)


def limit_after_conflicts(operation: Operation, state: TableState, context: Context) -> BatchSize | None:
    """Returns the largest batch of an operation on data after batches that lost every try to other commits.
    None if the policy alone limits it."""
    return batch_limit(context.ledger.records.commit_trials(state.uuid, operation))


def retention_of(state: TableState, policy: Policy, context: Context, now_ms: int) -> Retention:
    """Returns what may expire now.

    Retained are the snapshots of recent open plans and the base snapshots of open attempts, with every
    later snapshot: attempts are settled from those.
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
    return retain(
        state,
        policy.expire_snapshots,
        now_ms,
        running=running | unsettled,
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
