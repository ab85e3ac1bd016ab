"""The table card: the state of one table on one page, as Markdown.

A pure function of measurements, decisions and stored outcomes. Dagster shows it as the first entry of an
observation or a materialization.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.health.metrics import SIZE_EDGES_BYTES, Measured
from iceberg_maint.core.model.ids import WHOLE_TABLE, Operation, PartitionKey
from iceberg_maint.core.model.reasons import (
    SENTENCES,
    Decision,
    Finding,
    PartitionDecision,
    Reason,
    Severity,
    Verdict,
)
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.ports.ledger import Report
from iceberg_maint.report.certificate import Certificate
from iceberg_maint.report.formatting import counted, moment, number, outcome_sentence, size
from iceberg_maint.report.holds import hold

WORST = 5
"""Partitions that the card names."""
_BAR = 20
"""Characters of the longest bar of the histogram."""
_NAME = 12
"""Characters of a field's name in a partition that is shortened."""
_KEY = 40
"""A longer partition key is shortened."""
_NO_FINDING = (Reason.HEALTHY, Reason.EMPTY, Reason.OTHER_OPERATION, Reason.NO_GAIN)


@dataclass(frozen=True, slots=True)
class TableView:
    """What the card shows. `histories` belong to `decisions`, one per operation, and `last` has the last report
    of each operation. `before` is the histogram of file sizes before the last maintenance, empty if unknown.
    `proof` is the line of the last proof. `event` says what happened just now. `run_id` is the run that makes the
    card; its own lease is no blocker."""

    measured: Measured
    policy: Policy
    decisions: Sequence[Decision]
    histories: Sequence[TableHistory]
    last: Mapping[Operation, Report]
    before: tuple[int, ...] = ()
    proof: str = ""
    event: str = ""
    advice: str = ""
    run_id: str = ""


def table_card(view: TableView) -> str:
    """The card: one sentence, the operations, the worst partitions, the sizes of files, the last proof."""
    proof = view.proof or "Last proof: none."
    parts = [_sentence(view), _operations(view), _worst(view), _histogram(view), proof]
    return "\n\n".join(p for p in parts if p)


def partition_label(key: PartitionKey) -> str:
    """The partition key. A long key has shortened field names; its values are complete."""
    if len(key) <= _KEY:
        return str(key)
    pairs = (pair.partition("=") for pair in key.split("/"))
    return "/".join(
        f"{name[: _NAME - 1]}…{equals}{value}" if equals and len(name) > _NAME else f"{name}{equals}{value}"
        for name, equals, value in pairs
    )


def proof_line(proof: Certificate) -> str:
    """The last proof in one line."""
    return (
        f"Last proof: **{proof.status.value}** at {moment(proof.ended_ms)}. {proof.sentence()} "
        f"To see it: `iceberg-maint proof {proof.run_id}`"
    )


def _sentence(view: TableView) -> str:
    ranked = _ranked(view)
    total = len(view.measured.partitions)
    due = [d for d in ranked if d.partition != WHOLE_TABLE and _is_due(d)]
    other = [
        d.operation.value
        for d in view.decisions
        for p in d.partitions
        if p.partition == WHOLE_TABLE and _is_due(p)
    ]
    delay = next((text for d in view.decisions if (text := hold(d))), "")
    event = f"{view.event} " if view.event else ""
    if not view.measured.partitions:
        state = "**The table is empty.**"
    elif due:
        what = f"**{number(len(due))} of {counted(total, 'partition')} "
        state = f"{what}{'is' if len(due) == 1 else 'are'} beyond a threshold.**"
    else:
        state = f"**Healthy:** every metric of {counted(total, 'partition')} is within its threshold."
    state += f" Due besides: {', '.join(other)}." if other else ""
    held = f" The work is held by {delay}." if (due or other) and delay else ""
    advice = f" {view.advice}" if view.advice else ""
    return f"{event}{state}{held}{advice}"


def _is_due(decision: PartitionDecision) -> bool:
    return any(f.severity is Severity.ERROR for f in decision.findings)


def _operations(view: TableView) -> str:
    lines = ["| operation | last | next |", "|---|---|---|"]
    for decision, history in zip(view.decisions, view.histories, strict=True):
        last = view.last.get(decision.operation)
        lines.append(
            f"| {decision.operation.value} | {_cell(_last(last))} | {_cell(_next(view, decision, history))} |"
        )
    return "\n".join(lines)


