"""The job that publishes the audit log to its Iceberg table, and its schedule.

No `from __future__ import annotations` here: Dagster reads the annotations of its functions.
"""

from collections.abc import Callable
from dataclasses import dataclass

import dagster as dg
from dagster._utils.schedules import is_valid_cron_schedule

from iceberg_maint.audit.publish import Published
from iceberg_maint.config.audit import bad_table_schedule
from iceberg_maint.report.formatting import counted

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
    if not is_valid_cron_schedule(publishing.schedule):
        raise bad_table_schedule(publishing.schedule)
    return dg.ScheduleDefinition(
        name=f"{AUDIT_JOB}_schedule",
        description="Publishes the audit log to its Iceberg table.",
        job=job,
        cron_schedule=publishing.schedule,
        execution_timezone="UTC",
        default_status=status,
    )
