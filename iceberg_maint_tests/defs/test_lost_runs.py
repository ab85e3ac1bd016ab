"""Runs whose process is gone: told by their silence, and only by a silence that was seen to last.

No `from __future__ import annotations` here: Dagster reads the annotations of op functions.
"""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_origin import (
    InProcessCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from iceberg_maint.defs.names import IN_TICK_TAG, OBSERVE_JOB
from iceberg_maint.defs.runs.upkeep import (
    MissedHeartbeats,
    build_executor,
    build_lost_runs_sensor,
    update_missed_heartbeats,
)
from iceberg_maint.ledger.database import Database
from iceberg_maint.ledger.leases import SqlLeases
from iceberg_maint.loop import guards
from iceberg_maint_tests.support.fakes.ledger import memory_ledger

pytestmark = pytest.mark.slow

HERE, ELSEWHERE = "here", "elsewhere"
T0_MS = 1_800_000_000_000
LOCATION = InProcessCodeLocationOrigin(LoadableTargetOrigin(module_name="lake"), location_name=HERE)


@dg.op
def work() -> None:
    """What a run of these tests does."""


@dg.job(name=OBSERVE_JOB)
def observe() -> None:
    work()


@dg.job
def theirs() -> None:
    work()


class Heartbeats:
    """Two parts of a ledger in memory whose clock is set."""

    now = T0_MS
    read_only = False

    def __init__(self) -> None:
        self.beats: dict[str, int] = {}

    def now_ms(self) -> int:
        return self.now

    def record_run_heartbeat(self, run_id: str) -> None:
        if self.read_only:
            raise OSError("the disk is full")
        self.beats[run_id] = self.now

    def run_heartbeats(self) -> dict[str, int]:
        return dict(self.beats)

    def end_run(self, run_id: str) -> None:
        self.beats.pop(run_id, None)


class Sensor:
    """The sensor's ticks, with the cursor that Dagster keeps between them."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance, self.ledger = instance, Heartbeats()
        ledger: Any = replace(memory_ledger(), leases=self.ledger, registry=self.ledger)
        self._sensor = build_lost_runs_sensor(ledger)
        self._cursor: str | None = None

    def started(self, location: str = HERE, job: dg.JobDefinition = observe) -> dg.DagsterRun:
        where = RemoteRepositoryOrigin(LOCATION._replace(location_name=location), "__repository__")
        return self.instance.create_run_for_job(
            job,
            status=dg.DagsterRunStatus.STARTED,
            remote_job_origin=RemoteJobOrigin(where, job.name),
            job_code_origin=None,
        )

    def tick(self, seconds_later: float = 30) -> Any:
        self.ledger.now += int(seconds_later * 1000)
        with dg.build_sensor_context(instance=self.instance, cursor=self._cursor) as context:
            context._code_location_origin = LOCATION  # Dagster's builder takes none
            tick = self._sensor.evaluate_tick(context)
        self._cursor = tick.cursor
        return tick

    def status(self, run: dg.DagsterRun) -> dg.DagsterRunStatus:
        found = self.instance.get_run_by_id(run.run_id)
        assert found is not None
        return found.status


@pytest.fixture
def sensor(instance: dg.DagsterInstance) -> Sensor:
    return Sensor(instance)


def test_silence_lasts_from_the_first_look_at_the_same_beat_on() -> None:
    first = update_missed_heartbeats({}, {"a": 5, "b": None}, 1000)
    assert first == {"a": MissedHeartbeats(5, 1000, 1), "b": MissedHeartbeats(None, 1000, 1)}
    second = update_missed_heartbeats(first, {"a": 5, "b": 7, "c": 9}, 2000)
    assert second == {
        "a": MissedHeartbeats(5, 1000, 2),
        "b": MissedHeartbeats(7, 2000, 1),
        "c": MissedHeartbeats(9, 2000, 1),
    }
    assert update_missed_heartbeats(second, {"a": 6}, 3000) == {"a": MissedHeartbeats(6, 3000, 1)}


@pytest.mark.parametrize(
    ("beat_ms", "ticks", "after_seconds", "lost"),
    [
        (5, 3, 60, True),
        (5, 3, 59.999, False),
        (5, 2, 3600, False),
        (None, 3, 599.999, False),
        (None, 3, 600, True),
        (None, 2, 3600, False),
    ],
)
def test_silence_is_a_loss_once_it_has_lasted_and_was_seen_three_times(
    beat_ms: int | None, ticks: int, after_seconds: float, lost: bool
) -> None:
    assert MissedHeartbeats(beat_ms, 1000, ticks).is_lost(1000 + int(after_seconds * 1000)) is lost


def test_run_that_goes_silent_is_failed_and_forgotten_with_a_reason_to_read(sensor: Sensor) -> None:
    run = sensor.started()
    sensor.ledger.beats[run.run_id] = T0_MS
    for _ in range(2):
        assert sensor.tick().skip_message == "0 of 1 started runs are lost"
        assert sensor.status(run) is dg.DagsterRunStatus.STARTED
    assert sensor.tick().skip_message == "1 of 1 started runs are lost"
    assert sensor.status(run) is dg.DagsterRunStatus.FAILURE
    assert set(sensor.ledger.beats) == {"lost_runs"}
    [told] = sensor.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)
    assert "The run's process has sent no heartbeat for 60 seconds" in str(told.message)
    assert sensor.tick().skip_message == "0 of 0 started runs are lost"


def test_run_that_beats_between_looks_lives_however_far_apart_they_are(sensor: Sensor) -> None:
    run = sensor.started()
    for _ in range(4):
        sensor.ledger.beats[run.run_id] = sensor.ledger.now
        sensor.tick(3600)
    assert sensor.status(run) is dg.DagsterRunStatus.STARTED


def test_run_seen_silent_after_all_were_away_for_hours_is_given_a_look_to_beat(sensor: Sensor) -> None:
    run = sensor.started()
    sensor.ledger.beats[run.run_id] = T0_MS
    sensor.tick()
    sensor.tick(7200)
    sensor.ledger.beats[run.run_id] = sensor.ledger.now + 10_000
    for _ in range(2):
        sensor.tick()
    assert sensor.status(run) is dg.DagsterRunStatus.STARTED


def test_runs_are_not_failed_by_a_ledger_that_takes_no_beats(sensor: Sensor) -> None:
    run = sensor.started()
    sensor.ledger.beats[run.run_id] = T0_MS
    sensor.ledger.read_only = True
    for _ in range(4):
        with pytest.raises(OSError, match="the disk is full"):
            sensor.tick(3600)
    assert sensor.status(run) is dg.DagsterRunStatus.STARTED


def test_run_that_was_never_heard_is_lost_after_ten_minutes(sensor: Sensor) -> None:
    run = sensor.started()
    sensor.tick()
    sensor.tick(300)
    sensor.tick(299)
    assert sensor.status(run) is dg.DagsterRunStatus.STARTED
    sensor.tick(1)
    assert sensor.status(run) is dg.DagsterRunStatus.FAILURE


@pytest.mark.parametrize(("location", "status"), [(HERE, "FAILURE"), (ELSEWHERE, "STARTED")])
def test_observation_in_a_tick_whose_code_server_died_is_failed(
    sensor: Sensor, location: str, status: str
) -> None:
    run = sensor.instance.create_run_for_job(
        observe, status=dg.DagsterRunStatus.STARTED, tags={IN_TICK_TAG: location}
    )
    sensor.ledger.beats[run.run_id] = T0_MS
    for _ in range(4):
        sensor.tick(60)
    assert sensor.status(run).value == status


def test_run_of_another_location_is_left_to_it(sensor: Sensor) -> None:
    run = sensor.started(ELSEWHERE)
    sensor.ledger.beats[run.run_id] = T0_MS
    for _ in range(4):
        assert sensor.tick(3600).skip_message == "0 of 0 started runs are lost"
    assert sensor.status(run) is dg.DagsterRunStatus.STARTED


def test_run_of_a_job_of_others_that_never_beats_is_left_alone(sensor: Sensor) -> None:
    run = sensor.started(job=theirs)
    for _ in range(4):
        sensor.tick(3600)
    assert sensor.status(run) is dg.DagsterRunStatus.STARTED


def test_run_that_ended_by_itself_keeps_its_end(sensor: Sensor, monkeypatch: pytest.MonkeyPatch) -> None:
    run = sensor.started()
    sensor.ledger.beats[run.run_id] = T0_MS
    sensor.tick(), sensor.tick()
    whole = sensor.instance.get_runs

    def get_runs_then_end(*args: Any, **more: Any) -> Any:
        runs = whole(*args, **more)
        sensor.instance.report_dagster_event(
            dg.DagsterEvent(dg.DagsterEventType.RUN_SUCCESS.value, OBSERVE_JOB), run.run_id
        )
        return runs

    monkeypatch.setattr(sensor.instance, "get_runs", get_runs_then_end)
    sensor.tick()
    assert sensor.status(run) is dg.DagsterRunStatus.SUCCESS


# the executor that makes runs heard

SHARED = memory_ledger().leases
HEARD: list[tuple[str, bool]] = []


@dg.op
def ask_the_ledger(context: dg.OpExecutionContext) -> None:
    beat = threading.Event()
    first = SHARED.run_heartbeats()[context.run_id]
    for _ in range(500):
        if SHARED.run_heartbeats()[context.run_id] > first:
            break
        beat.wait(0.01)
    HEARD.append((context.run_id, SHARED.run_heartbeats()[context.run_id] > first))


@dg.job(executor_def=build_executor(SHARED))
def asking() -> None:
    ask_the_ledger()


@dg.op
def fail() -> None:
    raise ValueError("as it should")


@dg.job(executor_def=build_executor(SHARED))
def failing() -> None:
    fail()


@pytest.fixture
def stored() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as made:
        yield made


def test_run_is_heard_again_and_again_while_it_works_and_no_more_once_it_has_ended(
    stored: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "RUN_BEAT_SECONDS", 0.01)
    with dg.execute_job(dg.reconstructable(asking), stored) as done:
        assert done.success
    assert [(run_id, True) for run_id in [done.run_id]] == HEARD
    with dg.execute_job(dg.reconstructable(failing), stored) as done:
        assert not done.success
    assert SHARED.run_heartbeats() == {}


def test_run_whose_ledger_is_away_does_its_work(stored: dg.DagsterInstance) -> None:
    with dg.execute_job(dg.reconstructable(away), stored) as done:
        assert done.success


class Away(SqlLeases):
    """Of a ledger that cannot be reached."""

    def record_run_heartbeat(self, run_id: str) -> None:
        raise OSError(run_id)

    end_run = record_run_heartbeat


@dg.job(executor_def=build_executor(Away(Database("sqlite://"))))
def away() -> None:
    work()


def test_executor_takes_the_configuration_of_dagsters_own(stored: dg.DagsterInstance) -> None:
    config = {"execution": {"config": {"retries": {"disabled": {}}}}}
    with dg.execute_job(dg.reconstructable(away), stored, run_config=config) as done:
        assert done.success
    assert json.dumps(done.dagster_run.run_config) == json.dumps(config)
