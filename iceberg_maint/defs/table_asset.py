"""One asset per table, partitioned as the table is; maintaining it is its materialization.

No `from __future__ import annotations` here: Dagster reads the annotations of op functions.
"""

from collections.abc import Iterator, Sequence

import dagster as dg

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.automation import maintenance_condition
from iceberg_maint.defs.checks import check_specs
from iceberg_maint.defs.context import Lake
from iceberg_maint.defs.data_run import MaintenanceRun
from iceberg_maint.defs.translator import (
    FORCE_TAG,
    asset_key,
    group_name,
    op_name,
    partitions_name,
    pool_name,
)

SPARK_RESOURCE = "pyspark"


def build_table_asset(table: TableId, lake: Lake, prefix: Sequence[str]) -> dg.AssetsDefinition:
    """The asset with its checks: one op, because a pool holds for one op and because the checks
    are evaluated batch by batch. `can_subset` makes every output optional: what was not
    maintained is not claimed."""
    partitions = dg.DynamicPartitionsDefinition(name=partitions_name(table))
    spec = dg.AssetSpec(
        asset_key(table, prefix),
        description=(
            f"Iceberg table `{table}`. Materializing a partition maintains it; a healthy one is left as "
            f"it is unless the run has the tag `{FORCE_TAG}: true`. Ranges of partitions follow the "
            "order in which the partitions were first seen."
        ),
        partitions_def=partitions,
        skippable=True,
        kinds={"iceberg", "spark"},
        group_name=group_name(table),
        automation_condition=maintenance_condition(table, lake, prefix),
        metadata={"dagster/table_name": str(table)},
    )

    @dg.multi_asset(
        name=op_name(table),
        specs=[spec],
        check_specs=check_specs(table, partitions, prefix),
        can_subset=True,
        pool=pool_name(table),
        backfill_policy=dg.BackfillPolicy.single_run(),
        required_resource_keys={SPARK_RESOURCE},
    )
    def maintain_table(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
        MaintenanceRun(context, table, lake, prefix, lambda: context.resources.pyspark.spark_session)()
        # A generator that yields nothing: a function that returns would be taken to have
        # materialized every requested partition.
        yield from ()

    return maintain_table
