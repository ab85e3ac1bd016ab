"""Integrations in Dagster: the sensor of alerts, the report's asset."""

from collections.abc import Callable
from dataclasses import dataclass

import dagster as dg

from iceberg_maint.config.sections import bad_schedule
from iceberg_maint.defs.metadata import mebibytes
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.integrations.alerts.alert_cycle import PassReport
from iceberg_maint.integrations.reports import WrittenReport
from iceberg_maint.report.fleet import FleetRow
from iceberg_maint.report.verdicts import Summary

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


@dataclass(frozen=True, slots=True)
class FleetReporting:
    """What makes the report, and when, as a cron expression in UTC."""

    write: Callable[[], WrittenReport]
    schedule: str


def build_fleet_asset(reporting: FleetReporting, translator: IcebergTranslator) -> dg.AssetsDefinition:
    """An asset without a table: each materialization has the page of the report and its numbers."""

    @dg.asset(
        key=translator.get_fleet_key(),
        group_name="fleet",
        kinds={"iceberg"},
        description="The report on all tables that the ledger has measured: status, work, failures, trends.",
    )
    def fleet_report(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        written = reporting.write()
        for file in written.files:
            context.log.info(f"wrote {file}")
        return dg.MaterializeResult(
            metadata={
                "report": dg.MetadataValue.md(written.markdown),
                **_figures(written.report.summary, written.report.rows),
                **{f"file_{file.suffix[1:]}": dg.MetadataValue.path(file) for file in written.files},
            }
        )

    return fleet_report


def _figures(summary: Summary, rows: tuple[FleetRow, ...]) -> dict[str, dg.MetadataValue]:
    """Numbers for plots."""
    counts: dict[str, dg.MetadataValue] = {
        f"tables_{status.value}": dg.MetadataValue.int(tables) for status, tables in summary.counts.items()
    }
    return {
        "tables": dg.MetadataValue.int(summary.tables),
        **counts,
        "small_files": dg.MetadataValue.int(sum(r.small_files for r in rows)),
        "delete_files": dg.MetadataValue.int(sum(r.delete_files for r in rows)),
        "backlog_mib": mebibytes(summary.backlog_bytes),
        "rewritten_mib": mebibytes(sum(r.input_bytes for r in rows)),
        "failed_runs": dg.MetadataValue.int(sum(r.failed_runs for r in rows)),
    }


def build_fleet_schedule(
    reporting: FleetReporting, asset: dg.AssetsDefinition, status: dg.DefaultScheduleStatus
) -> dg.ScheduleDefinition:
    """The schedule of the report. Raises ConfigurationError ICM-100 if the cron expression is not valid."""
    try:
        return dg.ScheduleDefinition(
            name="fleet_report_schedule",
            description="Makes the report on the fleet.",
            target=dg.AssetSelection.assets(*asset.keys),
            cron_schedule=reporting.schedule,
            execution_timezone="UTC",
            default_status=status,
        )
    except dg.DagsterInvalidDefinitionError as why:
        raise bad_schedule(reporting.schedule) from why
