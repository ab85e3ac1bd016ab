"""Tables and lines for a terminal, drawn with rich."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from iceberg_maint.cli.pages.why_page import draw_metrics, largest_batch
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import DATA_OPERATIONS
from iceberg_maint.core.outcomes.outcome import (
    UNSUPPORTED_BY,
    BatchOutcome,
    OperationOutcome,
    OutcomeStatus,
)
from iceberg_maint.ports.stored import Cursor
from iceberg_maint.report.explain import TableExplanation
from iceberg_maint.report.formatting import (
    counted,
    duration,
    escape_control_chars,
    failures_in_a_row,
    moment,
    number,
    outcome_sentence,
    partitions_text,
    sentence,
    setting,
    size,
)
from iceberg_maint.report.grid import Column, draw_grid, draw_more, write
from iceberg_maint.report.housekeeping_text import draw_housekeeping, is_noted, notes_of, work_of
from iceberg_maint.report.report_page import failure_message

SHOWN_PARTITIONS = 20
_COLOURS = {
    "RUN": "yellow",
    "SKIP": "green",
    "DEFER": "cyan",
    "REFUSE": "red",
    "IMPROVED": "green",
    "COMMITTED": "green",
    "NO_OP": "green",
    "DEFERRED": "cyan",
    "UNSUPPORTED": "yellow",
    "FAILED": "red",
    "UNKNOWN": "magenta",
}


_HEALTH = (
    Column("partition"),
    Column("data files", right=True),
    Column("size", right=True),
    Column("small", right=True),
    Column("position deletes", right=True, priority=1, is_constant_shown=False),
    Column("DVs", right=True, priority=2, is_constant_shown=False),
    Column("equality deletes", right=True, priority=1, is_constant_shown=False),
    Column("delete ratio", right=True, priority=3, is_constant_shown=False),
    Column("last change", priority=4),
)
_BATCHES = (
    Column("batch", priority=3),
    Column("partitions", prose=True),
    Column("outcome", priority=1, is_constant_shown=False),
    Column("reason", priority=2, is_constant_shown=False),
    Column("files", right=True, is_constant_shown=False),
    Column("size", right=True, is_constant_shown=False),
    Column("deletes", right=True, priority=1, is_constant_shown=False),
    Column("time", right=True),
    Column("proof"),
)


_CURSORS = (
    Column("cursor"),
    Column("window"),
    Column("batches done", right=True),
    Column("batch"),
    Column("partitions", prose=True),
    Column("snapshot"),
    Column("advanced"),
)
_POLICY = (Column("policy key"), Column("value"), Column("from"))


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
    deletes = " (deletes not subtracted)" if total.delete_files else ""
    snapshot = "no snapshot" if measured.snapshot_id is None else f"snapshot {measured.snapshot_id}"
    write(
        console,
        f"[bold]{escape(str(measured.table))}[/] {snapshot}: "
        f"{counted(total.data_files, 'data file')}, {size(total.data_bytes)}, "
        f"{counted(total.records, 'row')}{deletes}, {number(total.small_files)} small, "
        f"{counted(total.delete_files, 'delete file')}; {counted(health.snapshots, 'snapshot')}, "
        f"{counted(health.manifests, 'manifest')}, metadata {size(health.metadata_bytes)} "
        f"(target file size {size(measured.target_file_size_bytes)})",
    )
    worst = sorted(measured.partitions.items(), key=lambda i: (-i[1].small_files - i[1].delete_files, i[0]))
    rows = [
        [
            escape(key),
            number(part.data_files),
            size(part.data_bytes),
            number(part.small_files),
            number(part.position_delete_files),
            number(part.deletion_vectors),
            number(part.equality_delete_files),
            number(round(part.delete_ratio, 3)),
            "" if part.last_change_ms is None else moment(part.last_change_ms),
        ]
        for key, part in worst[:SHOWN_PARTITIONS]
    ]
    if rows:
        draw_grid(console, _HEALTH, rows)
    draw_more(console, len(worst) - SHOWN_PARTITIONS)


def draw_outcome(console: Console, outcome: OperationOutcome) -> None:
    """Draws the outcome of one operation of `run`."""
    write(
        console,
        f"[bold]{escape(outcome.table)}[/] {outcome.operation}: {word(outcome.outcome.value)} "
        f"{outcome.reason.value} - "
        + outcome_sentence(outcome.outcome, outcome.reason, ran=bool(outcome.batches))
        + (f" ({escape(outcome.message)})" if outcome.message else ""),
    )
    summary = ""
    if outcome.operation in DATA_OPERATIONS and outcome.batches:
        draw_grid(console, _BATCHES, [_batch_row(b) for b in outcome.batches], 2)
    elif outcome.batches:
        seconds = duration(sum(b.seconds for b in outcome.batches))
        summary = work_of(outcome)
        write(console, f"  {escape(escape_control_chars(summary.removesuffix('.')))}, {seconds}", "    ")
    for b in outcome.batches:
        shown = {
            name: value for name, value in b.counts.items() if name != "base_to_swap_ms" or b.commit_tries > 1
        }
        if shown and outcome.operation in DATA_OPERATIONS:
            counts = ", ".join(f"{name} {number(value)}" for name, value in shown.items())
            write(console, f"  {b.batch_id}: {counts}", "    ")
        # Which guarantees held, and which engines did not take the batch, is said of a gain too.
        of_engines = b.engine or b.message.startswith(UNSUPPORTED_BY)
        if b.message and (of_engines or not is_noted(outcome.operation, b)) and b.message not in summary:
            write(console, f"  {b.batch_id}: {escape(b.message)}", "    ")
    for note in notes_of(outcome):
        write(console, f"  {escape(note)}", "    ")


def draw_explanation(console: Console, why: TableExplanation) -> None:
    """Draws the explanation of a table."""
    write(console, f"[bold]{escape(why.decision.table)}[/]: {escape(why.truth)}")
    write(console, f"next run: {word(why.decision.verdict.value)} {why.decision.reason.value}")
    if why.change:
        write(console, f"to change the decision: {escape(why.change)}")
    if why.last is not None:
        o = why.last.outcome
        write(
            console,
            f"last run: {word(o.outcome.value)} {o.reason.value}, {counted(len(o.batches), 'batch', 'batches')}, "
            f"ended {moment(why.last.ended_ms)} (run {why.last.run_id})",
        )
        if message := failure_message(why.last):
            write(console, f"its error: {escape(escape_control_chars(message))}", "  ")
    else:
        write(console, "last run: none recorded")
    draw_cursors(console, why.cursors)
    for limited, largest in why.limits.items():
        write(console, f"{limited.value}, smaller batches after conflicts: {largest_batch(largest)}")
    for p in why.partitions[:SHOWN_PARTITIONS]:
        d = p.decision
        console.print()
        write(
            console,
            f"[bold]{escape(d.partition)}[/]: {word(d.verdict.value)} {d.reason.value} - "
            f"{sentence(d.reason)} ({d.operation.value})",
        )
        if p.last:
            write(console, f"  last: {escape(p.last)}")
        if p.history.vain_attempts:
            write(console, f"  failures in a row: {escape(failures_in_a_row(p.history))}")
        draw_metrics(console, p, 2)
        if p.change:
            write(console, f"  to change the decision: {escape(p.change)}")
    draw_more(console, len(why.partitions) - SHOWN_PARTITIONS)
    for operation in why.housekeeping:
        draw_housekeeping(console, operation, _COLOURS)
    console.print()
    draw_policy(console, why.values, why.sources)


def draw_cursors(console: Console, cursors: tuple[Cursor, ...]) -> None:
    """Draws the last DONE batch of each operation."""
    if not cursors:
        return
    rows = [
        [
            c.operation,
            c.plan_id or "",
            f"{number(c.window_done)} of {number(c.window_batches)}" if c.window_batches else "",
            c.batch_id,
            escape(partitions_text(c.partitions)),
            "" if c.snapshot_id is None else str(c.snapshot_id),
            moment(c.advanced_ms),
        ]
        for c in cursors
    ]
    draw_grid(console, _CURSORS, rows)


def draw_policy(console: Console, values: Mapping[str, object], sources: Mapping[str, str]) -> None:
    """Draws effective policy values and their sources."""
    rows = [[key, escape(setting(key, value)), escape(sources[key])] for key, value in values.items()]
    draw_grid(console, _POLICY, rows)


def draw_rows(console: Console, columns: list[str], rows: list[list[Any]]) -> None:
    """Draws a plain table. The last column is prose."""
    *first, last = columns
    shown = [Column(name) for name in first] + [Column(last, prose=True)]
    draw_grid(console, shown, [[str(cell) for cell in row] for row in rows])


def _batch_row(b: BatchOutcome) -> list[str]:
    proof = "" if b.proof is None else f"{b.proof.level} {'equal' if b.proof.equal else 'UNEQUAL'}"
    # Without a commit the files stay.
    is_written = b.snapshot_after is not None or b.outcome is OutcomeStatus.UNKNOWN
    files = f" → {number(b.output_files)}" if is_written else ""
    sizes = f" → {size(b.output_bytes)}" if is_written else ""
    return [
        b.batch_id,
        escape(partitions_text(b.partitions)),
        word(b.outcome.value),
        b.reason.value,
        f"{number(b.input_files)}{files}",
        f"{size(b.input_bytes)}{sizes}",
        number(b.delete_files_removed),
        duration(b.seconds),
        proof,
    ]
