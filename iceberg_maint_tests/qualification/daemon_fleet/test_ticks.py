"""The checks of the suite: which ticks it takes for lost."""

from __future__ import annotations

import pytest
from dagster._core.scheduler.instigation import TickStatus

from iceberg_maint_tests.qualification.daemon_fleet.ticks import Sensor, Tick, faults_of_ticks

pytestmark = pytest.mark.slow


def sensor(*began: float, seconds: float = 1.0) -> Sensor:
    return Sensor("due_maintenance", 30, [Tick(b, b + seconds, TickStatus.SKIPPED) for b in began])


def test_ticks_at_their_interval_are_no_fault() -> None:
    assert faults_of_ticks(sensor(0, 35, 94, 124), since=0, until=150) == []


@pytest.mark.parametrize(
    ("began", "gap"), [((0, 60), 60), ((0, 30, 95), 65), ((61,), 61), ((0, 30), 120), ((), 150)]
)
def test_two_intervals_without_a_tick_are_a_lost_tick(began: tuple[float, ...], gap: int) -> None:
    [first, *_] = faults_of_ticks(sensor(*began), since=0, until=150)
    assert first == f"due_maintenance: {gap} s without a tick, which is due every 30 s"


def test_tick_that_fails_or_takes_a_minute_or_does_not_end_is_a_fault() -> None:
    ticks = [
        Tick(0, 1, TickStatus.FAILURE, "database is locked"),
        Tick(30, 90, TickStatus.SUCCESS),
        Tick(80, None, TickStatus.STARTED),
    ]
    assert faults_of_ticks(Sensor("table_changes", 60, ticks), since=0, until=140) == [
        "table_changes: a tick failed: database is locked",
        "table_changes: a tick took 60 s",
        "table_changes: a tick took 60 s",
    ]
