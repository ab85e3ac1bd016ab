"""The screen of `report`: status, work and failures of the fleet, then each table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape

from iceberg_maint.core.decisions.table_decision import TableVerdict
from iceberg_maint.core.model.codec import to_data
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.report.fleet import (
    FleetRow,
    TableTrend,
    TableWriterChange,
    fleet_document,
    trend_document,
    writer_change_sentence,
)
from iceberg_maint.report.formatting import (
    counted,
    duration,
    escape_control_chars,
    moment,
    number,
    size,
)
from iceberg_maint.report.grid import Column, draw_grid, draw_more, write
from iceberg_maint.report.json_documents import Document, error_document, unlisted_documents
from iceberg_maint.report.verdicts import Status, Summary, coloured, verdict_document, verdict_sentence

SHOWN_FAILURES = 5
SHOWN_WRITERS = 5
NEVER_OBSERVED = "never observed"
"""The state of a table that a catalog lists and that has no stored health."""
_COLUMNS = (
    Column("table"),
    Column("status"),
    Column("files", right=True),
    Column("size", right=True, priority=3),
    Column("small", right=True, priority=1),
    Column("deletes", right=True, priority=2, is_constant_shown=False),
    Column("snapshots", right=True, priority=6),
    Column("runs", right=True),
    Column("failed", right=True, is_constant_shown=False),
    Column("files removed", right=True, priority=4),
    Column("deletes removed", right=True, priority=7, is_constant_shown=False),
    Column("rewritten", right=True, priority=5),
    Column("wasted", right=True, priority=8, is_constant_shown=False),
    Column("time", right=True, priority=9),
)


@dataclass(frozen=True, slots=True)
class FleetReport:
    """The fleet: a status and a verdict per table, a row of those with stored health, the summary of the statuses, and the
    failed records, newest first. `trends` has the stored days of each table. `writer_changes` begins with the writer with
    the most commits of small files. `outdated_tables` counts tables that another version measured: their health cannot be
    read. `never_observed` has the tables that a catalog lists and nothing has read, `unlisted` the error of each catalog
    that did not list its tables, `errors` that of each table whose stored health could not be judged."""

    rows: tuple[FleetRow, ...]
    statuses: Mapping[str, Status]
    summary: Summary
    failures: tuple[Record, ...]
    trends: tuple[TableTrend, ...] = ()
    writer_changes: tuple[TableWriterChange, ...] = ()
    outdated_tables: int = 0
    never_observed: tuple[str, ...] = ()
    unlisted: Mapping[str, IcebergMaintError] = field(default_factory=dict)
    errors: Mapping[str, IcebergMaintError] = field(default_factory=dict)
    verdicts: Mapping[str, TableVerdict] = field(default_factory=dict)

    def unread(self) -> tuple[tuple[str, str], ...]:
        """The tables without stored health that a catalog lists, each with its status."""
        rows = {r.table for r in self.rows}
        failed = [(table, status.value) for table, status in self.statuses.items() if table not in rows]
        return (*failed, *((table, NEVER_OBSERVED) for table in self.never_observed))

    def sentences(self) -> tuple[str, ...]:
        """The summary, and what the report lacks."""
        rest = []
        if self.outdated_tables:
            lacking = counted(self.outdated_tables, "table")
            rest.append(
                f"{lacking} measured by another version of the program not counted: run iceberg-maint observe"
            )
        if self.never_observed:
            lacking = counted(len(self.never_observed), "table")
            rest.append(f"{lacking} {NEVER_OBSERVED}, not counted: run iceberg-maint observe")
        rest += [
            f"tables of catalog '{name}' that were {NEVER_OBSERVED} are missing: {str(error).rstrip('.')}"
            for name, error in self.unlisted.items()
        ]
        rest += [f"{table}: {str(error).rstrip('.')}" for table, error in self.errors.items()]
        return (self.summary.sentence(), *rest)


def failures_of(records: Sequence[Record]) -> tuple[Record, ...]:
    """The records that failed or whose commit is unknown."""
    bad = (OutcomeStatus.FAILED, OutcomeStatus.UNKNOWN)
    return tuple(r for r in records if r.outcome.outcome in bad)


def report_document(report: FleetReport) -> Document:
    """The JSON document of `report`, without its pauses."""
    document = fleet_document(report.rows)
    document["summary"] = report.summary.document()
    document["outdated_tables"] = report.outdated_tables
    document["never_observed"] = list(report.never_observed)
    document["unlisted_catalogs"] = unlisted_documents(report.unlisted)
    document["tables"] += [{"table": table} for table, _ in report.unread() if table in report.statuses]
    for table in document["tables"]:
        table["status"] = report.statuses[table["table"]].value
        if error := report.errors.get(table["table"]):
            table["error"] = error_document(error)
        verdict = report.verdicts.get(table["table"])
        table["failure"] = None if verdict is None else verdict_document(verdict)
    document["failures"] = [
        {
            "table": r.table,
            "operation": r.operation.value,
            "outcome": r.outcome.outcome.value,
            "reason": r.outcome.reason.value,
            "message": failure_message(r),
            "ended_ms": r.ended_ms,
            "run_id": r.run_id,
        }
        for r in report.failures
    ]
    document["trends"] = [trend_document(t) for t in report.trends]
    document["writer_changes"] = [{"table": c.table, **to_data(c.change)} for c in report.writer_changes]
    return document


def draw_report(console: Console, report: FleetReport, name_of: Callable[[str], str]) -> None:
    """Draws the report."""
    summary, *lacking = report.sentences()
    write(console, f"[bold]{summary}[/] (from stored health)")
    for line in lacking:
        write(console, f"[yellow]{escape(escape_control_chars(line))}[/]", "  ")
    rows = report.rows
    failed = sum(r.failed_runs for r in rows)
    work = [
        counted(sum(r.runs for r in rows), "operation"),
        f"{number(failed)} failed",
        counted(sum(r.batches for r in rows), "batch", "batches"),
        f"{counted(sum(r.files_removed for r in rows), 'data file')} fewer",
        f"{counted(sum(r.delete_files_removed for r in rows), 'delete file')} dropped",
        f"{size(sum(r.input_bytes for r in rows))} rewritten",
        f"{size(sum(r.wasted_bytes for r in rows))} wasted",
        duration(sum(r.busy_seconds for r in rows)),
    ]
    write(console, f"work: {', '.join(work)}", "  ")
    if report.failures:
        console.print()
        write(console, f"[bold red]{counted(len(report.failures), 'failure')}[/], newest first:")
        for record in report.failures[:SHOWN_FAILURES]:
            _draw_failure(console, record, name_of)
        if len(report.failures) > SHOWN_FAILURES:
            write(console, f"[dim]… and {number(len(report.failures) - SHOWN_FAILURES)} more (history)[/]")
    faulty = {t: v for t, v in report.verdicts.items() if v.faults}
    if faulty:
        console.print()
        write(console, f"[bold red]{counted(len(faulty), 'table')} refused or failed[/] at the last try:")
        for table, verdict in list(faulty.items())[:SHOWN_FAILURES]:
            text = escape(escape_control_chars(verdict_sentence(verdict)))
            write(console, f"  {escape(name_of(table))}  {text}", "    ")
        draw_more(console, len(faulty) - SHOWN_FAILURES)
    if report.writer_changes:
        console.print()
        write(console, "[bold]writers that began to write small files[/], most commits first:")
        for change in report.writer_changes[:SHOWN_WRITERS]:
            sentence = f"{escape(name_of(change.table))}: {escape(writer_change_sentence(change.change))}"
            write(console, f"  {sentence}", "    ")
        draw_more(console, len(report.writer_changes) - SHOWN_WRITERS)
    order = list(Status)
    ranked = sorted(rows, key=lambda r: order.index(report.statuses[r.table]))
    unread = [""] * (len(_COLUMNS) - 2)
    cells = [
        [
            escape(name_of(t)),
            coloured(Status.FAILED) if t in report.statuses else f"[yellow]{status}[/]",
            *unread,
        ]
        for t, status in report.unread()
    ]
    cells += [_cells(r, report.statuses[r.table], name_of) for r in ranked]
    if cells:
        console.print()
        draw_grid(console, _COLUMNS, cells)


def _draw_failure(console: Console, record: Record, name_of: Callable[[str], str]) -> None:
    outcome = record.outcome
    message = f": {failure_message(record)}" if failure_message(record) else ""
    write(
        console,
        f"  {moment(record.ended_ms)}  {escape(name_of(record.table))}  {record.operation.value}  "
        f"{outcome.outcome.value} {outcome.reason.value}{escape(escape_control_chars(message))} "
        f"[dim](run {escape(record.run_id)})[/]",
        "    ",
    )


def failure_message(record: Record) -> str:
    """The message of a record that failed or whose commit is unknown: its own, else that of its last batch with one. ""
    for any other record."""
    if record not in failures_of((record,)):
        return ""
    batches = (b.message for b in reversed(record.outcome.batches) if b.message)
    return record.outcome.message or next(batches, "")


def _cells(row: FleetRow, status: Status, name_of: Callable[[str], str]) -> list[str]:
    return [
        escape(name_of(row.table)),
        coloured(status),
        number(row.data_files),
        size(row.data_bytes),
        number(row.small_files),
        number(row.delete_files),
        number(row.snapshots),
        number(row.runs),
        number(row.failed_runs),
        number(row.files_removed),
        number(row.delete_files_removed),
        size(row.input_bytes),
        size(row.wasted_bytes),
        duration(row.busy_seconds),
    ]
