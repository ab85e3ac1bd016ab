"""The table card: the state of one table on one page, as Markdown.

A pure function of measurements, decisions and stored outcomes. Dagster shows it as the first entry of an
observation or a materialization. Its page is narrow and shows a text of less than 1,000 characters at once, so
the card has lists, which wrap, and a limit.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import dagster as dg

from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.decisions.table_decision import verdict_on
from iceberg_maint.core.health.metrics import MEBIBYTE, SIZE_EDGES_BYTES, Measured, PartitionHealth
from iceberg_maint.core.model.ids import WHOLE_TABLE, Operation, PartitionKey, TableId
from iceberg_maint.core.model.reasons import (
    SENTENCES,
    Decision,
    Finding,
    PartitionDecision,
    Reason,
    Severity,
    Verdict,
)
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.defs.automation.due_work import stored_policy
from iceberg_maint.loop.assess import Assessment
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.fleet.stored_decisions import stored_decisions
from iceberg_maint.ports.stored import Report
from iceberg_maint.report.certificate import Certificate, certificates
from iceberg_maint.report.deferrals import deferral
from iceberg_maint.report.formatting import counted, metric_value, moment, number
from iceberg_maint.report.page import markdown_code, markdown_text
from iceberg_maint.report.verdicts import verdict_sentence

MAX_CHARACTERS = 999
"""Dagster hides a longer Markdown text behind a button."""
_VARIANTS = ((5, 12, 6), (5, 6, 6), (3, 6, 3), (1, 0, 2))
"""Partitions, characters of the longest bar and sizes of files, from the complete card to the shortest."""
_NAME = 12
"""Characters of a field's name in a partition that is shortened."""
_KEY = 40
"""A longer partition key is shortened."""
_TEXT = 160
"""Characters of a text of another origin, such as the note of a pause."""
_ERROR = 260
"""Characters of an error."""
_FOLDERS = re.compile(r"(?:\w+:)?/(?:[^\s/]+/)+(?=[^\s/])")
_NO_FINDING = (Reason.HEALTHY, Reason.OTHER_OPERATION, Reason.NO_GAIN)


@dataclass(frozen=True, slots=True)
class TableView:
    """What the card shows. `histories` belong to `decisions`, one per operation, and `last` has the last report
    of each operation. `before` is the histogram of file sizes before the last maintenance, empty if unknown.
    `proof` is the line of the last proof. `event` says what happened just now. `run_id` is the run that makes the
    card; its own lease is no blocker."""

    now_ms: int
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
    """The card: one sentence, the operations, the worst partitions, the sizes of files, the last proof. It
    shows less of them if it would be too long."""
    card = ""
    for partitions, bar, sizes in _VARIANTS:
        parts = [
            _sentence(view),
            _operations(view),
            _worst(view, partitions),
            _histogram(view, bar, sizes),
            view.proof or "Last proof: none.",
        ]
        card = "\n\n".join(p for p in parts if p)
        if len(card) <= MAX_CHARACTERS:
            return card
    return f"{card[: MAX_CHARACTERS - 1]}…"


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
        f"Last proof: **{proof.status.value}** {_minute(proof.run.ended_ms)}. {proof.sentence()} "
        f"`iceberg-maint proof {proof.run.run_id}`"
    )


def _sentence(view: TableView) -> str:
    due = [d for d in _ranked(view) if d.partition != WHOLE_TABLE and _is_due(d)]
    other = [
        f"`{d.operation.value}`"
        for d in view.decisions
        for p in d.partitions
        if p.partition == WHOLE_TABLE and _is_due(p) and d.reason is not Reason.DISABLED
    ]
    total = len(view.measured.partitions)
    delay = next((text for d in view.decisions if (text := deferral(d))), "")
    event = f"{view.event} " if view.event else ""
    if not total:
        state = "**The table is empty.**"
    elif due:
        what = f"**{number(len(due))} of {counted(total, 'partition')} "
        state = f"{what}{'is' if len(due) == 1 else 'are'} beyond a threshold.**"
    else:
        state = f"**Healthy:** every metric of {counted(total, 'partition')} is within its threshold."
    verdict = verdict_on(True, view.histories[0].faults if view.histories else ())
    if verdict.faults:
        failure = f"**{verdict.standing.value.capitalize()}:** {_error(verdict_sentence(verdict))}"
        state = f"{failure} {state}" if due else failure
    state += f" Due besides: {', '.join(other)}." if other else ""
    held = f" The work is deferred by {markdown_text(_clipped(delay))}." if (due or other) and delay else ""
    advice = f" {view.advice}" if view.advice else ""
    return f"{event}{state}{held}{advice} State of {_minute(view.now_ms)} UTC; the checks show the present."


