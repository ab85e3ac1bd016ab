"""Fails runs whose heartbeats in the ledger have stopped.

Dagster's own launcher learns of a dead worker from the code server that started it. If both die at
once, as in a reboot, nothing reports the run, and without this sensor it keeps its pool's slot. If a run
is failed although its process is alive, no table is harmed: the fence of its lease refuses its commits.

No `from __future__ import annotations` here: Dagster reads the annotations of its functions.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

import dagster as dg
from dagster._core.remote_representation.code_location import is_implicit_asset_job_name

from iceberg_maint.defs.names import IN_TICK_TAG, OBSERVE_JOB
from iceberg_maint.ports.ledger import Ledger

LOST_RUNS_INTERVAL_SECONDS = 30
SILENT_SECONDS = 60
"""A run that has sent a heartbeat is lost after this time without another one."""
NEVER_SEEN_SECONDS = 600
"""A run that never sent a heartbeat is lost after this time. It died at its start, or could not reach the
ledger."""
_LOOKS = 3
"""A run is lost only after this many ticks without a new heartbeat.

The first tick after an outage of the ledger, the sensor or the machine finds every heartbeat old. The
next tick does not.
"""


@dataclass(frozen=True, slots=True)
class MissedHeartbeats:
    """A run without a new heartbeat.

    `beat_ms`: time of its last heartbeat, None without one. `since_ms`: time of the first tick that
    read this value. `looks`: number of ticks that read it.
    """

    beat_ms: int | None
    since_ms: int
    looks: int = 1

    def is_lost(self, now_ms: int) -> bool:
        """Whether the run has been without a heartbeat for too long."""
        limit_seconds = NEVER_SEEN_SECONDS if self.beat_ms is None else SILENT_SECONDS
        return self.looks >= _LOOKS and now_ms - self.since_ms >= limit_seconds * 1000


def update_missed_heartbeats(
    before: Mapping[str, MissedHeartbeats], beats: Mapping[str, int | None], now_ms: int
) -> dict[str, MissedHeartbeats]:
    """The missed heartbeats of the runs in `beats`, as of `now_ms`."""
    missed = {}
    for run_id, beat_ms in beats.items():
        known = before.get(run_id)
        if known is not None and known.beat_ms == beat_ms:
            missed[run_id] = MissedHeartbeats(beat_ms, known.since_ms, known.looks + 1)
        else:
            missed[run_id] = MissedHeartbeats(beat_ms, now_ms)
    return missed


def build_lost_runs_sensor(ledger: Ledger, status: dg.DefaultSensorStatus) -> dg.SensorDefinition:
    """Fails the runs of this code location whose process is gone. Dagster then frees their slots and
    retries them. The sensor's cursor holds the missed heartbeats."""

    @dg.sensor(
        name="lost_runs",
        minimum_interval_seconds=LOST_RUNS_INTERVAL_SECONDS,
        default_status=status,
        description="Fails runs whose process has died together with its code server.",
    )
    def lost_runs(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        origin = context.code_location_origin
        runs = _started(context.instance, origin.location_name if origin else None)
        # The sensor writes a heartbeat of its own first: if the ledger accepts no writes, no run can send one.
        ledger.record_run_heartbeat("lost_runs")
        beats, now_ms = ledger.run_heartbeats(), ledger.now_ms()
        candidates = {r.run_id: beats.get(r.run_id) for r in runs if r.run_id in beats or _is_ours(r)}
        missed = update_missed_heartbeats(_read(context.cursor), candidates, now_ms)
        lost = {run_id: s for run_id, s in missed.items() if s.is_lost(now_ms)}
        for run_id, heartbeats in lost.items():
            _fail(context.instance, run_id, (now_ms - heartbeats.since_ms) // 1000)
            ledger.end_run(run_id)
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
