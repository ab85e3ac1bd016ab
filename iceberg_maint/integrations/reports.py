"""The report on the fleet, from stored health and records: the command `report`, and the work of a scheduler."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from iceberg_maint.cli.command import command, page_options, write_pages
from iceberg_maint.cli.context import Session
from iceberg_maint.config import Config
from iceberg_maint.config.sections import ReportConfig
from iceberg_maint.core.decisions.history import TableHistory, combine_histories
from iceberg_maint.core.decisions.table_decision import TableVerdict, verdict_on
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.errors import ConfigurationError, IcebergMaintError, with_code
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.fleet.budget import stored_decision
from iceberg_maint.loop.fleet.known_tables import ask_catalogs, verdicts_of_unmeasured
from iceberg_maint.machine.files import private_folder, replace_file
from iceberg_maint.report.deferrals import draw_pauses, pause_documents
from iceberg_maint.report.fleet import TableWriterChange, fleet, table_trend
from iceberg_maint.report.fleet_page import Prices, fleet_page
from iceberg_maint.report.formatting import counted, estimate_seconds
from iceberg_maint.report.json_documents import render
from iceberg_maint.report.page import Page, render_html, render_markdown
from iceberg_maint.report.report_page import FleetReport, draw_report, failures_of, report_document
from iceberg_maint.report.verdicts import Status, summary_of, table_status
from iceberg_maint.wiring.integrations import FleetWork, Integration, WorkReport

_REPORT = re.compile(r"fleet-(\d{4}-\d\d-\d\d)\.(?:html|md|json)")
_RECORDS = 10_000
"""The newest records that a report of Dagster counts."""


def fleet_report(context: Context, records: Sequence[Record]) -> FleetReport:
    """Returns the report of the tables with stored health or a failed read, and which tables have neither. `records` are
    newest first. Lists the catalogs and reads no table; a catalog that does not answer is named in the report."""
    ledger = context.ledger
    now_ms = ledger.registry.now_ms()
    stored = ledger.health.get_all([known.table for known in ledger.health.known_tables()])
    health = [stored[table] for table in sorted(stored)]
    records_by_table: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        records_by_table[record.table].append(record)
    days = ledger.health.health_days([h.table_uuid for h in health])
    histories: dict[str, dict[Operation, TableHistory]] = defaultdict(dict)
    for (uuid, operation), history in ledger.health.histories(
        {h.table_uuid: str(h.table) for h in health}
    ).items():
        histories[uuid][operation] = history
    trends = []
    statuses: dict[str, Status] = {}
    verdicts: dict[str, TableVerdict] = {}
    errors: dict[str, IcebergMaintError] = {}
    backlogs: list[tuple[int, float | None]] = []
    for measured in health:
        table, own = str(measured.table), histories[measured.table_uuid]
        verdicts[table] = verdict_on(True, combine_histories(tuple(own.values())).faults)
        try:
            policy = context.policies.of_table(measured.table, measured.maintenance_properties)
            decision = stored_decision(own, measured, policy, context)
            due = decision.backlog()
            trend = table_trend(table, days.get(measured.table_uuid, ()), policy, now_ms)
            backlog_bytes = sum(p.candidate_bytes for p in due)
            seconds = estimate_seconds(backlog_bytes, records_by_table[table])
        except Exception as error:  # noqa: BLE001 - one table must not hide the others
            statuses[table], errors[table] = Status.FAILED, with_code(error)
            continue
        trends.append(trend)
        statuses[table] = table_status(decision, verdicts[table])
        backlogs.append((backlog_bytes, seconds))
    changes = [TableWriterChange(str(m.table), change) for m in health for change in m.writer_changes]
    changes.sort(key=lambda c: (-c.change.commits, -c.change.timestamp_ms, c.table))
    failures = failures_of(records)
    outdated = ledger.health.outdated_tables()
    listing = ask_catalogs(context)
    unmeasured = [t for t in listing.tables if t not in stored and str(t) not in outdated]
    for name, verdict in verdicts_of_unmeasured(unmeasured, context).items():
        if verdict.faults:
            statuses[str(name)], verdicts[str(name)] = Status.FAILED, verdict
    return FleetReport(
        fleet(health, records),
        statuses,
        summary_of(list(statuses.values()), backlogs),
        failures,
        tuple(trends),
        tuple(changes),
        len(outdated),
        tuple(name for name in map(str, unmeasured) if name not in verdicts),
        listing.errors,
        errors,
        verdicts,
    )


def report_page(report: FleetReport, records: Sequence[Record], config: ReportConfig, now_ms: int) -> Page:
    """Returns the page of a report."""
    costs = Prices(config.currency, config.run_hour_price, config.stored_gib_month_price)
    return fleet_page(report, records, costs, now_ms)


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """A report and its page as Markdown, with the files that were written. Secrets are masked."""

    report: FleetReport
    markdown: str
    files: tuple[Path, ...]


KEPT_REPORTS = 400
"""The newest reports that stay in their folder."""


def write_fleet_report(context: Context, config: ReportConfig) -> WrittenReport:
    """Makes the report of this moment. With `config.folder` it writes `fleet-DAY.html`, `.md` and `.json`; files of the same
    day are replaced, and those beyond `KEPT_REPORTS` are deleted. Raises ConfigurationError ICM-100 if one cannot be written."""
    now_ms, records = context.ledger.registry.now_ms(), context.ledger.records.newest(None, _RECORDS)
    report = fleet_report(context, records)
    page = report_page(report, records, config, now_ms)
    markdown = context.process.masked(render_markdown(page))
    texts = {
        "html": context.process.masked(render_html(page)),
        "md": markdown,
        "json": context.process.masked(render(report_document(report))),
    }
    if config.folder is None:
        return WrittenReport(report, markdown, ())
    day = datetime.fromtimestamp(now_ms / 1000, UTC).date()
    files = tuple(_written(config.folder / f"fleet-{day}.{ending}", text) for ending, text in texts.items())
    _delete_old(config.folder, KEPT_REPORTS)
    return WrittenReport(report, markdown, files)


def _delete_old(folder: Path, keep: int) -> None:
    """Deletes the files of all reports but the newest ones by their names. Files of other names stay, and a file that
    cannot be deleted."""
    by_day: dict[str, list[Path]] = defaultdict(list)
    for path in folder.iterdir():
        if match := _REPORT.fullmatch(path.name):
            by_day[match[1]].append(path)
    for day in sorted(by_day)[:-keep]:
        for path in by_day[day]:
            with suppress(OSError):
                path.unlink()


def _written(path: Path, text: str) -> Path:
    """Replaces the file as a whole."""
    try:
        private_folder(path.parent)
        replace_file(path, text)
    except OSError as why:
        raise ConfigurationError(
            "ICM-100",
            f"report.folder: {path} cannot be written: {why.strerror or why}.",
            "name a folder that you may write to.",
        ) from why
    return path


def report_work(config: Config, context: Context) -> FleetWork:
    """The report of each week, as a page and files."""

    def run() -> WorkReport:
        written = write_fleet_report(context, config.report)
        summary, rows = written.report.summary, written.report.rows
        return WorkReport(
            f"report on {counted(summary.tables, 'table')}",
            page=written.markdown,
            counts={
                "tables": summary.tables,
                **{f"tables_{status.value}": tables for status, tables in summary.counts.items()},
                "small_files": sum(r.small_files for r in rows),
                "delete_files": sum(r.delete_files for r in rows),
                "backlog_bytes": summary.backlog_bytes,
                "rewritten_bytes": sum(r.input_bytes for r in rows),
                "failed_runs": sum(r.failed_runs for r in rows),
            },
            files=written.files,
        )

    return FleetWork(
        "fleet_report",
        "The report on all tables that the ledger has measured: status, work, failures, trends.",
        run,
        config.report.schedule,
        "report.schedule",
    )


INTEGRATION = Integration(fleet_work=report_work)


@click.command()
@click.option(
    "--limit", type=click.IntRange(min=1), default=500, show_default=True, help="Newest records counted."
)
@page_options
@command
def report(session: Session, limit: int, html: Path | None, markdown: Path | None) -> int:
    """Report on the fleet from stored health and records: status, work, failures, pauses.

    Lists the tables of the catalogs, to name those that were never observed, and reads none. A catalog that does not answer
    is named; the exit code stays 0.
    """
    context = session.context()
    pauses = context.ledger.registry.pauses()
    records = context.ledger.records.newest(None, limit)
    report = fleet_report(context, records)
    if html is not None or markdown is not None:
        page = report_page(report, records, session.config().report, context.ledger.registry.now_ms())
        write_pages(session, page, html, markdown)

    def draw(console: Any) -> None:
        draw_pauses(console, pauses)
        draw_report(console, report, session.short_name)

    session.emit({"pauses": pause_documents(pauses), **report_document(report)}, draw)
    return 0
