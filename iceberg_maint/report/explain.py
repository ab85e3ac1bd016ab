"""Explanation of the decision on a table or partition, with its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from iceberg_maint.core.decisions.history import PartitionHistory, TableHistory
from iceberg_maint.core.decisions.table_decision import Standing, TableVerdict, verdict_on
from iceberg_maint.core.health.metrics import Measured, PartitionHealth
from iceberg_maint.core.health.state_facts import WriterChange
from iceberg_maint.core.model.codec import to_data
from iceberg_maint.core.model.ids import Operation, PartitionKey, command_line
from iceberg_maint.core.model.reasons import Decision, PartitionDecision, Reason, Verdict
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.core.planning.batch_trials import BatchSize
from iceberg_maint.core.policy.data import Policy, policy_keys
from iceberg_maint.ports.stored import Cursor
from iceberg_maint.report.comparisons import Comparison, compare
from iceberg_maint.report.deferrals import deferral, fix_of, pause_of, reader_of, resumption
from iceberg_maint.report.fleet import TableTrend, trend_document
from iceberg_maint.report.formatting import counted, duration, moment, number, sentence, share
from iceberg_maint.report.housekeeping_text import (
    PUBLISH_CHANGE,
    HousekeepingExplanation,
    housekeeping_document,
    pending_publish,
)
from iceberg_maint.report.json_documents import Document, cursor_document, record_document, values_document
from iceberg_maint.report.plan_notes import Advice, advice_document
from iceberg_maint.report.verdicts import verdict_document

_SOUND = TableVerdict(Standing.MEASURED)


@dataclass(frozen=True, slots=True)
class PartitionExplanation:
    """Explanation of the decision on one partition: the comparisons, the history, the last outcome, and
    the change that would lead to another decision.
    """

    decision: PartitionDecision
    comparisons: tuple[Comparison, ...]
    history: PartitionHistory
    last: str | None
    change: str


@dataclass(frozen=True, slots=True)
class TableExplanation:
    """Explanation of the decision on a table. `truth` is the one sentence to read first;
    `housekeeping` has one explanation per operation on the table as a whole; `cursors` has the progress
    of each operation; `advice` is what a run would do in mode advise. `limits` has the largest batch of the
    operations that plan smaller batches after conflicts. `readers` is the sentence on
    the table's readers, or empty, `codec` that on the codec of rewritten files."""

    decision: Decision
    truth: str
    change: str
    partitions: tuple[PartitionExplanation, ...]
    values: Mapping[str, object]
    sources: Mapping[str, str]
    last: Record | None
    housekeeping: tuple[HousekeepingExplanation, ...] = ()
    cursors: tuple[Cursor, ...] = ()
    advice: Advice | None = None
    limits: Mapping[Operation, BatchSize] = field(default_factory=dict)
    trend: TableTrend | None = None
    writer_changes: tuple[WriterChange, ...] = ()
    verdict: TableVerdict = _SOUND
    readers: str = ""
    codec: str = ""


