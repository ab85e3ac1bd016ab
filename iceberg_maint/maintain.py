"""Maintain: the one loop over the stages for one table.

survey → lease → settle → plan → batch by batch (execute, judge, measure) → record. The command
line, the Dagster assets and the tests all call `maintain`; none of them decides anything.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from iceberg_maint.core.backoff import failed
from iceberg_maint.core.codec import digest
from iceberg_maint.core.decide import backs_off
from iceberg_maint.core.due import may_convert
from iceberg_maint.core.health import PartitionHealth
from iceberg_maint.core.ids import DATA_OPERATIONS, Operation, TableId
from iceberg_maint.core.intent import is_conversion
from iceberg_maint.core.outcome import (
    BatchOutcome,
    OperationOutcome,
    OutcomeStatus,
    operation_status,
)
from iceberg_maint.core.plan import Batch, Plan
from iceberg_maint.core.reasons import Decision, Reason, Verdict
from iceberg_maint.core.record import Record
from iceberg_maint.core.state import FileKind, TableState
from iceberg_maint.errors import FenceLostError
from iceberg_maint.execute import execute
from iceberg_maint.heartbeat import LEASE_TTL_SECONDS, leased
from iceberg_maint.ports import Lease
from iceberg_maint.reconcile import settle_open_attempts
from iceberg_maint.survey import PolicyOf, Survey, Tools, make_plans, measure, survey

MAX_REPLANS = 2
"""How often one run plans stale work again before it leaves it to the next run."""
_GAINLESS = (Reason.NO_GAIN, Reason.FILE_TOO_LARGE, Reason.UNSUPPORTED_KEY)
_LEASE_WAIT_SECONDS = LEASE_TTL_SECONDS + 5


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for. `run_id` is unique per process run and owns the lease; `max_batches` counts
    over all `operations`, which are done in the order given."""

    run_id: str
    partitions: frozenset[str] | None = None
    max_batches: int | None = None
    force: bool = False
    operations: tuple[Operation, ...] = DATA_OPERATIONS


@dataclass(frozen=True, slots=True)
class PlanReady:
    """A plan was made; `resumed` batches of earlier runs come first."""

    plan: Plan
    decision: Decision
    resumed: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class BatchStarted:
    """A batch is about to be executed."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class BatchEnded:
    """A batch ended; `before` and `after` are its partitions' health."""

    outcome: BatchOutcome
    before: Mapping[str, PartitionHealth]
    after: Mapping[str, PartitionHealth]


@dataclass(frozen=True, slots=True)
class OperationEnded:
    """An operation ended; the next one may follow."""

    outcome: OperationOutcome


Event = PlanReady | BatchStarted | BatchEnded | OperationEnded
Observer = Callable[[Event], None]


@dataclass(slots=True)
class _Run:
    """What one operation accumulates."""

    operation: Operation
    request: Request
    tools: Tools
    observer: Observer
    started_seconds: float
    started_ms: int
    outcomes: list[BatchOutcome] = field(default_factory=list)
    replanned: int = 0
    stopped_by: Reason | None = None
    plan_id: str | None = None
    leftovers: dict[str, Reason] = field(default_factory=dict)
    message: str = ""


def maintain(
    table: TableId,
    policy_of: PolicyOf,
    request: Request,
    tools: Tools,
    observer: Observer | None = None,
) -> tuple[OperationOutcome, ...]:
    """Runs the operations asked for on one table, one after the other: each resumes what was left,
    then does what is due. A lease that is held and a commit that is unknown stop them all.

    Every committed batch is persisted and reported to the observer before the next one starts.
    Raises what `survey` raises; whatever interrupts it (Terminate) after the engine is stopped,
    the open work is handed back and the lease released.
    """
    observer = observer or (lambda _event: None)
    started_seconds = tools.clock.monotonic_seconds()
    outcomes: list[OperationOutcome] = []
    stopped_by: Reason | None = None
    for operation in request.operations:
        done = sum(len(o.batches) for o in outcomes)
        left = None if request.max_batches is None else max(0, request.max_batches - done)
        run = _Run(
            operation,
            replace(request, max_batches=left),
            tools,
            observer,
            started_seconds,
            tools.clock.now_ms(),
            stopped_by=stopped_by,
        )
        outcomes.append(_operate(table, policy_of, run))
        observer(OperationEnded(outcomes[-1]))
        if run.stopped_by in (Reason.LEASE_HELD, Reason.UNKNOWN_COMMIT):
            # The others say what they leave, and do not wait for it again.
            stopped_by = run.stopped_by
    return tuple(outcomes)


