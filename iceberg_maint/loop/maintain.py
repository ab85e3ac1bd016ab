"""Maintain: the one loop over the stages for one table.

assess → lease → settle → plan → batch by batch (execute, judge, measure) → record. The command
line, the Dagster assets and the tests all call `maintain`. None of them decides anything.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace

from iceberg_maint.core.decisions.rules import halt, reason_to_rest, resume_stop
from iceberg_maint.core.decisions.table_decision import Step
from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.model.ids import Operation, PartitionKey, TableId
from iceberg_maint.core.model.reasons import OF_MACHINE, Reason, Verdict
from iceberg_maint.core.outcomes.outcome import SUCCESSFUL, OperationOutcome, OutcomeStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.removal.clock_skew import clock_skew_text
from iceberg_maint.errors import FenceLostError, IcebergMaintError
from iceberg_maint.loop.assess import Assessment, AssessmentCache, assess_requested
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.execute import LeasedRun, execute
from iceberg_maint.loop.fleet.budget import fleet_stop
from iceberg_maint.loop.fleet.known_tables import refuse_other_name
from iceberg_maint.loop.guards import LEASE_TTL_SECONDS, TableTimeout, leased, table_deadline
from iceberg_maint.loop.plan_batches import warn_of_memory
from iceberg_maint.loop.read_table import clock_refusal, measure, table_clocks
from iceberg_maint.loop.record import Results, Stopped, begin_audit, finish_operation, record_unreadable
from iceberg_maint.loop.request import (
    BatchEnded,
    BatchStarted,
    CurrentStep,
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
_OF_THE_TABLE = (Reason.LEASE_HELD, Reason.UNKNOWN_COMMIT, Reason.NOT_ATTESTED, Reason.ENVIRONMENT)
"""Reasons of one operation that stop the others too."""
_LEASE_WAIT_SECONDS = LEASE_TTL_SECONDS + 5


def maintain(
    table: TableId,
    request: Request,
    context: Context,
    observer: Observer | None = None,
) -> tuple[OperationOutcome, ...]:
    """Runs the requested operations on one table, one after the other.

    Each operation resumes open batches, then does what is due. A rewrite that finds work
    before the conversion (`core.decisions.step_order`) has had its turn. A lease of another owner, an unknown commit, one of
    another engine that is not attested, or two batches in a row that the environment failed stop all operations.

    Every committed batch is persisted and reported to the observer before the next one starts.
    Raises what `assess` raises. On an interrupt (Terminate) it stops the engine, hands back the open
    work, releases the lease, and raises the interrupt. Raises TableTimeout in the same way after the policy's
    `table_timeout_seconds`; the batch that it interrupts counts as failed.
    """
    context = context.of_one_run() if context.catalogs.memory is None else context
    seconds = context.policies.of_table(table, _stored_properties(table, context)).table_timeout_seconds
    try:
        with table_deadline(str(table), seconds, context.engine.cancel, context.process.end):
            started_ms = context.clock.now_ms()
            try:
                return tuple(_run_steps(table, request, context, observer))
            except IcebergMaintError as error:
                record_unreadable(table, error, started_ms, request, context)
                raise
    except TableTimeout:
        # The interrupted call may have left half an answer of the JVM, which the next table must not read.
        context.engine.abandon_calls()
        raise


def _stored_properties(table: TableId, context: Context) -> Mapping[str, str]:
    """The table's own settings, as last measured: the catalog may be what does not answer."""
    stored = context.ledger.health.measurements((table,))
    return stored[0].maintenance_properties if stored else {}


def _run_steps(
    table: TableId, request: Request, context: Context, observer: Observer | None
) -> Iterator[OperationOutcome]:
    """Runs the operations, and yields the outcome of each."""
    observed = observer is not None
    observer = observer or (lambda _event: None)
    started_seconds = context.clock.monotonic_seconds()
    executed_batches = 0
    stopped: Stopped | None = None
    cache = AssessmentCache(table, request, context)
    steps = deque(map(Step, request.operations))
    is_ordered = False
    while steps:
        step = steps.popleft()
        limit = request.max_batches
        run = Run(
            step,
            replace(request, max_batches=None if limit is None else max(0, limit - executed_batches)),
            context,
            observer,
            started_seconds,
            context.clock.now_ms(),
            context.catalogs.calls(),
            CurrentStep(context.clock),
        )
        with progress_reports(run, str(table)) if observed else nullcontext():
            if not is_ordered and _rewrites_first(step, request, cache):
                is_ordered = True
                steps.extendleft((step, Step(Operation.REWRITE_DATA_FILES, before_conversion=True)))
                continue
            outcome, stop = _run_operation(run, cache, stopped)
        if step.before_conversion:
            if outcome.outcome is OutcomeStatus.NO_OP and not outcome.batches:
                # The rewrite keeps its turn after the conversion.
                continue
            steps.remove(Step(Operation.REWRITE_DATA_FILES))
        executed_batches += len(outcome.batches)
        observer(OperationEnded(outcome))
        yield outcome
        if stop and stop.reason in _OF_THE_TABLE:
            # The remaining operations report what they skip. They do not wait for the lease again.
            stopped = Stopped(stop.reason)


