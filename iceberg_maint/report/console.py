"""Tables and lines for a terminal, drawn with rich."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import HOUSEKEEPING_OPERATIONS, WHOLE_TABLE
from iceberg_maint.core.model.reasons import Decision, Verdict
from iceberg_maint.core.outcomes.outcome import BatchOutcome, OperationOutcome, OutcomeStatus
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.core.planning.plan import Plan
from iceberg_maint.core.planning.work import table_work, writer_reason
from iceberg_maint.ports.ledger import Cursor
from iceberg_maint.report.explain import TableExplanation
from iceberg_maint.report.formatting import duration, moment, number, outcome_sentence, sentence, size
from iceberg_maint.report.housekeeping import draw_housekeeping, planned_housekeeping

SHOWN_PARTITIONS = 20
_COLOURS = {
    "RUN": "yellow",
    "SKIP": "green",
    "DEFER": "cyan",
    "REFUSE": "red",
    "IMPROVED": "green",
    "NO_OP": "green",
    "UNSUPPORTED": "yellow",
    "FAILED": "red",
    "UNKNOWN": "magenta",
}


def word(status: str) -> str:
    """A status word in its colour."""
    return f"[{_COLOURS.get(status, 'white')}]{status}[/]"


def grid(*columns: str, title: str | None = None) -> Table:
    """An empty table; columns that start with `>` are aligned right."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(
            name.removeprefix(">"), justify="right" if name.startswith(">") else "left", overflow="fold"
        )
    return table


def draw_health(console: Console, measured: Measured) -> None:
    """Draws the health of one table for `observe`."""
    total = measured.total()
    health = measured.table_health
    console.print(
        f"[bold]{escape(str(measured.table))}[/] snapshot {measured.snapshot_id}: "
        f"{number(total.data_files)} data files, {size(total.data_bytes)}, {number(total.records)} rows"
        f"{' (deletes not subtracted)' if total.delete_files else ''}, "
        f"{number(total.small_files)} small, {number(total.delete_files)} delete files; "
        f"{number(health.snapshots)} snapshots, {number(health.manifests)} manifests, "
        f"metadata {size(health.metadata_bytes)} "
        f"(target file size {size(measured.target_file_size_bytes)})"
    )
    table = grid(
        "partition",
        ">data files",
        ">size",
        ">small",
        ">position deletes",
        ">DVs",
        ">equality deletes",
        ">delete ratio",
        "last change",
    )
    worst = sorted(measured.partitions.items(), key=lambda i: (-i[1].small_files - i[1].delete_files, i[0]))
    for key, part in worst[:SHOWN_PARTITIONS]:
        table.add_row(
            escape(key),
            number(part.data_files),
            size(part.data_bytes),
            number(part.small_files),
            number(part.position_delete_files),
            number(part.deletion_vectors),
            number(part.equality_delete_files),
            number(round(part.delete_ratio, 3)),
            "" if part.last_change_ms is None else moment(part.last_change_ms),
        )
    console.print(table)
    _and_more(console, len(worst))


def draw_decision(console: Console, decision: Decision) -> None:
    """Draws a decision and its partitions."""
    console.print(
        f"[bold]{escape(decision.table)}[/] {decision.operation}: {word(decision.verdict.value)} "
        f"{decision.reason.value} - {sentence(decision.reason)}"
    )
    partitions = [p for p in decision.partitions if p.verdict is not Verdict.SKIP]
    table = grid("partition", "decision", "reason", "operation", "metric", ">value", ">threshold", "key")
    for p in partitions[:SHOWN_PARTITIONS]:
        finding = p.findings[0] if p.findings else None
        table.add_row(
            escape(p.partition),
            word(p.verdict.value),
            p.reason.value,
            p.operation.value,
            finding.metric if finding else "",
            number(finding.value) if finding else "",
            number(finding.threshold) if finding else "",
            finding.threshold_key if finding else "",
        )
    if partitions:
        console.print(table)
    _and_more(console, len(partitions))


def draw_plan(console: Console, plan: Plan, seconds: float | None) -> None:
    """Draws a plan's batches and leftovers."""
    if not plan.batches:
        console.print("plan: no batches")
    elif plan.operation in HOUSEKEEPING_OPERATIONS:
        for batch in plan.batches:
            words = escape(planned_housekeeping(table_work(batch.work)))
            console.print(f"plan {plan.plan_id}: {words}, at snapshot {plan.snapshot_id}")
    else:
        time = "" if seconds is None else f", about {duration(seconds)}"
        console.print(
            f"plan {plan.plan_id}: {len(plan.batches)} batches, {number(plan.input_files)} files, "
            f"{size(plan.input_bytes)}{time}, at snapshot {plan.snapshot_id}"
        )
        table = grid("batch", "strategy", "partitions", "reasons", ">files in", ">size", ">files out")
        for batch in plan.batches:
            table.add_row(
                batch.batch_id,
                batch.strategy.value,
                escape(_shortened(batch.partitions)),
                ", ".join(r.value for r in batch.reasons),
                number(batch.input_files),
                size(batch.input_bytes),
                number(batch.expected_output_files),
            )
        console.print(table)
        for batch in plan.batches:
            if reason := writer_reason(batch.work):
                console.print(f"  {batch.batch_id} is {batch.strategy.value}: {escape(reason)}")
    for leftover in plan.leftovers[:SHOWN_PARTITIONS]:
        console.print(f"left over: {escape(leftover.partition)} - {sentence(leftover.reason)}")
    _and_more(console, len(plan.leftovers))


