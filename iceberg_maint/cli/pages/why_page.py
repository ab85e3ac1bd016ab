"""The screen of `why`: what holds and what comes next, on one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape

from iceberg_maint.core.model.ids import Operation, command_line
from iceberg_maint.core.model.reasons import Reason, Verdict
from iceberg_maint.core.planning.batch_trials import BatchSize
from iceberg_maint.report.comparisons import Comparison
from iceberg_maint.report.explain import PartitionExplanation, TableExplanation, due_housekeeping
from iceberg_maint.report.fleet import trend_sentence, writer_change_sentence
from iceberg_maint.report.formatting import (
    counted,
    escape_control_chars,
    failures_in_a_row,
    metric_value,
    moment,
    number,
    sentence,
    setting,
    size,
)
from iceberg_maint.report.grid import Column, draw_grid, write
from iceberg_maint.report.housekeeping_text import HousekeepingExplanation, pending_publish
from iceberg_maint.report.report_page import failure_message
from iceberg_maint.report.verdicts import coloured, draw_verdict, status_of, table_status

SHOWN_PARTITIONS = 5
_CLOSEST = 3
_WRITERS = 2
_BUILT_IN = "built-in"
_METRICS = (
    Column("partition"),
    Column("status"),
    Column("reason", priority=2, is_constant_shown=False),
    Column("metric", prose=True),
    Column("value", right=True),
    Column("threshold", right=True),
)
ALL_METRICS = (
    Column("metric", prose=True),
    Column("value", right=True),
    Column("threshold", right=True),
    Column("state", priority=2),
    Column("key"),
    Column("from", priority=1, is_constant_shown=False),
)
_HOUSEKEEPING = (Column("operation"), Column("status"), Column("why", prose=True))


def draw_why(console: Console, why: TableExplanation, *, one_partition: bool) -> None:
    """Draws the explanation of a table on one page. For one partition it shows every metric."""
    decision = why.decision
    status = table_status(decision, why.verdict)
    write(console, f"[bold]{escape(decision.table)}[/]: {escape(why.truth)}")
    write(console, f"status: {coloured(status)}; next run: {_next_run(why)}")
    if decision.verdict is Verdict.RUN:
        _line(console, "run it now", command_line("run", decision.table))
    elif decision.reason is not Reason.HEALTHY:
        _line(console, "to change the decision", why.change)
    _line(console, "last run", _last(why))
    error = "" if why.last is None else failure_message(why.last)
    _line(console, "its error", error)
    if error != why.verdict.message:
        draw_verdict(console, why.verdict)
    _line(console, "readers", why.readers)
    if decision.verdict is Verdict.RUN:
        _line(console, "codec of rewritten files", why.codec)
    if why.trend is not None:
        _line(console, "trend", trend_sentence(why.trend))
    for change in why.writer_changes[:_WRITERS]:
        _line(console, "smaller files", writer_change_sentence(change))
    for cursor in why.cursors:
        if cursor.window_batches > cursor.window_done:
            progress = (
                f"{number(cursor.window_done)} of {counted(cursor.window_batches, 'batch', 'batches')} done"
            )
            _line(console, cursor.operation, f"{progress}, {moment(cursor.advanced_ms)}")
    for operation, largest in why.limits.items():
        _line(console, f"{operation.value}, smaller batches after conflicts", largest_batch(largest))
    if one_partition:
        for partition in why.partitions:
            _draw_partition(console, partition)
    else:
        _draw_partitions(console, why.partitions)
    if why.housekeeping:
        console.print()
        draw_grid(console, _HOUSEKEEPING, [_housekeeping(h, why.verdict.message) for h in why.housekeeping])
    _draw_changed(console, why.values, why.sources)


def _next_run(why: TableExplanation) -> str:
    """What the next run would do: the decision on data, and the housekeeping that is due without work on data."""
    decision = why.decision
    chores = due_housekeeping([h.decision for h in why.housekeeping])
    if decision.verdict is Verdict.SKIP and decision.reason is Reason.HEALTHY and chores:
        return f"{Verdict.RUN.value} {chores}"
    return f"{decision.verdict.value} {decision.reason.value}"


def _line(console: Console, title: str, text: str) -> None:
    if text:
        write(console, f"{title}: {escape(escape_control_chars(text))}", "  ")


def _last(why: TableExplanation) -> str:
    if why.last is None:
        return "none recorded"
    outcome = why.last.outcome
    return (
        f"{outcome.outcome.value} {outcome.reason.value}, {counted(len(outcome.batches), 'batch', 'batches')}, "
        f"ended {moment(why.last.ended_ms)} (run {why.last.run_id})"
    )


def largest_batch(largest: BatchSize) -> str:
    return (
        f"at most {counted(largest.files, 'file')}, {size(largest.input_bytes)} and "
        f"{counted(largest.partitions, 'partition')} each, until runs land"
    )


def _draw_partitions(console: Console, partitions: Sequence[PartitionExplanation]) -> None:
    unhealthy = [p for p in partitions if p.decision.verdict is not Verdict.SKIP]
    rows = [_row(p, _crossed(p)) for p in unhealthy[:SHOWN_PARTITIONS]]
    title = ""
    if not rows:
        warned = [p for p in partitions if p.decision.findings][:SHOWN_PARTITIONS]
        rows = [_row(p, _crossed(p)) for p in warned]
        title = "warnings:"
    if not rows:
        pairs = sorted(((p, c) for p in partitions for c in p.comparisons), key=lambda pair: -_share(pair[1]))
        rows = [_row(p, c) for p, c in pairs[:_CLOSEST] if _share(c) > 0]
        title = "closest to a threshold:"
    if not rows:
        return
    console.print()
    if title:
        write(console, title)
    draw_grid(console, _METRICS, [row for row, _ in rows])
    for text in dict.fromkeys(_setting(c) for _, c in rows if c is not None):
        write(console, f"[dim]{escape(text)}[/]", "  ")
    hidden = len(unhealthy) - SHOWN_PARTITIONS
    if hidden > 0:
        more = counted(hidden, "more partition is", "more partitions are")
        write(console, f"[dim]{more} not healthy; --all shows every partition[/]")


def _crossed(partition: PartitionExplanation) -> Comparison | None:
    """The crossed threshold that gave the decision its reason, else the first one."""
    decision = partition.decision
    findings = sorted(decision.findings, key=lambda f: f.reason is not decision.reason)
    crossed = [c for c in partition.comparisons if c.crossed]
    matching = (c for f in findings for c in crossed if c.threshold_key == f.threshold_key)
    return next(matching, next(iter(crossed), None))


def _setting(comparison: Comparison) -> str:
    return f"threshold of {comparison.metric}: {comparison.threshold_key} ({comparison.source})"


def _share(comparison: Comparison) -> float:
    """How close the value is to the threshold: 1 at the threshold; 0 for a threshold that is off."""
    if not comparison.threshold or comparison.crossed or comparison.rule == "<":
        return 0.0
    return comparison.value / comparison.threshold


def _row(
    partition: PartitionExplanation, comparison: Comparison | None
) -> tuple[list[str], Comparison | None]:
    decision = partition.decision
    status = coloured(status_of(decision.verdict, decision.reason, int(decision.verdict is Verdict.RUN)))
    head = [escape(decision.partition), status, decision.reason.value]
    if comparison is None:
        return [*head, "", "", ""], None
    limit = f"{comparison.rule} {number(comparison.threshold)}"
    return [*head, comparison.metric, number(comparison.value), limit], comparison


def draw_metrics(console: Console, partition: PartitionExplanation, indent: int = 0) -> None:
    """Draws every metric of a partition beside its threshold."""
    rows = [
        [
            c.metric,
            number(c.value),
            f"{c.rule} {number(c.threshold)}" if c.threshold is not None else "off",
            "[yellow]crossed[/]" if c.crossed else "",
            c.threshold_key,
            escape(c.source),
        ]
        for c in partition.comparisons
    ]
    draw_grid(console, ALL_METRICS, rows, indent)


def _draw_partition(console: Console, partition: PartitionExplanation) -> None:
    console.print()
    past = partition.history
    if partition.last:
        _line(console, "last", partition.last)
    if past.vain_attempts:
        _line(console, "failures in a row", escape(failures_in_a_row(past)))
    draw_metrics(console, partition)


def _housekeeping(why: HousekeepingExplanation, verdict: str) -> list[str]:
    """The row of one operation. The message of the verdict on the table stands above, so it is not repeated."""
    decision = why.decision
    facts = [sentence(decision.reason)]
    if decision.reason is Reason.PENDING_PUBLISH:
        facts = [pending_publish(decision.evidence)]
    elif decision.reason is Reason.HEALTHY and why.next_ms is not None:
        facts = [f"due again at {moment(why.next_ms)}"]
    elif why.findings and decision.operation is not Operation.REMOVE_ORPHAN_FILES:
        first = why.findings[0]
        value, threshold = (metric_value(first.metric, v) for v in (first.value, first.threshold))
        metric = f"{first.metric} is {value}, threshold {threshold}"
        facts = [f"{sentence(decision.reason)}: {metric}"]
    if why.last_done_ms is not None:
        facts.append(f"last success {moment(why.last_done_ms)}")
    if why.last_scan and why.last_scan not in why.change:
        facts.append(f"last scan: {why.last_scan}")
    facts += [f"retained by {retainer}" for retainer in why.retained_by[:2]]
    if len(why.retained_by) > 2:
        facts.append(f"and by {counted(len(why.retained_by) - 2, 'other', 'others')}")
    if why.change and decision.verdict is not Verdict.RUN:
        change = why.change.replace(f"; last: {verdict}", "") if verdict else why.change
        facts.append(f"to change the decision: {change}")
    status = status_of(decision.verdict, decision.reason, len(decision.backlog()))
    return [decision.operation.value, coloured(status), escape(escape_control_chars("; ".join(facts)))]


def _draw_changed(console: Console, values: Mapping[str, object], sources: Mapping[str, str]) -> None:
    changed = {k: v for k, v in values.items() if sources[k] != _BUILT_IN}
    rest = counted(len(values) - len(changed), "policy key has its", "policy keys have their")
    console.print()
    for key, value in changed.items():
        write(console, f"{key}: {escape(setting(key, value))}  [dim](from {escape(sources[key])})[/]", "  ")
    write(console, f"[dim]{rest} built-in value; --all shows them, and every metric[/]")