def _operate(table: TableId, policy_of: PolicyOf, run: _Run) -> OperationOutcome:
    """Runs one operation."""
    request, tools = run.request, run.tools
    seen = _look(table, policy_of, run)
    decision = seen.decision
    idle = decision.reason is not Reason.LEASE_HELD and not _has_work(seen, run)
    if run.stopped_by is not None or idle:
        return _end(seen, decision, run)
    with leased(
        tools.ledger,
        tools.clock,
        table_uuid=seen.state.uuid,
        table=str(table),
        owner=request.run_id,
        min_fence=seen.state.newest_fence(),
        wait_seconds=_LEASE_WAIT_SECONDS,
    ) as lease:
        if lease is None:
            run.stopped_by = Reason.LEASE_HELD
            return _end(seen, decision, run)
        try:
            settle_open_attempts(tools.catalog.pin(table), tools, lease)
            seen = _look(table, policy_of, run)
            decision = seen.decision
            seen = _work(table, policy_of, seen, run, lease)
            decision = replace(seen.decision, snapshot_id=decision.snapshot_id)
            if any(o.outcome is OutcomeStatus.IMPROVED for o in run.outcomes):
                # What was unknown before may be settled by our own commits since.
                settle_open_attempts(tools.catalog.pin(table), tools, lease)
        except FenceLostError as why:
            run.stopped_by, run.message = Reason.LEASE_HELD, str(why)
        except BaseException as why:
            # What was done until then stays on record, whatever ended the run.
            run.stopped_by, run.message = Reason.TERMINATED, f"ended by {type(why).__name__}"
            with suppress(Exception):
                _end(seen, decision, run)
            raise
        # Under the lease: who has it next takes a run without a record for one that died.
        return _end(seen, decision, run)


def _look(table: TableId, policy_of: PolicyOf, run: _Run) -> Survey:
    request = run.request
    return survey(
        table,
        policy_of,
        run.tools,
        (run.operation,),
        requested=request.partitions,
        force=request.force,
        owner=request.run_id,
    )


def _has_work(seen: Survey, run: _Run) -> bool:
    if seen.decision.verdict is Verdict.RUN:
        return True
    if _halted(seen.decision):
        return False
    uuid_ = seen.state.uuid
    ledger = run.tools.ledger
    return bool(ledger.open_attempts(uuid_) or ledger.open_batches(uuid_, run.operation))


def _halted(decision: Decision) -> bool:
    """Whether a table-wide stop holds, under which not even old work is resumed."""
    return decision.reason in (
        Reason.PAUSED,
        Reason.BLACKOUT,
        Reason.ADVISE,
        Reason.DISABLED,
        Reason.FORMAT_VERSION,
        Reason.LEASE_HELD,
    )


def _work(table: TableId, policy_of: PolicyOf, seen: Survey, run: _Run, lease: Lease) -> Survey:
    """Plans and runs batches, again where they went stale; the last look that was planned on."""
    replans = 0
    while not _halted(seen.decision):
        batches = _prepare(seen, run, lease)
        stale = _run_batches(batches, seen, run, lease)
        if not stale or run.stopped_by is not None:
            break
        replans += 1
        if replans > MAX_REPLANS:
            run.stopped_by = Reason.STALE
            _back_off_stale(seen, run)
            break
        run.replanned = len(run.outcomes)
        seen = _narrower(_look(table, policy_of, run), replans, batches)
    return seen


def _narrower(seen: Survey, replans: int, batches: tuple[Batch, ...]) -> Survey:
    """Rewrites planned again are of half the size each time: less to lose to who commits meanwhile;
    but never so small that a file does not fit or a group gains nothing. A conversion takes all that
    its deletes apply to, or nothing."""
    if seen.decision.operation != Operation.REWRITE_DATA_FILES:
        return seen
    windows, rewrite = seen.policy.windows, seen.policy.rewrite_data_files
    largest = max((f.size_bytes for b in batches for g in b.groups for f in g.files), default=0)
    enough_bytes = max(4 * seen.measured.target_file_size_bytes, 2 * largest)
    enough_files = 10 * rewrite.min_input_files
    windows = replace(
        windows,
        max_bytes_per_batch=_halved(windows.max_bytes_per_batch, replans, enough_bytes),
        max_files_per_batch=_halved(windows.max_files_per_batch, replans, enough_files),
    )
    return replace(seen, policy=replace(seen.policy, windows=windows))


def _halved(cap: int, times: int, enough: int) -> int:
    return max(cap >> times, min(cap, enough))


