"""Maintain: the one loop over the stages for one table.

assess → lease → settle → plan → batch by batch (execute, judge, measure) → record. The command
line, the Dagster assets and the tests all call `maintain`. None of them decides anything.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace

from iceberg_maint.core.decisions.applicability import property_stop, row_readers, type_stop
from iceberg_maint.core.decisions.decide import reason_to_rest
from iceberg_maint.core.decisions.table_decision import Step
from iceberg_maint.core.decisions.waits import publish_stop
from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.model.ids import Operation, PartitionKey, TableId
from iceberg_maint.core.model.reasons import Decision, Reason, Verdict
from iceberg_maint.core.outcomes.outcome import SUCCESSFUL, OperationOutcome, OutcomeStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.removal.clock_skew import disagreement
from iceberg_maint.errors import FenceLostError, IcebergMaintError
from iceberg_maint.loop.assess import Assessment
from iceberg_maint.loop.clocks import clock_refusal, table_clocks
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.execute import execute
from iceberg_maint.loop.fleet.budget import fleet_stop
from iceberg_maint.loop.fleet.tables import refuse_other_name
from iceberg_maint.loop.lease import LEASE_TTL_SECONDS, leased
from iceberg_maint.loop.prepare import Outlook, assess_requested, warn_of_memory
from iceberg_maint.loop.read_table import measure
from iceberg_maint.loop.record import begin_audit, finish_operation, unreadable_recorded
from iceberg_maint.loop.request import (
    BatchEnded,
    BatchStarted,
    Event,
    Observer,
    OperationEnded,
    PlanReady,
    Progress,
    Request,
    Run,
    progress_reports,
)
from iceberg_maint.loop.select_batches import (
    back_off_conflicts,
    back_off_stale,
    backs_off_now,
    select_batches,
    with_smaller_batches,
)
from iceberg_maint.loop.settle import require_same, settle_open_attempts
from iceberg_maint.loop.time_limits import TableTimeout, table_deadline
from iceberg_maint.ports.stored import Lease

__all__ = [
    "BatchEnded",
    "BatchStarted",
    "Event",
    "Observer",
    "OperationEnded",
    "PlanReady",
    "Progress",
    "Request",
    "maintain",
]

_log = logging.getLogger(__name__)

MAX_REPLANS = 2
"""How often one run plans stale work again. After that, the work waits for the next run."""
STEP_OF = {
    Operation.REWRITE_MANIFESTS: "regrouping manifests",
    Operation.EXPIRE_SNAPSHOTS: "expiring snapshots",
    Operation.REMOVE_ORPHAN_FILES: "searching for orphan files",
}
"""The step of a batch that the engine does not describe."""
_LEASE_WAIT_SECONDS = LEASE_TTL_SECONDS + 5


def maintain(
    table: TableId,
    request: Request,
    context: Context,
    observer: Observer | None = None,
) -> tuple[OperationOutcome, ...]:
    """Runs the requested operations on one table, one after the other.

    Each operation resumes open batches, then does what is due. A rewrite that finds work
    before the conversion (`core.decisions.step_order`) has had its turn. A lease of another owner, an unknown commit, or
    two batches in a row that the environment failed stop all operations.

    Every committed batch is persisted and reported to the observer before the next one starts.
    Raises what `assess` raises. On an interrupt (Terminate) it stops the engine, hands back the open
    work, releases the lease, and raises the interrupt. Raises TableTimeout in the same way after the policy's
    `table_timeout_seconds`; the batch that it interrupts counts as failed.
    """
    context = context.of_one_run() if context.catalogs.memory is None else context
    seconds = context.policies.of_table(table, _stored_properties(table, context)).table_timeout_seconds
    try:
        with (
            table_deadline(str(table), seconds, context.engine.cancel, context.process.end),
            unreadable_recorded(table, request, context),
        ):
            return _maintain(table, request, context, observer)
    except TableTimeout:
        # The interrupted call may have left half an answer of the JVM, which the next table must not read.
        context.engine.abandon_calls()
        raise


def _stored_properties(table: TableId, context: Context) -> Mapping[str, str]:
    """The table's own settings, as last measured: the catalog may be what does not answer."""
    stored = context.ledger.health.measurements((table,))
    return stored[0].maintenance_properties if stored else {}


