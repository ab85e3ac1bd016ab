"""Building the definitions: twice, for shards, from settings; and the names they use."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import dagster as dg
import pytest
from dagster_graphql.schema import create_schema
from graphql import parse, validate
from hypothesis import given
from hypothesis import strategies as st

from iceberg_maint import __version__
from iceberg_maint.core.model.ids import TableId, in_shard
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.defs.assets.spark_resource import LazySpark, on_resource
from iceberg_maint.defs.automation.conditions import maintenance_condition
from iceberg_maint.defs.code_location import (
    CodeLocation,
    load_table_list,
    read_table_list,
    write_table_list,
)
from iceberg_maint.defs.load_definitions import build_definitions
from iceberg_maint.defs.names import HOUSEKEEPING_CHECKS, PARTITION_CHECKS, TABLE_CHECKS
from iceberg_maint.defs.translator import IcebergTranslator, slug
from iceberg_maint.errors import ConfigurationError, IcebergMaintError
from iceberg_maint.report.formatting import escape_control_chars
from iceberg_maint_tests.conftest import PROJECT
from iceberg_maint_tests.defs.conftest import MemoryEngine, World, key
from iceberg_maint_tests.security.hostile import HOSTILE
from iceberg_maint_tests.support.context import changed, spark_access

pytestmark = pytest.mark.slow

NAMES = IcebergTranslator()

T = TableId.parse("lake.db.t")
NASTY = st.text("ab_-é ", min_size=1, max_size=4)
TABLES = st.builds(
    lambda parts: TableId(parts[0], tuple(parts[1:-1]), parts[-1]), st.lists(NASTY, min_size=3, max_size=5)
)

NEAR = st.builds(
    lambda parts: TableId("lake", tuple(parts[:-1]), parts[-1]),
    st.lists(
        st.sampled_from(["x", "a b", "a_b", "__housekeeping", "x__housekeeping"]), min_size=2, max_size=4
    ),
)
"""Tables whose keys are easily taken for one another's."""


def test_definitions_can_be_built_twice(world: World) -> None:
    world.catalog.create("db.t").add("d1", 8)
    first, second = world.definitions, world.definitions
    dg.Definitions.validate_loadable(first)
    dg.Definitions.validate_loadable(second)
    assert set(first.resolve_all_asset_keys()) == {NAMES.get_asset_key(T), NAMES.get_housekeeping_key(T)}
    assert set(second.resolve_all_asset_keys()) == {NAMES.get_asset_key(T), NAMES.get_housekeeping_key(T)}


def test_every_table_has_all_checks_and_only_the_automated_ones_are_partitioned(world: World) -> None:
    world.catalog.create("db.t")
    graph = world.definitions.resolve_asset_graph()
    by_name = {k.name: graph.get(k).partitions_def for k in graph.asset_check_keys}
    assert set(by_name) == {*PARTITION_CHECKS, *TABLE_CHECKS, *HOUSEKEEPING_CHECKS}
    assert {n for n, d in by_name.items() if d is not None} == set(PARTITION_CHECKS)


def test_prefix_keeps_asset_keys_apart(world: World) -> None:
    definitions = build_definitions(
        world.context, CodeLocation([T], world.table_list), IcebergTranslator(["maintenance"])
    )
    own = ["maintenance", "lake", "db", "t"]
    assert set(definitions.resolve_all_asset_keys()) == {
        dg.AssetKey(own),
        dg.AssetKey(["maintenance", "lake", "db", "t__housekeeping"]),
    }


def test_shards_hold_every_table_once(world: World) -> None:
    tables = [TableId("lake", ("db",), f"t{i}") for i in range(50)]
    held = [
        set(
            build_definitions(
                world.context, CodeLocation(tables, world.table_list, (i, 3))
            ).resolve_all_asset_keys()
        )
        for i in range(3)
    ]
    assert sum(map(len, held)) == 100
    assert set.union(*held) == {
        key(t) for t in tables for key in (NAMES.get_asset_key, NAMES.get_housekeeping_key)
    }
    assert all(held)


def test_building_asks_neither_catalog_nor_ledger(world: World) -> None:
    world.catalog.unreachable = True
    build_definitions(world.context, CodeLocation([T], world.table_list)).resolve_asset_graph()


def test_all_that_stands_in_the_menus_of_dagster_is_described(world: World) -> None:
    world.catalog.create("db.t")
    repository = world.definitions.get_repository_def()
    told = {s.name: s.description for s in (*repository.sensor_defs, *repository.schedule_defs)}
    told |= {
        name: r.description for name, r in repository.get_top_level_resources().items() if name == "pyspark"
    }
    assert {"table_changes", "observe_schedule", "pyspark", "lost_runs", "due_maintenance"} <= set(told)
    assert [name for name, description in told.items() if not description] == []


