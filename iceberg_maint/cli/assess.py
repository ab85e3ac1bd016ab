"""The command `assess`: a first visit to a lake, and its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from iceberg_maint.cli.command import command, overrides_option, page_options, write_pages
from iceberg_maint.cli.context import Session, most_severe_exit
from iceberg_maint.core.health.metrics import Measured, PartitionHealth
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.reasons import Decision, Severity
from iceberg_maint.core.policy.data import Mode
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.report.formatting import counted, number, share, size
from iceberg_maint.report.grid import Column, draw_grid, write
from iceberg_maint.report.json_documents import Document
from iceberg_maint.report.page import Bar, Page, Section, Tile, first_rows

_MEMORY_LEDGER = "sqlite://"


@click.command()
@click.argument("names", metavar="[TABLE]...", nargs=-1)
@page_options
@overrides_option
@command
def assess(
    session: Session,
    names: tuple[str, ...],
    html: Path | None,
    markdown: Path | None,
    overrides: dict[str, str],
) -> int:
    """Assess tables without maintenance so far: what is unhealthy, what it costs readers, what maintenance would gain.

    Reads table metadata with the credentials of the catalogs. Needs no ledger and no Spark, writes to no table and reads no
    data file.
    """
    from iceberg_maint import __version__
    from iceberg_maint.cli.pages.run_page import RunProgress
    from iceberg_maint.loop.assess import assess as measure_and_decide
    from iceberg_maint.loop.fleet.known_tables import list_tables
    from iceberg_maint.report.formatting import moment
    from iceberg_maint.wiring.adapters import policies

    config = session.config()
    context = session.build(replace(config, ledger_url=_MEMORY_LEDGER))
    context = replace(
        context,
        policies=replace(context.policies, of_table=policies(config, {**overrides, "mode": Mode.ACT.value})),
        engine=context.engine.for_writes_only(),
    )
    tables: list[AssessedTable] = []
    errors: dict[str, str] = {}
    codes = {0}
    chosen: Sequence[TableId] = [context.catalogs.find(name) for name in names]
    if not names:
        listing = list_tables(context)
        chosen = listing.tables
        for name, why in listing.errors.items():
            codes.add(why.exit_code)
            errors[name] = session.masked(str(why))
    with RunProgress(session.logs()) as progress:
        progress.begin("reading metadata", len(chosen))
        for table in chosen:
            progress.note(str(table))
            try:
                assessment = measure_and_decide(table, context)
                tables.append(assessed_table(assessment.measured, assessment.decision))
            except IcebergMaintError as error:
                codes.add(error.exit_code)
                errors[str(table)] = session.masked(str(error))
            progress.step()
    page = assessment_page(
        tables, errors, f"iceberg_maint {__version__}, {moment(context.clock.now_ms())}, from metadata"
    )
    write_pages(session, page, html, markdown)

    def draw(console: Any) -> None:
        draw_page(console, page)

    session.emit(assessment_document(tables, errors), draw)
    return most_severe_exit(codes)


MOST_ROWS_ON_TERMINAL = 15


def draw_page(console: Console, page: Page) -> None:
    """Draws the page. A table has its first 15 rows."""
    write(console, f"[bold]{escape(page.sentence)}[/]")
    for tile in page.tiles:
        write(console, f"  {escape(tile.value)} {escape(tile.label)}")
    for section in page.sections:
        _draw(console, section)


def _draw(console: Console, section: Section) -> None:
    console.print()
    write(console, f"[bold]{escape(section.heading)}[/]")
    for sentence in section.sentences:
        write(console, escape(sentence), "  ")
    if section.rows:
        last = len(section.columns) - 1
        columns = [
            Column(name, right=n in section.right, priority=0 if n in (0, last) else n)
            for n, name in enumerate(section.columns)
        ]
        draw_grid(
            console, columns, [[escape(cell) for cell in row] for row in section.rows[:MOST_ROWS_ON_TERMINAL]]
        )
    omitted = section.omitted + max(0, len(section.rows) - MOST_ROWS_ON_TERMINAL)
    if omitted:
        write(console, f"[dim]… and {omitted:,} more[/]")


MOST_ROWS = 200


@dataclass(frozen=True, slots=True)
class AssessedTable:
    """The measurements of one table and the decision about it.

    `due_partitions` is the number of partitions beyond a threshold of the policy. `reasons` names these thresholds.
    `reads_before` is the number of data and delete files that a full scan opens now. `reads_after` is that number
    after maintenance of the due partitions. `backlog_bytes` is the number of bytes that this maintenance would rewrite.
    """

    table: str
    data_files: int
    data_bytes: int
    small_files: int
    delete_files: int
    equality_delete_files: int
    snapshots: int
    metadata_bytes: int
    partitions: int
    due_partitions: int
    reasons: tuple[str, ...]
    backlog_bytes: int
    reads_before: int
    reads_after: int

    @property
    def needs_maintenance(self) -> bool:
        """Whether at least one partition is beyond a threshold."""
        return self.due_partitions > 0


def assessed_table(measured: Measured, decision: Decision) -> AssessedTable:
    """Builds the assessment from a measurement and the decision of a policy in mode act.

    It counts the files after maintenance for each partition alone, because a rewrite never merges files of two
    partitions.
    """
    total = measured.total()
    findings = {
        p.partition: [f.reason.value for f in p.findings if f.severity is Severity.ERROR]
        for p in decision.partitions
    }
    due = {p.partition for p in decision.backlog()} & set(findings)
    reasons = dict.fromkeys(r for key in sorted(due) for r in findings[key])
    after = sum(
        _files_after(h, measured.target_file_size_bytes) if key in due else h.data_files + h.delete_files
        for key, h in measured.partitions.items()
    )
    before = total.data_files + total.delete_files
    return AssessedTable(
        table=str(measured.table),
        data_files=total.data_files,
        data_bytes=total.data_bytes,
        small_files=total.small_files,
        delete_files=total.delete_files,
        equality_delete_files=total.equality_delete_files,
        snapshots=measured.table_health.snapshots,
        metadata_bytes=measured.table_health.metadata_bytes + measured.table_health.manifest_bytes,
        partitions=len(measured.partitions),
        due_partitions=len(due),
        reasons=tuple(reasons),
        backlog_bytes=sum(p.candidate_bytes for p in decision.backlog()),
        reads_before=before,
        reads_after=min(before, after),
    )


def _files_after(health: PartitionHealth, target_bytes: int) -> int:
    """The number of files of a partition after a rewrite of its small data files.

    The rewrite is assumed to remove every delete file.
    """
    small = -(-health.small_bytes // max(1, target_bytes))
    return health.data_files - health.small_files + small


def assessment_document(tables: Sequence[AssessedTable], errors: Mapping[str, str]) -> Document:
    """The JSON document of `assess`."""
    due = [t for t in tables if t.needs_maintenance]
    return {
        "summary": {
            "tables": len(tables),
            "sick": len(due),
            "unreadable": len(errors),
            "data_bytes": sum(t.data_bytes for t in tables),
            "backlog_bytes": sum(t.backlog_bytes for t in tables),
            "reads_before": sum(t.reads_before for t in tables),
            "reads_after": sum(t.reads_after for t in tables),
        },
        "tables": [{**asdict(t), "reasons": list(t.reasons)} for t in _worst_first(tables)],
        "errors": dict(errors),
    }


def assessment_page(tables: Sequence[AssessedTable], errors: Mapping[str, str], source: str) -> Page:
    """The page of an assessment. `source` is the line with the program version, the time and the source of the figures."""
    due = [t for t in tables if t.needs_maintenance]
    before, after = sum(t.reads_before for t in tables), sum(t.reads_after for t in tables)
    ordered = _worst_first(tables)
    shown = tuple(
        Bar(
            t.table,
            t.reads_before - t.reads_after,
            f"{number(t.reads_before)} → {counted(t.reads_after, 'file')}",
        )
        for t in ordered[:10]
        if t.reads_before > t.reads_after
    )
    rows, omitted = first_rows([_row(t) for t in ordered if t.needs_maintenance], MOST_ROWS)
    sections = [
        Section(
            "What readers pay",
            (
                (
                    f"A full scan of every table opens {counted(before, 'file')}. After maintenance it would open "
                    f"{number(after)}."
                    if due
                    else f"A full scan of every table opens {counted(before, 'file')}. Maintenance would change nothing."
                ),
                "A reader requests each file and reads its footer."
                + (
                    " Every scan applies the delete files again."
                    if any(t.delete_files for t in ordered)
                    else ""
                ),
            ),
            bars=shown,
        ),
        Section(
            "Tables that need maintenance",
            () if rows else ("None.",),
            (
                "table",
                "size",
                "partitions due",
                "small files",
                "delete files",
                "snapshots",
                "to rewrite",
                "why",
            ),
            rows,
            frozenset(range(1, 7)),
            omitted=omitted,
        ),
    ]
    if errors:
        lines, more = first_rows(sorted(errors.items()), MOST_ROWS)
        sections.append(Section("Not readable", (), ("table", "error"), lines, omitted=more))
    sections.append(
        Section(
            "How this was made",
            (
                (
                    "The figures come from table metadata only. The assessment read no data file, wrote to no table and "
                    "started no Spark. The thresholds are those of the configuration, or the built-in ones."
                ),
                "Next: iceberg-maint why TABLE, then iceberg-maint plan TABLE.",
            ),
        )
    )
    return Page(
        "Assessment of Iceberg tables",
        source,
        f"{share(len(due), len(tables), 'table', 'need')} maintenance." if tables else "There are no tables.",
        (
            Tile(number(len(tables)), "table" if len(tables) == 1 else "tables"),
            Tile(size(sum(t.data_bytes for t in tables)), "of data"),
            Tile(number(sum(t.small_files for t in tables)), "small files"),
            Tile(number(sum(t.delete_files for t in tables)), "delete files"),
            Tile(f"{number(before)} → {number(after)}", "files that a full scan opens"),
            Tile(size(sum(t.backlog_bytes for t in tables)), "to rewrite"),
        ),
        tuple(sections),
    )


def _worst_first(tables: Sequence[AssessedTable]) -> list[AssessedTable]:
    return sorted(tables, key=lambda t: (t.reads_after - t.reads_before, -t.backlog_bytes, t.table))


def _row(table: AssessedTable) -> tuple[str, ...]:
    return (
        table.table,
        size(table.data_bytes),
        f"{number(table.due_partitions)} of {number(table.partitions)}",
        number(table.small_files),
        number(table.delete_files),
        number(table.snapshots),
        size(table.backlog_bytes),
        ", ".join(table.reasons),
    )