def _maintain(
    table: TableId, request: Request, context: Context, observer: Observer | None
) -> tuple[OperationOutcome, ...]:
    observed = observer is not None
    observer = observer or (lambda _event: None)
    started_seconds = context.clock.monotonic_seconds()
    outcomes: list[OperationOutcome] = []
    stopped_by: Reason | None = None
    outlook = Outlook(table, request, context)
    steps = deque(map(Step, request.operations))
    is_ordered = False
    while steps:
        step = steps.popleft()
        executed_batches = sum(len(o.batches) for o in outcomes)
        remaining_batches = (
            None if request.max_batches is None else max(0, request.max_batches - executed_batches)
        )
        run = Run(
            step.operation,
            replace(request, max_batches=remaining_batches),
            context,
            observer,
            started_seconds,
            context.clock.now_ms(),
            stopped_by=stopped_by,
            calls_before=context.catalogs.calls(),
            before_conversion=step.before_conversion,
        )
        run.enter("measuring")
        with progress_reports(run, str(table)) if observed else nullcontext():
            if not is_ordered and _rewrites_first(step, request, outlook):
                is_ordered = True
                steps.extendleft((step, Step(Operation.REWRITE_DATA_FILES, before_conversion=True)))
                continue
            outcome = _operate(table, run, outlook)
        if step.before_conversion:
            if outcome.outcome is OutcomeStatus.NO_OP and not outcome.batches:
                # The rewrite keeps its turn after the conversion.
                continue
            steps.remove(Step(Operation.REWRITE_DATA_FILES))
        outcomes.append(outcome)
        observer(OperationEnded(outcome))
        if run.stopped_by in (Reason.LEASE_HELD, Reason.UNKNOWN_COMMIT, Reason.ENVIRONMENT):
            # The remaining operations report what they skip. They do not wait for the lease again.
            stopped_by = run.stopped_by
    return tuple(outcomes)


def _rewrites_first(step: Step, request: Request, outlook: Outlook) -> bool:
    """Whether a rewrite is inserted before this step."""
    if step.operation is not Operation.CONVERT_EQUALITY_DELETES:
        return False
    if Operation.REWRITE_DATA_FILES not in request.operations:
        return False
    outlook.assessment(step.operation)
    return outlook.rewrites_first()


def _operate(table: TableId, run: Run, outlook: Outlook) -> OperationOutcome:
    """Runs one operation."""
    request, context = run.request, run.context
    assessment = outlook.assessment(run.operation)
    decision = assessment.decision
    idle = decision.reason is not Reason.LEASE_HELD and not _has_work(assessment, run, outlook)
    if run.stopped_by is not None or idle:
        return finish_operation(assessment, decision, run)
    refuse_other_name(assessment.state, context)
    outlook.forget()
    run.enter("waiting for the lease of the table")
    with leased(
        context.ledger.leases,
        context.clock,
        table_uuid=assessment.state.uuid,
        table=str(table),
        owner=request.run_id,
        min_fence=assessment.state.newest_fence(),
        wait_seconds=_LEASE_WAIT_SECONDS,
    ) as lease:
        if lease is None:
            run.stopped_by = Reason.LEASE_HELD
            return finish_operation(assessment, decision, run)
        try:
            run.enter("settling earlier attempts")
            settle_open_attempts(context.catalogs.pin(table), context, lease)
            run.enter("measuring")
            assessment = _reassess(table, run, lease)
            decision = assessment.decision
            assessment = _plan_and_run(table, assessment, run, lease)
            decision = replace(assessment.decision, snapshot_id=decision.snapshot_id)
            if any(o.outcome is OutcomeStatus.IMPROVED for o in run.outcomes):
                # Our own commits may have settled attempts that were unknown before.
                settle_open_attempts(context.catalogs.pin(table), context, lease)
        except FenceLostError as why:
            run.stopped_by, run.message = Reason.LEASE_HELD, str(why)
        except BaseException as why:
            # The record keeps the batches that the run executed before the exception.
            run.stopped_by, run.message = Reason.TERMINATED, _ended_by(why, decision, run)
            run.failed = isinstance(why, Exception | TableTimeout)
            with suppress(Exception):
                finish_operation(assessment, decision, run)
            raise
        # Record while holding the lease. Otherwise the next holder treats this run as crashed.
        outcome = finish_operation(assessment, decision, run)
        # Without the lease another run appends to the audit log. It also appends this record.
        holds = run.stopped_by is not Reason.LEASE_HELD
        if holds and context.observers.audit.settle(str(table), assessment.state.uuid):
            _prune(assessment, context)
        return outcome


