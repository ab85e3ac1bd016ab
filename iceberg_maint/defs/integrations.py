"""Integrations in Dagster: the sensor of alerts, the audit log's job, the report's asset."""

from collections.abc import Callable
from dataclasses import dataclass

import dagster as dg

from iceberg_maint.config.sections import bad_schedule, bad_table_schedule
from iceberg_maint.defs.metadata import mebibytes
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.integrations.alerts.alert_cycle import PassReport
from iceberg_maint.integrations.audit.publish import Published
from iceberg_maint.integrations.reports import WrittenReport
from iceberg_maint.report.fleet import FleetRow
from iceberg_maint.report.formatting import counted
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


AUDIT_JOB = "publish_audit_log"


@dataclass(frozen=True, slots=True)
class AuditPublishing:
    """What publishes the audit log, and when, as a cron expression in UTC."""

    publish: Callable[[], Published]
    schedule: str


def build_audit_job(publishing: AuditPublishing, executor: dg.ExecutorDefinition) -> dg.JobDefinition:
    """The job. It fails if a chain of the log is damaged."""

    @dg.op(name="publish_entries")
    def publish_entries(context: dg.OpExecutionContext) -> None:
        published = publishing.publish()
        context.log.info(
            f"published {counted(published.entries, 'entry', 'entries')} by {counted(published.appends, 'append')}"
        )
        if published.damaged:
            raise dg.Failure(
                "ICM-143 " + "; ".join(f"{chain}: {why}" for chain, why in published.damaged.items()),
                allow_retries=False,
            )

    @dg.job(
        name=AUDIT_JOB,
        executor_def=executor,
        description="Appends the entries of the audit log that the audit table lacks.",
    )
    def publish_audit_log() -> None:
        publish_entries()

    return publish_audit_log


def build_audit_schedule(
    publishing: AuditPublishing, job: dg.JobDefinition, status: dg.DefaultScheduleStatus
) -> dg.ScheduleDefinition:
    """The schedule. Raises ConfigurationError ICM-100 if the cron expression is not valid."""
    try:
        return dg.ScheduleDefinition(
            name=f"{AUDIT_JOB}_schedule",
            description="Publishes the audit log to its Iceberg table.",
            job=job,
            cron_schedule=publishing.schedule,
            execution_timezone="UTC",
            default_status=status,
        )
    except dg.DagsterInvalidDefinitionError as why:
        raise bad_table_schedule(publishing.schedule) from why


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
