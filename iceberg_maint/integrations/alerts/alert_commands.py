"""The commands `alerts`: show the open alerts, send them, test a receiver."""

from __future__ import annotations

from typing import Any

import click

from iceberg_maint.cli.command import command, group
from iceberg_maint.cli.context import Session
from iceberg_maint.errors import ConfigurationError


@group
def alerts() -> None:
    """Alerts: what a person must know, sent once."""


@alerts.command("list")
@command
def list_(session: Session) -> int:
    """Show the open alerts of the fleet, as last stored."""
    from iceberg_maint.cli.pages.orphans_page import draw_incidents, incident_documents

    incidents = session.context().ledger.registry.incidents()
    session.emit({"incidents": incident_documents(incidents)}, lambda c: draw_incidents(c, incidents))
    return 0


@alerts.command("send")
@command
def send(session: Session) -> int:
    """Judge every table, and send each receiver what it has not taken.

    The facts come from the ledger. Run it every minute, or let Dagster's sensor `alerts` do it.
    """
    from iceberg_maint.cli.pages.orphans_page import draw_incidents, incident_documents
    from iceberg_maint.integrations.alerts import alert_receivers
    from iceberg_maint.integrations.alerts.alert_cycle import run_alert_cycle

    report = run_alert_cycle(session.context(), alert_receivers(session.config()))
    failures = report.failures or {}

    def draw(console: Any) -> None:
        if report.is_busy:
            console.print("Another process sends the alerts. Nothing was done.")
            return
        draw_incidents(console, report.incidents)

    for error in failures.values():
        session.say(str(error))
    session.emit(
        {
            "busy": report.is_busy,
            "sent": report.sent,
            "incidents": incident_documents(report.incidents),
            "failures": {name: str(error) for name, error in failures.items()},
        },
        draw,
    )
    return 1 if failures else 0


@alerts.command("test")
@click.argument("receiver")
@command
def test(session: Session, receiver: str) -> int:
    """Send one alert and its end to a receiver."""
    from iceberg_maint.core.alerts import AlertKind, Incident
    from iceberg_maint.integrations.alerts import alert_receivers
    from iceberg_maint.integrations.alerts.alert_cycle import send_test

    receivers = alert_receivers(session.config())
    if receiver not in receivers:
        names = ", ".join(sorted(receivers)) or "none"
        raise ConfigurationError(
            "ICM-100",
            f"alerts.receivers has no '{receiver}'. It has: {names}.",
            "name a configured receiver, or add it.",
        )
    context = session.context()
    now_ms = context.clock.now_ms()
    incident = Incident(
        AlertKind.NOT_OBSERVED, "test", "test", "A test of this receiver.", (), now_ms, now_ms, now_ms
    )
    send_test(receiver, receivers[receiver], incident, context)
    session.emit(
        {"receiver": receiver}, lambda c: c.print(f"{receiver} took an alert and its end", markup=False)
    )
    return 0