def _is_due(decision: PartitionDecision) -> bool:
    return any(f.severity is Severity.ERROR for f in decision.findings)


def _operations(view: TableView) -> str:
    """Last and next of each operation. Operations with the same answer share a line."""
    by_answer: dict[str, list[str]] = {}
    pairs = zip(view.decisions, view.histories, strict=True)
    # Those that have nothing to do come last.
    for decision, history in sorted(pairs, key=lambda pair: pair[0].reason in _NO_FINDING):
        answer = f"{_last(view.last.get(decision.operation))}; next {_next(view, decision, history)}"
        by_answer.setdefault(answer, []).append(f"`{decision.operation.value}`")
    return "\n".join(f"- {', '.join(names)}: {answer}" for answer, names in by_answer.items())


def _last(report: Report | None) -> str:
    if report is None:
        return "last never"
    outcome = report.outcome
    is_bad = outcome.outcome in (OutcomeStatus.FAILED, OutcomeStatus.UNKNOWN)
    why = f": {_error(outcome.message)}" if is_bad and outcome.message else ""
    return f"last {_minute(report.recorded_ms)} ({outcome.outcome.value}{why})"


def _error(message: str) -> str:
    """An error as Markdown, with the names of files for their paths: a path would fill the card."""
    return markdown_text(_clipped(_FOLDERS.sub("", message), _ERROR))


def _next(view: TableView, decision: Decision, history: TableHistory) -> str:
    """The predicted time of the operation, or what blocks it and who holds it."""
    if decision.reason is Reason.LEASE_HELD or history.lease_owner is not None:
        # The findings of a partition are those of every operation on data. This one skips what is not its own.
        if not any(p.findings and p.verdict is not Verdict.SKIP for p in decision.partitions):
            return _predicted(view.policy, decision.operation, history)
        owner = history.lease_owner or "another run"
        return (
            "now, in this run"
            if view.run_id and owner.startswith(view.run_id)
            else f"after run {markdown_text(owner)}"
        )
    delay = markdown_text(_clipped(deferral(decision)))
    if decision.reason in (Reason.ADVISE, Reason.PAUSED):
        return f"after the end of {'mode advise' if decision.reason is Reason.ADVISE else delay}"
    if decision.verdict is Verdict.RUN:
        return "now"
    if decision.verdict is Verdict.DEFER:
        until = "" if decision.until_ms is None else f"{_minute(decision.until_ms)}, "
        return f"{until}{'deferred by ' if delay else ''}{delay or SENTENCES[decision.reason]}"
    if decision.reason in _NO_FINDING:
        return _predicted(view.policy, decision.operation, history)
    return f"never: {'deferred by ' if delay else ''}{delay or SENTENCES[decision.reason]}"


def _predicted(policy: Policy, operation: Operation, history: TableHistory) -> str:
    every_seconds = {
        Operation.EXPIRE_SNAPSHOTS: policy.expire_snapshots.every_seconds,
        Operation.REMOVE_ORPHAN_FILES: policy.remove_orphan_files.every_seconds,
    }.get(operation)
    if every_seconds is None or history.last_done_ms is None:
        return "at a threshold"
    at = _minute(history.last_done_ms + every_seconds * 1000)
    return at if operation is Operation.REMOVE_ORPHAN_FILES else f"not before {at}"


def _worst(view: TableView, limit: int) -> str:
    lines = [
        f"- {markdown_code(partition_label(d.partition))}: {metric_value(f.metric, f.value)} {f.metric}, threshold "
        f"{metric_value(f.metric, f.threshold)}"
        for d in _ranked(view)[:limit]
        for f in _leading(d)
    ]
    return "\n".join(["Worst partitions:", *lines]) if lines else ""


def _leading(decision: PartitionDecision) -> Sequence[Finding]:
    """The finding to show: that of the decision's reason, else the first error, else the first warning."""
    return sorted(
        decision.findings, key=lambda f: (f.reason is not decision.reason, f.severity is not Severity.ERROR)
    )[:1]


