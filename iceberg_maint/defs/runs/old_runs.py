"""The sensor that deletes old runs of Dagster. Dagster bounds its ticks, not its runs and events."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import dagster as dg

from iceberg_maint.defs.dagster_internals import delete_run_files
from iceberg_maint.defs.instance import ENDED_STATUSES
from iceberg_maint.defs.names import IN_TICK_TAG, OBSERVE_JOB, TABLE_TAG
from iceberg_maint.ports.clock import Clock

INTERVAL_SECONDS = 600
WORK_SECONDS = 10.0
"""Seconds after which a tick deletes nothing more."""
RUNS_PER_TICK = 500
START = "1970-01-01T00:00:00+00:00"
"""The cursor before the first run. Dagster does not store an empty cursor."""


@dataclass(frozen=True, slots=True)
class OldRuns:
    """Deletes the runs of one code location that ended and are older than `keep_days`. `ledger_now_ms` is the
    ledger's clock."""

    keep_days: int
    clock: Clock
    ledger_now_ms: Callable[[], int]

    def delete(
        self, instance: dg.DagsterInstance, location: str | None, cursor: str | None
    ) -> tuple[int, str]:
        """Deletes runs that were created after the time in `cursor`, the oldest first. Returns their number and the next
        cursor: `START` when the last run was read. `location` is None outside the daemon."""
        # The earlier of two clocks: one that is ahead must not make everything old.
        now_ms = min(self.clock.now_ms(), self.ledger_now_ms())
        old = dg.RunsFilter(
            statuses=list(ENDED_STATUSES),
            created_after=datetime.fromisoformat(cursor or START),
            created_before=datetime.fromtimestamp(now_ms / 1000, UTC) - timedelta(days=self.keep_days),
        )
        records = instance.get_run_records(old, RUNS_PER_TICK, order_by="create_timestamp", ascending=True)
        deadline, deleted, cursor = self.clock.monotonic_seconds() + WORK_SECONDS, 0, START
        # SQLite would use the number of the newest event again.
        newest = {run.run_id for run in instance.get_runs(limit=1)}
        for record in records:
            run = record.dagster_run
            if _belongs(run, location) and run.run_id not in newest:
                instance.delete_run(run.run_id)
                delete_run_files(instance, run.run_id)
                deleted += 1
            cursor = record.create_timestamp.isoformat()
            if self.clock.monotonic_seconds() >= deadline:
                return deleted, cursor
        return deleted, cursor if len(records) == RUNS_PER_TICK else START


def build_old_runs_sensor(old_runs: OldRuns, status: dg.DefaultSensorStatus) -> dg.SensorDefinition:
    """The sensor. It requests no run."""

    @dg.sensor(
        name="old_runs",
        description=f"Deletes runs of this location that are older than {old_runs.keep_days} days. It starts no run.",
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=status,
    )
    def old_runs_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        origin = context.code_location_origin
        deleted, cursor = old_runs.delete(
            context.instance, origin.location_name if origin else None, context.cursor
        )
        return dg.SensorResult(skip_reason=f"deleted {deleted} old runs", cursor=cursor)

    return old_runs_sensor


def _belongs(run: dg.DagsterRun, location: str | None) -> bool:
    """Whether the run is of this code location. One without a location is ours by its job or its tag."""
    origin = run.remote_job_origin
    name = run.tags.get(IN_TICK_TAG) if origin is None else origin.location_name
    return name == location if name else run.job_name == OBSERVE_JOB or TABLE_TAG in run.tags
