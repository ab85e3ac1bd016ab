"""Decides on one operation of a table, from its health, policy, history and the time, and gives the
reasons."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from iceberg_maint.core.decisions.applicability import (
    SPARK_4,
    RowTypes,
    candidate_bytes,
    either_may_clean,
    findings_for,
    foreign_stop,
    partition_findings,
    property_stop,
    row_readers,
    type_stop,
)
from iceberg_maint.core.decisions.history import ENVIRONMENT_WAIT_MS, PartitionHistory, TableHistory
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


@dataclass(frozen=True)
class Situation:
    """What the decisions on one table follow from, the same for all operations. `histories` are those of the
    operations; an operation without one has none. `readers` are the ways in which Spark reads the table's rows.

    `requested` limits the decisions to these partitions and waives their back-off: a person or the automation chose
    them. `force` also makes healthy and quarantined partitions due, and for a conversion those with younger equality
    deletes.
    """

    measured: Measured
    policy: Policy
    histories: Mapping[Operation, TableHistory]
    now_ms: int
    requested: frozenset[PartitionKey] | None = None
    force: bool = False
    readers: RowTypes = SPARK_4

    def history(self, operation: Operation) -> TableHistory:
        """Returns the operation's history; an empty one if there is none."""
        return self.histories.get(operation) or TableHistory()

    @cached_property
    def findings(self) -> Findings:
        """The findings of each partition, or of the requested ones. They are the same for each operation."""
        return {
            key: partition_findings(self.measured, key, self.policy, self.now_ms)
            for key in sorted(self.measured.partitions)
            if self.requested is None or key in self.requested
        }


@dataclass(frozen=True, slots=True)
class Stop:
    """Why an operation does not run, and the time until which, None: not known."""

    verdict: Verdict
    reason: Reason
    evidence: Mapping[str, str]
    until_ms: int | None = None


Rule = Callable[[Operation, Situation], Stop | None]


def _stop(parts: tuple[Verdict, Reason, Mapping[str, str]] | None) -> Stop | None:
    return None if parts is None else Stop(*parts)


def unknown_format(_operation: Operation, situation: Situation) -> Stop | None:
    version = situation.measured.format_version
    if version in SUPPORTED_FORMAT_VERSIONS:
        return None
    return Stop(Verdict.REFUSE, Reason.FORMAT_VERSION, {"format_version": str(version)})


def empty_table(_operation: Operation, situation: Situation) -> Stop | None:
    return Stop(Verdict.SKIP, Reason.EMPTY, {}) if situation.measured.snapshot_id is None else None


def disabled(operation: Operation, situation: Situation) -> Stop | None:
    policy = situation.policy
    enabled = {
        Operation.REWRITE_DATA_FILES: policy.rewrite_data_files.enabled,
        Operation.REWRITE_POSITION_DELETE_FILES: policy.rewrite_position_delete_files.enabled,
    }
    if enabled.get(operation, True):
        return None
    return Stop(Verdict.SKIP, Reason.DISABLED, {"key": f"{operation.value}.enabled"})


def dropped_source(operation: Operation, situation: Situation) -> Stop | None:
    lossy = situation.measured.specs_losing_values
    if operation not in _COPYING or not lossy:
        return None
    return Stop(Verdict.REFUSE, Reason.DROPPED_SOURCE, {"specs": ", ".join(map(str, lossy))})


def time_to_rest(operation: Operation, situation: Situation) -> Stop | None:
    history = situation.history(operation)
    note = history.paused_reason if history.paused else None
    rest = reason_to_rest(situation.policy, note, situation.now_ms)
    if rest is None:
        return None
    reason, evidence = rest
    return Stop(Verdict.DEFER, reason, evidence | _pause_evidence(evidence, history))


def lease_of_another(operation: Operation, situation: Situation) -> Stop | None:
    owner = situation.history(operation).lease_owner
    return None if owner is None else Stop(Verdict.DEFER, Reason.LEASE_HELD, {"owner": owner})