def _rewrites_first(step: Step, request: Request, cache: AssessmentCache) -> bool:
    """Whether a rewrite is inserted before this step."""
    if step.operation is not Operation.CONVERT_EQUALITY_DELETES:
        return False
    if Operation.REWRITE_DATA_FILES not in request.operations:
        return False
    cache.assessment(step.operation)
    return cache.rewrites_first()


def _run_operation(
    run: Run, cache: AssessmentCache, stopped: Stopped | None
) -> tuple[OperationOutcome, Stopped | None]:
    """Runs one operation. `stopped` is what an earlier one found. Returns its outcome, and what stopped it."""
    context = run.context
    assessment = cache.assessment(run.operation)
    table, results = assessment.state.table, Results.on(assessment)
    if stopped is not None or not _has_work(assessment, cache):
        return finish_operation(results, stopped, run), stopped
    refuse_other_name(assessment.state, context)
    cache.forget()
    run.current.enter("waiting for the lease of the table")
    with leased(context, assessment.state, run.request.run_id, _LEASE_WAIT_SECONDS) as lease:
        if lease is None:
            stopped = Stopped(Reason.LEASE_HELD)
            return finish_operation(results, stopped, run), stopped
        try:
            run.current.enter("settling earlier attempts")
            settle_open_attempts(context.catalogs.pin(table), context, lease)
            run.current.enter("measuring")
            results = Results.on(_reassess(table, run, lease))
            stopped = _plan_and_execute(results, run, lease)
            if any(o.outcome is OutcomeStatus.IMPROVED for o in results.outcomes):
                # Our own commits may have settled attempts that were unknown before.
                settle_open_attempts(context.catalogs.pin(table), context, lease)
        except FenceLostError as why:
            stopped = Stopped(Reason.LEASE_HELD, str(why))
        except BaseException as why:
            # The record keeps the batches that the run executed before the exception.
            failed = isinstance(why, Exception | TableTimeout)
            with suppress(Exception):
                finish_operation(results, Stopped(Reason.TERMINATED, _ended_by(why, results), failed), run)
            raise
        # Record while holding the lease. Otherwise the next holder treats this run as crashed.
        outcome = finish_operation(results, stopped, run)
        # Without the lease another run appends to the audit log. It also appends this record.
        has_lease = stopped is None or stopped.reason is not Reason.LEASE_HELD
        if has_lease and context.observers.audit.settle(str(table), assessment.state.uuid):
            _prune(results.assessment, context)
        return outcome, stopped


def _has_work(assessment: Assessment, cache: AssessmentCache) -> bool:
    """Whether the operation takes the lease. Another owner's may end while this run waits."""
    decision = assessment.decision
    if decision.verdict is Verdict.RUN or decision.reason is Reason.LEASE_HELD:
        return True
    operation, situation = decision.operation, assessment.situation
    if halt(operation, situation):
        return False
    if cache.has_unsettled_work():
        return True
    return cache.has_open_batches(operation) and resume_stop(operation, situation) is None


def _reassess(table: TableId, run: Run, lease: Lease) -> Assessment:
    """Raises RefusedError ICM-129 if the name now belongs to another table than the lease."""
    assessment = assess_requested(table, run.request, run.context, (run.operation,))
    require_same(assessment.state, lease, run.context.ledger)
    return assessment


def _plan_and_execute(results: Results, run: Run, lease: Lease) -> Stopped | None:
    """Plans and runs batches, and plans stale ones again. Adds to the results, and returns what stopped it."""
    stopped, replans = None, 0
    while resume_stop(run.operation, results.assessment.situation) is None:
        run.current.enter("planning")
        batches = select_batches(results, run, lease)
        warn_of_memory(str(results.assessment.state.table), batches, results.assessment.policy, run.context)
        begin_audit(batches, results, run)
        executed = len(results.outcomes)
        stopped = _execute_batches(batches, results, run, lease)
        if stopped or all(o.reason is not Reason.STALE for o in results.outcomes[executed:]):
            break
        replans += 1
        if replans > MAX_REPLANS:
            stopped = Stopped(Reason.STALE)
            back_off_stale(results, run)
            break
        results.replanned = len(results.outcomes)
        assessment = _reassess(results.assessment.state.table, run, lease)
        results.assessment = with_smaller_batches(assessment, replans, batches)
    back_off_conflicts(results, run)
    return stopped


