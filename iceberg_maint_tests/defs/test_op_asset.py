"""An asset from values is the one that Dagster's decorator builds from a function.

No `from __future__ import annotations` here: Dagster reads the annotations of op functions.
"""

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from iceberg_maint.defs.assets.op_asset import Op, build_op_asset

pytestmark = pytest.mark.slow

_KEY = dg.AssetKey(["lake", "db", "t__housekeeping"])
_PARTITIONS = dg.DynamicPartitionsDefinition(name="iceberg/lake.db.t")
_SPEC = dg.AssetSpec(
    _KEY,
    deps=[dg.AssetKey(["lake", "db", "t"])],
    description="text",
    skippable=True,
    partitions_def=_PARTITIONS,
    kinds={"iceberg"},
    metadata={"dagster/table_name": "lake.db.t"},
)
_CHECKS = [
    dg.AssetCheckSpec("small_files", asset=_KEY, partitions_def=_PARTITIONS),
    dg.AssetCheckSpec("quarantine", asset=_KEY),
]


def _facts(asset: dg.AssetsDefinition) -> dict[str, Any]:
    op = asset.op
    return {
        "op": (op.name, op.pool, op.required_resource_keys, op.retry_policy),
        "ins": [(asset.keys_by_input_name[n], i.dagster_type) for n, i in op.ins.items()],
        "outs": {n: (o.dagster_type, o.is_required, o.io_manager_key) for n, o in op.outs.items()},
        "keys": dict(asset.keys_by_output_name),
        "checks": {spec.key: spec for spec in asset.check_specs},
        "specs": list(asset.specs),
        "subset": (asset.can_subset, asset.backfill_policy, asset.partitions_def),
    }


def test_asset_from_values_equals_that_of_the_decorator() -> None:
    @dg.multi_asset(
        name="housekeep",
        specs=[_SPEC],
        check_specs=_CHECKS,
        can_subset=True,
        pool="pool",
        backfill_policy=dg.BackfillPolicy.single_run(),
        required_resource_keys={"pyspark"},
    )
    def decorated(context: dg.AssetExecutionContext) -> Iterator[Any]:
        yield from ()

    op = Op("housekeep", "pool", lambda _: None, frozenset({"pyspark"}))
    built = build_op_asset(_SPEC, _CHECKS, op, dg.BackfillPolicy.single_run())
    assert _facts(built) == _facts(decorated)


def test_op_that_logs_nothing_materializes_nothing_and_gets_the_context_of_an_asset() -> None:
    contexts: list[dg.AssetExecutionContext] = []
    asset = build_op_asset(
        dg.AssetSpec("a", skippable=True),
        [dg.AssetCheckSpec("c", asset="a")],
        Op("op_of_a", "pool", contexts.append),
    )
    result = dg.materialize([asset])
    assert result.success
    assert result.get_asset_materialization_events() == []
    [context] = contexts
    assert isinstance(context, dg.AssetExecutionContext)
    assert context.selected_asset_keys == {dg.AssetKey("a")}
