"""Decides on one operation of a table, from its health, policy, history and the time, and gives the
reasons."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from iceberg_maint.core.decisions.applicability import (
    SPARK_4,
    RowTypes,
    candidate_bytes,
    either_may_clean,
    findings_for,
    partition_findings,
    property_stop,
    row_readers,
    type_stop,
)
from iceberg_maint.core.decisions.history import ENVIRONMENT_WAIT_MS, PartitionHistory, TableHistory
from iceberg_maint.core.decisions.other_engines import foreign_stop
from iceberg_maint.core.decisions.pay_back import may_be_left_alone
from iceberg_maint.core.decisions.waits import publish_stop
from iceberg_maint.core.decisions.windows import (
    hour_budget,
    in_blackout,
    in_order,
    plan_budget,
    run_budget,
    take,
)
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.health.thresholds import is_due, may_merge, score, worst
from iceberg_maint.core.model.ids import DATA_OPERATIONS, READING, Operation, PartitionKey
from iceberg_maint.core.model.reasons import Decision, Finding, PartitionDecision, Reason, Verdict
from iceberg_maint.core.policy.data import Mode, Policy

Findings = Mapping[PartitionKey, tuple[Finding, ...]]
"""The crossed thresholds of the partitions, by key in its order."""
SUPPORTED_FORMAT_VERSIONS = (1, 2, 3)
_COPYING = frozenset((*DATA_OPERATIONS, Operation.REWRITE_MANIFESTS))
"""Operations whose commits copy entries from manifest to manifest."""
_SHARING = (Operation.CONVERT_EQUALITY_DELETES, Operation.REWRITE_DATA_FILES)


def decide(
    operation: Operation,
    measured: Measured,
    format_version: int,
    policy: Policy,
    history: TableHistory,
    now_ms: int,
    *,
    beside: TableHistory | None = None,
    requested: frozenset[PartitionKey] | None = None,
    force: bool = False,
    readers: RowTypes = SPARK_4,
    findings: Findings | None = None,
) -> Decision:
    """Returns the decision on one operation on data. `history` is that of the operation and `beside` that
    of the other data operation: both take partitions from the windows in one order. `readers` are the ways in
    which Spark reads the table's rows. `findings` are `findings_of` this health, policy and time, which all operations
    have in common.

    `requested` limits the decision to these partitions and waives their back-off: a person or the
    automation chose them. `force` also makes healthy and quarantined partitions due, and for a conversion
    those with younger equality deletes. Table-wide stops (pause, blackout, …) keep the partitions' own
    findings in the result, so that `why` can show them.
    """
    if measured.format_version != format_version:
        measured = replace(measured, format_version=format_version)
    findings_by_key = findings if findings is not None else findings_of(measured, policy, now_ms, requested)

    def on_partitions(data_operation: Operation, operation_history: TableHistory) -> list[PartitionDecision]:
        is_requested = requested is not None
        return [
            _partition(
                data_operation,
                key,
                measured,
                crossed,
                policy,
                operation_history,
                now_ms,
                is_requested,
                force,
            )
            for key, crossed in findings_by_key.items()
        ]

    verdicts = on_partitions(operation, history)
    verdicts += [
        PartitionDecision(key, Verdict.SKIP, Reason.EMPTY, operation=operation)
        for key in sorted((requested or frozenset()) - set(measured.partitions))
    ]
    stop = table_stop(operation, measured, format_version, policy, history, now_ms)
    until_ms: int | None = None
    stopped_verdicts = {Verdict.RUN}
    due = any(p.verdict is Verdict.RUN for p in verdicts)
    if stop is None and any(p.verdict is not Verdict.SKIP for p in verdicts):
        ways = row_readers(operation, policy.rewrite_data_files.strategy, readers)
        stop = type_stop(operation, measured.uncommon_types, ways)
        stop = stop or property_stop(operation, measured.wrong_property)
        if stop is not None:
            # What such a column or property had put on hold before is refused for it as well.
            stopped_verdicts = {Verdict.RUN, Verdict.DEFER}
    if stop is None and due:
        stop = foreign_stop(operation, measured.foreign, policy, now_ms)
    if stop is None and due:
        waiting = publish_stop(operation, measured.pending_publishes, policy, now_ms)
        if waiting is not None:
            stop, until_ms = (*waiting[:2], waiting[2].evidence()), waiting[2].until_ms
    if stop is not None:
        verdict, reason, evidence = stop
        if reason is Reason.BACK_OFF and (reading := unreadable_until(history, now_ms)) is not None:
            until_ms = reading.not_before_ms
        stopped = [
            replace(p, verdict=verdict, reason=reason, until_ms=until_ms)
            if p.verdict in stopped_verdicts
            else p
            for p in verdicts
        ]
        return decision_of(operation, measured, verdict, reason, stopped, evidence)
    other = other_data_operation(operation)
    other_history = beside or TableHistory()
    other_verdicts: list[PartitionDecision] = []
    if (
        due
        and other is not None
        and table_stop(other, measured, format_version, policy, other_history, now_ms) is None
    ):
        other_verdicts = on_partitions(other, other_history)
    changed = {k: h.last_change_ms or 0 for k, h in measured.partitions.items()} if due else {}
    shared = {key for key, crossed in findings_by_key.items() if due and either_may_clean(crossed, policy)}
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
    if verdict is Verdict.RUN and policy.mode is Mode.ADVISE:
        # The partitions stay RUN, so that the plan shows what would be done.
        verdict, reason = Verdict.SKIP, Reason.ADVISE
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


def findings_of(
    measured: Measured, policy: Policy, now_ms: int, requested: Collection[PartitionKey] | None = None
) -> Findings:
    """Returns the findings of each partition, or of the requested ones, by key. They are the same for each operation."""
    return {
        key: partition_findings(measured, key, policy, now_ms)
        for key in sorted(measured.partitions)
        if requested is None or key in requested
    }


def other_data_operation(operation: Operation) -> Operation | None:
    """Returns the other operation that cleans equality deletes, None for an operation that does not clean
    them."""
    return next((o for o in _SHARING if o is not operation), None) if operation in _SHARING else None


def backs_off(history: PartitionHistory, now_ms: int) -> bool:
    """Returns whether the partition must still wait, also for a person's run."""
    return not history.environment_failures and automation_waits(history, now_ms)