def _last(report: Report | None) -> str:
    if report is None:
        return "never"
    outcome = report.outcome
    words = outcome_sentence(outcome.outcome, outcome.reason, ran=True)
    return f"{moment(report.recorded_ms)}: {outcome.outcome.value}, {words}"


def _next(view: TableView, decision: Decision, history: TableHistory) -> str:
    """The predicted time of the operation, or what blocks it and who holds it."""
    if decision.reason is Reason.LEASE_HELD or history.lease_owner is not None:
        owner = history.lease_owner or decision.evidence.get("owner", "another run")
        return (
            "this run works on it"
            if view.run_id and owner.startswith(view.run_id)
            else f"run {owner} holds it"
        )
    if delay := hold(decision):
        return f"held by {delay}"
    if decision.verdict is Verdict.RUN:
        return "now: due"
    if decision.verdict is Verdict.DEFER:
        until = "" if decision.until_ms is None else f"at {moment(decision.until_ms)}: "
        return f"{until}{SENTENCES[decision.reason]}"
    if decision.reason in _NO_FINDING:
        return _predicted(view.policy, decision.operation, history)
    return SENTENCES[decision.reason]


def _predicted(policy: Policy, operation: Operation, history: TableHistory) -> str:
    every_seconds = {
        Operation.EXPIRE_SNAPSHOTS: policy.expire_snapshots.every_seconds,
        Operation.REMOVE_ORPHAN_FILES: policy.remove_orphan_files.every_seconds,
    }.get(operation)
    if every_seconds is None or history.last_done_ms is None:
        return "when a threshold is crossed"
    at = moment(history.last_done_ms + every_seconds * 1000)
    return f"at {at}" if operation is Operation.REMOVE_ORPHAN_FILES else f"not before {at}"


def _worst(view: TableView) -> str:
    rows = [
        f"| {_cell(_label(d.partition))} | {f.metric} | {_value(f.metric, f.value)} "
        f"| {_value(f.metric, f.threshold)} | {f.threshold_key} |"
        for d in _ranked(view)[:WORST]
        for f in _leading(d.findings)
    ]
    if not rows:
        return ""
    head = ["| worst partitions | metric | value | threshold | policy key |", "|---|---|--:|--:|---|"]
    return "\n".join([*head, *rows])


def _leading(findings: Sequence[Finding]) -> Sequence[Finding]:
    """The first finding: an error before a warning."""
    return sorted(findings, key=lambda f: f.severity is not Severity.ERROR)[:1]


def _ranked(view: TableView) -> list[PartitionDecision]:
    """One decision per partition with a finding, worst first."""
    worst: dict[PartitionKey, PartitionDecision] = {}
    for decision in view.decisions:
        for p in decision.partitions:
            if not p.findings or (p.partition in worst and worst[p.partition].score >= p.score):
                continue
            worst[p.partition] = p
    whole = worst.pop(WHOLE_TABLE, None)
    ranked = sorted(worst.values(), key=lambda p: (-p.score, p.partition))
    return ranked if ranked or whole is None else [whole]


def _histogram(view: TableView) -> str:
    now = view.measured.total().size_histogram
    before = view.before if len(view.before) == len(now) else None
    shown = [n for n in range(len(now)) if now[n] or (before is not None and before[n])]
    if not shown:
        return ""
    longest = max(*now, *(before or ()))
    lines = ["| data files | before | now |", "|---|---|---|"]
    for n in shown:
        old = "?" if before is None else _bar(before[n], longest)
        lines.append(f"| {_bin(n)} | {old} | {_bar(now[n], longest)} |")
    return "\n".join(lines)


def _bin(index: int) -> str:
    if index == 0:
        return f"below {size(SIZE_EDGES_BYTES[0])}"
    if index == len(SIZE_EDGES_BYTES):
        return f"{size(SIZE_EDGES_BYTES[-1])} and more"
    return f"{size(SIZE_EDGES_BYTES[index - 1])} to {size(SIZE_EDGES_BYTES[index])}"


def _bar(count: int, longest: int) -> str:
    return f"{'█' * -(-count * _BAR // longest)} {number(count)}".strip()


def _value(metric: str, value: float) -> str:
    if metric.endswith("_bytes"):
        return size(value)
    return number(float(f"{value:.4g}"))


def _label(key: PartitionKey) -> str:
    return "the whole table" if key == WHOLE_TABLE else partition_label(key)


def _cell(text: str) -> str:
    """Text for a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")
