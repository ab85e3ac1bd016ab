"""Runs that go on in Dagster's books only: found by their silence in the ledger, and failed.

Dagster's own launcher learns of a dead worker from the code server that started it. Where both die
at once, as in a reboot, nobody tells, and the run would keep its pool's slot for ever. A run that was
failed while its process lives after all harms no table: its lease's fence holds it off.

No `from __future__ import annotations` here: Dagster reads the annotations of its functions.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

import dagster as dg
from dagster._core.remote_representation.code_location import is_implicit_asset_job_name

from iceberg_maint.defs.names import OBSERVE_JOB
from iceberg_maint.ports.ledger import Ledger

LOST_RUNS_INTERVAL_SECONDS = 30
SILENT_SECONDS = 60
"""A run that was heard is lost after this time without another beat."""
NEVER_SEEN_SECONDS = 600
"""One that was never heard: it died within a moment of its start, or its ledger was away."""
_LOOKS = 3
"""How often its silence is seen at least: a look right after the ledger, the sensor or the whole
machine was away sees every beat old, the next one does not."""


@dataclass(frozen=True, slots=True)
class MissedHeartbeats:
    """A run without a new beat. `beat_ms`: its last one, None without any; `since_ms`: when that
    was first seen; `looks`: how often it was seen."""

    beat_ms: int | None
    since_ms: int
    looks: int = 1

    def is_lost(self, now_ms: int) -> bool:
        """Whether it lasts too long."""
        patience_seconds = NEVER_SEEN_SECONDS if self.beat_ms is None else SILENT_SECONDS
        return self.looks >= _LOOKS and now_ms - self.since_ms >= patience_seconds * 1000


def update_missed_heartbeats(
    before: Mapping[str, MissedHeartbeats], beats: Mapping[str, int | None], now_ms: int
) -> dict[str, MissedHeartbeats]:
    """The silence of the runs that `beats` names, as of now."""
    heard = {}
    for run_id, beat_ms in beats.items():
        known = before.get(run_id)
        if known is not None and known.beat_ms == beat_ms:
            heard[run_id] = MissedHeartbeats(beat_ms, known.since_ms, known.looks + 1)
        else:
            heard[run_id] = MissedHeartbeats(beat_ms, now_ms)
    return heard


def build_lost_runs_sensor(ledger: Ledger, status: dg.DefaultSensorStatus) -> dg.SensorDefinition:
    """Fails the runs of this code location whose process is gone; Dagster then frees their slots and
    retries them. Its cursor holds the silences."""

    @dg.sensor(
        name="lost_runs",
        minimum_interval_seconds=LOST_RUNS_INTERVAL_SECONDS,
        default_status=status,
        description="Fails runs whose process is gone with the code server that would have told of it.",
    )
    def lost_runs(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        origin = context.code_location_origin
        runs = _started(context.instance, origin.location_name if origin else None)
        # Whoever judges silence must be able to speak: where nothing can be written nobody is heard.
        ledger.record_run_heartbeat("lost_runs")
        beats, now_ms = ledger.run_heartbeats(), ledger.now_ms()
        listened = {r.run_id: beats.get(r.run_id) for r in runs if r.run_id in beats or _is_ours(r)}
        silences = update_missed_heartbeats(_read(context.cursor), listened, now_ms)
        lost = {run_id: s for run_id, s in silences.items() if s.is_lost(now_ms)}
        for run_id, silence in lost.items():
            _fail(context.instance, run_id, (now_ms - silence.since_ms) // 1000)
            ledger.end_run(run_id)
            context.log.warning(f"run {run_id} is lost")
        left = {run_id: asdict(s) for run_id, s in silences.items() if run_id not in lost}
        return dg.SensorResult(
            skip_reason=f"{len(lost)} of {len(listened)} started runs are lost", cursor=json.dumps(left)
        )

    return lost_runs


def _read(cursor: str | None) -> dict[str, MissedHeartbeats]:
    return {run_id: MissedHeartbeats(**kept) for run_id, kept in json.loads(cursor or "{}").items()}


def _started(instance: dg.DagsterInstance, location_name: str | None) -> Iterable[dg.DagsterRun]:
    """Runs that Dagster takes for running and that it launched from this code location."""
    for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])):
        origin = run.remote_job_origin
        if origin is not None and origin.location_name == location_name:
            yield run


def _is_ours(run: dg.DagsterRun) -> bool:
    """Whether our executor runs it: jobs that others define beside ours may have one of their own."""
    return run.job_name == OBSERVE_JOB or is_implicit_asset_job_name(run.job_name)


def _fail(instance: dg.DagsterInstance, run_id: str, silent_seconds: int) -> None:
    run = instance.get_run_by_id(run_id)
    if run is not None and run.status is dg.DagsterRunStatus.STARTED:
        instance.report_run_failed(
            run,
            f"Nothing was heard of the run's process for {silent_seconds} seconds: it is gone, and the code "
            "server that would have told of it too. The next run settles what was in flight.",
        )
