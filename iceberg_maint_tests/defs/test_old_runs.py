"""Old runs of Dagster are deleted, and automation and checks go on as before.

No `from __future__ import annotations` here: Dagster reads the annotations of op functions.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.runs.schema import RunsTable
from sqlalchemy import select, update

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.names import IN_TICK_TAG, PARTITION_CHECKS
from iceberg_maint.defs.runs import upkeep
from iceberg_maint.defs.runs.upkeep import START, OldRuns, build_old_runs_sensor
from iceberg_maint_tests.defs.conftest import NAMES, SETTINGS, World, key
from iceberg_maint_tests.support.loop.world import SetClock

pytestmark = pytest.mark.slow

T = TableId.parse("lake.db.t")
ASSET = NAMES.get_asset_key(T)
KEEP_DAYS = 30


@pytest.fixture
def worn(world: World) -> World:
    """A table with one partition that a run healed and one that is due, observed three times. All of it is old, but
    for one run of today."""
    table = world.catalog.create("db.t")
    table.add("d1", 8)
    table.add("d2", 2)
    world.observe()
    assert world.maintain(str(T), key("d1")).success
    table.add("d2", 8)
    world.observe()
    world.observe(changed_only=False)
    _age(world.instance, world.clock.ms)
    assert dg.materialize([_other], instance=world.instance).success
    return world


@dg.asset
def _other() -> None:
    """An asset of other definitions."""


def _age(instance: dg.DagsterInstance, now_ms: int) -> None:
    """Sets the times of all runs to a day beyond the limit."""
    at = datetime.fromtimestamp(now_ms / 1000, UTC).replace(tzinfo=None) - timedelta(days=KEEP_DAYS + 1)
    with instance.run_storage.connect() as conn:  # type: ignore[attr-defined]
        for number in conn.scalars(select(RunsTable.c.id)).all():
            row = update(RunsTable).where(RunsTable.c.id == number)
            conn.execute(row.values(create_timestamp=at + timedelta(seconds=number)))


def _old(world: World, keep_days: int = KEEP_DAYS) -> OldRuns:
    return OldRuns(keep_days, world.context.clock, world.context.ledger.registry.now_ms)


def _shown(instance: dg.DagsterInstance) -> list[tuple[Any, ...]]:
    """The result of each check of each partition that Dagster stores."""
    checks = [NAMES.get_check_key(T, name) for name in PARTITION_CHECKS]
    infos = instance.event_log_storage.get_asset_check_partition_info(checks)
    return sorted((i.check_key.name, str(i.partition_key), i.latest_execution_status.value) for i in infos)


def _run_ids(world: World) -> list[str]:
    return [run.run_id for run in reversed(world.instance.get_runs())]


def test_old_runs_go_and_checks_and_automation_stay(worn: World) -> None:
    before, today, requested = _shown(worn.instance), _run_ids(worn)[-1], worn.tick()
    assert requested == {str(T): [key("d2")]}
    assert _old(worn).delete(worn.instance, None, None) == (4, START)
    assert _run_ids(worn) == [today]
    assert (_shown(worn.instance), worn.tick()) == (before, requested)


def test_partition_whose_run_was_deleted_is_missing_until_the_next_observation_reports_it(
    worn: World,
) -> None:
    assert worn.instance.get_materialized_partitions(ASSET) == {key("d1"), key("d2")}
    _old(worn).delete(worn.instance, None, None)
    assert worn.instance.get_materialized_partitions(ASSET) == set()
    worn.observe(changed_only=False)
    assert worn.instance.get_materialized_partitions(ASSET) == {key("d1")}


def test_run_younger_than_the_limit_stays(worn: World) -> None:
    runs = _run_ids(worn)
    assert _old(worn, KEEP_DAYS + 2).delete(worn.instance, None, None) == (0, START)
    assert _run_ids(worn) == runs


def test_clock_that_is_ahead_of_the_other_makes_nothing_old(worn: World) -> None:
    runs, now_ms = _run_ids(worn), worn.clock.ms
    ahead, year = KEEP_DAYS + 2, 365 * 86_400_000
    OldRuns(ahead, SetClock(now_ms + year), lambda: now_ms).delete(worn.instance, None, None)
    OldRuns(ahead, SetClock(now_ms), lambda: now_ms + year).delete(worn.instance, None, None)
    assert _run_ids(worn) == runs


def test_runs_of_another_location_and_of_other_definitions_stay(worn: World) -> None:
    runs = _run_ids(worn)
    assert dg.materialize([_other], instance=worn.instance).success
    _age(worn.instance, worn.clock.ms)
    for run_id in runs:
        worn.instance.add_run_tags(run_id, {IN_TICK_TAG: "theirs"})
    assert _old(worn).delete(worn.instance, "ours", None) == (0, START)
    assert len(_run_ids(worn)) == len(runs) + 1


def test_tick_without_time_left_goes_on_where_it_stopped(
    worn: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "WORK_SECONDS", 0.0)
    cursor, numbers = "", []
    while cursor != START:
        deleted, cursor = _old(worn).delete(worn.instance, None, cursor)
        numbers.append(deleted)
    assert numbers == [0, 1, 1, 1, 1, 0]  # a tick reads one run; the first is of other definitions
    assert len(_run_ids(worn)) == 1


def test_newest_run_stays_however_old(worn: World) -> None:
    worn.observe(changed_only=False)
    _age(worn.instance, worn.clock.ms)
    newest = _run_ids(worn)[-1]
    _old(worn).delete(worn.instance, None, None)
    assert newest in _run_ids(worn)


def test_run_in_files_of_sqlite_leaves_no_file(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides=SETTINGS) as instance:
        tags = {"iceberg_maint/table": str(T)}
        old, new = (dg.materialize([_other], instance=instance, tags=tags).dagster_run for _ in range(2))
        now_ms = int(datetime.now(UTC).timestamp() * 1000)
        _age(instance, now_ms)
        files = OldRuns(KEEP_DAYS, SetClock(now_ms), lambda: now_ms)
        assert [p.name for p in tmp_path.rglob(f"{old.run_id}.db")] == [f"{old.run_id}.db"]
        assert files.delete(instance, None, None) == (1, START)
        assert list(tmp_path.rglob(f"{old.run_id}*")) == []
        assert [run.run_id for run in instance.get_runs()] == [new.run_id]


def test_sensor_requests_nothing_and_says_what_it_deleted(worn: World) -> None:
    sensor = build_old_runs_sensor(_old(worn))
    data = sensor.evaluate_tick(dg.build_sensor_context(worn.instance))
    assert (data.run_requests, data.skip_message, data.cursor) == ([], "deleted 4 old runs", START)