def policy_values(policy: Policy) -> dict[str, object]:
    """Every value of a policy by key path, in the order of the documentation."""
    return {
        key.path: getattr(getattr(policy, key.section) if key.section else policy, key.name)
        for key in policy_keys()
    }


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a decision was made on: the health, the policy with the source of each value, and the history. `last` is the
    newest record of work on data."""

    decision: Decision
    measured: Measured
    policy: Policy
    sources: Mapping[str, str]
    history: TableHistory
    last: Record | None
    now_ms: int


def explain(
    evidence: Evidence,
    housekeeping: tuple[HousekeepingExplanation, ...] = (),
    advice: Advice | None = None,
) -> TableExplanation:
    """Explains a decision that was made on this evidence."""
    decision = evidence.decision
    partitions = tuple(_partition(evidence, p) for p in decision.partitions)
    return TableExplanation(
        decision,
        _truth(decision, advice, evidence.now_ms, [h.decision for h in housekeeping]),
        _table_change(decision, partitions, evidence.history),
        partitions,
        policy_values(evidence.policy),
        evidence.sources,
        evidence.last,
        housekeeping,
        advice=advice,
        verdict=verdict_on(True, evidence.history.faults),
    )


def explanation_document(why: TableExplanation) -> Document:
    """The JSON document of `why`."""
    return {
        "table": why.decision.table,
        "snapshot": why.decision.snapshot_id,
        "verdict": why.decision.verdict.value,
        "reason": why.decision.reason.value,
        "truth": why.truth,
        "change": why.change,
        "evidence": dict(sorted(why.decision.evidence.items())),
        "deferred_by": deferral(why.decision) or None,
        "failure": verdict_document(why.verdict),
        "advice": advice_document(why.advice),
        "trend": None if why.trend is None else trend_document(why.trend),
        "writer_changes": [to_data(change) for change in why.writer_changes],
        "readers": why.readers,
        "codec": why.codec,
        "policy": values_document(why.values, why.sources),
        "partitions": [
            {
                "partition": p.decision.partition,
                "verdict": p.decision.verdict.value,
                "reason": p.decision.reason.value,
                "until_ms": p.decision.until_ms,
                "metrics": to_data(p.comparisons),
                "history": to_data(p.history),
                "last": p.last,
                "change": p.change,
            }
            for p in why.partitions
        ],
        "housekeeping": [housekeeping_document(h) for h in why.housekeeping],
        "cursors": [cursor_document(c) for c in why.cursors],
        "batches_after_conflicts": {operation.value: to_data(size) for operation, size in why.limits.items()},
        "last": None if why.last is None else record_document(why.last),
        "next": {
            "verdict": why.decision.verdict.value,
            "reason": why.decision.reason.value,
            "due_partitions": [p.partition for p in why.decision.backlog()],
            "until_ms": why.decision.until_ms,
        },
    }


def _partition(evidence: Evidence, decision: PartitionDecision) -> PartitionExplanation:
    measured, now_ms = evidence.measured, evidence.now_ms
    health = measured.partitions.get(decision.partition, PartitionHealth())
    comparisons = compare(health, measured, evidence.policy, decision.findings, evidence.sources, now_ms)
    past = evidence.history.of(decision.partition)
    return PartitionExplanation(
        decision,
        comparisons,
        past,
        _last_of(decision.partition, evidence.last),
        _change(evidence.decision.table, decision, comparisons, past, now_ms),
    )


def _last_of(partition: PartitionKey, last: Record | None) -> str | None:
    if last is None:
        return None
    for key, status, reason in last.outcome.partitions:
        if key == partition:
            return f"{status.value} ({reason.value}) at {moment(last.ended_ms)}"
    return None


_STOPPED = frozenset({Reason.BACK_OFF, Reason.QUARANTINED})


def due_housekeeping(housekeeping: Sequence[Decision]) -> str:
    """The names of the operations of housekeeping that a run would do; empty without one."""
    return ", ".join(d.operation.value for d in housekeeping if d.verdict is Verdict.RUN)


def _truth(decision: Decision, advice: Advice | None, now_ms: int, housekeeping: Sequence[Decision]) -> str:
    reasons = {p.reason for p in decision.partitions}
    due_partitions = len(decision.due())
    total = len(decision.partitions)
    quarantined = sum(p.reason is Reason.QUARANTINED for p in decision.partitions)
    waiting = [p for p in decision.partitions if p.reason is Reason.BACK_OFF]
    if decision.verdict is Verdict.RUN:
        later = [p.reason.value for p in decision.backlog() if p.verdict is Verdict.DEFER]
        later = [reason for reason in later if reason != Reason.QUARANTINED]
        more = counted(quarantined, "more is", "more are")
        rest = f" {more} quarantined." if quarantined else ""
        if later:
            rest += f" {counted(len(later), 'more waits', 'more wait')} ({', '.join(dict.fromkeys(later))})."
        return (
            f"Unhealthy: {share(due_partitions, total, 'partition')} due ({sentence(decision.reason)}).{rest}"
        )
    if decision.reason is Reason.PAUSED:
        held = share(len(decision.backlog()), total, "partition")
        return f"{pause_of(decision.evidence)}. {held} due."
    if decision.reason is Reason.ADVISE and advice is not None:
        return advice.sentence()
    if Reason.QUARANTINED in reasons:
        waits = share(quarantined, total, "partition", "wait")
        return f"Quarantined: {waits} for a person after repeated failures."
    if waiting:
        until_ms = min(p.until_ms for p in waiting if p.until_ms is not None)
        return (
            f"Backing off: {share(len(waiting), total, 'partition', 'wait')} until {moment(until_ms)} "
            f"(in {duration(max(0, until_ms - now_ms) / 1000)}) after an attempt that failed, "
            "gained nothing or lost to other writers."
        )
    if decision.verdict is Verdict.SKIP and decision.reason is Reason.HEALTHY:
        warned = sum(bool(p.findings) for p in decision.partitions)
        if warned:
            return (
                f"Healthy: nothing is due{_in_any(total)}; "
                f"{counted(warned, 'crosses', 'cross')} a warning threshold."
            )
        due = due_housekeeping(housekeeping)
        stopped = ", ".join(d.operation.value for d in housekeeping if d.reason in _STOPPED)
        if due or stopped:
            rest = f" Housekeeping is due: {due}." if due else ""
            rest += f" Waiting after a failure or a refusal: {stopped}." if stopped else ""
            return f"The data is healthy: no threshold is crossed{_in_any(total)}.{rest}"
        return f"Healthy: no threshold is crossed{_in_any(total)}."
    if decision.reason is Reason.FOREIGN_MAINTAINER:
        return _foreign(decision.evidence)
    if decision.reason is Reason.PENDING_PUBLISH:
        return f"Later: {pending_publish(decision.evidence)}"
    if decision.reason is Reason.UNSUPPORTED_TYPE:
        return f"Refused: {reader_of(decision.evidence)} column {decision.evidence['columns']}."
    if decision.reason is Reason.WRITER_PROPERTY:
        return f"Refused: the table property {decision.evidence['property']}."
    headings = {Verdict.SKIP: "Nothing to do", Verdict.DEFER: "Later", Verdict.REFUSE: "Refused"}
    return f"{headings[decision.verdict]}: {sentence(decision.reason)}."


def _in_any(partitions: int) -> str:
    return f" in any of {counted(partitions, 'partition')}" if partitions != 1 else ""


def _foreign(evidence: Mapping[str, str]) -> str:
    return (
        f"Refused: {evidence['foreign_maintainer']} rewrote files of the table in snapshot "
        f"{evidence['foreign_snapshot']} at {moment(int(evidence['foreign_at_ms']))}; two maintainers undo "
        f"each other's work. The refusal ends at {moment(int(evidence['foreign_until_ms']))}."
    )


def _table_change(
    decision: Decision, partitions: tuple[PartitionExplanation, ...], history: TableHistory
) -> str:
    table = decision.table
    if history.unknown_commits:
        commits = counted(history.unknown_commits, "unconfirmed commit")
        return f"settle {commits} first: {command_line('reconcile', table)}"
    table_wide = {
        Reason.PAUSED: resumption(decision),
        Reason.BLACKOUT: f"the end of the blackout window {decision.evidence.get('window', '')}",
        Reason.ADVISE: "policy key mode: act",
        Reason.DISABLED: "policy key rewrite_data_files.enabled: true",
        Reason.LEASE_HELD: f"the end of run {decision.evidence.get('owner', '')}, or the expiry of its lease",
        Reason.PENDING_PUBLISH: PUBLISH_CHANGE,
        Reason.UNSUPPORTED_TYPE: "policy key rewrite_data_files.strategy: auto"
        if "read_by" in decision.evidence and decision.operation is Operation.REWRITE_DATA_FILES
        else fix_of(table, decision.reason),
        Reason.FOREIGN_MAINTAINER: "stop the other maintainer, or policy key foreign_maintainers.mode: "
        "coexist or ignore",
    }
    if decision.reason in table_wide:
        return table_wide[decision.reason]
    first = next((p for p in partitions if p.decision.reason is decision.reason), None)
    return fix_of(table, decision.reason) or (first.change if first is not None else "")


def _change(
    table: str,
    partition_decision: PartitionDecision,
    comparisons: tuple[Comparison, ...],
    past: PartitionHistory,
    now_ms: int,
) -> str:
    at = (table, "--partition", partition_decision.partition)
    run, release = command_line("run", *at), command_line("release", *at)
    if partition_decision.verdict is Verdict.RUN:
        return f"nothing: the next run maintains it ({run})"
    if partition_decision.reason is Reason.HEALTHY:
        return _thresholds_not_crossed(comparisons)
    if partition_decision.reason is Reason.BACK_OFF and partition_decision.until_ms is not None:
        wait = duration(max(0, partition_decision.until_ms - now_ms) / 1000)
        return f"wait {wait}, or: {release}; last: {past.reason}"
    if partition_decision.reason is Reason.QUARANTINED:
        return f"remove the cause ({past.reason}), then: {release}"
    if partition_decision.reason is Reason.RECENTLY_CHANGED and partition_decision.until_ms is not None:
        return f"no write until {moment(partition_decision.until_ms)}, or a lower windows.cold_after_seconds"
    if partition_decision.reason is Reason.FLEET_BUDGET and partition_decision.until_ms is not None:
        at_once = f"or at once: {run}"
        return f"the budget, expected at {moment(partition_decision.until_ms)}; raise fleet_budget or windows.read_weight, {at_once}"
    return {
        Reason.RUN_BUDGET: "the next run, or raise windows.max_partitions_per_run or windows.max_bytes_per_run",
        Reason.HOUR_BUDGET: "the next hour, or raise windows.max_partitions_per_hour or windows.max_bytes_per_hour",
    }.get(partition_decision.reason) or fix_of(table, partition_decision.reason)


def _thresholds_not_crossed(comparisons: tuple[Comparison, ...]) -> str:
    parts = [
        f"{c.metric} {c.rule} {number(c.threshold)} (now {number(c.value)})"
        for c in comparisons
        if c.threshold is not None and not c.crossed and not c.threshold_key.endswith("delete_ratio_warn")
    ]
    return "due once " + ", or ".join(parts) if parts else "no threshold is set"