def test_resource_in_place_of_the_own_one_gives_the_session_of_the_engine(world: World) -> None:
    sessions: list[object] = []

    def engine_of(session: Callable[[], object]) -> MemoryEngine:
        sessions.append(session())
        return world.engine

    context = changed(world.context, spark=spark_access(engine_of=engine_of))
    assert on_resource(context, LazySpark(context)) is context
    assert on_resource(context, SimpleNamespace(spark_session="theirs")).engine() is world.engine
    assert sessions == ["theirs"]


def test_condition_asks_no_check(world: World) -> None:
    """The checks of a terminated run have no result. They must not stop the automation."""
    condition = maintenance_condition(T, world.context, NAMES)
    due, idle = condition.children
    assert condition.get_label() == "maintenance is due and not in progress"
    assert (due.name, idle.get_label(), [c.get_label() for c in idle.children]) == (
        "maintenance_due",
        "no run is in progress",
        ["a run is in progress"],
    )


@given(st.sets(TABLES, min_size=2, max_size=6))
def test_slugs_of_different_tables_differ_and_are_valid_names(tables: set[TableId]) -> None:
    slugs = [slug(t) for t in tables]
    assert len(set(slugs)) == len(tables)
    assert all(
        NAMES.get_op_name(t).replace("_", "a").isalnum() and NAMES.get_op_name(t).isascii() for t in tables
    )
    assert all(NAMES.get_group_name(t).replace("_", "a").isascii() for t in tables)


@given(TABLES, st.integers(1, 7))
def test_table_belongs_to_exactly_one_shard(table: TableId, count: int) -> None:
    assert sum(in_shard(table, i, count) for i in range(count)) == 1


@given(st.sets(st.one_of(TABLES, NEAR), min_size=2, max_size=8))
def test_keys_of_different_tables_differ_and_make_valid_names(tables: set[TableId]) -> None:
    keys = {make(t) for t in tables for make in (NAMES.get_asset_key, NAMES.get_housekeeping_key)}
    assert len(keys) == 2 * len(tables)
    assert all(re.fullmatch(r"[A-Za-z0-9_]+", k.to_python_identifier()) for k in keys)


@pytest.mark.parametrize("name", ["lake.db.events", "lake-1.a_b.c.T-2_", "lake.db.housekeeping"])
def test_key_of_a_plain_table_is_its_name(name: str) -> None:
    table = TableId.parse(name)
    assert IcebergTranslator(["pre", "fix"]).get_asset_key(table).path == ["pre", "fix", *name.split(".")]
    assert NAMES.get_housekeeping_key(table).path == [*table.parts[:-1], f"{table.name}__housekeeping"]


def test_key_of_an_oddly_named_table_shows_its_name_and_a_digest() -> None:
    assert NAMES.get_asset_key(TableId("lake", ("demo",), "a b/ü")).path == [
        "lake",
        "demo",
        "a_b__.736afe6567bb38b3",
    ]


def test_oddly_named_tables_are_observed_requested_and_maintained(world: World) -> None:
    odd = [f"lake.demo.{name}" for name in ("a b/ü", 'q"*%$', "\\\n")]
    for name in (*odd, "lake.demo.plain"):
        world.catalog.create(name.removeprefix("lake.")).add("d1", 1 if name.endswith("plain") else 8)
    definitions = world.definitions
    dg.Definitions.validate_loadable(definitions)
    assert world.observe(definitions=definitions).success
    requested = world.tick(definitions=definitions)
    assert requested == {**{name: [key("d1")] for name in odd}, "lake.demo.plain": []}
    assert world.maintain(odd[0], key("d1"), definitions=definitions).success
    assert world.materialized(odd[0]) == {key("d1")}


def test_assets_name_their_table_their_version_and_the_configuration_as_their_code(world: World) -> None:
    world.catalog.create("db.t").add("d1", 8)
    location = CodeLocation(world.catalog.tables(), world.table_list)
    names = IcebergTranslator(configuration="/srv/lake/iceberg_maint.yaml")
    for spec in build_definitions(world.context, location, names).resolve_all_asset_specs():
        assert spec.metadata["dagster/table_name"] == "lake.db.t"
        assert spec.code_version == __version__
        [reference] = spec.metadata["dagster/code_references"].code_references
        assert (reference.file_path, reference.label) == ("/srv/lake/iceberg_maint.yaml", "configuration")


