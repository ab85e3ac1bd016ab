"""Conclude: what an operation came to, judged from its batches, and its record."""

from __future__ import annotations

import uuid

from iceberg_maint.core.model.codec import digest
from iceberg_maint.core.model.reasons import Decision, Reason, Verdict
from iceberg_maint.core.outcomes.outcome import (
    BatchOutcome,
    OperationOutcome,
    OutcomeStatus,
    operation_status,
)
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.runner.assess import Assessment
from iceberg_maint.runner.clocks import clock_refusal
from iceberg_maint.runner.request import Run


def finish_operation(seen: Assessment, decision: Decision, run: Run) -> OperationOutcome:
    counting = _counting(run)
    refused = any(p.verdict is Verdict.REFUSE for p in decision.partitions) or (
        Reason.UNSUPPORTED_KEY in run.leftovers.values()
    )
    status, reason = operation_status(counting, refused or decision.verdict is Verdict.REFUSE)
    if not counting and decision.verdict is Verdict.REFUSE:
        reason = decision.reason
    if run.stopped_by is not None and not counting:
        reason = run.stopped_by
    if run.stopped_by is Reason.TERMINATED and status in (OutcomeStatus.IMPROVED, OutcomeStatus.NO_OP):
        reason = Reason.TERMINATED
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
        message=run.message or _clocks(decision),
    )
    terminated = run.stopped_by is Reason.TERMINATED
    if run.outcomes or terminated or status is not OutcomeStatus.NO_OP:
        _record(seen, outcome, run)
    return outcome


def _clocks(decision: Decision) -> str:
    doubt = decision.evidence.get("clocks") if decision.reason is Reason.CLOCKS_DISAGREE else None
    return "" if doubt is None else str(clock_refusal(decision.table, doubt))


def _counting(run: Run) -> tuple[BatchOutcome, ...]:
    """A batch that went stale and was planned again counts by the outcome of the second plan, even without one."""
    return tuple(o for n, o in enumerate(run.outcomes) if o.reason is not Reason.STALE or n >= run.replanned)


def _partition_outcomes(decision: Decision, run: Run) -> tuple[tuple[str, OutcomeStatus, Reason], ...]:
    result: dict[str, tuple[str, OutcomeStatus, Reason]] = {}
    # What is advised stays due; it was not looked at whether there is something to gain.
    otherwise = Reason.NO_GAIN if decision.verdict is Verdict.RUN else decision.reason
    for p in decision.partitions:
        refused = p.verdict is Verdict.REFUSE
        status = OutcomeStatus.UNSUPPORTED if refused else OutcomeStatus.NO_OP
        left = p.verdict is Verdict.RUN
        reason = (run.stopped_by or run.leftovers.get(p.partition, otherwise)) if left else p.reason
        if reason is Reason.UNSUPPORTED_KEY:
            status = OutcomeStatus.UNSUPPORTED
        result[p.partition] = (p.partition, status, reason)
    for outcome in _counting(run):
        for key in outcome.partitions:
            result[key] = (key, outcome.outcome, outcome.reason)
    return tuple(result.values())


def _record(seen: Assessment, outcome: OperationOutcome, run: Run) -> None:
    versions = run.runtime.engine().versions() if run.outcomes else {}
    run.runtime.ledger.append_record(
        Record(
            record_id=uuid.uuid4().hex,
            run_id=run.request.run_id,
            table=outcome.table,
            table_uuid=seen.state.uuid,
            operation=outcome.operation,
            started_ms=run.started_ms,
            ended_ms=run.runtime.clock.now_ms(),
            plan_id=run.plan_id,
            policy_digest=digest(seen.policy),
            versions=dict(versions),
            outcome=outcome,
        )
    )