def _ranked(view: TableView) -> list[PartitionDecision]:
    """One decision per partition with a finding, worst first."""
    worst: dict[PartitionKey, PartitionDecision] = {}
    for decision in view.decisions:
        for p in decision.partitions:
            is_worse = p.partition not in worst or worst[p.partition].score < p.score
            if p.findings and is_worse and p.partition != WHOLE_TABLE:
                worst[p.partition] = p
    return sorted(worst.values(), key=lambda p: (-p.score, p.partition))


def _histogram(view: TableView, bar: int, limit: int) -> str:
    now = view.measured.total().size_histogram
    before = view.before if len(view.before) == len(now) else None
    shown = [n for n in range(len(now)) if now[n] or (before is not None and before[n])]
    if not shown:
        return ""
    longest = max(*now, *(before or ()))
    kept = sorted(sorted(shown, key=lambda n: -max(now[n], before[n] if before else 0))[:limit])
    lines = []
    for n in kept:
        old = "" if before is None else f"{_bar(before[n], longest, bar)} → "
        lines.append(f"- {_bin(n)}: {old}{_bar(now[n], longest, bar)}")
    title = "Data files by size:" if before is None else "Data files by size, before → now:"
    return "\n".join([title, *lines])


def _bin(index: int) -> str:
    if index == 0:
        return f"below {_edge(0)} MiB"
    if index == len(SIZE_EDGES_BYTES):
        return f"from {_edge(index - 1)} MiB"
    return f"{_edge(index - 1)} to {_edge(index)} MiB"


def _edge(index: int) -> int:
    return SIZE_EDGES_BYTES[index] // MEBIBYTE


def _bar(count: int, longest: int, width: int) -> str:
    return f"{'█' * -(-count * width // longest)} {number(count)}".strip()


def _minute(time_ms: int) -> str:
    """A point in time, UTC, to the minute."""
    return moment(time_ms)[:16]


def _clipped(text: str, most: int = _TEXT) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


PROOF = "proof_certificate"
"""Label of the certificate on the last materialization of a run."""
_RECORDS = 12
"""Newest records of a table in which the last proof is searched: those of two runs."""


def described(
    context: Context, log: logging.Logger, table: TableId, describe: Callable[[], str]
) -> dg.MarkdownMetadataValue:
    """A Markdown text that describes work. An error in it must not change the work: it is logged, and the text
    says so."""
    try:
        return dg.MetadataValue.md(describe())
    except Exception as error:  # noqa: BLE001 - the work goes on
        why = context.process.redacted_error(error)
        text = f"{table}: not described: {type(why).__name__}: {why}"
        log.warning(text)
        return dg.MetadataValue.md(markdown_text(text))


def assessed_view(context: Context, assessment: Assessment) -> TableView:
    """The view of a table that was just assessed."""
    return TableView(
        context.clock.now_ms(),
        assessment.measured,
        assessment.policy,
        assessment.decisions,
        assessment.histories,
        _last_reports(context, assessment.measured, assessment.decisions),
    )


def stored_view(
    context: Context, measured: Measured, after: Mapping[PartitionKey, PartitionHealth]
) -> TableView:
    """The view of a table from stored health, in which the partitions `after` were maintained since."""
    partitions = {**measured.partitions, **after}
    current = replace(measured, partitions={k: h for k, h in partitions.items() if h.data_files})
    policy, now_ms = stored_policy(context, measured), context.clock.now_ms()
    histories, decisions = stored_decisions(current, policy, context.ledger, now_ms, context.engine.row_types)
    return TableView(
        now_ms, current, policy, decisions, histories, _last_reports(context, current, decisions)
    )


def last_proof(context: Context, table: str) -> str:
    """The line of the last proof in the newest records; empty if none of them has a commit."""
    proofs = [c for c in certificates(context.ledger.records.newest(table, _RECORDS)) if c.committed]
    return proof_line(proofs[-1]) if proofs else ""


def _last_reports(
    context: Context, measured: Measured, decisions: Sequence[Decision]
) -> dict[Operation, Report]:
    reports = {
        d.operation: context.ledger.records.last_report(measured.table_uuid, d.operation) for d in decisions
    }
    return {operation: report for operation, report in reports.items() if report is not None}
