"""The output of the demo with Flink at its end."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from bench.flink.verdict import FlinkResult
from iceberg_maint.cli.pages.console import grid
from iceberg_maint.demo.workspace import CATALOG, NAMESPACE, Place
from iceberg_maint.report.formatting import duration, number


def results(console: Console, tables: Sequence[FlinkResult]) -> None:
    """Prints each table: commits by writer, equality deletes of Flink, equality deletes that remain, rows."""
    shown = grid(
        "table",
        ">Flink's commits",
        ">ours",
        ">during the job",
        ">equality delete files",
        ">data files",
        ">rows",
        "row for row",
        "at every snapshot",
    )
    for result in tables:
        history, ended, after = result.history, result.at_end_of_job.measured, result.after.measured
        rows, wrong = result.rows, len(result.history.wrong)
        differ = f"[red]{number(rows.missing)} missing, {number(rows.unexpected)} unexpected[/]"
        shown.add_row(
            f"{CATALOG}.{NAMESPACE}.{result.table.name}",
            number(history.flink),
            number(history.maintenance),
            number(history.while_running),
            f"{number(history.equality_deletes)} → {number(ended.total().equality_delete_files)}"
            f" → {number(after.total().equality_delete_files)}",
            f"{number(ended.total().data_files)} → {number(after.total().data_files)}",
            number(rows.rows_after),
            "[green]as streamed[/]" if rows.equal else differ,
            f"[red]{number(wrong)} wrong[/]" if wrong else "[green]as streamed[/]",
        )
    console.print(shown)
    console.print("[dim]equality delete files: all written → at the end of the job → at the end[/]")


def ending(
    console: Console, place: Place, tables: Sequence[FlinkResult], *, good: bool, seconds: float
) -> None:
    """Prints the verdict in a sentence, and the faults."""
    verdict = "[green]good[/]" if good else "[red]not good[/]"
    proved = sum(t.history.flink + t.history.maintenance for t in tables)
    console.print(f"\n{verdict}: {number(proved)} snapshots read, in {duration(seconds)}.")
    for result in tables:
        for fault in result.faults:
            console.print(f"  [red]{result.table.name}: {fault}[/]")
    console.print(f"\niceberg-maint history --config {place.config}", soft_wrap=True)