def unreadable_metadata(operation: Operation, situation: Situation) -> Stop | None:
    reading = unreadable_until(situation.history(operation), situation.now_ms)
    if reading is None:
        return None
    return Stop(Verdict.DEFER, Reason.BACK_OFF, {"error": reading.reason}, reading.not_before_ms)


def unreadable_rows(operation: Operation, situation: Situation) -> Stop | None:
    ways = row_readers(operation, situation.policy.rewrite_data_files.strategy, situation.readers)
    return _stop(type_stop(operation, situation.measured.uncommon_types, ways))


def wrong_property(operation: Operation, situation: Situation) -> Stop | None:
    return _stop(property_stop(operation, situation.measured.wrong_property))


def foreign_maintainer(operation: Operation, situation: Situation) -> Stop | None:
    return _stop(foreign_stop(operation, situation.measured.foreign, situation.policy, situation.now_ms))


def pending_publish(operation: Operation, situation: Situation) -> Stop | None:
    pending = situation.measured.pending_publishes
    stop = publish_stop(operation, pending, situation.policy, situation.now_ms)
    if stop is None:
        return None
    verdict, reason, wait = stop
    return Stop(verdict, reason, wait.evidence(), wait.until_ms)


TABLE_STOPS: tuple[Rule, ...] = (
    unknown_format,
    empty_table,
    disabled,
    dropped_source,
    time_to_rest,
    lease_of_another,
    unreadable_metadata,
)
"""The rules that stop an operation whether or not a partition is due, in the order in which they are asked."""
PARTITION_STOPS: tuple[tuple[Rule, frozenset[Verdict]], ...] = (
    # What such a column or property had put on hold before is refused for it as well.
    (unreadable_rows, frozenset((Verdict.RUN, Verdict.DEFER))),
    (wrong_property, frozenset((Verdict.RUN, Verdict.DEFER))),
    (foreign_maintainer, frozenset((Verdict.RUN,))),
    (pending_publish, frozenset((Verdict.RUN,))),
)
"""The rules that are asked after those if a partition has one of these verdicts, which the stop replaces."""


def decide(operation: Operation, situation: Situation) -> Decision:
    """Returns the decision on one operation on data. Table-wide stops (pause, blackout, …) keep the partitions' own
    findings in the result, so that `why` can show them."""
    verdicts = _verdicts(operation, situation)
    verdicts += [
        PartitionDecision(key, Verdict.SKIP, Reason.EMPTY, operation=operation)
        for key in sorted((situation.requested or frozenset()) - set(situation.measured.partitions))
    ]
    stop, replaced = _first_stop(operation, situation, {p.verdict for p in verdicts})
    if stop is None:
        return _budgeted(operation, situation, verdicts)
    stopped = [
        replace(p, verdict=stop.verdict, reason=stop.reason, until_ms=stop.until_ms)
        if p.verdict in replaced
        else p
        for p in verdicts
    ]
    return decision_of(operation, situation.measured, stop.verdict, stop.reason, stopped, stop.evidence)


def table_stop(operation: Operation, situation: Situation) -> Stop | None:
    """Returns the stop of an operation that holds whether or not a partition is due, None if there is none."""
    stops = (rule(operation, situation) for rule in TABLE_STOPS)
    return next((stop for stop in stops if stop is not None), None)


def _first_stop(
    operation: Operation, situation: Situation, verdicts: Collection[Verdict]
) -> tuple[Stop | None, frozenset[Verdict]]:
    """Returns the first stop, and the verdicts of partitions that it replaces."""
    if stop := table_stop(operation, situation):
        return stop, frozenset((Verdict.RUN,))
    for rule, replaced in PARTITION_STOPS:
        if not replaced.isdisjoint(verdicts) and (stop := rule(operation, situation)):
            return stop, replaced
    return None, frozenset()


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
    if all(p.reason is Reason.EMPTY for p in partitions):
        return Verdict.SKIP, Reason.EMPTY
    for verdict in (Verdict.RUN, Verdict.REFUSE, Verdict.DEFER):
        first = next((p for p in partitions if p.verdict is verdict), None)
        if first is not None:
            return verdict, first.reason
    return Verdict.SKIP, Reason.HEALTHY