def _ended_by(why: BaseException, decision: Decision, run: Run) -> str:
    """What ended the operation, and how many of its partitions were done."""
    done = {p for o in run.outcomes if o.outcome in SUCCESSFUL for p in o.partitions}
    total = done | {p.partition for p in decision.due()}
    # Signals and Dagster's interrupts are no Exception.
    if isinstance(why, TableTimeout):
        return str(why)
    cause = why.code if isinstance(why, IcebergMaintError) else type(why).__name__
    end = f"ended by {cause}" if isinstance(why, Exception) else "stopped in order"
    if not total:
        return end
    noun = "partition" if len(total) == 1 else "partitions"
    return f"{end}: {len(done)} of {len(total)} {noun} done, the rest resumes"


def _prune(assessment: Assessment, context: Context) -> None:
    """Deletes old entries of the audit log and old ledger rows of the table, unless the policy keeps all or clocks
    disagree."""
    keep_days = assessment.policy.ledger_keep_days
    if keep_days is None and not context.observers.audit.prunes:
        return
    doubt = disagreement(table_clocks(context, assessment.state, store=False))
    if doubt is not None:
        _log.warning(
            "%s The ledger and the audit log keep their old records.",
            clock_refusal(str(assessment.state.table), doubt),
        )
        return
    if keep_days is not None:
        context.ledger.records.prune(assessment.state.uuid, keep_days)
    context.observers.audit.prune(str(assessment.state.table), assessment.state.uuid)


def _reassess(table: TableId, run: Run, lease: Lease) -> Assessment:
    """Raises RefusedError ICM-102 if the name now belongs to another table than the lease."""
    assessment = assess_requested(table, run.request, run.context, (run.operation,))
    require_same(assessment.state, lease, run.context.ledger)
    return assessment


def _has_work(assessment: Assessment, run: Run, outlook: Outlook) -> bool:
    if assessment.decision.verdict is Verdict.RUN:
        return True
    if _is_halted(assessment.decision):
        return False
    return outlook.has_unsettled_work() or outlook.has_open_batches(run.operation)


def _is_halted(decision: Decision) -> bool:
    """Whether the reason stops the whole table, so that not even open batches are resumed."""
    return decision.reason in (
        Reason.PAUSED,
        Reason.BLACKOUT,
        Reason.ADVISE,
        Reason.DISABLED,
        Reason.FORMAT_VERSION,
        Reason.DROPPED_SOURCE,
        Reason.LEASE_HELD,
        Reason.FOREIGN_MAINTAINER,
        Reason.CLOCKS_DISAGREE,
    )


def _is_held(assessment: Assessment, run: Run) -> bool:
    """Whether stored batches must not be resumed either: they would read rows or commit to main."""
    measured, now_ms = assessment.measured, run.context.clock.now_ms()
    strategy = assessment.policy.rewrite_data_files.strategy
    readers = row_readers(run.operation, strategy, run.context.engine.row_types)
    return (
        type_stop(run.operation, measured.uncommon_types, readers) is not None
        or property_stop(run.operation, measured.wrong_property) is not None
        or publish_stop(run.operation, measured.pending_publishes, assessment.policy, now_ms) is not None
    )


