"""Heartbeats of runs and the executor that sends them; the sensors of lost and of old runs."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

import dagster as dg

from iceberg_maint.defs.dagster_internals import (
    ExecutionPlan,
    PlanOrchestrationContext,
    RetryMode,
    delete_run_files,
    is_implicit_asset_job_name,
)
from iceberg_maint.defs.instance import ENDED_STATUSES
from iceberg_maint.defs.names import IN_TICK_TAG, OBSERVE_JOB, TABLE_TAG
from iceberg_maint.loop.context import End
from iceberg_maint.loop.guards import answered_signals, run_heartbeat
from iceberg_maint.ports.clock import Clock
from iceberg_maint.ports.ledger import Leases, Ledger
from iceberg_maint.ports.observers import NO_TELEMETRY, Telemetry


def build_executor(
    leases: Leases, telemetry: Telemetry = NO_TELEMETRY, end: End | None = None
) -> dg.ExecutorDefinition:
    """One process per run, so that one run has one Spark session. It has the configuration of Dagster's own. `end` ends the
    process of a run that does not answer a termination; None in other processes."""

    def make(context: dg.InitExecutorContext) -> dg.Executor:
        create = dg.in_process_executor.executor_creation_fn
        assert create is not None  # Dagster's in-process executor has one
        return HeartbeatExecutor(create(context), leases, telemetry, end)

    return dg.ExecutorDefinition(
        name=dg.in_process_executor.name,
        config_schema=dg.in_process_executor.config_schema.as_field(),
        executor_creation_fn=make,
        description="Executes all steps in one process and records a heartbeat in the ledger.",
    )


class HeartbeatExecutor(dg.Executor):
    """Executes with another executor, and records the heartbeat that `lost_runs` reads. At the end it waits a
    limited time for the receivers of telemetry."""

    def __init__(
        self,
        inner: dg.Executor,
        leases: Leases,
        telemetry: Telemetry = NO_TELEMETRY,
        end: End | None = None,
    ) -> None:
        self._inner, self._leases, self._telemetry, self._end = inner, leases, telemetry, end

    @property
    def retries(self) -> RetryMode:
        """The retry mode of the other executor."""
        return self._inner.retries

    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Iterator[dg.DagsterEvent]:
        """Yields Dagster's events. The heartbeat starts before the first."""
        with run_heartbeat(self._leases, plan_context.run_id), answered_signals(self._end):
            try:
                yield from self._inner.execute(plan_context, execution_plan)
            finally:
                self._telemetry.close()


LOST_RUNS_INTERVAL_SECONDS = 30
SILENT_SECONDS = 60
"""A run that has sent a heartbeat is lost after this time without another one."""
NEVER_SEEN_SECONDS = 600
"""A run that never sent a heartbeat is lost after this time. It died at its start, or could not reach the
ledger."""
_TICKS = 3
"""A run is lost only after this many ticks without a new heartbeat.

The first tick after an outage of the ledger, the sensor or the machine finds every heartbeat old. The
next tick does not.
"""


@dataclass(frozen=True, slots=True)
class MissedHeartbeats:
    """A run without a new heartbeat.

    `beat_ms`: time of its last heartbeat, None without one. `since_ms`: time of the first tick that
    read this value. `ticks`: number of ticks that read it.
    """

    beat_ms: int | None
    since_ms: int
    ticks: int = 1

    def is_lost(self, now_ms: int) -> bool:
        """Whether the run has been without a heartbeat for too long."""
        limit_seconds = NEVER_SEEN_SECONDS if self.beat_ms is None else SILENT_SECONDS
        return self.ticks >= _TICKS and now_ms - self.since_ms >= limit_seconds * 1000


def update_missed_heartbeats(
    before: Mapping[str, MissedHeartbeats], beats: Mapping[str, int | None], now_ms: int
) -> dict[str, MissedHeartbeats]:
    """The missed heartbeats of the runs in `beats`, as of `now_ms`."""
    missed = {}
    for run_id, beat_ms in beats.items():
        known = before.get(run_id)
        if known is not None and known.beat_ms == beat_ms:
            missed[run_id] = MissedHeartbeats(beat_ms, known.since_ms, known.ticks + 1)
        else:
            missed[run_id] = MissedHeartbeats(beat_ms, now_ms)
    return missed


def build_lost_runs_sensor(ledger: Ledger) -> dg.SensorDefinition:
    """Fails the runs of this code location whose process is gone. Dagster then frees their slots and
    retries them. The sensor's cursor holds the missed heartbeats."""

    @dg.sensor(
        name="lost_runs",
        minimum_interval_seconds=LOST_RUNS_INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Fails runs whose process has died together with its code server.",
    )
    def lost_runs(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        origin = context.code_location_origin
        runs = _started(context.instance, origin.location_name if origin else None)
        # The sensor writes a heartbeat of its own first: if the ledger accepts no writes, no run can send one.
        ledger.leases.record_run_heartbeat("lost_runs")
        beats, now_ms = ledger.leases.run_heartbeats(), ledger.registry.now_ms()
        candidates = {r.run_id: beats.get(r.run_id) for r in runs if r.run_id in beats or _is_ours(r)}
        missed = update_missed_heartbeats(_read(context.cursor), candidates, now_ms)
        lost = {run_id: s for run_id, s in missed.items() if s.is_lost(now_ms)}
        for run_id, heartbeats in lost.items():
            _fail(context.instance, run_id, (now_ms - heartbeats.since_ms) // 1000)
            ledger.leases.end_run(run_id)
            context.log.warning(f"run {run_id} is lost")
        remaining = {run_id: asdict(s) for run_id, s in missed.items() if run_id not in lost}
        return dg.SensorResult(
            skip_reason=f"{len(lost)} of {len(candidates)} started runs are lost",
            cursor=json.dumps(remaining),
        )

    return lost_runs


def _read(cursor: str | None) -> dict[str, MissedHeartbeats]:
    return {run_id: MissedHeartbeats(**fields) for run_id, fields in json.loads(cursor or "{}").items()}


def _started(instance: dg.DagsterInstance, location_name: str | None) -> Iterable[dg.DagsterRun]:
    """The runs that Dagster launched from this code location and considers running."""
    for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])):
        origin = run.remote_job_origin
        name = run.tags.get(IN_TICK_TAG) if origin is None else origin.location_name
        if name is not None and name == location_name:
            yield run


def _is_ours(run: dg.DagsterRun) -> bool:
    """Whether our executor runs it. Other jobs of the code location may have another executor."""
    return run.job_name == OBSERVE_JOB or is_implicit_asset_job_name(run.job_name)


def _fail(instance: dg.DagsterInstance, run_id: str, silent_seconds: int) -> None:
    run = instance.get_run_by_id(run_id)
    if run is not None and run.status is dg.DagsterRunStatus.STARTED:
        instance.report_run_failed(
            run,
            f"The run's process has sent no heartbeat for {silent_seconds} seconds: the process and its code "
            "server have died. The next run settles the unfinished attempts.",
        )


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


def build_old_runs_sensor(old_runs: OldRuns) -> dg.SensorDefinition:
    """The sensor. It requests no run."""

    @dg.sensor(
        name="old_runs",
        description=f"Deletes runs of this location that are older than {old_runs.keep_days} days. It starts no run.",
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
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
