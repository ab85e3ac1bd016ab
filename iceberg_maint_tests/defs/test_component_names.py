"""The component names tables in Dagster as the code location does."""

from __future__ import annotations

import dagster as dg
import pytest

from iceberg_maint.component import build_iceberg_maintenance_defs
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.code_location import CodeLocation
from iceberg_maint.defs.load_definitions import build_definitions
from iceberg_maint.defs.names import DUE_CHECK, WAITS_CHECK
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint_tests.defs.conftest import World

pytestmark = pytest.mark.slow

EVENTS = TableId.parse("lake.db.events")
KEY = dg.AssetKey(["iceberg_maint", "lake", "db", "events"])
HOUSEKEEPING = dg.AssetKey(["iceberg_maint", "lake", "db", "events__housekeeping"])


def test_names_are_those_of_the_code_location_with_the_same_prefix(world: World) -> None:
    world.catalog.create("db.events")
    names = IcebergTranslator(["iceberg_maint"])
    component = build_iceberg_maintenance_defs([EVENTS])
    location = build_definitions(world.context, CodeLocation([EVENTS], world.table_list), names)

    def facts(definitions: dg.Definitions) -> dict[dg.AssetKey, object]:
        graph = definitions.resolve_asset_graph()
        found: dict[dg.AssetKey, object] = {}
        for key in (KEY, HOUSEKEEPING):
            asset, node = definitions.resolve_assets_def(key), graph.get(key)
            partitions = node.partitions_def
            spec = asset.get_asset_spec(key)
            checks = {
                c.name: (graph.get(c).partitions_def is not None, graph.get(c).description)
                for c in node.check_keys
            }
            own = [checks.pop(name, None) for name in (DUE_CHECK, WAITS_CHECK)]
            assert [check is None for check in own] == [
                definitions is location,
                key != KEY or definitions is location,
            ]
            found[key] = (
                (asset.op.name, asset.op.pool, spec.group_name, spec.kinds, spec.description),
                getattr(partitions, "name", None),
                (dict(spec.metadata), dict(spec.tags), checks),
            )
        return found

    assert facts(component) == facts(location)