def automation_waits(history: PartitionHistory, now_ms: int) -> bool:
    """Returns whether the automation must still leave the partition. A wait for the environment that is longer than the
    longest one was dated by a clock that was ahead."""
    if history.not_before_ms is None or now_ms >= history.not_before_ms:
        return False
    return not history.environment_failures or history.not_before_ms <= now_ms + ENVIRONMENT_WAIT_MS


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


def table_stop(
    operation: Operation,
    measured: Measured,
    format_version: int,
    policy: Policy,
    history: TableHistory,
    now_ms: int,
) -> tuple[Verdict, Reason, dict[str, str]] | None:
    if format_version not in SUPPORTED_FORMAT_VERSIONS:
        return Verdict.REFUSE, Reason.FORMAT_VERSION, {"format_version": str(format_version)}
    if measured.snapshot_id is None:
        return Verdict.SKIP, Reason.EMPTY, {}
    if operation is Operation.REWRITE_DATA_FILES and not policy.rewrite_data_files.enabled:
        return Verdict.SKIP, Reason.DISABLED, {"key": "rewrite_data_files.enabled"}
    merges = operation is Operation.REWRITE_POSITION_DELETE_FILES
    if merges and not policy.rewrite_position_delete_files.enabled:
        return Verdict.SKIP, Reason.DISABLED, {"key": "rewrite_position_delete_files.enabled"}
    if operation in _COPYING and measured.specs_losing_values:
        specs = ", ".join(map(str, measured.specs_losing_values))
        return Verdict.REFUSE, Reason.DROPPED_SOURCE, {"specs": specs}
    note = history.paused_reason if history.paused else None
    if rest_reason := reason_to_rest(policy, note, now_ms):
        reason, evidence = rest_reason
        return Verdict.DEFER, reason, evidence | _pause_evidence(evidence, history)
    if history.lease_owner is not None:
        return Verdict.DEFER, Reason.LEASE_HELD, {"owner": history.lease_owner}
    if (reading := unreadable_until(history, now_ms)) is not None:
        return Verdict.DEFER, Reason.BACK_OFF, {"error": reading.reason}
    return None


