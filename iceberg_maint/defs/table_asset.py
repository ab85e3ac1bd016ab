"""One asset per table, with the table's partitions. Its materialization maintains the table."""

from __future__ import annotations

import dagster as dg

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.automation import maintenance_condition
from iceberg_maint.defs.checks import check_specs
from iceberg_maint.defs.data_run import MaintenanceRun
from iceberg_maint.defs.metadata import definition_metadata
from iceberg_maint.defs.op_asset import build_op_asset
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.runner.runtime import Runtime

SPARK_RESOURCE = "pyspark"


def build_table_asset(table: TableId, runtime: Runtime, translator: IcebergTranslator) -> dg.AssetsDefinition:
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
        automation_condition=maintenance_condition(table, runtime, translator),
        metadata=definition_metadata(table, translator),
    )

    def maintain_table(context: dg.AssetExecutionContext) -> None:
        MaintenanceRun(context, table, runtime, translator, lambda: context.resources.pyspark.spark_session)()

    return build_op_asset(
        spec,
        check_specs(table, partitions, translator),
        translator.get_op_name(table),
        translator.get_pool(table),
        SPARK_RESOURCE,
        maintain_table,
        dg.BackfillPolicy.single_run(),
    )