def _execute_batches(batches: tuple[Batch, ...], results: Results, run: Run, lease: Lease) -> Stopped | None:
    """Executes the batches in order, until one stops the operation. Adds each outcome to the results at once."""
    context, assessment = run.context, results.assessment
    before = assessment.measured.partitions
    history, earlier_partitions = assessment.history, set[PartitionKey]()
    for batch in batches:
        reason = _budget_stop(batch, results, run) or _rest_stop(assessment, context)
        if reason is not None:
            return Stopped(reason)
        if not earlier_partitions.isdisjoint(batch.partitions):
            history = context.ledger.health.history(
                assessment.state.uuid, str(assessment.state.table), run.operation
            )
            if not run.request.force and backs_off_now(batch, history, context.clock):
                # An earlier batch of the partition failed in this run. A partition counts one failure per run.
                results.leave(batch.partitions, Reason.BACK_OFF)
                continue
        earlier_partitions |= set(batch.partitions)
        run.observer(BatchStarted(batch))
        run.current.enter(STEP_OF.get(run.operation, "writing"), batch)
        policy = _until_end(assessment.policy, run)
        outcome = execute(batch, policy, history, LeasedRun(context, lease, run.request.run_id))
        results.outcomes.append(outcome)
        after = before
        run.current.enter("measuring")
        if outcome.snapshot_after is not None:
            state = context.catalogs.pin(assessment.state.table)
            after = measure(state, assessment.policy, context).partitions
        run.observer(BatchEnded(outcome, _health_of(before, batch), _health_of(after, batch)))
        before = after
        if outcome.outcome is OutcomeStatus.UNKNOWN:
            return Stopped(Reason.UNKNOWN_COMMIT)
        if outcome.reason is Reason.NOT_ATTESTED:
            return Stopped(Reason.NOT_ATTESTED)
        if len(results.outcomes) > 1 and all(o.reason in OF_MACHINE for o in results.outcomes[-2:]):
            # One failure may concern the files of one partition, for example a denied prefix.
            return Stopped(outcome.reason)
    return None


def _health_of(
    partitions: Mapping[PartitionKey, PartitionHealth], batch: Batch
) -> dict[PartitionKey, PartitionHealth]:
    return {p: partitions.get(p, PartitionHealth()) for p in batch.partitions}


def _rest_stop(assessment: Assessment, context: Context) -> Reason | None:
    """Returns the reason of a pause or a blackout that began after the decision."""
    note = context.ledger.registry.pause_note(assessment.state.uuid, str(assessment.state.table))
    rest = reason_to_rest(assessment.policy, note, context.clock.now_ms())
    return rest[0] if rest else None


def _budget_stop(batch: Batch, results: Results, run: Run) -> Reason | None:
    limit, policy = run.request.max_batches, results.assessment.policy
    if limit is not None and len(results.outcomes) >= limit:
        return Reason.RUN_BUDGET
    limits = [s for s in (policy.max_run_seconds, run.request.max_seconds) if s is not None]
    if limits and _elapsed_seconds(run) >= min(limits):
        return Reason.TIME_BUDGET
    if run.request.must_yield():
        return Reason.YIELDED
    return None if run.request.force else fleet_stop(batch, policy, run.context)


def _elapsed_seconds(run: Run) -> float:
    return run.context.clock.monotonic_seconds() - run.started_seconds


def _until_end(policy: Policy, run: Run) -> Policy:
    """The policy of a batch that starts now: its `max_run_seconds`, which end an orphan scan, end with the request."""
    limit = run.request.max_seconds
    if limit is None:
        return policy
    remaining = max(1, int(limit - _elapsed_seconds(run)))
    return replace(policy, max_run_seconds=min(policy.max_run_seconds or remaining, remaining))


def _ended_by(why: BaseException, results: Results) -> str:
    """What ended the operation, and how many of its partitions were done."""
    done = {p for o in results.outcomes if o.outcome in SUCCESSFUL for p in o.partitions}
    total = done | {p.partition for p in results.assessment.decision.due()}
    # Signals and Dagster's interrupts are no Exception.
    if isinstance(why, TableTimeout):
        return str(why)
    cause = type(why).__name__
    if isinstance(why, IcebergMaintError):
        cause = f"{why.code} ({why.message.rstrip('.')})"
    end = f"ended by {cause}" if isinstance(why, Exception) else "stopped in order"
    if not total:
        return end
    noun = "partition" if len(total) == 1 else "partitions"
    return f"{end}: {len(done)} of {len(total)} {noun} done, the rest resumes"


def _prune(assessment: Assessment, context: Context) -> None:
    """Deletes old entries of the audit log and old ledger rows of the table, unless the policy keeps all or clocks
    disagree."""
    keep_days, audit = assessment.policy.ledger_keep_days, context.observers.audit
    if keep_days is None and not audit.prunes:
        return
    skew = clock_skew_text(table_clocks(context, assessment.state, store=False))
    if skew is not None:
        _log.warning(
            "%s The ledger and the audit log keep their old records.",
            clock_refusal(str(assessment.state.table), skew),
        )
        return
    if keep_days is not None:
        context.ledger.records.prune(assessment.state.uuid, keep_days)
    audit.prune(str(assessment.state.table), assessment.state.uuid)
