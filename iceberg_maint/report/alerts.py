"""The open incidents, for the terminal and as documents."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from iceberg_maint.core.alerts.incident import Incident
from iceberg_maint.report.console import draw_rows
from iceberg_maint.report.formatting import moment
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
    if fired:
        rows = [[i.kind.value, i.table, moment(i.since_ms), i.summary] for i in fired]
        draw_rows(console, ["alert", "table", "since", "what"], rows)
    else:
        console.print("No open alert.")
    if waiting:
        console.print(f"{len(waiting)} more if they last.")
