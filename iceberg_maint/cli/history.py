"""Commands on stored records: history and reconcile."""

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
@click.option("--audit", is_flag=True, help="Read the records from the audit log, not from the ledger.")
@command
def history(session: Session, name: str | None, limit: int, audit: bool) -> int:
    """Show the records of maintenance, newest first. TABLE may have been dropped.

    A TABLE without records that no catalog lists is an error.
    """
    from iceberg_maint.cli.pages.history_page import draw_records
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
    return 0


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
    chosen = session.tables(context, codes) if name is None else (context.catalogs.find(name),)
    run_id = f"reconcile-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    shown: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    for table in chosen:
        try:
            settled = settle_table(table, context, run_id)
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
