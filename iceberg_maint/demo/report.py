"""Code that the demos' commands share: the console and the exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.markup import escape

from iceberg_maint.cli.pages.console import draw_outcome, word
from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Finding
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.demo.duckdb_reader import scan
from iceberg_maint.demo.heal import DemoState, End, Requested, TableResult
from iceberg_maint.demo.tables import DemoTable
from iceberg_maint.demo.workspace import Place
from iceberg_maint.errors import EXIT_DONE, EXIT_FAILED, IcebergMaintError
from iceberg_maint.report.formatting import as_invoked, counted, duration, number, sentence, size
from iceberg_maint.report.grid import Column, draw_grid, write


def printed(demo: Callable[[Console], bool], width: int) -> int:
    """Runs a demo, which returns whether all results were as expected. Returns the exit code.

    Output that goes to no terminal has `width` columns.
    """
    try:
        good = demo(Console(width=None if sys.stdout.isatty() else width, highlight=False))
    except IcebergMaintError as refusal:
        sys.stderr.write(f"{refusal}\n")
        return refusal.exit_code
    return EXIT_DONE if good else EXIT_FAILED


_STATE_COLUMNS = (
    Column("table"),
    Column("partitions", right=True, priority=2),
    Column("due", right=True),
    Column("files", right=True),
    Column("small", right=True, priority=3),
    Column("deletes", right=True),
    Column("delete ratio", right=True, priority=4),
    Column("size", right=True, priority=1),
    Column("why", prose=True),
)
_RESULTS = (
    Column("table"),
    Column("files", right=True),
    Column("deletes", right=True),
    Column("due", right=True, priority=2),
    Column("rows", right=True, priority=1),
    Column("row for row"),
    Column("snapshot", priority=3),
    Column("ended"),
)
_HOUSEKEEPING = (
    Column("table"),
    Column("snapshots", right=True),
    Column("manifests", right=True),
    Column("files in the trash", right=True),
    Column("size", right=True),
    Column("some of them", priority=1),
)


def heading(console: Console, title: str, subtitle: str) -> None:
    """Prints the heading of a part."""
    console.print(f"\n[bold]{title}[/]  [dim]{escape(subtitle)}[/]")


def built(console: Console, table: DemoTable, seconds: float) -> None:
    """Prints a table that was built."""
    write(
        console,
        f"  [bold]{table.full_name}[/]: {table.problem}, {duration(seconds)}",
        "    ",
    )


def states(console: Console, tables: Mapping[DemoTable, DemoState]) -> None:
    """Prints health and decision of each table."""
    rows = []
    for table, state in tables.items():
        total = state.measured.total()
        rows.append(
            [
                table.full_name,
                number(len(state.measured.partitions)),
                number(state.due),
                number(total.data_files),
                number(total.small_files),
                number(total.delete_files),
                number(round(total.delete_ratio, 3)),
                size(total.data_bytes),
                _why(state),
            ]
        )
    draw_grid(console, _STATE_COLUMNS, rows)


def run(console: Console, tick: int, request: Requested, records: Sequence[Record], *, success: bool) -> None:
    """Prints one Dagster run, from its records in the ledger."""
    failed = "" if success else "  [red]Dagster run failed[/]"
    partitions = request.partitions
    if partitions:
        span = partitions[0] if len(partitions) == 1 else f"{partitions[0]} … {partitions[-1]}"
        console.print(f"\ntick {tick}: {counted(len(partitions), 'partition')}: {escape(span)}{failed}")
    else:
        effective = [r for r in records if r.outcome.outcome is not OutcomeStatus.NO_OP]
        nothing = "" if effective else ": nothing to do"
        console.print(f"\ntick {tick}: housekeeping of {escape(str(request.table))}{nothing}{failed}")
        records = effective
    for record in records:
        draw_outcome(console, record.outcome)


def results(console: Console, tables: Sequence[TableResult]) -> None:
    """Prints each table before and after, and its verdict."""
    lines = []
    for result in tables:
        before, after = result.before.measured.total(), result.after.measured.total()
        moved = result.before.measured.snapshot_id != result.after.measured.snapshot_id
        rows = result.rows
        differ = f"[red]{number(rows.missing)} missing, {number(rows.unexpected)} unexpected[/]"
        lines.append(
            [
                result.table.full_name,
                f"{number(before.data_files)} → {number(after.data_files)}",
                f"{_deletes(before)} → {_deletes(after)}",
                f"{number(result.before.due)} → {number(result.after.due)}",
                number(rows.rows_after),
                "[green]equal[/]" if rows.equal else differ,
                "moved" if moved else "the same",
                f"[{_colour(result)}]{result.end.value}[/]",
            ]
        )
    draw_grid(console, _RESULTS, lines)


def _deletes(health: PartitionHealth) -> str:
    """The number of delete files by kind: vectors that replace equality deletes may be as many."""
    kinds = (
        (health.position_delete_files, "pos"),
        (health.deletion_vectors, "dv"),
        (health.equality_delete_files, "eq"),
    )
    return " + ".join(f"{number(count)} {kind}" for count, kind in kinds if count) or "0"


def housekeeping(console: Console, tables: Sequence[TableResult]) -> None:
    """Prints snapshots, manifests and trash of the tables with housekeeping."""
    scans = sum(1 for r in tables if Operation.REMOVE_ORPHAN_FILES in r.before.housekeeping)
    console.print(f"The storage of {scans} tables was searched for orphan files.")
    rows = []
    for result in tables:
        before, after = result.before.measured.table_health, result.after.measured.table_health
        retained = result.after.retained
        if not retained and set(result.before.housekeeping) <= {Operation.REMOVE_ORPHAN_FILES}:
            continue
        rows.append(
            [
                result.table.full_name,
                f"{number(before.snapshots)} → {number(after.snapshots)}",
                f"{number(before.manifests)} → {number(after.manifests)}",
                number(sum(h.files for h in retained)),
                size(sum(h.size_bytes for h in retained)),
                escape(", ".join(h.paths[0].rpartition("/")[2] for h in retained if h.paths)),
            ]
        )
    draw_grid(console, _HOUSEKEEPING, rows)
    if any(r.after.retained for r in tables):
        console.print(
            "The trash is swept after its retention. Until then 'iceberg-maint orphans restore' restores the files."
        )


def ending(console: Console, tables: Sequence[TableResult], *, good: bool, seconds: float) -> None:
    """Prints the verdict in a sentence."""
    healed = sum(1 for t in tables if t.end is End.HEALED)
    verdict = "[green]good[/]" if good else "[red]not good[/]"
    console.print(
        f"\n{verdict}: {healed} of {len(tables)} tables healed, "
        f"{sum(1 for t in tables if t.rows.equal)} equal row for row, in {duration(seconds)}."
    )
    bad = [t for t in tables if not t.good]
    for result in bad:
        console.print(f"  [red]{result.table.full_name}: {result.end.value}[/]")


def next_steps(console: Console, place: Place, tables: Sequence[TableResult], *, ended: bool) -> None:
    """Prints the next commands, or for a lake that has `ended` that there are none."""
    if ended:
        console.print(
            "\nThe S3 server ends now, and its objects with it. 'iceberg-maint demo --fresh' builds a lake that stays."
        )
        return
    config = f"--config {place.config}"
    text = (
        "\nNext:\n"
        "  the same lake in Dagster's UI, with a job that adds small files:\n"
        f"  make dev DATA={place.root}, or without a checkout\n"
        f"  DAGSTER_HOME={place.dagster_home} ICEBERG_MAINT_CONFIG={place.config} dagster dev "
        "-m iceberg_maint.definitions -m iceberg_maint.demo.definitions\n"
        f"  iceberg-maint tables {config}\n"
        f"  iceberg-maint why lake.demo.cdc_planes {config}\n"
        f"  iceberg-maint history {config}\n"
        f"  iceberg-maint orphans list lake.demo.weather_by_day {config}\n"
        f"  DuckDB: SELECT count(*) FROM {scan(tables[0].after.measured.metadata_location)}"
    )
    console.print(as_invoked(text), soft_wrap=True)


def _why(state: DemoState) -> str:
    decision = state.decision
    findings = (f for p in decision.partitions for f in p.findings if f.reason is decision.reason)
    return f"{word(decision.verdict.value)} {sentence(decision.reason)}{_evidence(next(findings, None))}"


def _evidence(finding: Finding | None) -> str:
    if finding is None:
        return ""
    return f" ({finding.metric} {number(finding.value)}, threshold {number(finding.threshold)})"


def _colour(result: TableResult) -> str:
    return "green" if result.good else "red"
