"""The open incidents, for the terminal and as documents."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from iceberg_maint.core.alerts.incident import Incident
from iceberg_maint.report.formatting import counted, escape_control_chars, moment
from iceberg_maint.report.grid import write
from iceberg_maint.report.json_documents import Document


def incident_documents(incidents: Sequence[Incident]) -> list[Document]:
    """The incidents in `alerts --json`."""
    return [
        {
            "id": i.incident_id,
            "kind": i.kind.value,
            "table": i.table,
            "owners": list(i.owners),
            "summary": i.summary,
            "action": i.action,
            "since_ms": i.since_ms,
            "fired_ms": i.fired_ms,
            "cleared_ms": i.cleared_ms,
            "fired_to": list(i.fired_to),
            "cleared_to": list(i.cleared_to),
        }
        for i in incidents
    ]


def draw_incidents(console: Console, incidents: Sequence[Incident]) -> None:
    """Draws the open incidents that have fired, and counts the conditions that have not lasted long enough."""
    fired = [i for i in incidents if i.fired_ms is not None and i.cleared_ms is None]
    waiting = [i for i in incidents if i.fired_ms is None]
    for i in fired:
        owners = f" [dim]({escape(', '.join(i.owners))})[/]" if i.owners else ""
        write(console, f"[bold]{escape(i.table)}[/] {i.kind.value} since {moment(i.since_ms)}{owners}", "  ")
        write(console, f"  {escape(escape_control_chars(i.summary))}", "    ")
        write(console, f"  {escape(i.action)}", "    ")
    if not fired:
        console.print("No open alert.")
    if waiting:
        console.print(f"Not long enough for an alert yet: {counted(len(waiting), 'condition')}.")