def _prepare(seen: Survey, run: _Run, lease: Lease) -> tuple[Batch, ...]:
    """Open batches that still hold, then a plan for what they do not cover; all persisted."""
    ledger = run.tools.ledger
    resumed: list[Batch] = []
    requested = run.request.partitions
    for stored in ledger.open_batches(seen.state.uuid, run.operation):
        batch = stored.batch
        if requested is not None and requested.isdisjoint(batch.partitions):
            continue
        inside = requested is None or requested.issuperset(batch.partitions)
        if _held(batch, seen, run):
            ledger.close_batch(lease, batch.batch_id, "a partition of it is in back-off or quarantine")
        elif batch.groups and is_conversion(batch) and not may_convert(seen.policy.equality_deletes):
            ledger.close_batch(lease, batch.batch_id, "the policy wants no conversions any more")
        elif inside and still_valid(batch, seen.state, run.tools):
            resumed.append(batch)
        else:
            ledger.close_batch(lease, batch.batch_id, "its snapshot or inputs are out of date")
    (plan,) = make_plans(_without(seen, resumed), run.tools)
    ledger.save_plan(lease, plan, run.request.run_id)
    _back_off_gainless(plan, seen, run)
    run.plan_id = plan.plan_id
    run.leftovers |= {left.partition: left.reason for left in plan.leftovers}
    run.observer(PlanReady(plan, seen.decision, tuple(resumed)))
    return (*resumed, *plan.batches)


def _held(batch: Batch, seen: Survey, run: _Run) -> bool:
    """Whether a partition of an open batch must wait: else a batch that kills its process would
    kill the next one as well."""
    if run.request.force:
        return False
    past = [seen.history.of(p) for p in batch.partitions]
    waits = run.request.partitions is None and any(backs_off(h, run.tools.clock.now_ms()) for h in past)
    return waits or any(h.quarantined for h in past)


def _back_off_gainless(plan: Plan, seen: Survey, run: _Run) -> None:
    """Due partitions the plan can do nothing for wait as after ineffective work; their findings
    stay, and would have them asked for again at once."""
    planned = {p for b in plan.batches for p in b.partitions}
    due = {p.partition for p in seen.decision.due()} - planned
    gainless = {left.partition: left.reason for left in plan.leftovers if left.reason in _GAINLESS}
    _back_off({p: reason for p, reason in gainless.items() if p in due}, seen, run)


def _back_off_stale(seen: Survey, run: _Run) -> None:
    """What goes stale however often it is planned waits as after a lost commit; asked for again at
    once, it would be written for nothing for ever."""
    last = {p: o.reason for o in run.outcomes for p in o.partitions}
    _back_off({p: reason for p, reason in last.items() if reason is Reason.STALE}, seen, run)


def _back_off(why: Mapping[str, Reason], seen: Survey, run: _Run) -> None:
    now_ms = run.tools.clock.now_ms()
    histories = {
        p: failed(seen.history.of(p), seen.policy.retry, now_ms, reason.value) for p, reason in why.items()
    }
    if histories:
        run.tools.ledger.set_partition_history(seen.state.uuid, run.operation, histories)


def _without(seen: Survey, resumed: list[Batch]) -> Survey:
    """What is left to plan beside the resumed batches, which spend of the same budget."""
    covered = {p for b in resumed for p in b.partitions}
    kept = tuple(p for p in seen.decision.partitions if p.partition not in covered)
    budget = seen.decision.budget_bytes
    left = None if budget is None else max(0, budget - sum(b.input_bytes for b in resumed))
    return replace(seen, decisions=(replace(seen.decision, partitions=kept, budget_bytes=left),))


def still_valid(batch: Batch, state: TableState, tools: Tools) -> bool:
    """Whether an open batch may be executed as it stands: same table, schema and format, its
    snapshot an ancestor of the head, every input live at the head with no delete it did not know.
    """
    if (state.uuid, state.schema_id, state.format_version) != (
        batch.table_uuid,
        batch.schema_id,
        batch.format_version,
    ):
        return False
    if batch.snapshot_id not in {s.snapshot_id for s in state.ancestors()}:
        return False
    if state.snapshot is not None and state.snapshot.snapshot_id == batch.snapshot_id:
        return True
    live = tools.catalog.live_files(state, batch.partitions)
    deletes = (f.data_sequence_number for f in live if f.kind is not FileKind.DATA)
    needed = batch.paths() | {d.path for d in batch.equality_deletes}
    return needed <= {f.path for f in live} and max(deletes, default=0) <= batch.snapshot_sequence_number


