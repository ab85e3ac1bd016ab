"""Maintain: the one loop over the stages for one table.

assess → lease → settle → plan → batch by batch (execute, judge, measure) → record. The command
line, the Dagster assets and the tests all call `maintain`; none of them decides anything.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from iceberg_maint.core.decisions.decide import reason_to_rest
from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.reasons import Decision, Reason, Verdict
from iceberg_maint.core.outcomes.outcome import OperationOutcome, OutcomeStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.removal.clock_agreement import disagreement
from iceberg_maint.errors import FenceLostError
from iceberg_maint.ports.ledger import Lease
from iceberg_maint.runner.assess import Assessment, assess, measure
from iceberg_maint.runner.clocks import clock_refusal, table_clocks
from iceberg_maint.runner.execute import execute
from iceberg_maint.runner.lease import LEASE_TTL_SECONDS, leased
from iceberg_maint.runner.reconcile import require_same, settle_open_attempts
from iceberg_maint.runner.record_outcome import finish_operation
from iceberg_maint.runner.request import (
    BatchEnded,
    BatchStarted,
    Event,
    Observer,
    OperationEnded,
    PlanReady,
    Request,
    Run,
)
from iceberg_maint.runner.runtime import Runtime
from iceberg_maint.runner.select_batches import back_off_stale, narrower, select_batches, waits

__all__ = [
    "BatchEnded",
    "BatchStarted",
    "Event",
    "Observer",
    "OperationEnded",
    "PlanReady",
    "Request",
    "maintain",
]

_log = logging.getLogger(__name__)

MAX_REPLANS = 2
"""How often one run plans stale work again before it leaves it to the next run."""
_LEASE_WAIT_SECONDS = LEASE_TTL_SECONDS + 5


def maintain(
    table: TableId,
    request: Request,
    runtime: Runtime,
    observer: Observer | None = None,
) -> tuple[OperationOutcome, ...]:
    """Runs the operations asked for on one table, one after the other: each resumes what was left,
    then does what is due. A lease that is held and a commit that is unknown stop them all.

    Every committed batch is persisted and reported to the observer before the next one starts.
    Raises what `assess` raises; whatever interrupts it (Terminate) after the engine is stopped,
    the open work is handed back and the lease released.
    """
    observer = observer or (lambda _event: None)
    started_seconds = runtime.clock.monotonic_seconds()
    outcomes: list[OperationOutcome] = []
    stopped_by: Reason | None = None
    for operation in request.operations:
        done = sum(len(o.batches) for o in outcomes)
        left = None if request.max_batches is None else max(0, request.max_batches - done)
        run = Run(
            operation,
            replace(request, max_batches=left),
            runtime,
            observer,
            started_seconds,
            runtime.clock.now_ms(),
            stopped_by=stopped_by,
        )
        outcomes.append(_operate(table, run))
        observer(OperationEnded(outcomes[-1]))
        if run.stopped_by in (Reason.LEASE_HELD, Reason.UNKNOWN_COMMIT):
            # The others say what they leave, and do not wait for it again.
            stopped_by = run.stopped_by
    return tuple(outcomes)


def _operate(table: TableId, run: Run) -> OperationOutcome:
    """Runs one operation."""
    request, runtime = run.request, run.runtime
    seen = _look(table, run)
    decision = seen.decision
    idle = decision.reason is not Reason.LEASE_HELD and not _has_work(seen, run)
    if run.stopped_by is not None or idle:
        return finish_operation(seen, decision, run)
    with leased(
        runtime.ledger,
        runtime.clock,
        table_uuid=seen.state.uuid,
        table=str(table),
        owner=request.run_id,
        min_fence=seen.state.newest_fence(),
        wait_seconds=_LEASE_WAIT_SECONDS,
    ) as lease:
        if lease is None:
            run.stopped_by = Reason.LEASE_HELD
            return finish_operation(seen, decision, run)
        try:
            settle_open_attempts(runtime.catalog_of(table).pin(table), runtime, lease)
            seen = _look_again(table, run, lease)
            decision = seen.decision
            seen = _work(table, seen, run, lease)
            decision = replace(seen.decision, snapshot_id=decision.snapshot_id)
            if any(o.outcome is OutcomeStatus.IMPROVED for o in run.outcomes):
                # What was unknown before may be settled by our own commits since.
                settle_open_attempts(runtime.catalog_of(table).pin(table), runtime, lease)
        except FenceLostError as why:
            run.stopped_by, run.message = Reason.LEASE_HELD, str(why)
        except BaseException as why:
            # What was done until then stays on record, whatever ended the run.
            run.stopped_by, run.message = Reason.TERMINATED, _ended_by(why, decision, run)
            with suppress(Exception):
                finish_operation(seen, decision, run)
            raise
        # Under the lease: who has it next takes a run without a record for one that died.
        outcome = finish_operation(seen, decision, run)
        if seen.policy.ledger_keep_days is not None and run.stopped_by is not Reason.LEASE_HELD:
            _prune(seen, seen.policy.ledger_keep_days, runtime)
        return outcome


def _ended_by(why: BaseException, decision: Decision, run: Run) -> str:
    """What ended the operation, and how many of its partitions were done."""
    completed = (OutcomeStatus.IMPROVED, OutcomeStatus.NO_OP)
    done = {p for o in run.outcomes if o.outcome in completed for p in o.partitions}
    total = done | {p.partition for p in decision.due()}
    if not total:
        return f"ended by {type(why).__name__}"
    return f"ended by {type(why).__name__}: {len(done)} of {len(total)} partitions done, the rest resumes"


def _prune(seen: Assessment, keep_days: int, runtime: Runtime) -> None:
    """Forgets what of the table is old in the ledger, unless a clock may be wrong."""
    doubt = disagreement(table_clocks(runtime, seen.state, store=False))
    if doubt is not None:
        _log.warning("%s The ledger keeps its old records.", clock_refusal(str(seen.state.table), doubt))
        return
    runtime.ledger.prune(seen.state.uuid, keep_days)


def _look(table: TableId, run: Run) -> Assessment:
    request = run.request
    return assess(
        table,
        run.runtime,
        (run.operation,),
        requested=request.partitions,
        force=request.force,
        owner=request.run_id,
    )


def _look_again(table: TableId, run: Run, lease: Lease) -> Assessment:
    """Raises RefusedError ICM-102 when the name is another table's by now than the lease is of."""
    seen = _look(table, run)
    require_same(seen.state, lease, run.runtime.ledger)
    return seen


