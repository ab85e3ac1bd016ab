"""Record: what an operation has done, the outcome that follows, and the record of the run."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from iceberg_maint.core.decisions.waits import failed_ms
from iceberg_maint.core.model.codec import digest
from iceberg_maint.core.model.ids import (
    Operation,
    PartitionKey,
    TableId,
)
from iceberg_maint.core.model.reasons import CUT_SHORT, Decision, Reason, Verdict
from iceberg_maint.core.outcomes.outcome import (
    SUCCESSFUL,
    BatchOutcome,
    OperationOutcome,
    OutcomeStatus,
    operation_status,
)
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.loop.assess import Assessment
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.fleet.stored_decisions import stored_decisions
from iceberg_maint.loop.read_table import clock_refusal, is_of_the_table, reading_of
from iceberg_maint.loop.request import Request, Run
from iceberg_maint.ports.observers import Intent, Observation

_REFUSALS = frozenset({Reason.UNSUPPORTED_KEY, Reason.REFUSED})
"""Reasons for which a plan leaves partitions to a person."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why an operation ended before its work did. `failed`: an error or the time of the table ended it, not a person or
    the system."""

    reason: Reason
    message: str = ""
    failed: bool = False

    @property
    def lost_lease(self) -> bool:
        """Whether the run had the lease and lost it. Without a message another run had it."""
        return self.reason is Reason.LEASE_HELD and bool(self.message)


@dataclass(slots=True)
class Results:
    """What an operation has done so far. It grows batch by batch: whatever ends the next one, the record has those before.

    `assessment` is the last that was planned, `snapshot_before` of the first. Outcomes before the one with number
    `replanned` were planned again. `leftovers` are due partitions that the plan leaves out. `message` is of files that
    are refused."""

    assessment: Assessment
    snapshot_before: int | None
    outcomes: list[BatchOutcome] = field(default_factory=list)
    replanned: int = 0
    plan_id: str | None = None
    leftovers: dict[PartitionKey, Reason] = field(default_factory=dict)
    message: str = ""

    @classmethod
    def on(cls, assessment: Assessment) -> Results:
        """Returns the work on an assessment before its first batch."""
        return cls(assessment, assessment.decision.snapshot_id)

    def leave(self, partitions: Iterable[PartitionKey], reason: Reason) -> None:
        """Leaves out these partitions too."""
        self.leftovers.update(dict.fromkeys(partitions, reason))

    def final_outcomes(self) -> tuple[BatchOutcome, ...]:
        """Returns the outcomes that count. A stale batch that was planned again counts by the new plan only."""
        return tuple(
            o for n, o in enumerate(self.outcomes) if o.reason is not Reason.STALE or n >= self.replanned
        )


def finish_operation(results: Results, stopped: Stopped | None, run: Run) -> OperationOutcome:
    """Returns the outcome of the operation, and records it unless nothing happened."""
    decision = results.assessment.decision
    status, reason = _status(results, stopped, decision)
    outcome = OperationOutcome(
        table=decision.table,
        operation=decision.operation,
        outcome=status,
        reason=reason or decision.reason,
        snapshot_before=results.snapshot_before,
        snapshot_after=next(
            (o.snapshot_after for o in reversed(results.outcomes) if o.snapshot_after is not None),
            results.snapshot_before,
        ),
        batches=tuple(results.outcomes),
        partitions=_partition_outcomes(results, stopped, decision),
        message=(stopped.message if stopped else "") or results.message or _detail(decision),
    )
    reason = None if stopped is None else stopped.reason
    if reason is Reason.LEASE_HELD and _is_recorded(outcome, results.assessment.state.uuid, run):
        return outcome
    # A lost lease leaves a record, DEFERRED: the run is no crashed one. A lease that another run held leaves none.
    if results.outcomes or reason is Reason.TERMINATED or status is not OutcomeStatus.NO_OP:
        _record(results, outcome, run)
    return outcome


def _is_recorded(outcome: OperationOutcome, table_uuid: str, run: Run) -> bool:
    """Whether another run, which took the lease of this one, has recorded its batches."""
    run_id, batches = run.request.run_id, {b.batch_id for b in outcome.batches}
    records = run.context.ledger.records.of_run(run_id)
    return any(
        (r.run_id, r.table_uuid, r.operation) == (run_id, table_uuid, outcome.operation)
        and batches <= {b.batch_id for b in r.outcome.batches}
        for r in records
    )


def _status(
    results: Results, stopped: Stopped | None, decision: Decision
) -> tuple[OutcomeStatus, Reason | None]:
    """Returns status and reason of the operation. Without a batch that counts, they are those of the stop or of the
    decision; None for the reason of the decision."""
    final_outcomes, leftovers = results.final_outcomes(), results.leftovers.values()
    refused = any(p.verdict is Verdict.REFUSE for p in decision.partitions) or not _REFUSALS.isdisjoint(
        leftovers
    )
    status, reason = operation_status(final_outcomes, refused or decision.verdict is Verdict.REFUSE)
    if not final_outcomes:
        if stopped is not None:
            reason = stopped.reason
        elif Reason.REFUSED in leftovers:
            reason = Reason.REFUSED
        elif decision.verdict is Verdict.REFUSE:
            reason = decision.reason
        elif reason is None and leftovers:
            # It is due, and its plan is empty.
            reason = next(iter(leftovers))
        elif reason is None and decision.reason is Reason.FORCED:
            reason = Reason.HEALTHY
    if stopped is not None and stopped.reason in CUT_SHORT and status in SUCCESSFUL:
        reason = stopped.reason
        if reason is Reason.LEASE_HELD and (status is not OutcomeStatus.NO_OP or not stopped.lost_lease):
            return status, reason
        if stopped.failed:
            status = OutcomeStatus.FAILED
        elif status is OutcomeStatus.NO_OP:
            status = OutcomeStatus.DEFERRED
    return status, reason


def _detail(decision: Decision) -> str:
    if decision.reason is Reason.PENDING_PUBLISH:
        return f"waits until {decision.evidence['pending']} is published"
    skew = decision.evidence.get("clocks") if decision.reason is Reason.CLOCK_SKEW else None
    return "" if skew is None else str(clock_refusal(decision.table, skew))


def _partition_outcomes(
    results: Results, stopped: Stopped | None, decision: Decision
) -> tuple[tuple[PartitionKey, OutcomeStatus, Reason], ...]:
    result: dict[PartitionKey, tuple[PartitionKey, OutcomeStatus, Reason]] = {}
    # Without a run the work stays due, and no plan says whether it gains anything.
    default_reason = Reason.NO_GAIN if decision.verdict is Verdict.RUN else decision.reason
    for p in decision.partitions:
        refused = p.verdict is Verdict.REFUSE
        status = OutcomeStatus.UNSUPPORTED if refused else OutcomeStatus.NO_OP
        is_due = p.verdict is Verdict.RUN
        reason = p.reason
        if is_due:
            reason = stopped.reason if stopped else results.leftovers.get(p.partition, default_reason)
        if reason in _REFUSALS:
            status = OutcomeStatus.UNSUPPORTED
        result[p.partition] = (p.partition, status, reason)
    for outcome in results.final_outcomes():
        for key in outcome.partitions:
            result[key] = (key, outcome.outcome, outcome.reason)
    return tuple(result.values())


def _record(results: Results, outcome: OperationOutcome, run: Run) -> None:
    versions = run.context.engine().versions() if results.outcomes else {}
    append_record(
        Record(
            record_id=uuid.uuid4().hex,
            run_id=run.request.run_id,
            table=outcome.table,
            table_uuid=results.assessment.state.uuid,
            operation=outcome.operation,
            started_ms=run.started_ms,
            ended_ms=run.context.clock.now_ms(),
            plan_id=results.plan_id,
            policy_digest=digest(results.assessment.policy),
            versions=dict(versions),
            outcome=outcome,
            started_by=run.request.started_by,
            catalog_calls=(run.context.catalogs.calls() - run.calls_before) or None,
        ),
        run.context,
    )


def record_unreadable(
    table: TableId, error: IcebergMaintError, started_ms: int, request: Request, context: Context
) -> None:
    """Records a run that found the table unreadable, once for each try that back-off allows."""
    stored = context.ledger.health.get(table) if is_of_the_table(error) else None
    if stored is None:
        return
    text = context.process.masked(str(error))
    policy = context.policies.of_table(stored.table, stored.maintenance_properties)
    reading = reading_of(stored.table, stored.table_uuid, context)
    if reading.reason != text:
        return
    newest = next(iter(context.ledger.records.newest(str(stored.table), 1)), None)
    since_ms = failed_ms(reading, policy.retry)
    if newest is not None and newest.outcome.message == text and newest.ended_ms >= since_ms:
        return
    outcome = OperationOutcome(
        table=str(stored.table),
        operation=_data_first(request.operations),
        outcome=OutcomeStatus.FAILED,
        reason=Reason.ERROR,
        snapshot_before=stored.snapshot_id,
        snapshot_after=stored.snapshot_id,
        message=text,
    )
    append_record(
        Record(
            record_id=uuid.uuid4().hex,
            run_id=request.run_id,
            table=outcome.table,
            table_uuid=stored.table_uuid,
            operation=outcome.operation,
            started_ms=started_ms,
            ended_ms=context.clock.now_ms(),
            plan_id=None,
            policy_digest=digest(policy),
            versions={},
            outcome=outcome,
            started_by=request.started_by,
        ),
        context,
    )


def _data_first(operations: Sequence[Operation]) -> Operation:
    rewrite = Operation.REWRITE_DATA_FILES
    return rewrite if rewrite in operations else operations[0]


def begin_audit(batches: Sequence[Batch], results: Results, run: Run) -> None:
    """Writes what the run is going to do to the audit log, and reports it. Raises RefusedError ICM-144 if the log is required and
    cannot be written."""
    if not batches:
        return
    assessment = results.assessment
    intent = Intent(
        run_id=run.request.run_id,
        table=str(assessment.state.table),
        table_uuid=assessment.state.uuid,
        operation=run.operation,
        plan_id=results.plan_id,
        batch_ids=tuple(b.batch_id for b in batches),
        reasons=tuple(sorted({r.value for b in batches for r in b.reasons})),
        partitions=len({p for b in batches for p in b.partitions}),
        input_files=sum(b.input_files for b in batches),
        input_bytes=sum(b.input_bytes for b in batches),
        snapshot_before=assessment.decision.snapshot_id,
        policy_digest=digest(assessment.policy),
        started_ms=run.started_ms,
    )
    run.context.observers.audit.begin(intent)
    run.context.observers.telemetry.operation_started(intent)


def append_record(record: Record, context: Context) -> None:
    """Stores a record, then reports its numbers and the stored health of its table."""
    context.ledger.records.append(record)
    context.observers.telemetry.operation_ended(
        record, lambda: stored_observation(TableId.parse(record.table), context)
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