def test_table_named_as_the_housekeeping_of_another_loads_beside_it(world: World) -> None:
    for name in ("demo.x", "demo.x__housekeeping", "demo.x__housekeeping__housekeeping"):
        world.catalog.create(name).add("d1", 8)
    assert len(set(world.definitions.resolve_all_asset_keys())) == 6
    assert world.observe().success
    assert list(world.tick().values()) == [[key("d1")]] * 3


def test_table_that_cannot_be_an_asset_is_left_out_and_reported(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A table may be given the very name that the digest of another's makes."""
    odd = TableId("lake", ("demo",), "a b")
    forged = TableId("lake", ("demo",), slug(odd).removeprefix("lake__demo__"))
    for name in (odd.name, forged.name, "t"):
        world.catalog.create(f"demo.{name}").add("d1", 8)
    write_table_list(world.table_list, world.catalog.tables())
    loaded = {NAMES.get_asset_key(odd), NAMES.get_asset_key(TableId.parse("lake.demo.t"))}
    definitions = world.definitions
    dg.Definitions.validate_loadable(definitions)
    keys = set(definitions.resolve_all_asset_keys())
    assert {k for k in keys if not k.path[-1].endswith("__housekeeping")} == loaded
    told = f"table {forged} is not loaded: op name 'maintain__{slug(odd)}' in Dagster also belongs to {odd}"
    assert told in caplog.text
    assert world.observe().success
    sensor = definitions.resolve_sensor_def("table_changes")
    with dg.build_sensor_context(instance=world.instance, sensor_name="table_changes") as context:
        assert sensor.evaluate_tick(context).skip_message == f"{told}; no observe run is needed for 2 tables"


def test_definitions_without_any_table_that_can_be_an_asset_are_refused(world: World) -> None:
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="not a valid name"):
        build_definitions(
            world.context, CodeLocation([T], world.table_list), IcebergTranslator(["not plain"])
        )


class LakeTranslator(IcebergTranslator):
    """Every method overridden, as another deployment may want it."""

    def get_asset_key(self, table: TableId) -> dg.AssetKey:
        return dg.AssetKey(["bronze", table.name])

    def get_group_name(self, table: TableId) -> str:
        return f"bronze_{table.namespace[0]}"

    def get_owners(self, table: TableId) -> list[str]:
        return ["team:data", f"{table.name}@example.com"]

    def get_tags(self, table: TableId) -> dict[str, str]:
        return {"domain": table.namespace[0]}

    def get_kinds(self, table: TableId) -> frozenset[str]:
        return frozenset({"iceberg", "s3"})

    def get_description(self, table: TableId) -> str:
        return f"Events of {table.name}."

    def get_housekeeping_description(self, table: TableId) -> str:
        return f"Storage of {table.name}."

    def get_metadata(self, table: TableId) -> dict[str, str]:
        return {"tier": "gold"}

    def get_partitions_name(self, table: TableId) -> str:
        return f"days/{table.name}"

    def get_pool(self, table: TableId) -> str:
        return f"pool_{table.name}"

    def get_links(self, table: TableId) -> Mapping[str, str]:
        return {"dashboard": f"https://example.com/{table.name}"}


def test_translator_overridden_decides_every_name_and_description(world: World) -> None:
    world.catalog.create("demo.t").add("d1", 8)
    table, names = TableId.parse("lake.demo.t"), LakeTranslator()

    definitions = build_definitions(world.context, CodeLocation([table], world.table_list), names)

    graph = definitions.resolve_asset_graph()
    data, housekeeping = (
        graph.get(dg.AssetKey(["bronze", "t"])),
        graph.get(dg.AssetKey(["bronze", "t__housekeeping"])),
    )
    for asset in (data, housekeeping):
        assert asset.group_name == "bronze_demo" + ("__housekeeping" if asset is housekeeping else "")
        assert asset.metadata["dashboard"] == dg.MetadataValue.url("https://example.com/t")
        assert list(asset.owners) == ["team:data", "t@example.com"]
        assert asset.tags["domain"] == "demo"
        assert asset.kinds == {"iceberg", "s3"}
        assert asset.metadata["tier"] == "gold"
        assert asset.pools == {"pool_t"}
    assert (data.description, housekeeping.description) == ("Events of t.", "Storage of t.")
    assert data.partitions_def == dg.DynamicPartitionsDefinition(name="days/t")
    assert {check.asset_key for check in graph.asset_check_keys} == {data.key, housekeeping.key}


