"""Old runs in Dagster's storage go; what Dagster shows as the present state stays.

No `from __future__ import annotations` here: Dagster reads the annotations of op functions.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable
from dagster._core.storage.runs.schema import RunsTable
from sqlalchemy import func, select, update

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.names import IN_TICK_TAG, PARTITION_CHECKS
from iceberg_maint.defs.runs import old_runs
from iceberg_maint.defs.runs.old_runs import (
    Progress,
    RetentionPass,
    build_retention_sensor,
    prune_evaluations,
    prune_run,
)
from iceberg_maint_tests.defs.conftest import NAMES, SETTINGS, World, key
from iceberg_maint_tests.support.runner.loop import SetClock

T = TableId.parse("lake.db.t")
ASSET, HOUSEKEEPING = NAMES.get_asset_key(T), NAMES.get_housekeeping_key(T)
KEEP_DAYS = 30


@pytest.fixture
def worn(world: World) -> World:
    """A table with one partition that a run healed and one that is due, observed three times. All of it is old, but
    for one run of today, which has the newest event."""
    table = world.catalog.create("db.t")
    table.add("d1", 8)
    table.add("d2", 2)
    world.observe()
    assert world.maintain(str(T), key("d1")).success
    table.add("d2", 8)
    world.observe()
    world.observe(changed_only=False)
    _age(world, KEEP_DAYS + 1)
    assert dg.materialize([_other], instance=world.instance).success
    return world


@dg.asset
def _other() -> None:
    """An asset of other definitions."""


def _age(world: World, days: int) -> None:
    """Sets the times of all runs and evaluations to that many days before the clock."""
    at = datetime.fromtimestamp(world.clock.ms / 1000, UTC).replace(tzinfo=None) - timedelta(days=days)
    storage, runs = world.instance.event_log_storage, world.instance.run_storage
    with runs.connect() as conn:  # type: ignore[attr-defined]
        for number in conn.scalars(select(RunsTable.c.id)).all():
            row = update(RunsTable).where(RunsTable.c.id == number)
            conn.execute(row.values(create_timestamp=at + timedelta(seconds=number)))
    with storage.index_connection() as conn:  # type: ignore[attr-defined]
        conn.execute(update(AssetCheckExecutionsTable).values(evaluation_event_timestamp=at))


def _retention(world: World, keep_days: int = KEEP_DAYS) -> RetentionPass:
    return RetentionPass((T,), NAMES, world.runtime.clock, world.runtime.ledger, keep_days)


def _state(instance: dg.DagsterInstance) -> dict[str, Any]:
    """What Dagster shows of the table now."""
    storage = instance.event_log_storage
    checks = [NAMES.get_check_key(T, name) for name in PARTITION_CHECKS]
    kinds = (dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.ASSET_OBSERVATION)
    latest = instance.get_latest_materialization_events([ASSET, HOUSEKEEPING])
    return {
        "materialized": instance.get_materialized_partitions(ASSET),
        "latest": {k: instance.get_latest_storage_id_by_partition(ASSET, k) for k in kinds},
        "last": {k: e and (e.run_id, e.timestamp) for k, e in latest.items()},
        "checks": sorted(
            (
                i.check_key.name,
                str(i.partition_key),
                i.latest_execution_status.value,
                i.latest_check_event_storage_id,
                i.latest_target_materialization_storage_id,
                i.latest_materialization_storage_id,
            )
            for i in storage.get_asset_check_partition_info(checks)
        ),
        "observed": [
            (r.storage_id, r.run_id, r.asset_observation and r.asset_observation.metadata)
            for r in instance.fetch_observations(ASSET, limit=1).records
        ],
    }


def _run_ids(world: World) -> list[str]:
    return [run.run_id for run in reversed(world.instance.get_runs())]


def test_old_runs_go_and_state_of_assets_and_checks_stays(worn: World) -> None:
    before, runs, requested = _state(worn.instance), _run_ids(worn), worn.tick()
    assert requested == {str(T): [key("d2")]}
    progress, sentence = _retention(worn).work(worn.instance, None, Progress())
    assert (progress.tables, progress.after) == (0, None)
    assert "1 of 4 old runs" in sentence
    assert _state(worn.instance) == before
    assert worn.tick() == requested
    first, healed, second, last, today = runs
    # The first observation has the last evaluations of the healthy partition, the run its materialization.
    assert _run_ids(worn) == [r for r in (first, healed, second, last, today) if r != second]
    worn.observe(changed_only=False)
    assert _state(worn.instance)["checks"] == before["checks"]


def test_run_younger_than_the_limit_keeps_all_its_events_and_the_pass_of_the_day_has_ended(
    worn: World,
) -> None:
    logs = {r: len(worn.instance.all_logs(r)) for r in _run_ids(worn)}
    progress, sentence = _retention(worn, KEEP_DAYS + 2).work(worn.instance, None, Progress())
    assert sentence == "deleted 0 evaluations, 0 of 0 old runs, 0 backfills; the pass has ended"
    assert {r: len(worn.instance.all_logs(r)) for r in _run_ids(worn)} == logs
    again, sentence = _retention(worn).work(worn.instance, None, progress)
    assert (again, sentence) == (progress, "the pass of the day has ended")
    worn.clock.ms += old_runs.PASS_EVERY_MS
    _, sentence = _retention(worn).work(worn.instance, None, progress)
    assert "of 4 old runs" in sentence


def test_clock_that_is_ahead_of_the_ledgers_makes_nothing_old(worn: World) -> None:
    runs = _run_ids(worn)
    ahead = SetClock(worn.clock.ms + 365 * 86_400_000)
    retention = RetentionPass((T,), NAMES, ahead, worn.runtime.ledger, KEEP_DAYS + 2)
    retention.work(worn.instance, None, Progress())
    assert _run_ids(worn) == runs
    behind = SetClock(worn.clock.ms - 365 * 86_400_000)
    RetentionPass((T,), NAMES, behind, worn.runtime.ledger, KEEP_DAYS).work(worn.instance, None, Progress())
    assert _run_ids(worn) == runs


def test_runs_of_another_location_and_of_other_definitions_stay(worn: World) -> None:
    runs = _run_ids(worn)
    assert dg.materialize([_other], instance=worn.instance).success
    _age(worn, KEEP_DAYS + 1)
    for run_id in runs:
        worn.instance.add_run_tags(run_id, {IN_TICK_TAG: "theirs"})
    _, sentence = _retention(worn).work(worn.instance, "ours", Progress())
    assert "0 of 0 old runs" in sentence
    assert len(_run_ids(worn)) == len(runs) + 1


def test_tick_without_time_left_goes_on_where_it_stopped(
    worn: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_runs, "WORK_SECONDS", 1.0)
    retention, progress, ticks = _retention(worn), Progress(), 0

    def slow(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
        worn.clock.sleep(2)
        return prune_run(instance, run)

    monkeypatch.setattr(old_runs, "prune_run", slow)
    while not progress.next_ms:
        progress, _ = retention.work(worn.instance, None, progress)
        ticks += 1
    assert ticks == 5  # one run each, and the end
    assert len(_run_ids(worn)) == 4


def test_run_with_the_newest_event_of_the_storage_keeps_it(worn: World) -> None:
    """SQLite gives the id of a deleted newest event to the next event, and cursors of sensors would miss it."""
    [today] = worn.instance.get_runs(limit=1)
    storage: Any = worn.instance.event_log_storage
    newest = storage.get_maximum_record_id()
    assert not prune_run(worn.instance, today)
    assert storage.get_maximum_record_id() == newest


def test_last_plan_of_a_check_does_not_hide_its_last_result(worn: World) -> None:
    """A run that was terminated leaves planned evaluations. Until the next observation Dagster shows them; the result
    before them must not be lost."""
    checks = AssetCheckExecutionsTable.c
    storage: Any = worn.instance.event_log_storage
    with storage.index_connection() as conn:
        last = select(func.max(checks.id)).where(checks.asset_key == ASSET.to_string())
        number = conn.scalar(last.where(checks.check_name == "quarantine"))
        conn.execute(
            update(AssetCheckExecutionsTable).where(checks.id == number).values(execution_status="PLANNED")
        )
    before = datetime.fromtimestamp(worn.clock.ms / 1000, UTC)
    assert prune_evaluations(worn.instance, [ASSET], before) > 0
    with storage.index_connection() as conn:
        rows = conn.execute(select(checks.execution_status).where(checks.check_name == "quarantine")).all()
    assert sorted(status for (status,) in rows) == ["PLANNED", "SUCCEEDED"]


def test_run_in_files_of_sqlite_leaves_no_file_and_no_snapshot(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides=SETTINGS) as instance:
        old, new = (dg.materialize([_other], instance=instance).dagster_run for _ in range(2))
        assert not prune_run(instance, instance.get_run_by_id(new.run_id) or new)
        assert prune_run(instance, instance.get_run_by_id(old.run_id) or old)
        storage = instance.event_log_storage
        assert isinstance(storage, SqliteEventLogStorage)
        assert storage.get_all_run_ids() == []
        assert [run.run_id for run in instance.get_runs()] == [new.run_id]
        assert instance.get_latest_materialization_event(_other.key) is not None


def test_sensor_keeps_its_progress_in_its_cursor_and_requests_nothing(worn: World) -> None:
    sensor = build_retention_sensor(_retention(worn), dg.DefaultSensorStatus.RUNNING)
    data = sensor.evaluate_tick(dg.build_sensor_context(worn.instance))
    assert data.run_requests == []
    assert data.skip_message == "deleted 8 evaluations, 1 of 4 old runs, 0 backfills; the pass has ended"
    again = sensor.evaluate_tick(dg.build_sensor_context(worn.instance, cursor=data.cursor))
    assert (again.cursor, again.skip_message) == (data.cursor, "the pass of the day has ended")