def unreadable_until(history: TableHistory, now_ms: int) -> PartitionHistory | None:
    """Returns how the table's metadata failed to be read, while that waits to be tried again. A new measurement ends it."""
    reading = next((f.history for f in history.faults if f.operation == READING), None)
    return reading if reading is not None and automation_waits(reading, now_ms) else None


def reason_to_rest(
    policy: Policy, pause_note: str | None, now_ms: int
) -> tuple[Reason, dict[str, str]] | None:
    """Returns why the table must not be maintained now, with the evidence: by policy, or by an operator's
    pause (`pause_note`, None if there is none). Every batch of a run is checked against it, not only the
    first."""
    if policy.paused:
        return Reason.PAUSED, {"by": "policy"}
    if pause_note is not None:
        return Reason.PAUSED, {"by": "operator", "note": pause_note}
    # Without hours no minute is asked for: a remembered decision lasts until a minute that was asked for ends.
    if policy.blackout_hours and (window := in_blackout(policy.blackout_hours, now_ms // 60_000 % 1440)):
        return Reason.BLACKOUT, {"window": window}
    return None


def _pause_evidence(evidence: Mapping[str, str], history: TableHistory) -> dict[str, str]:
    """Who paused since when, and what is paused: the table, the whole fleet, or both."""
    if evidence.get("by") != "operator" or not history.pauses:
        return {}
    pause = history.pauses[0]
    scopes = ["fleet" if p.fleet else "table" for p in history.pauses]
    who = {"who": pause.by} if pause.by else {}
    return {**who, "since_ms": str(pause.since_ms), "scope": " and ".join(scopes)}


def _partition(
    operation: Operation,
    key: PartitionKey,
    measured: Measured,
    crossed: tuple[Finding, ...],
    policy: Policy,
    table_history: TableHistory,
    now_ms: int,
    requested: bool,
    force: bool,
) -> PartitionDecision:
    history = table_history.of(key)
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
    if backs_off(history, now_ms) and not (requested or force):
        return replace(base, verdict=Verdict.DEFER, reason=Reason.BACK_OFF, until_ms=history.not_before_ms)
    cold_after = policy.windows.cold_after_seconds
    if cold_after is not None and health.last_change_ms is not None and not force:
        cold_at_ms = health.last_change_ms + cold_after * 1000
        if now_ms < cold_at_ms:
            return replace(base, verdict=Verdict.DEFER, reason=Reason.RECENTLY_CHANGED, until_ms=cold_at_ms)
    wait = table_history.fleet_waits.get(key)
    if wait is not None and wait.is_left_alone and not may_be_left_alone(crossed):
        # The partition became due for another reason since the pass.
        wait = None
    if wait is not None and now_ms < wait.until_ms and not (requested or force):
        reason = Reason.NO_PAY_BACK if wait.is_left_alone else Reason.FLEET_BUDGET
        return replace(
            base, verdict=Verdict.DEFER, reason=reason, until_ms=wait.until_ms, pay_back=wait.pay_back
        )
    if not is_due(own_findings):
        if operation is Operation.REWRITE_DATA_FILES:
            base = replace(base, candidate_bytes=health.data_bytes)
        return replace(base, verdict=Verdict.RUN, reason=Reason.FORCED)
    return replace(base, verdict=Verdict.RUN, reason=worst(own_findings).reason)


def table_verdict(partitions: Sequence[PartitionDecision]) -> tuple[Verdict, Reason]:
    """Returns the table's verdict from the verdicts of its partitions."""
    if all(p.reason is Reason.EMPTY for p in partitions):
        return Verdict.SKIP, Reason.EMPTY
    for verdict in (Verdict.RUN, Verdict.REFUSE, Verdict.DEFER):
        first = next((p for p in partitions if p.verdict is verdict), None)
        if first is not None:
            return verdict, first.reason
    return Verdict.SKIP, Reason.HEALTHY
