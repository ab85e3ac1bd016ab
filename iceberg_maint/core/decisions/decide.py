"""Decides on one operation of a table, from its health, policy, history and the time, and gives the
reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from iceberg_maint.core.decisions.applicability import candidate_bytes, either_may_clean, findings_for
from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.decisions.rules import Situation, advice_only, first_stop, table_stop
from iceberg_maint.core.decisions.waits import backs_off
from iceberg_maint.core.decisions.windows import hour_budget, in_order, plan_budget, run_budget, take
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.health.thresholds import is_due, may_merge, score, worst
from iceberg_maint.core.model.ids import Operation, PartitionKey
from iceberg_maint.core.model.reasons import Decision, PartitionDecision, Reason, Verdict

_SHARING = (Operation.CONVERT_EQUALITY_DELETES, Operation.REWRITE_DATA_FILES)


def decide(operation: Operation, situation: Situation) -> Decision:
    """Returns the decision on one operation on data. Table-wide stops (pause, blackout, …) keep the partitions' own
    findings in the result, so that `why` can show them."""
    verdicts = _verdicts(operation, situation)
    verdicts += [
        PartitionDecision(key, Verdict.SKIP, Reason.HEALTHY, operation=operation)
        for key in sorted((situation.requested or frozenset()) - set(situation.measured.partitions))
    ]
    stop, replaced = first_stop(operation, situation, {p.verdict for p in verdicts})
    if stop is None:
        return _budgeted(operation, situation, verdicts)
    stopped = [
        replace(p, verdict=stop.verdict, reason=stop.reason, until_ms=stop.until_ms)
        if p.verdict in replaced
        else p
        for p in verdicts
    ]
    return decision_of(operation, situation.measured, stop.verdict, stop.reason, stopped, stop.evidence)


def _verdicts(operation: Operation, situation: Situation) -> list[PartitionDecision]:
    return [_partition(operation, key, situation) for key in situation.findings]


def _budgeted(operation: Operation, situation: Situation, verdicts: Sequence[PartitionDecision]) -> Decision:
    """Returns the decision that nothing stops: due partitions in order, as many as the windows admit."""
    measured, policy, history = situation.measured, situation.policy, situation.history(operation)
    due = any(p.verdict is Verdict.RUN for p in verdicts)
    other = other_data_operation(operation)
    other_history = TableHistory() if other is None else situation.history(other)
    other_verdicts: list[PartitionDecision] = []
    if due and other is not None and table_stop(other, situation) is None:
        other_verdicts = _verdicts(other, situation)
    changed = {k: h.last_change_ms or 0 for k, h in measured.partitions.items()} if due else {}
    shared = {key for key, crossed in situation.findings.items() if due and either_may_clean(crossed, policy)}
    ordered = in_order(verdicts, other_verdicts, shared, policy.windows.order, changed)
    run = run_budget(policy.windows)
    hour = hour_budget(policy.windows, history.hour_partitions, history.hour_bytes)
    window = take(ordered, run, hour)
    not_due = [p for p in verdicts if p.verdict is not Verdict.RUN]
    other_hour = hour_budget(policy.windows, other_history.hour_partitions, other_history.hour_bytes)
    other_window = take(
        in_order(other_verdicts, verdicts, shared, policy.windows.order, changed), run, other_hour
    )
    verdict, reason = table_verdict(window + not_due)
    if verdict is Verdict.RUN and (advice := advice_only(operation, situation)):
        # The partitions stay RUN, so that the plan shows what would be done.
        verdict, reason = advice.verdict, advice.reason
    evidence = {"due_partitions": str(len(ordered)), "partitions": str(len(measured.partitions))}
    budget_bytes, budget_reason = plan_budget(run, hour)
    partition_budgets = [budget.partitions for budget in (run, hour) if budget.partitions is not None]
    return Decision(
        table=str(measured.table),
        operation=operation,
        verdict=verdict,
        reason=reason,
        snapshot_id=measured.snapshot_id,
        partitions=(*window, *not_due),
        evidence=evidence,
        until_ms=_earliest_end(verdict, (*window, *not_due)),
        budget_bytes=budget_bytes,
        budget_reason=budget_reason,
        budget_partitions=min(partition_budgets, default=None),
        beside={p.partition: p for p in (*other_verdicts, *other_window)},
    )


def other_data_operation(operation: Operation) -> Operation | None:
    """Returns the other operation that cleans equality deletes, None for an operation that does not clean
    them."""
    return next((o for o in _SHARING if o is not operation), None) if operation in _SHARING else None


def decision_of(
    operation: Operation,
    measured: Measured,
    verdict: Verdict,
    reason: Reason,
    partitions: list[PartitionDecision],
    evidence: Mapping[str, str],
) -> Decision:
    return Decision(
        table=str(measured.table),
        operation=operation,
        verdict=verdict,
        reason=reason,
        snapshot_id=measured.snapshot_id,
        partitions=tuple(partitions),
        evidence=dict(evidence),
        until_ms=_earliest_end(verdict, partitions),
    )


def _earliest_end(verdict: Verdict, partitions: Sequence[PartitionDecision]) -> int | None:
    """Returns when the first partition of a deferred table no longer waits."""
    if verdict is not Verdict.DEFER:
        return None
    return min((p.until_ms for p in partitions if p.until_ms is not None), default=None)


def _partition(operation: Operation, key: PartitionKey, situation: Situation) -> PartitionDecision:
    measured, policy, now_ms, force = situation.measured, situation.policy, situation.now_ms, situation.force
    table_history, crossed = situation.history(operation), situation.findings[key]
    history, waived = table_history.of(key), force or situation.requested is not None
    own_findings, health = findings_for(operation, crossed, policy), measured.partitions[key]
    if not own_findings and not force:
        size = candidate_bytes(operation, health, ())
        return PartitionDecision(key, Verdict.SKIP, Reason.HEALTHY, crossed, 0.0, size, operation=operation)
    forced = force and (
        operation is Operation.REWRITE_DATA_FILES
        or bool(own_findings)
        or (
            operation is Operation.REWRITE_POSITION_DELETE_FILES
            and may_merge(health, measured.format_version)
        )
    )
    base = PartitionDecision(
        key,
        Verdict.SKIP,
        Reason.HEALTHY,
        crossed,
        score(own_findings),
        candidate_bytes(operation, health, own_findings),
        operation=operation,
    )
    if not is_due(own_findings) and not forced:
        return base
    if history.quarantined and not force:
        return replace(base, verdict=Verdict.DEFER, reason=Reason.QUARANTINED)
    if backs_off(history, now_ms) and not waived:
        return replace(base, verdict=Verdict.DEFER, reason=Reason.BACK_OFF, until_ms=history.not_before_ms)
    cold_after = policy.windows.cold_after_seconds
    if cold_after is not None and health.last_change_ms is not None and not force:
        cold_at_ms = health.last_change_ms + cold_after * 1000
        if now_ms < cold_at_ms:
            return replace(base, verdict=Verdict.DEFER, reason=Reason.RECENTLY_CHANGED, until_ms=cold_at_ms)
    wait = table_history.fleet_waits.get(key)
    if wait is not None and now_ms < wait.until_ms and not waived:
        return replace(base, verdict=Verdict.DEFER, reason=Reason.FLEET_BUDGET, until_ms=wait.until_ms)
    if not is_due(own_findings):
        if operation is Operation.REWRITE_DATA_FILES:
            base = replace(base, candidate_bytes=health.data_bytes)
        return replace(base, verdict=Verdict.RUN, reason=Reason.FORCED)
    return replace(base, verdict=Verdict.RUN, reason=worst(own_findings).reason)


def table_verdict(partitions: Sequence[PartitionDecision]) -> tuple[Verdict, Reason]:
    """Returns the table's verdict from the verdicts of its partitions."""
    for verdict in (Verdict.RUN, Verdict.REFUSE, Verdict.DEFER):
        first = next((p for p in partitions if p.verdict is verdict), None)
        if first is not None:
            return verdict, first.reason
    return Verdict.SKIP, Reason.HEALTHY
