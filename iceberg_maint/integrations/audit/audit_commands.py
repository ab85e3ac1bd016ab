"""The command `audit verify`: checks the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from iceberg_maint.cli.command import command, group
from iceberg_maint.cli.context import Session
from iceberg_maint.core.model.codec import to_data
from iceberg_maint.core.outcomes.record import Record, without_values
from iceberg_maint.errors import EXIT_DONE, EXIT_FAILED, IcebergMaintError
from iceberg_maint.integrations.audit import audit_log
from iceberg_maint.integrations.audit.chain import Entry, Fault, FaultKind, Kind, Verdict
from iceberg_maint.integrations.audit.folder import folder_name
from iceberg_maint.integrations.audit.log import record_of

_ALL = 1_000_000


@group
def audit() -> None:
    """The audit log."""


@audit.command("verify", short_help="Check the audit log against itself and the ledger.")
@click.argument("name", metavar="[TABLE]", required=False)
@command
def verify(session: Session, name: str | None) -> int:
    """Check every entry of the audit log, and that it has the work that the ledger knows.

    Without TABLE all tables of the log are checked, also those that were dropped.
    """
    from rich.markup import escape

    from iceberg_maint.report.formatting import number
    from iceberg_maint.report.grid import Column, draw_grid

    context = session.context()
    log = audit_log(session.config(), context.ledger)
    wanted = None if name is None else str(context.catalogs.parse(name))
    shown: list[dict[str, Any]] = []

    def show(
        table: str, table_uuid: str, verdict: Verdict, faults: Sequence[Fault], waiting: list[str]
    ) -> None:
        for fault in (*verdict.faults, *faults):
            error = IcebergMaintError(
                "ICM-143",
                f"{table}: {fault.kind.value}: {fault.name}: {fault.detail}.",
                "compare the log with its copy, and find out who can write to audit.location.",
            )
            session.say(str(error))
        shown.append(
            {
                "table": table,
                "table_uuid": table_uuid,
                "entries": len(verdict.entries),
                "pruned_entries": verdict.pruned,
                "records": sum(e.kind is Kind.RECORD for e in verdict.entries),
                "open_intents": [e.subject for e in verdict.open_intents],
                "waiting_records": waiting,
                "faults": to_data((*verdict.faults, *faults)),
            }
        )

    known = {folder_name(k.table_uuid): k for k in context.ledger.health.known_tables()}
    since_ms: int | None = None
    for folder in log.chains():
        verdict = log.read(folder)
        if verdict.entries:
            since_ms = min(since_ms or verdict.entries[0].at_ms, verdict.entries[0].at_ms)
            known.pop(folder, None)
        elif folder in known and not verdict.faults:
            continue  # An empty folder: what the ledger knows of the table follows.
        table = verdict.newest("table") or folder
        table_uuid = verdict.newest("table_uuid") or folder
        if wanted in (None, table):
            records = context.ledger.records.newest(table, _ALL) if verdict.entries else ()
            faults, waiting = ledger_faults(verdict, [r for r in records if r.table_uuid == table_uuid])
            show(table, table_uuid, verdict, faults, waiting)
    for k in known.values():
        if wanted in (None, str(k.table)):
            own = [
                r for r in context.ledger.records.newest(str(k.table), _ALL) if r.table_uuid == k.table_uuid
            ]
            verdict = Verdict((), (), ())
            faults, waiting = faults_without_log(own, since_ms)
            if faults:  # A run may have begun the log since its folders were listed.
                verdict = log.read(k.table_uuid)
            if verdict.entries:
                faults, waiting = ledger_faults(verdict, own)
            if own:
                show(str(k.table), k.table_uuid, verdict, faults, waiting)
    if wanted is not None and not shown:
        context.catalogs.find(wanted)

    def draw(console: Any) -> None:
        if not shown:
            console.print("The audit log has no entries, and the ledger has no records.")
            return
        numbers = ("entries", "records", "open_intents", "waiting_records", "faults")
        rows = [
            [
                escape(s["table"]),
                *(number(v if isinstance(v, int) else len(v)) for v in (s[n] for n in numbers)),
            ]
            for s in shown
        ]
        titles = ("entries", "records", "open", "waiting", "faults")
        draw_grid(console, [Column("table"), *(Column(t, right=True) for t in titles)], rows)

    session.emit({"tables": shown}, draw)
    return EXIT_FAILED if any(s["faults"] for s in shown) else EXIT_DONE


def ledger_faults(verdict: Verdict, records: list[Record]) -> tuple[tuple[Fault, ...], list[str]]:
    """Returns the faults by the ledger's records, and the records that the next run appends: they tried nothing, so
    no run with a lease has appended them."""
    logged = {e.subject: e for e in verdict.entries if e.kind is Kind.RECORD}
    faults, waiting, at_end = [], [], True
    kept = (e.at_ms for e in verdict.entries if e.sequence > verdict.pruned)
    since_ms = next(kept, 0) if verdict.pruned else 0
    for record in records:  # newest first
        if record.record_id not in logged and record.ended_ms < since_ms:
            continue  # Retention removed its entry.
        at_end = at_end and record.record_id not in logged
        entry = logged.get(record.record_id)
        if entry is not None:
            if not _is_same(entry, record):
                faults.append(Fault(FaultKind.DIFFERS, record.record_id, "the ledger has other contents"))
        elif not record.outcome.batches:
            waiting.append(record.record_id)
        elif at_end or not verdict.faults:
            detail = f"the ledger has this {record.operation.value} of run {record.run_id}, the log has not"
            faults.append(Fault(FaultKind.CUT, record.record_id, detail))
    return tuple(faults), waiting


def faults_without_log(records: list[Record], since_ms: int | None) -> tuple[tuple[Fault, ...], list[str]]:
    """Returns the faults of a table that has no entry, and the records that its next run appends. `since_ms` is the time
    of the first entry of all tables, None without one. Work that ended later was in the log: a run appends its record."""
    cut = [r for r in records if since_ms is not None and r.outcome.batches and r.ended_ms > since_ms]
    faults = tuple(
        Fault(
            FaultKind.CUT,
            r.record_id,
            f"the ledger has this {r.operation.value} of run {r.run_id}, the log has no entry of the table",
        )
        for r in cut
    )
    return faults, [r.record_id for r in records if r not in cut]


def _is_same(entry: Entry, record: Record) -> bool:
    """Whether an entry has this record. The ledger shows the records of a table with read restrictions without values.
    Restrictions begin and end, and no entry of the log changes: either may have the values that the other lacks."""
    if dict(entry.body) == to_data(record):
        return True
    try:
        logged = record_of(entry)
    except ValueError:
        return False
    return record == without_values(logged) or logged == without_values(record)
