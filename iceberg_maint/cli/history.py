"""Commands on stored records: history, reconcile, report."""

from __future__ import annotations

import os
import uuid
from typing import Any

import click

from iceberg_maint.cli.context import Session, command, most_severe_exit
from iceberg_maint.core.model.codec import to_data
from iceberg_maint.core.outcomes.outcome import CommitStatus
from iceberg_maint.errors import EXIT_FAILED, EXIT_UNKNOWN, IcebergMaintError


@click.command()
@click.argument("name", metavar="[TABLE]", required=False)
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Newest records shown."
)
@command
def history(session: Session, name: str | None, limit: int) -> int:
    """Show the records of maintenance, newest first. TABLE may have been dropped.

    A TABLE without records that no catalog lists is an error.
    """
    from iceberg_maint.report.console import draw_records
    from iceberg_maint.report.json_documents import record_document

    runtime = session.runtime()
    table = None if name is None else str(runtime.parse(name))
    records = runtime.ledger.records(table, limit)
    if name is not None and not records:
        runtime.find(name)
    session.emit(
        {"records": [record_document(r) for r in records]}, lambda console: draw_records(console, records)
    )
    return 0


@click.command()
@click.argument("name", metavar="[TABLE]", required=False)
@command
def reconcile(session: Session, name: str | None) -> int:
    """Settle attempts whose process ended without a report, from the table's metadata."""
    from iceberg_maint.report.console import draw_rows
    from iceberg_maint.report.json_documents import error_document
    from iceberg_maint.runner.reconcile import reconcile as settle_table

    runtime = session.runtime()
    chosen = list(runtime.tables()) if name is None else [runtime.find(name)]
    run_id = f"reconcile-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    shown: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    codes = {0}
    for table in chosen:
        try:
            settled = settle_table(table, runtime, run_id)
        except IcebergMaintError as error:
            codes.add(error.exit_code)
            session.say(f"{table}: {error}")
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


@click.command()
@click.option(
    "--limit", type=click.IntRange(min=1), default=500, show_default=True, help="Newest records counted."
)
@command
def report(session: Session, limit: int) -> int:
    """Report on the fleet from stored health and records. Reads no catalog."""
    from iceberg_maint.report.fleet import draw_fleet, fleet_document, read_fleet
    from iceberg_maint.report.holds import draw_pauses, pause_documents

    ledger = session.runtime().ledger
    rows, pauses = read_fleet(ledger, limit), ledger.pauses()

    def draw(console: Any) -> None:
        draw_pauses(console, pauses)
        draw_fleet(console, rows)

    session.emit({"pauses": pause_documents(pauses), **fleet_document(rows)}, draw)
    return 0
