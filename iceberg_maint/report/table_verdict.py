"""The verdict on a table as text, document and exit code: every screen shows these."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from iceberg_maint.core.decisions.table_verdict import Standing, TableVerdict
from iceberg_maint.core.model.ids import VERIFYING
from iceberg_maint.errors import EXIT_DONE, EXIT_FAILED, EXIT_REFUSED
from iceberg_maint.report.formatting import escape_control_chars, moment
from iceberg_maint.report.grid import write
from iceberg_maint.report.json_documents import Document

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
    end = "On hold until a person runs iceberg-maint release."
    if verdict.faults[0].operation == VERIFYING:
        end = "A verification that succeeds ends this."
    elif not verdict.is_held:
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
        "held": verdict.is_held,
        "until_ms": verdict.until_ms,
    }


def draw_verdict(console: Console, verdict: TableVerdict) -> None:
    """Draws the fault of a table as one line; nothing without one."""
    if verdict.faults:
        name = f"{verdict.standing.value} {verdict.faults[0].operation}"
        write(console, f"[red]{name}[/]: {escape(escape_control_chars(verdict_sentence(verdict)))}", "  ")
