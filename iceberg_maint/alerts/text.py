"""The text of a message. Names come from tables and writers: control characters never reach a receiver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from iceberg_maint.core.alerts.incident import Incident, Messages

MOST_SHOWN = 20
"""Incidents written out in one message; the others are counted."""
_MOST_CHARACTERS = 500


def plain(text: str) -> str:
    """The text on one line, without control characters, at most 500 characters long."""
    one_line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return one_line if len(one_line) <= _MOST_CHARACTERS else one_line[: _MOST_CHARACTERS - 1] + "…"


def headline(messages: Messages) -> str:
    """How many incidents began and ended, and of what."""
    if len(messages.fired) == 1 and not messages.cleared:
        return plain(f"{messages.fired[0].table}: {messages.fired[0].kind.value}")
    if len(messages.cleared) == 1 and not messages.fired:
        return plain(f"{messages.cleared[0].table}: {messages.cleared[0].kind.value} has ended")
    parts = [f"{len(messages.fired)} new", f"{len(messages.cleared)} ended"]
    return "Alerts of iceberg_maint: " + ", ".join(
        p for p, of in zip(parts, (messages.fired, messages.cleared), strict=True) if of
    )


def lines(messages: Messages) -> list[str]:
    """The message as lines of plain text, grouped by kind."""
    return [*_fired(messages.fired), *_cleared(messages.cleared)]


def _fired(incidents: Sequence[Incident]) -> Iterable[str]:
    ordered = sorted(incidents, key=lambda i: (i.kind, i.table))
    kind = None
    for incident in ordered[:MOST_SHOWN]:
        if incident.kind is not kind:
            kind = incident.kind
            yield f"NEW {kind.value} ({incident.runbook})"
        owners = f" [{', '.join(map(plain, incident.owners))}]" if incident.owners else ""
        yield f"  {plain(incident.table)}{owners}: {plain(incident.summary)}"
        yield f"    {plain(incident.action)}"
    if len(ordered) > MOST_SHOWN:
        yield f"  and {len(ordered) - MOST_SHOWN} more: iceberg-maint alerts list"


def _cleared(incidents: Sequence[Incident]) -> Iterable[str]:
    for incident in sorted(incidents, key=lambda i: (i.kind, i.table))[:MOST_SHOWN]:
        yield f"ENDED {incident.kind.value}: {plain(incident.table)}"
    if len(incidents) > MOST_SHOWN:
        yield f"ENDED: {len(incidents) - MOST_SHOWN} more"