def _has_work(seen: Assessment, run: Run) -> bool:
    if seen.decision.verdict is Verdict.RUN:
        return True
    if _halted(seen.decision):
        return False
    uuid_ = seen.state.uuid
    ledger = run.runtime.ledger
    return bool(
        ledger.open_attempts(uuid_)
        or ledger.open_batches(uuid_, run.operation)
        # A run that died, and left nothing to do, is told of by the next one.
        or ledger.has_unrecorded_runs(uuid_)
    )


def _halted(decision: Decision) -> bool:
    """Whether a table-wide stop holds, under which not even old work is resumed."""
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


def _work(table: TableId, seen: Assessment, run: Run, lease: Lease) -> Assessment:
    """Plans and runs batches, again where they went stale; the last look that was planned on."""
    replans = 0
    while not _halted(seen.decision):
        batches = select_batches(seen, run, lease)
        stale = _run_batches(batches, seen, run, lease)
        if not stale or run.stopped_by is not None:
            break
        replans += 1
        if replans > MAX_REPLANS:
            run.stopped_by = Reason.STALE
            back_off_stale(seen, run)
            break
        run.replanned = len(run.outcomes)
        seen = narrower(_look_again(table, run, lease), replans, batches)
    return seen


def _run_batches(batches: tuple[Batch, ...], seen: Assessment, run: Run, lease: Lease) -> bool:
    """Executes in order; True when a batch was stale and the rest should be planned again."""
    stale = False
    before = seen.measured.partitions
    history, touched = seen.history, set[str]()
    for batch in batches:
        run.stopped_by = _budget_stop(seen, run) or _rest_stop(seen, run)
        if run.stopped_by is not None:
            return stale
        if not touched.isdisjoint(batch.partitions):
            history = run.runtime.ledger.history(seen.state.uuid, str(seen.state.table), run.operation)
            if not run.request.force and waits(batch, history, run):
                # An earlier batch of it has failed just now; each counts once a run.
                run.leftovers |= dict.fromkeys(batch.partitions, Reason.BACK_OFF)
                continue
        touched |= set(batch.partitions)
        run.observer(BatchStarted(batch))
        outcome = execute(batch, seen.policy, history, run.runtime, lease, run.request.run_id)
        run.outcomes.append(outcome)
        after = before
        if outcome.snapshot_after is not None:
            state = run.runtime.catalog_of(seen.state.table).pin(seen.state.table)
            after = measure(state, seen.policy, run.runtime).partitions
        run.observer(BatchEnded(outcome, _of(before, batch), _of(after, batch)))
        before = after
        if outcome.outcome is OutcomeStatus.UNKNOWN:
            run.stopped_by = Reason.UNKNOWN_COMMIT
            return stale
        stale = stale or outcome.reason is Reason.STALE
    return stale


def _of(partitions: Mapping[str, PartitionHealth], batch: Batch) -> dict[str, PartitionHealth]:
    return {p: partitions.get(p, PartitionHealth()) for p in batch.partitions}


def _rest_stop(seen: Assessment, run: Run) -> Reason | None:
    """A pause set, or a blackout begun, since the run decided to work."""
    runtime = run.runtime
    note = runtime.ledger.pause_note(seen.state.uuid, str(seen.state.table))
    rest = reason_to_rest(seen.policy, note, runtime.clock.now_ms())
    return rest[0] if rest else None


def _budget_stop(seen: Assessment, run: Run) -> Reason | None:
    limit = run.request.max_batches
    if limit is not None and len(run.outcomes) >= limit:
        return Reason.BATCH_LIMIT
    seconds = run.runtime.clock.monotonic_seconds() - run.started_seconds
    if seen.policy.max_run_seconds is not None and seconds >= seen.policy.max_run_seconds:
        return Reason.TIME_BUDGET
    return None