def _run_batches(batches: tuple[Batch, ...], seen: Survey, run: _Run, lease: Lease) -> bool:
    """Executes in order; True when a batch was stale and the rest should be planned again."""
    stale = False
    before = seen.measured.partitions
    for batch in batches:
        run.stopped_by = _budget_stop(seen, run)
        if run.stopped_by is not None:
            return stale
        run.observer(BatchStarted(batch))
        outcome = execute(batch, seen.policy, seen.history, run.tools, lease, run.request.run_id)
        run.outcomes.append(outcome)
        after = before
        if outcome.snapshot_after is not None:
            state = run.tools.catalog.pin(seen.state.table)
            after = measure(state, seen.policy, run.tools).partitions
        run.observer(BatchEnded(outcome, _of(before, batch), _of(after, batch)))
        before = after
        if outcome.outcome is OutcomeStatus.UNKNOWN:
            run.stopped_by = Reason.UNKNOWN_COMMIT
            return stale
        stale = stale or outcome.reason is Reason.STALE
    return stale


def _of(partitions: Mapping[str, PartitionHealth], batch: Batch) -> dict[str, PartitionHealth]:
    return {p: partitions.get(p, PartitionHealth()) for p in batch.partitions}


def _budget_stop(seen: Survey, run: _Run) -> Reason | None:
    limit = run.request.max_batches
    if limit is not None and len(run.outcomes) >= limit:
        return Reason.BATCH_LIMIT
    seconds = run.tools.clock.monotonic_seconds() - run.started_seconds
    if seen.policy.max_run_seconds is not None and seconds >= seen.policy.max_run_seconds:
        return Reason.TIME_BUDGET
    return None


def _end(seen: Survey, decision: Decision, run: _Run) -> OperationOutcome:
    counting = _counting(run)
    refused = any(p.verdict is Verdict.REFUSE for p in decision.partitions) or (
        Reason.UNSUPPORTED_KEY in run.leftovers.values()
    )
    status, reason = operation_status(counting, refused or decision.verdict is Verdict.REFUSE)
    if not counting and run.stopped_by is not None:
        reason = run.stopped_by
    outcome = OperationOutcome(
        table=decision.table,
        operation=decision.operation,
        outcome=status,
        reason=reason or decision.reason,
        snapshot_before=decision.snapshot_id,
        snapshot_after=next(
            (o.snapshot_after for o in reversed(run.outcomes) if o.snapshot_after is not None),
            decision.snapshot_id,
        ),
        batches=tuple(run.outcomes),
        partitions=_partition_outcomes(decision, run),
        message=run.message,
    )
    terminated = run.stopped_by is Reason.TERMINATED
    if run.outcomes or terminated or status is not OutcomeStatus.NO_OP:
        _record(seen, outcome, run)
    return outcome


def _counting(run: _Run) -> tuple[BatchOutcome, ...]:
    """A batch that went stale and was planned again counts by what came of that, be it nothing."""
    return tuple(o for n, o in enumerate(run.outcomes) if o.reason is not Reason.STALE or n >= run.replanned)


def _partition_outcomes(decision: Decision, run: _Run) -> tuple[tuple[str, OutcomeStatus, Reason], ...]:
    result: dict[str, tuple[str, OutcomeStatus, Reason]] = {}
    for p in decision.partitions:
        refused = p.verdict is Verdict.REFUSE
        status = OutcomeStatus.UNSUPPORTED if refused else OutcomeStatus.NO_OP
        left = p.verdict is Verdict.RUN
        reason = (run.stopped_by or run.leftovers.get(p.partition, Reason.NO_GAIN)) if left else p.reason
        if reason is Reason.UNSUPPORTED_KEY:
            status = OutcomeStatus.UNSUPPORTED
        result[p.partition] = (p.partition, status, reason)
    for outcome in _counting(run):
        for key in outcome.partitions:
            result[key] = (key, outcome.outcome, outcome.reason)
    return tuple(result.values())


def _record(seen: Survey, outcome: OperationOutcome, run: _Run) -> None:
    versions = run.tools.engine().versions() if run.outcomes else {}
    run.tools.ledger.append_record(
        Record(
            record_id=uuid.uuid4().hex,
            run_id=run.request.run_id,
            table=outcome.table,
            table_uuid=seen.state.uuid,
            operation=outcome.operation,
            started_ms=run.started_ms,
            ended_ms=run.tools.clock.now_ms(),
            plan_id=run.plan_id,
            policy_digest=digest(seen.policy),
            versions=dict(versions),
            outcome=outcome,
        )
    )
