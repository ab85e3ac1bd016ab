"""The screen of `history`: what each run did, what it removed, who started it, and its proof."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.markup import escape

from iceberg_maint.core.model.ids import DATA_OPERATIONS
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.report.console import word
from iceberg_maint.report.formatting import duration, escape_control_chars, moment, number
from iceberg_maint.report.grid import Column, draw_grid, write
from iceberg_maint.report.origin import started_by
from iceberg_maint.report.work import notes_of, work_of

_COLUMNS = (
    Column("ended"),
    Column("table", is_constant_shown=False),
    Column("operation"),
    Column("outcome"),
    Column("work", prose=True),
    Column("proof"),
    Column("time", right=True, priority=1),
    Column("started by", priority=3),
    Column("run", priority=2),
)
_WIDE = 150
"""Columns of a terminal that shows a record on one line."""


def draw_records(
    console: Console, records: Sequence[Record], name_of: Callable[[str], str], *, one_table: bool
) -> None:
    """Draws the records of `history`, of `one_table` without its name."""
    if not records:
        console.print("no records")
        return
    if console.width >= _WIDE:
        rows = [_row(r, name_of) for r in records]
        draw_grid(console, _COLUMNS, rows)
        return
    for record in records:
        ended, table, operation, outcome, work, proof, time, origin, run = _row(record, name_of)
        head = f"{ended}  {operation}" if one_table else f"{ended}  {table}  {operation}"
        write(console, f"[bold]{head}[/]: {outcome}", "  ")
        proved = f"proof: {proof}" if proof else ""
        facts = "; ".join(filter(None, (work, proved, time)))
        write(console, f"  {facts}", "  ")
        write(console, f"  [dim]run {run}, {origin}[/]", "  ")


def _row(record: Record, name_of: Callable[[str], str]) -> list[str]:
    outcome = record.outcome
    texts = (work_of(outcome), *notes_of(outcome))
    return [
        moment(record.ended_ms).removesuffix(" UTC"),
        escape(name_of(record.table)),
        record.operation.value,
        f"{word(outcome.outcome.value)} {outcome.reason.value}",
        escape(escape_control_chars("; ".join(t.removesuffix(".") for t in texts))),
        proof_of(record),
        # Of a crashed run only the last sign is known.
        ("≥ " if outcome.reason is Reason.CRASHED else "")
        + duration((record.ended_ms - record.started_ms) / 1000),
        escape(started_by(record.run_id, record.started_by)),
        escape(record.run_id),
    ]


def proof_of(record: Record) -> str:
    """How many commits have an equal proof. Housekeeping changes no row, so it has none."""
    if record.operation not in DATA_OPERATIONS:
        return ""
    committed = [b for b in record.outcome.batches if b.snapshot_after is not None]
    if not committed:
        return ""
    equal = sum(b.proof is not None and b.proof.equal for b in committed)
    if equal == len(committed):
        return f"[green]{number(equal)} of {number(len(committed))} equal[/]"
    return f"[red]{number(equal)} of {number(len(committed))} equal[/]"
