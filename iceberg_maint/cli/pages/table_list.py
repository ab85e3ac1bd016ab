"""The screen of `tables`: a summary, then the tables, worst first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.markup import escape

from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.report.formatting import counted, duration, escape_control_chars, number, size
from iceberg_maint.report.grid import Column, draw_grid, write
from iceberg_maint.report.json_documents import Document
from iceberg_maint.report.verdicts import Status, Summary, coloured, summary_of

_COLUMNS = (
    Column("table"),
    Column("status"),
    Column("to do", right=True),
    Column("backlog", right=True),
    Column("time", right=True, priority=1),
    Column("why", prose=True),
    Column("deletes", right=True, priority=2, is_constant_shown=False),
    Column("small", right=True, priority=3, is_constant_shown=False),
    Column("files", right=True, priority=4, is_constant_shown=False),
)


def table_summary(rows: Sequence[Document]) -> Summary:
    """The summary of the entries of `tables --json`."""
    measured = [r for r in rows if "error" not in r]
    return summary_of(
        [_status(r) for r in rows], [(r["backlog_bytes"], r["estimate_seconds"]) for r in measured]
    )


def draw_tables(console: Console, rows: Sequence[Document], name_of: Callable[[str], str]) -> None:
    """Draws the entries of `tables --json`."""
    write(console, f"[bold]{table_summary(rows).sentence()}[/]")
    if rows:
        console.print()
        draw_grid(console, _COLUMNS, [_cells(r, name_of) for r in sorted(rows, key=_rank)])


def _status(row: Document) -> Status:
    return Status.FAILED if "error" in row else Status(row["status"])


def _rank(row: Document) -> tuple[int, int, int, str]:
    severity = list(Status).index(_status(row))
    return severity, -row.get("backlog_bytes", 0), -row.get("due_partitions", 0), row["table"]


def _cells(row: Document, name_of: Callable[[str], str]) -> list[str]:
    name, status = escape(name_of(row["table"])), coloured(_status(row))
    if "error" in row:
        error = row["error"]
        why = f"{error['code']} {error['message']}" if error["code"] else error["message"]
        return [name, status, "", "", "", escape(escape_control_chars(why)), "", "", ""]
    estimate = row["estimate_seconds"]
    backlog = row["backlog_bytes"]
    return [
        name,
        status,
        f"{number(row['due_partitions'])} of {number(row['partitions'])}",
        size(backlog) if backlog else "",
        ("?" if estimate is None else duration(estimate)) if backlog else "",
        escape(_why(row)),
        number(row["delete_files"]),
        number(row["small_files"]),
        number(row["data_files"]),
    ]


def _why(row: Document) -> str:
    """The reason, what holds the due work, and what a run would do in mode advise."""
    evidence, advice = row["evidence"], row.get("advice")
    detail = row.get("deferred_by") or ""
    if row["reason"] == Reason.PAUSED and evidence.get("by") != "policy":
        detail = ""  # The banner above the table says it.
    gain = (
        f": {counted(advice['batches'], 'batch', 'batches')} would make "
        f"{counted(advice['output_files'], 'file')} of {number(advice['input_files'])}"
        if advice
        else ""
    )
    reason = row["reason"]
    if failure := row.get("failure"):
        return escape_control_chars(f"{failure['operation']}: {failure['message']}")
    if advice:
        return f"{detail}{gain}"
    return f"{reason}: {detail}" if detail else reason
