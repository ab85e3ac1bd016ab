"""What Dagster's storage says of the ticks of sensors and of runs, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import dagster as dg
from dagster._core.scheduler.instigation import TickStatus

DAGSTER_SECONDS = 60
"""Dagster fails a tick after this time."""
LOST_INTERVALS = 2
"""Dagster looks every five seconds for sensors whose last tick began an interval ago, and begins a tick when one of its
threads is free. Between two ticks that begin two intervals apart a whole tick is missing."""


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick: seconds since the epoch, its end None while it runs, its status and its error."""

    began: float
    ended: float | None
    status: TickStatus
    error: str = ""


@dataclass(frozen=True, slots=True)
class Sensor:
    """One sensor of one code location, and its ticks from the oldest to the newest."""

    name: str
    interval_seconds: int
    ticks: Sequence[Tick]

    def seconds(self) -> list[float]:
        """How long each ended tick took."""
        return [t.ended - t.began for t in self.ticks if t.ended is not None]

    def gaps(self, since: float, until: float) -> list[float]:
        """Seconds between the beginnings of ticks, with those to the beginning and the end of the time in question."""
        return [b - a for a, b in pairwise([since, *(t.began for t in self.ticks), until])]


def faults_of_ticks(sensor: Sensor, since: float, until: float) -> list[str]:
    """The ticks that failed, took too long, did not end or are missing."""
    found = []
    for tick in sensor.ticks:
        end = until if tick.ended is None else tick.ended
        if tick.status is TickStatus.FAILURE:
            found.append(f"{sensor.name}: a tick failed: {tick.error}")
        if end - tick.began >= DAGSTER_SECONDS:
            found.append(f"{sensor.name}: a tick took {end - tick.began:.0f} s")
    limit = LOST_INTERVALS * sensor.interval_seconds
    found += [
        f"{sensor.name}: {gap:.0f} s without a tick, which is due every {sensor.interval_seconds} s"
        for gap in sensor.gaps(since, until)
        if gap >= limit
    ]
    return found


def read_sensors(instance: dg.DagsterInstance) -> list[Sensor]:
    """All sensors that have begun a tick."""
    sensors = []
    for state in instance.all_instigator_state():
        data = state.instigator_data
        interval = getattr(data, "min_interval", None)
        if interval is None:
            continue
        ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id)
        location = state.origin.repository_origin.code_location_origin.location_name
        ordered = sorted(ticks, key=lambda t: t.timestamp)
        sensors.append(
            Sensor(
                f"{location} {state.name}",
                interval,
                [
                    Tick(t.timestamp, t.end_timestamp, t.status, t.error.message.strip() if t.error else "")
                    for t in ordered
                ],
            )
        )
    return sensors


def faults_of_runs(instance: dg.DagsterInstance) -> list[str]:
    """The runs that did not succeed, and those that a tick requested and nobody has."""
    runs = {run.run_id: run for run in instance.get_runs()}
    found = [
        f"run {run.run_id} ({run.job_name}) is {run.status.value}"
        for run in runs.values()
        if run.status is not dg.DagsterRunStatus.SUCCESS
    ]
    # A tick of the automation that requests many partitions of an asset names a backfill.
    known = {*runs, *(backfill.backfill_id for backfill in instance.get_backfills())}
    requested = _requested(instance)
    return found + [f"run {run_id} of a tick does not exist" for run_id in sorted(requested - known)]


def _requested(instance: dg.DagsterInstance) -> set[str]:
    ids: Iterable[str] = (
        run_id
        for state in instance.all_instigator_state()
        for tick in instance.get_ticks(state.instigator_origin_id, state.selector_id)
        for run_id in tick.run_ids
    )
    return set(ids)
