"""The sensor of alerts: judges the fleet from the ledger every minute, and sends what began and ended.

No `from __future__ import annotations` here: Dagster reads the annotations of its functions.
"""

from collections.abc import Callable

import dagster as dg

from iceberg_maint.alerts.alert_pass import PassReport

ALERTS_INTERVAL_SECONDS = 60
"""Seconds between two passes at least."""


def build_alerts_sensor(
    alert_pass: Callable[[], PassReport], status: dg.DefaultSensorStatus
) -> dg.SensorDefinition:
    """A sensor that requests no run. A receiver that does not answer is in the log; its messages are sent again."""

    @dg.sensor(
        name="alerts",
        description="Judges every table from the ledger, and sends new and ended alerts to their "
        "receivers. It starts no run.",
        minimum_interval_seconds=ALERTS_INTERVAL_SECONDS,
        default_status=status,
    )
    def alerts(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        report = alert_pass()
        for error in (report.failures or {}).values():
            context.log.warning(str(error))
        if report.is_busy:
            return dg.SkipReason("another process sends the alerts")
        fired = sum(i.fired_ms is not None and i.cleared_ms is None for i in report.incidents)
        return dg.SkipReason(f"{fired} open alerts; receivers that took messages: {report.sent}")

    return alerts