def draw_outcome(console: Console, outcome: OperationOutcome) -> None:
    """Draws the outcome of one operation of `run`."""
    console.print(
        f"[bold]{escape(outcome.table)}[/] {outcome.operation}: {word(outcome.outcome.value)} "
        f"{outcome.reason.value} - "
        + outcome_sentence(outcome.outcome, outcome.reason, ran=bool(outcome.batches))
        + (f" ({escape(outcome.message)})" if outcome.message else "")
    )
    if outcome.batches:
        table = grid(
            "batch", "partitions", "outcome", "reason", ">files", ">size", ">deletes", ">time", "proof"
        )
        for b in outcome.batches:
            table.add_row(*_batch_row(b))
        console.print(table)
    for b in outcome.batches:
        if b.counts:
            counted = ", ".join(f"{name} {number(value)}" for name, value in b.counts.items())
            console.print(f"  {b.batch_id}: {counted}")
        if b.message and b.outcome is not OutcomeStatus.IMPROVED:
            console.print(f"  {b.batch_id}: {escape(b.message)}")


def draw_explanation(console: Console, why: TableExplanation) -> None:
    """Draws the explanation of a table."""
    console.print(f"[bold]{escape(why.decision.table)}[/]: {escape(why.truth)}")
    console.print(f"next run: {word(why.decision.verdict.value)} {why.decision.reason.value}")
    if why.change:
        console.print(f"to change the decision: {escape(why.change)}")
    if why.last is not None:
        o = why.last.outcome
        console.print(
            f"last run: {word(o.outcome.value)} {o.reason.value}, {len(o.batches)} batches, "
            f"ended {moment(why.last.ended_ms)} (run {why.last.run_id})"
        )
    else:
        console.print("last run: none recorded")
    draw_cursors(console, why.cursors)
    for p in why.partitions[:SHOWN_PARTITIONS]:
        d = p.decision
        console.print(
            f"\n[bold]{escape(d.partition)}[/]: {word(d.verdict.value)} {d.reason.value} - "
            f"{sentence(d.reason)} ({d.operation.value})"
        )
        if p.last:
            console.print(f"  last: {escape(p.last)}")
        if p.history.ineffective or p.history.crashes:
            console.print(
                f"  failures in a row: {p.history.ineffective}, crashes: {p.history.crashes}; "
                f"{escape(p.history.reason)}"
            )
        table = grid("  metric", ">value", "", ">threshold", "key", "from")
        for c in p.comparisons:
            mark = "[yellow]crossed[/]" if c.crossed else ""
            table.add_row(
                f"  {c.metric}",
                number(c.value),
                c.rule,
                f"{number(c.threshold)} {mark}",
                c.threshold_key,
                c.source,
            )
        console.print(table)
        if p.change:
            console.print(f"  to change the decision: {escape(p.change)}")
    _and_more(console, len(why.partitions))
    for operation in why.housekeeping:
        draw_housekeeping(console, operation, _COLOURS)
    console.print()
    draw_policy(console, why.values, why.sources)


def draw_cursors(console: Console, cursors: tuple[Cursor, ...]) -> None:
    """Draws the last DONE batch of each operation."""
    if not cursors:
        return
    table = grid("cursor", "window", ">batches done", "batch", "partitions", "snapshot", "advanced")
    for c in cursors:
        table.add_row(
            c.operation,
            c.plan_id or "",
            f"{number(c.window_done)} of {number(c.window_batches)}" if c.window_batches else "",
            c.batch_id,
            escape(_shortened(c.partitions)),
            "" if c.snapshot_id is None else str(c.snapshot_id),
            moment(c.advanced_ms),
        )
    console.print(table)


def draw_policy(console: Console, values: Mapping[str, object], sources: Mapping[str, str]) -> None:
    """Draws effective policy values and their sources."""
    table = grid("policy key", "value", "from")
    for key, value in values.items():
        table.add_row(key, escape(number(value)), escape(sources[key]))
    console.print(table)


def draw_records(console: Console, records: tuple[Record, ...]) -> None:
    """Draws the records of `history`."""
    if not records:
        console.print("no records")
        return
    table = grid(
        "ended", "table", "operation", "outcome", "reason", ">batches", ">files", ">size", ">time", "run"
    )
    for r in records:
        batches = [b for b in r.outcome.batches if b.snapshot_after is not None]
        table.add_row(
            moment(r.ended_ms),
            escape(r.table),
            r.operation,
            word(r.outcome.outcome.value),
            r.outcome.reason.value,
            number(len(r.outcome.batches)),
            f"{number(sum(b.input_files for b in batches))} → {number(sum(b.output_files for b in batches))}",
            size(sum(b.input_bytes for b in batches)),
            duration((r.ended_ms - r.started_ms) / 1000),
            r.run_id,
        )
    console.print(table)


def draw_rows(console: Console, columns: list[str], rows: list[list[Any]]) -> None:
    """Draws a plain table."""
    table = grid(*columns)
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    console.print(table)


def _batch_row(b: BatchOutcome) -> list[str]:
    proof = "" if b.proof is None else f"{b.proof.level} {'equal' if b.proof.equal else 'UNEQUAL'}"
    return [
        b.batch_id,
        escape(_shortened(b.partitions)),
        word(b.outcome.value),
        b.reason.value,
        f"{number(b.input_files)} → {number(b.output_files)}",
        f"{size(b.input_bytes)} → {size(b.output_bytes)}",
        number(b.delete_files_removed),
        duration(b.seconds),
        proof,
    ]


def _shortened(names: tuple[str, ...]) -> str:
    if names == (WHOLE_TABLE,):
        return "the whole table"
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _and_more(console: Console, count: int) -> None:
    if count > SHOWN_PARTITIONS:
        console.print(f"… and {count - SHOWN_PARTITIONS} more (--json shows all)")
