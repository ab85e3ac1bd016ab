"""Healthy partitions that were never maintained are shown as healthy, and nothing is done to them."""

from __future__ import annotations

import dagster as dg
import pytest

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.automation.observations import read_last_observation
from iceberg_maint.defs.runs.examined import EXAMINED
from iceberg_maint_tests.defs.conftest import NAMES, World, key
from iceberg_maint_tests.defs.test_sensors import requested, sensor_tick

pytestmark = pytest.mark.slow

T = "lake.db.t"
ASSET = NAMES.get_asset_key(TableId.parse(T))


def examined_events(world: World) -> list[dg.AssetMaterialization]:
    events = world.events(dg.DagsterEventType.ASSET_MATERIALIZATION, examined=True)
    return [e.materialization for e in events if e.materialization.asset_key == ASSET]


def test_healthy_partition_never_maintained_is_materialized_once_as_examined_and_unhealthy_one_stays_missing(
    world: World,
) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 8)
    table.add("d2", 2)
    world.observe()
    world.observe(changed_only=False)
    [event] = examined_events(world)
    assert (event.partition, event.description) == (key("d2"), EXAMINED)
    assert next(iter(event.metadata)) == "card"
    assert (event.metadata["outcome"].value, event.metadata["files_after"].value) == ("NO_OP", 2)
    assert world.instance.get_materialized_partitions(ASSET) == {key("d2")}
    assert world.engine.written == []
    evaluation = world.evaluations("small_files")[key("d2")]
    assert evaluation.passed
    assert evaluation.target_materialization_data is not None
    assert world.tick() == {T: [key("d1")]}


def test_last_event_that_materializes_a_table_has_its_columns(world: World) -> None:
    table = world.catalog.create("db.t")
    for day, files in (("d1", 1), ("d2", 1), ("d3", 8)):
        table.add(day, files)
    world.observe()
    world.maintain(T, key("d3"))
    events = [*examined_events(world), *world.events(dg.DagsterEventType.ASSET_MATERIALIZATION)]
    schemas = [getattr(e, "materialization", e).metadata.get("dagster/column_schema") for e in events]
    assert [s and [(c.name, c.type) for c in s.schema.columns] for s in schemas] == [
        None,
        [("day", "string"), ("v", "map<string, long>")],
        [("day", "string"), ("v", "map<string, long>")],
    ]


def test_examined_partitions_are_limited_per_observation_and_the_sensor_requests_the_rest(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iceberg_maint.defs.runs.table_report.MAX_EXAMINED", 2)
    table = world.catalog.create("db.t")
    for day in ("d1", "d2", "d3"):
        table.add(day, 1)
    world.observe()
    assert len(examined_events(world)) == 2
    assert requested(sensor_tick(world)) == [[T]]
    world.observe()
    assert {e.partition for e in examined_events(world)} == {key("d1"), key("d2"), key("d3")}
    last = read_last_observation(world.instance, ASSET)
    assert last is not None
    assert not last.unexamined
    assert requested(sensor_tick(world)) == []


def test_run_examines_no_partition_that_it_did_not_maintain(world: World) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 8)
    world.observe()
    table.add("d2", 1)
    assert world.maintain(T, key("d1")).success
    assert examined_events(world) == []
    assert requested(sensor_tick(world)) == [[T]]
