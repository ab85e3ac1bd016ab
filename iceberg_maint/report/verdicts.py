"""The verdict on a table as one word, as text, document and exit code; the list of tables by it, which `tables` shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rich.console import Console
from rich.markup import escape

from iceberg_maint.core.decisions.table_decision import Standing, TableVerdict
from iceberg_maint.core.model.ids import READING, VERIFYING
from iceberg_maint.core.model.reasons import Decision, Reason, Verdict
from iceberg_maint.errors import EXIT_DONE, EXIT_FAILED, EXIT_REFUSED
from iceberg_maint.report.formatting import counted, duration, escape_control_chars, moment, number, size
from iceberg_maint.report.grid import Column, draw_grid, write
from iceberg_maint.report.json_documents import Document


class Status(StrEnum):
    """The status of a table or partition, the worst first.

    FAILED: it cannot be read, or its last work failed. BLOCKED: refused or quarantined, and only a person can change
    that. DUE: the next run maintains it. RUNNING: another run works on the table. WAITING: due, and
    delayed by time, a budget, a pause or mode advise. OFF: the policy turns the work off. HEALTHY: nothing is
    due.
    """

    FAILED = "failed"
    BLOCKED = "blocked"
    DUE = "due"
    RUNNING = "running"
    WAITING = "waiting"
    OFF = "off"
    HEALTHY = "healthy"


COLOURS = {
    Status.FAILED: "red",
    Status.BLOCKED: "red",
    Status.DUE: "yellow",
    Status.RUNNING: "cyan",
    Status.WAITING: "cyan",
    Status.OFF: "white",
    Status.HEALTHY: "green",
}
_ALWAYS_COUNTED = (Status.HEALTHY, Status.DUE, Status.WAITING, Status.BLOCKED)
_ORDER = (*_ALWAYS_COUNTED, Status.RUNNING, Status.OFF, Status.FAILED)


def table_status(decision: Decision, verdict: TableVerdict) -> Status:
    """The status of a table: what its last work failed by, else its decision."""
    status = status_of(decision.verdict, decision.reason, len(decision.backlog()))
    if not verdict.faults or status in (Status.BLOCKED, Status.RUNNING):
        return status
    if verdict.is_quarantined:
        return Status.BLOCKED
    is_failure = verdict.standing is Standing.FAILED or verdict.faults[0].operation == READING
    return Status.FAILED if is_failure else Status.BLOCKED


def status_of(verdict: Verdict, reason: Reason, due_partitions: int) -> Status:
    """The status for a decision with this many due partitions, delayed ones included."""
    if verdict is Verdict.REFUSE or reason is Reason.QUARANTINED:
        return Status.BLOCKED
    if verdict is Verdict.RUN:
        return Status.DUE
    if reason is Reason.LEASE_HELD:
        return Status.RUNNING
    if reason is Reason.DISABLED:
        return Status.OFF
    return Status.WAITING if verdict is Verdict.DEFER or due_partitions else Status.HEALTHY


def coloured(status: Status) -> str:
    """The word in its colour, as rich markup."""
    return f"[{COLOURS[status]}]{status.value}[/]"


@dataclass(frozen=True, slots=True)
class Summary:
    """How many tables have each status, and the backlog of all. `estimate_seconds` is None if the time of one
    backlog is not known."""

    tables: int
    counts: dict[Status, int]
    backlog_bytes: int
    estimate_seconds: float | None

    def sentence(self) -> str:
        """The summary in one line."""
        shown = [s for s in _ORDER if s in _ALWAYS_COUNTED or self.counts.get(s)]
        counts = ", ".join(f"{number(self.counts.get(s, 0))} {s.value}" for s in shown)
        backlog = ""
        if self.backlog_bytes:
            time = (
                "unknown time"
                if self.estimate_seconds is None
                else f"about {duration(self.estimate_seconds)}"
            )
            backlog = f"; backlog {size(self.backlog_bytes)}, {time}"
        return f"{counted(self.tables, 'table')}: {counts}{backlog}"

    def document(self) -> Document:
        """The summary in `tables --json` and `report --json`."""
        return {
            "tables": self.tables,
            **{s.value: self.counts.get(s, 0) for s in _ORDER},
            "backlog_bytes": self.backlog_bytes,
            "estimate_seconds": self.estimate_seconds,
        }


def summary_of(statuses: Sequence[Status], backlogs: Iterable[tuple[int, float | None]]) -> Summary:
    """The summary of tables with these statuses and backlogs, each in bytes and seconds."""
    pairs = tuple(backlogs)
    seconds = [s for _, s in pairs]
    return Summary(
        len(statuses),
        {s: statuses.count(s) for s in Status},
        sum(b for b, _ in pairs),
        None if None in seconds else round(sum(s for s in seconds if s is not None), 1),
    )


EXIT_CODES = {
    Standing.NOT_READ: EXIT_DONE,
    Standing.MEASURED: EXIT_DONE,
    Standing.REFUSED: EXIT_REFUSED,
    Standing.FAILED: EXIT_FAILED,
}


def verdict_sentence(verdict: TableVerdict) -> str:
    """The most severe fault and when it is tried again. Empty without a fault."""
    if not verdict.faults:
        return ""
    end = "Stopped until a person runs iceberg-maint release."
    if verdict.faults[0].operation == VERIFYING:
        end = "A verification that succeeds ends this."
    elif not verdict.is_quarantined:
        end = (
            "The next run tries again."
            if verdict.until_ms is None
            else f"Not before {moment(verdict.until_ms)}."
        )
    message = verdict.message.rstrip(".")
    return f"{message}. {end}"


def verdict_document(verdict: TableVerdict) -> Document | None:
    """The key `failure` of documents. None without a fault."""
    if not verdict.faults:
        return None
    fault = verdict.faults[0]
    return {
        "standing": verdict.standing.value,
        "code": verdict.code,
        "message": verdict.message,
        "operation": fault.operation,
        "partition": fault.partition,
        "faults": len(verdict.faults),
        "quarantined": verdict.is_quarantined,
        "until_ms": verdict.until_ms,
    }


def draw_verdict(console: Console, verdict: TableVerdict) -> None:
    """Draws the fault of a table as one line; nothing without one."""
    if verdict.faults:
        name = f"{verdict.standing.value} {verdict.faults[0].operation}"
        write(console, f"[red]{name}[/]: {escape(escape_control_chars(verdict_sentence(verdict)))}", "  ")


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
        # A narrow grid goes on with a comma.
        return escape_control_chars(f"{failure['operation']}: {failure['message']}".rstrip("."))
    if advice:
        return f"{detail}{gain}"
    return f"{reason}: {detail}" if detail else reason
