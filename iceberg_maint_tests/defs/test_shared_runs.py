"""Runs that several tables share."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.automation import due_work, maintenance_sensor
from iceberg_maint.defs.names import ENGINE_TAG, SHARED_TAG, TABLE_TAG
from iceberg_maint_tests.defs.conftest import NAMES, World, key

pytestmark = pytest.mark.slow

SMALL = ("lake.db.a", "lake.db.b", "lake.db.c")


def asset(name: str) -> dg.AssetKey:
    return NAMES.get_asset_key(TableId.parse(name))


@pytest.fixture
def lake(world: World) -> World:
    """Three small tables with a due partition each."""
    for name in SMALL:
        world.catalog.create(name.removeprefix("lake.")).add("d1", 8)
    world.observe()
    return world


def requests(world: World) -> list[dg.RunRequest]:
    """What one tick requests for the data of tables. Their housekeeping is due too, as soon as no data is."""
    repository = world.definitions.get_repository_def()
    sensor = repository.get_sensor_def("due_maintenance")
    with dg.build_sensor_context(
        instance=world.instance, sensor_name=sensor.name, repository_def=repository
    ) as context:
        data = {NAMES.get_asset_key(table) for table in world.catalog.tables()}
        return [r for r in sensor.evaluate_tick(context).run_requests or () if _keys(r) & data]


def run(world: World, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
    """What the daemon starts for a request."""
    return world.definitions.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=world.instance,
        raise_on_error=False,
        asset_selection=list(request.asset_selection or ()),
        tags=dict(request.tags),
    )


def names_of(request: dg.RunRequest) -> list[str]:
    return sorted(n for n in SMALL if asset(n) in (request.asset_selection or ()))


def test_small_tables_of_a_tick_share_one_run_that_reports_the_partitions_of_each(lake: World) -> None:
    [request] = requests(lake)
    assert names_of(request) == list(SMALL)
    assert request.partition_key is None
    assert (request.tags[SHARED_TAG], request.tags[ENGINE_TAG]) == ("true", "spark")
    assert request.tags[TABLE_TAG] == "lake.db.a, lake.db.b, lake.db.c"
    assert run(lake, request).success
    assert [lake.materialized(name) for name in SMALL] == [{key("d1")}] * 3
    assert lake.evaluations("small_files")[key("d1")].passed
    assert lake.engine.written == [(key("d1"),)] * 3
    assert requests(lake) == []


def test_table_that_fails_ends_its_own_step_only(lake: World) -> None:
    [request] = requests(lake)

    def fail(batch: Any) -> None:
        if batch.table == SMALL[1]:
            raise ValueError("disk full")

    lake.engine.before_write = fail
    assert not run(lake, request).success
    assert [lake.materialized(name) for name in SMALL] == [{key("d1")}, set(), {key("d1")}]


def test_table_that_hangs_holds_no_other(lake: World) -> None:
    lake.policy = replace(lake.policy, table_timeout_seconds=3600)
    [request] = requests(lake)

    def hang(batch: Any) -> None:
        if batch.table == SMALL[0]:
            signal.raise_signal(signal.SIGALRM)  # as the timer does

    lake.engine.before_write = hang
    result = run(lake, request)
    assert [lake.materialized(name) for name in SMALL] == [set(), {key("d1")}, {key("d1")}]
    [failed] = [e for e in result.all_events if e.is_step_failure]
    assert "ICM-171 lake.db.a used up its time" in str(failed.step_failure_data.error_display_string)


def test_terminated_run_leaves_the_other_tables_to_the_next_tick(lake: World) -> None:
    [request] = requests(lake)

    def stop(batch: Any) -> None:
        if batch.table == SMALL[1]:
            raise dg.DagsterExecutionInterruptedError

    lake.engine.before_write = stop
    run(lake, request)
    lake.engine.before_write = lambda _batch: None
    [again] = requests(lake)
    assert names_of(again) == list(SMALL[1:])
    assert run(lake, again).success
    assert [lake.materialized(name) for name in SMALL] == [{key("d1")}] * 3


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED])
def test_tables_of_a_run_that_has_not_ended_are_not_requested_again(
    lake: World, status: dg.DagsterRunStatus
) -> None:
    [request] = requests(lake)
    job = lake.definitions.resolve_implicit_global_asset_job_def()
    keys = {asset(name) for name in SMALL[:2]}
    lake.instance.create_run_for_job(
        job.get_subset(asset_selection=keys), asset_selection=keys, status=status, tags=dict(request.tags)
    )
    [request] = requests(lake)
    assert request.asset_selection == [asset(SMALL[2])]
    assert request.partition_key == key("d1")


def test_table_with_much_due_data_has_its_own_run(lake: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_work, "SHARE_RUN_BELOW_BYTES", 1_000_000)
    lake.catalog.create("db.large").add("d1", 8, size=150_000)
    lake.observe()
    shared, own = sorted(requests(lake), key=lambda r: -len(r.asset_selection or ()))
    assert names_of(shared) == list(SMALL)
    assert _keys(own) == {asset("lake.db.large")}


@pytest.mark.filterwarnings("ignore:Function `AssetSelection.keys`")  # in Dagster
def test_tables_with_several_partitions_share_a_run_and_leave_the_backfill(
    lake: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster requests all tables of a tick as one backfill if one of them has several partitions."""
    for name in (SMALL[0], "lake.db.large"):
        table = lake.catalog.made.get(TableId.parse(name)) or lake.catalog.create(name.removeprefix("lake."))
        for day in ("d2", "d3"):
            table.add(day, 8, size=150_000 if name == "lake.db.large" else 1000)
    monkeypatch.setattr(due_work, "SHARE_RUN_BELOW_BYTES", 1_000_000)
    lake.observe()
    own, shared = requests(lake)
    assert own.asset_graph_subset is not None
    assert _keys(own) == {asset("lake.db.large")}
    assert names_of(shared) == list(SMALL)
    assert run(lake, shared).success
    assert lake.materialized(SMALL[0]) == {key("d1"), key("d2"), key("d3")}


def test_shared_run_has_a_limit_of_tables(lake: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance_sensor, "TABLES_PER_SHARED_RUN", 2)
    assert list(map(names_of, requests(lake))) == [list(SMALL[:2]), list(SMALL[2:])]


def _keys(request: dg.RunRequest) -> set[dg.AssetKey]:
    subset = request.asset_graph_subset
    return set(request.asset_selection or ()) if subset is None else set(subset.asset_keys)
