"""One asset per table, with the table's partitions. Its materialization maintains the table.

No `from __future__ import annotations` here: Dagster reads the annotations of op functions.
"""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.automation import maintenance_condition
from iceberg_maint.defs.checks import check_specs
from iceberg_maint.defs.data_run import MaintenanceRun
from iceberg_maint.defs.metadata import definition_metadata
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.runner.runtime import Runtime

SPARK_RESOURCE = "pyspark"


def build_table_asset(table: TableId, runtime: Runtime, translator: IcebergTranslator) -> dg.AssetsDefinition:
    """The asset with its checks, as one op: a pool limits one op, and the checks are evaluated batch by
    batch. `can_subset` makes every output optional, so that only maintained partitions are materialized.
    """
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
        automation_condition=maintenance_condition(table, runtime, translator),
        metadata=definition_metadata(table, translator),
    )

    @dg.multi_asset(
        name=translator.get_op_name(table),
        specs=[spec],
        check_specs=check_specs(table, partitions, translator),
        can_subset=True,
        pool=translator.get_pool(table),
        backfill_policy=dg.BackfillPolicy.single_run(),
        required_resource_keys={SPARK_RESOURCE},
    )
    def maintain_table(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        MaintenanceRun(context, table, runtime, translator, lambda: context.resources.pyspark.spark_session)()
        # A generator that yields nothing. Dagster would take a function that returns as a materialization
        # of every requested partition.
        yield from ()

    return maintain_table