def test_translator_overridden_observe_job_uses_its_names(world: World) -> None:
    world.catalog.create("demo.t").add("d1", 8)
    table = TableId.parse("lake.demo.t")
    definitions = build_definitions(world.context, CodeLocation([table], world.table_list), LakeTranslator())

    done = definitions.resolve_job_def("observe_iceberg").execute_in_process(instance=world.instance)

    assert done.success
    assert list(world.instance.get_dynamic_partitions("days/t")) == [key("d1")]
    observations = world.events(dg.DagsterEventType.ASSET_OBSERVATION)
    assert {e.asset_observation.asset_key for e in observations} == {dg.AssetKey(["bronze", "t"])}


def test_translator_that_gives_two_tables_one_pool_leaves_the_second_out(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    class OnePool(IcebergTranslator):
        def get_pool(self, table: TableId) -> str:
            return "maintenance"

    tables = [TableId.parse("lake.demo.a"), TableId.parse("lake.demo.b")]

    definitions = build_definitions(world.context, CodeLocation(tables, world.table_list), OnePool())

    assert set(definitions.resolve_all_asset_keys()) == {
        NAMES.get_asset_key(tables[0]),
        NAMES.get_housekeeping_key(tables[0]),
    }
    assert "table lake.demo.b is not loaded: pool 'maintenance' in Dagster also belongs to lake.demo.a" in (
        caplog.text
    )


def test_plain_table_has_a_plain_slug() -> None:
    assert slug(TableId.parse("lake.db.events")) == "lake__db__events"


def test_table_list_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "tables.json"
    assert read_table_list(path) is None
    tables = (T, TableId("lake", ("a", "b"), "ä t"))
    write_table_list(path, reversed(tables))
    assert read_table_list(path) == tuple(sorted(tables))


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 2, "tables": []}', '{"version": 1}'])
def test_malformed_table_list_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tables.json"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigurationError, match=r"ICM-100 .*tables\.json"):
        read_table_list(path)


def test_table_list_is_made_from_the_catalog_once(world: World) -> None:
    world.catalog.create("db.t")
    assert load_table_list(world.table_list, world.context.catalogs) == (T,)
    world.catalog.unreachable = True
    assert load_table_list(world.table_list, world.context.catalogs) == (T,)


def test_backfill_of_a_range_is_one_run(world: World) -> None:
    world.catalog.create("db.t").add("d1", 8)
    asset, _housekeeping = world.definitions.assets or ()
    assert isinstance(asset, dg.AssetsDefinition)
    assert asset.backfill_policy == dg.BackfillPolicy.single_run()
    assert key("d1") == "day=d1"


def metadata_texts(entry: dg.EventLogEntry) -> list[str]:
    """Every text in the metadata of an event, also within JSON."""
    data = getattr(entry.dagster_event, "event_specific_data", None)
    event = next(
        (getattr(data, n) for n in ("materialization", "asset_observation") if hasattr(data, n)), data
    )
    return [text for value in getattr(event, "metadata", {}).values() for text in texts_in(value.value)]


def texts_in(value: object) -> list[str]:
    if isinstance(value, Mapping):
        return [text for pair in value.items() for item in pair for text in texts_in(item)]
    if type(value) in (list, tuple):  # a record of Dagster is a tuple that refuses to be read as one
        return [text for item in cast("Sequence[object]", value) for text in texts_in(item)]
    return [value] if isinstance(value, str) else []


def test_names_and_errors_with_marks_of_a_terminal_are_text_in_logs_and_events(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    name = f"lake.demo.{HOSTILE}"
    world.catalog.create(f"demo.{HOSTILE}").add("d1", 8)

    def fail(_batch: Batch) -> None:
        raise IcebergMaintError("ICM-101", f"no column {HOSTILE}", "")

    world.observe()
    world.engine.before_write = fail
    world.maintain(name, key("d1"))
    world.catalog.unreadable.add(name)
    world.observe(changed_only=False)
    entries = [e for run in world.instance.get_runs() for e in world.instance.all_logs(run.run_id)]
    texts = [e.user_message for e in entries]
    assert any(escape_control_chars(HOSTILE) in text for text in texts)
    texts += [
        text
        for check in (*PARTITION_CHECKS, *TABLE_CHECKS, *HOUSEKEEPING_CHECKS)
        for e in world.evaluations(check).values()
        if (text := e.description)
    ]
    texts.append(capfd.readouterr().err)
    texts += [text for e in entries for text in metadata_texts(e)]
    assert [t for t in texts if not t.replace("\n", "").isprintable()] == []


def test_query_of_the_page_fits_dagsters_schema() -> None:
    page = (PROJECT / "docs" / "how-to" / "dagster.md").read_text("utf-8")
    [query] = re.findall(r"```graphql\n(.*?)```", page, re.DOTALL)
    assert validate(create_schema().graphql_schema, parse(query)) == []
