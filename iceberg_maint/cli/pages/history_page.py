"""The screen of `proof`: the certificates of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.markup import escape

from iceberg_maint.cli.pages.console import word
from iceberg_maint.core.model.ids import DATA_OPERATIONS
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.report.certificate import (
    Certificate,
    CertificateStatus,
    CertifiedBatch,
    gate_text,
    proof_text,
)
from iceberg_maint.report.formatting import (
    duration,
    escape_control_chars,
    moment,
    number,
    partitions_text,
    started_by,
)
from iceberg_maint.report.grid import Column, draw_grid, write
from iceberg_maint.report.housekeeping_text import notes_of, work_of

_COLOURS = {
    CertificateStatus.PROVED: "green",
    CertificateStatus.PARTIAL: "yellow",
    CertificateStatus.UNPROVED: "red",
    CertificateStatus.NO_COMMIT: "cyan",
}


def draw_certificate(console: Console, proved: Certificate) -> None:
    """Draws one certificate."""
    colour = _COLOURS[proved.status]
    write(
        console,
        f"[bold]{escape(proved.run.table)}[/]: [{colour}]{proved.status.value}[/]. {proved.sentence()}",
    )
    span = duration((proved.run.ended_ms - proved.run.started_ms) / 1000)
    _line(console, "run", proved.run.run_id)
    _line(console, "started by", proved.run.started_by)
    _line(console, "time", f"{moment(proved.run.started_ms)} to {moment(proved.run.ended_ms)} ({span})")
    if proved.committed:
        _line(console, "snapshots", f"{proved.snapshot_before} → {proved.snapshot_after}")
    if proved.fingerprint is not None:
        _line(console, "fingerprint", proved.fingerprint)
    if proved.run.versions:
        _line(console, "versions", ", ".join(f"{k} {v}" for k, v in sorted(proved.run.versions.items())))
    for batch in proved.batches:
        _draw_batch(console, batch)


def _draw_batch(console: Console, batch: CertifiedBatch) -> None:
    outcome = batch.outcome
    console.print()
    write(
        console,
        f"[bold]{outcome.batch_id}[/] {batch.operation.value}: {outcome.outcome.value} {outcome.reason.value}",
    )
    _line(console, "partitions", partitions_text(outcome.partitions))
    _line(console, "proof", proof_text(batch))
    _line(console, "gate", gate_text(batch))
    if batch.is_committed:
        _line(console, "snapshot", f"{outcome.snapshot_before} → {outcome.snapshot_after}")
    if outcome.message and outcome.message not in gate_text(batch):
        _line(console, "message", outcome.message)
    if batch.verify is not None:
        write(console, "  [dim]prove it again:[/]")
        write(console, f"    {escape(batch.verify)}", "      ")


def _line(console: Console, title: str, text: str) -> None:
    write(console, f"  [dim]{title}:[/] {escape(escape_control_chars(text))}", "    ")


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
