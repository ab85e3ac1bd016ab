"""Commands on stored records: history, reconcile, report."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from iceberg_maint.cli.command import command
from iceberg_maint.cli.context import Session, most_severe_exit
from iceberg_maint.cli.pages.console import word
from iceberg_maint.core.model.codec import to_data
from iceberg_maint.core.model.ids import DATA_OPERATIONS
from iceberg_maint.core.model.reasons import CUT_SHORT
from iceberg_maint.core.outcomes.outcome import CommitStatus
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.errors import EXIT_DONE, EXIT_FAILED, EXIT_UNKNOWN, IcebergMaintError
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


@click.command()
@click.argument("name", metavar="[TABLE]", required=False)
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Newest records shown."
)
@click.option("--audit", is_flag=True, help="Read the records from the audit log, not from the ledger.")
@command
def history(session: Session, name: str | None, limit: int, audit: bool) -> int:
    """Show the records of maintenance, newest first. TABLE may have been dropped.

    A TABLE without records that no catalog lists is an error.
    """
    from iceberg_maint.report.json_documents import record_document

    context = session.context()
    table = None if name is None else str(context.catalogs.parse(name))
    if audit:
        records = context.observers.audit.records(table, session.say)[:limit]
    else:
        records = context.ledger.records.newest(table, limit)
        if table is not None and not records and session.config().audit is not None:
            records = context.observers.audit.records(table, session.say)[:limit]
            if records:
                session.say(f"{table}: the ledger has no records. These are from the audit log.")
    if name is not None and not records:
        context.catalogs.find(name)
    session.emit(
        {"records": [record_document(r) for r in records]},
        lambda console: draw_records(console, records, session.short_name, one_table=name is not None),
    )
    return EXIT_DONE


@click.command()
@click.argument("name", metavar="[TABLE]", required=False)
@command
def reconcile(session: Session, name: str | None) -> int:
    """Settle attempts whose process ended without a report, from the table's metadata."""
    from iceberg_maint.cli.pages.console import draw_rows
    from iceberg_maint.loop.settle import reconcile as settle_table
    from iceberg_maint.report.json_documents import error_document

    context = session.context()
    codes = {0}
    chosen = session.listing(context, codes).tables if name is None else (context.catalogs.find(name),)
    run_id = f"reconcile-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    shown: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    for table in chosen:
        try:
            settled = settle_table(table, context, run_id)
        except IcebergMaintError as error:
            codes.add(error.exit_code)
            session.say_of(table, error)
            shown.append({"table": str(table), "error": error_document(error)})
            continue
        if settled:
            shown.append({"table": str(table), "attempts": to_data(settled)})
        for attempt in settled:
            status = attempt.settlement.status
            if status is CommitStatus.UNKNOWN:
                codes.add(EXIT_UNKNOWN)
            if attempt.settlement.lost:
                codes.add(EXIT_FAILED)
            rows.append([str(table), attempt.attempt_id, status.value, attempt.settlement.why])

    def draw(console: Any) -> None:
        if rows:
            draw_rows(console, ["table", "attempt", "commit", "why"], rows)
        else:
            console.print("nothing to settle")

    session.emit({"tables": shown}, draw)
    return most_severe_exit(codes)


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
    if batch.attest is not None:
        write(console, "  [dim]prove it again:[/]")
        write(console, f"    {escape(batch.attest)}", "      ")


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
    work = work_of(outcome)
    texts = [work, *notes_of(outcome)]
    if outcome.reason in CUT_SHORT and outcome.message not in work:
        texts.append(outcome.message)
    return [
        moment(record.ended_ms).removesuffix(" UTC"),
        escape(name_of(record.table)),
        record.operation.value,
        f"{word(outcome.outcome.value)} {outcome.reason.value}",
        escape(escape_control_chars("; ".join(t.removesuffix(".") for t in texts))),
        proof_of(record),
        _time_of(record),
        escape(started_by(record.run_id, record.started_by)),
        escape(record.run_id),
    ]


def _time_of(record: Record) -> str:
    """How long the run worked. Of a run that another one recorded the time between the first and the last sign is known,
    if it gave two."""
    seconds = (record.ended_ms - record.started_ms) / 1000
    if record.policy_digest:
        return duration(seconds)
    return f"≥ {duration(seconds)}" if seconds else "unknown"


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
