"""Building the definitions: twice, for shards, from settings; and the names they use."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_maint.core.ids import TableId
from iceberg_maint.defs.build import build_definitions
from iceberg_maint.defs.keys import (
    HOUSEKEEPING_CHECKS,
    PARTITION_CHECKS,
    TABLE_CHECKS,
    asset_key,
    group_name,
    housekeeping_key,
    in_shard,
    op_name,
    parse_shard,
    slug,
)
from iceberg_maint.defs.table_list import load_table_list, read_table_list, write_table_list
from iceberg_maint.errors import ConfigurationError
from iceberg_maint_tests.defs.conftest import World, key

T = TableId.parse("lake.db.t")
NASTY = st.text("ab_-é ", min_size=1, max_size=4)
TABLES = st.builds(
    lambda parts: TableId(parts[0], tuple(parts[1:-1]), parts[-1]), st.lists(NASTY, min_size=3, max_size=5)
)


def test_definitions_can_be_built_twice(world: World) -> None:
    world.catalog.create("db.t").add("d1", 8)
    first, second = world.definitions, world.definitions
    dg.Definitions.validate_loadable(first)
    dg.Definitions.validate_loadable(second)
    assert set(first.resolve_all_asset_keys()) == {asset_key(T), housekeeping_key(T)}
    assert set(second.resolve_all_asset_keys()) == {asset_key(T), housekeeping_key(T)}


def test_every_table_has_all_checks_and_only_the_automated_ones_are_partitioned(world: World) -> None:
    world.catalog.create("db.t")
    graph = world.definitions.resolve_asset_graph()
    by_name = {k.name: graph.get(k).partitions_def for k in graph.asset_check_keys}
    assert set(by_name) == {*PARTITION_CHECKS, *TABLE_CHECKS, *HOUSEKEEPING_CHECKS}
    assert {n for n, d in by_name.items() if d is not None} == set(PARTITION_CHECKS)


def test_prefix_keeps_asset_keys_apart(world: World) -> None:
    definitions = build_definitions(world.lake, [T], world.table_list, prefix=("maintenance",))
    own = ["maintenance", "lake", "db", "t"]
    assert set(definitions.resolve_all_asset_keys()) == {
        dg.AssetKey(own),
        dg.AssetKey([*own, "housekeeping"]),
    }


def test_shards_hold_every_table_once(world: World) -> None:
    tables = [TableId("lake", ("db",), f"t{i}") for i in range(50)]
    held = [
        set(build_definitions(world.lake, tables, world.table_list, shard=(i, 3)).resolve_all_asset_keys())
        for i in range(3)
    ]
    assert sum(map(len, held)) == 100
    assert set.union(*held) == {key(t) for t in tables for key in (asset_key, housekeeping_key)}
    assert all(held)


def test_building_asks_neither_catalog_nor_ledger(world: World) -> None:
    world.catalog.unreachable = True
    build_definitions(world.lake, [T], world.table_list).resolve_asset_graph()


def test_automation_can_be_off_at_first(world: World) -> None:
    definitions = build_definitions(world.lake, [T], world.table_list, automation=False)
    assert {s.default_status for s in definitions.sensors or ()} == {dg.DefaultSensorStatus.STOPPED}


@given(st.sets(TABLES, min_size=2, max_size=6))
def test_slugs_of_different_tables_differ_and_are_valid_names(tables: set[TableId]) -> None:
    slugs = [slug(t) for t in tables]
    assert len(set(slugs)) == len(tables)
    assert all(op_name(t).replace("_", "a").isalnum() and op_name(t).isascii() for t in tables)
    assert all(group_name(t).replace("_", "a").isascii() for t in tables)


@given(TABLES, st.integers(1, 7))
def test_table_belongs_to_exactly_one_shard(table: TableId, count: int) -> None:
    assert sum(in_shard(table, i, count) for i in range(count)) == 1


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
    assert load_table_list(world.table_list, world.lake) == (T,)
    world.catalog.unreachable = True
    assert load_table_list(world.table_list, world.lake) == (T,)


def test_backfill_of_a_range_is_one_run(world: World) -> None:
    world.catalog.create("db.t").add("d1", 8)
    asset, _housekeeping = world.definitions.assets or ()
    assert isinstance(asset, dg.AssetsDefinition)
    assert asset.backfill_policy == dg.BackfillPolicy.single_run()
    assert key("d1") == "day=d1"


@pytest.mark.parametrize("text", ["", "1", "1/1", "2/1", "-1/2", "a/b", "0/0"])
def test_wrong_shard_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="ICM-100"):
        parse_shard(text)
