"""An asset with its checks as one op, from values.

`dagster.multi_asset` builds the same from a function. For each asset it examines the function's signature and resolves
its annotations, which takes more time than all the rest of the definition of a table.

No `from __future__ import annotations` here: Dagster reads the annotations of op functions.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.assets.data_run import MaintenanceRun
from iceberg_maint.defs.assets.metadata import definition_metadata
from iceberg_maint.defs.assets.partition_checks import check_specs
from iceberg_maint.defs.automation.conditions import maintenance_condition
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.loop.context import Context

SPARK_RESOURCE = "pyspark"
_ASSET = dg.Out(dg.Nothing, is_required=False)
_CHECK = dg.Out(dg.Any, is_required=False)
_DEPENDENCY = dg.In(dg.Nothing)
"""One object each for all ops: Dagster resolves the type of every new one."""


def build_op_asset(
    spec: dg.AssetSpec,
    check_specs: Sequence[dg.AssetCheckSpec],
    op_name: str,
    pool: str,
    execute: Callable[[dg.AssetExecutionContext], None],
    backfill_policy: dg.BackfillPolicy | None = None,
) -> dg.AssetsDefinition:
    """The asset of `spec` with its checks. Its op has this name and pool, needs Spark's resource, and calls `execute`, which logs
    every event itself.

    All outputs are optional, and the asset can be selected without its checks: only what was maintained is
    materialized.
    """

    def run_op(context: dg.AssetExecutionContext, _inputs: Mapping[str, object]) -> Iterator[Any]:
        execute(context)
        # Yields nothing. Dagster would take a function that returns as a materialization of all that was requested.
        yield from ()

    output = spec.key.to_python_identifier()
    checks = {check.get_python_identifier(): check for check in check_specs}
    inputs = {dep.asset_key.to_python_identifier(): dep.asset_key for dep in spec.deps}
    op = dg.OpDefinition(
        run_op,
        op_name,
        ins=dict.fromkeys(inputs, _DEPENDENCY),
        outs={output: _ASSET, **dict.fromkeys(checks, _CHECK)},
        required_resource_keys={SPARK_RESOURCE},
        pool=pool,
    )
    return dg.AssetsDefinition(
        keys_by_input_name=inputs,
        keys_by_output_name={output: spec.key},
        node_def=op,
        can_subset=True,
        backfill_policy=backfill_policy,
        check_specs_by_output_name=checks,
        specs=[spec],
    )


def build_table_asset(
    table: TableId, loop_context: Context, translator: IcebergTranslator
) -> dg.AssetsDefinition:
    """The asset with its checks, as one op: a pool limits one op, and the checks are evaluated batch by
    batch."""
    partitions = dg.DynamicPartitionsDefinition(name=translator.get_partitions_name(table))
    spec = dg.AssetSpec(
        translator.get_asset_key(table),
        description=translator.get_description(table),
        partitions_def=partitions,
        skippable=True,
        kinds=set(translator.get_kinds(table)),
        owners=list(translator.get_owners(table)),
        tags=dict(translator.get_tags(table)),
        group_name=translator.get_group_name(table),
        automation_condition=maintenance_condition(table, loop_context, translator),
        metadata=definition_metadata(table, translator),
    )

    def maintain_table(context: dg.AssetExecutionContext) -> None:
        MaintenanceRun(
            context, table, loop_context, translator, lambda: context.resources.pyspark.spark_session
        )()

    return build_op_asset(
        spec,
        check_specs(table, partitions, translator),
        translator.get_op_name(table),
        translator.get_pool(table),
        maintain_table,
        dg.BackfillPolicy.single_run(),
    )
