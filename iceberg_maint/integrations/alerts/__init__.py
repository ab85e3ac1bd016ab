"""Alerts: the conditions that a person must know, sent once when they begin and once when they end."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from iceberg_maint.config import Config
from iceberg_maint.integrations.alerts.alert_cycle import ConfiguredReceiver, run_alert_cycle
from iceberg_maint.integrations.alerts.receivers import make_receiver
from iceberg_maint.loop.context import Context
from iceberg_maint.wiring.integrations import FleetWork, Integration, WorkReport

_TIMEOUT_SECONDS = 5.0
"""The longest time for one message to one receiver."""


def alert_receivers(config: Config) -> Mapping[str, ConfiguredReceiver]:
    """The configured receivers of alerts by name. Opens no connection."""
    if config.alerts is None:
        return {}
    return {
        name: ConfiguredReceiver(r.owners, partial(make_receiver, r.receiver, _TIMEOUT_SECONDS))
        for name, r in config.alerts.receivers.items()
    }


def alert_work(config: Config, context: Context) -> FleetWork | None:
    """The cycle over all tables that sends the alerts; None without a receiver."""
    receivers = alert_receivers(config)

    def run() -> WorkReport:
        report = run_alert_cycle(context, receivers)
        if report.is_busy:
            return WorkReport("another process sends the alerts")
        fired = sum(i.fired_ms is not None and i.cleared_ms is None for i in report.incidents)
        return WorkReport(
            f"{fired} open alerts; receivers that took messages: {report.sent}",
            warnings=tuple(map(str, (report.failures or {}).values())),
        )

    description = "Judges every table from the ledger, and sends new and ended alerts to their receivers. It starts no run."
    return FleetWork("alerts", description, run) if receivers else None


INTEGRATION = Integration(fleet_work=alert_work)