def _plan_and_run(table: TableId, assessment: Assessment, run: Run, lease: Lease) -> Assessment:
    """Plans and runs batches, and plans stale ones again. Returns the last assessment that was planned."""
    replans = 0
    while not _is_halted(assessment.decision) and not _is_held(assessment, run):
        run.enter("planning")
        batches = select_batches(assessment, run, lease)
        warn_of_memory(str(assessment.state.table), batches, assessment.policy, run.context)
        begin_audit(batches, assessment, run)
        stale = _run_batches(batches, assessment, run, lease)
        if not stale or run.stopped_by is not None:
            break
        replans += 1
        if replans > MAX_REPLANS:
            run.stopped_by = Reason.STALE
            back_off_stale(assessment, run)
            break
        run.replanned = len(run.outcomes)
        assessment = with_smaller_batches(_reassess(table, run, lease), replans, batches)
    back_off_conflicts(assessment, run)
    return assessment


def _run_batches(batches: tuple[Batch, ...], assessment: Assessment, run: Run, lease: Lease) -> bool:
    """Executes the batches in order. Returns True if a batch was stale, so that a new plan is needed."""
    stale = False
    before = assessment.measured.partitions
    history, earlier_partitions = assessment.history, set[PartitionKey]()
    for batch in batches:
        run.stopped_by = _budget_stop(assessment, run, batch) or _rest_stop(assessment, run)
        if run.stopped_by is not None:
            return stale
        if not earlier_partitions.isdisjoint(batch.partitions):
            history = run.context.ledger.health.history(
                assessment.state.uuid, str(assessment.state.table), run.operation
            )
            if not run.request.force and backs_off_now(batch, history, run):
                # An earlier batch of the partition failed in this run. A partition counts one failure per run.
                run.leftovers |= dict.fromkeys(batch.partitions, Reason.BACK_OFF)
                continue
        earlier_partitions |= set(batch.partitions)
        run.observer(BatchStarted(batch))
        run.enter(STEP_OF.get(run.operation, "writing"), batch)
        outcome = execute(batch, assessment.policy, history, run.context, lease, run.request.run_id, before)
        run.outcomes.append(outcome)
        after = before
        run.enter("measuring")
        if outcome.snapshot_after is not None:
            state = run.context.catalogs.pin(assessment.state.table)
            after = measure(state, assessment.policy, run.context).partitions
        run.observer(BatchEnded(outcome, _health_of(before, batch), _health_of(after, batch)))
        before = after
        if outcome.outcome is OutcomeStatus.UNKNOWN:
            run.stopped_by = Reason.UNKNOWN_COMMIT
            return stale
        if [o.reason for o in run.outcomes[-2:]] == [Reason.ENVIRONMENT] * 2:
            # One failure may concern the files of one partition, for example a denied prefix.
            run.stopped_by = Reason.ENVIRONMENT
            return stale
        stale = stale or outcome.reason is Reason.STALE
    return stale


def _health_of(
    partitions: Mapping[PartitionKey, PartitionHealth], batch: Batch
) -> dict[PartitionKey, PartitionHealth]:
    return {p: partitions.get(p, PartitionHealth()) for p in batch.partitions}


def _rest_stop(assessment: Assessment, run: Run) -> Reason | None:
    """Returns the reason of a pause or a blackout that began after the decision."""
    context = run.context
    note = context.ledger.registry.pause_note(assessment.state.uuid, str(assessment.state.table))
    rest = reason_to_rest(assessment.policy, note, context.clock.now_ms())
    return rest[0] if rest else None


def _budget_stop(assessment: Assessment, run: Run, batch: Batch) -> Reason | None:
    limit = run.request.max_batches
    if limit is not None and len(run.outcomes) >= limit:
        return Reason.BATCH_LIMIT
    seconds = run.context.clock.monotonic_seconds() - run.started_seconds
    if assessment.policy.max_run_seconds is not None and seconds >= assessment.policy.max_run_seconds:
        return Reason.TIME_BUDGET
    return None if run.request.force else fleet_stop(batch, assessment.policy, run.context)
