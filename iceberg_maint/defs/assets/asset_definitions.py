"""The definitions of assets: a table's data, its housekeeping, and work on the fleet as a whole.

No `from __future__ import annotations` here: Dagster reads the annotations of its functions.
"""

import dagster as dg

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.assets.data_run import MaintenanceRun
from iceberg_maint.defs.assets.housekeeping_metadata import counts_metadata
from iceberg_maint.defs.assets.housekeeping_run import HousekeepingRun
from iceberg_maint.defs.assets.op_asset import Op, build_op_asset
from iceberg_maint.defs.assets.spark_resource import SPARK_RESOURCE, on_resource
from iceberg_maint.defs.assets.table_specs import (
    check_specs,
    housekeeping_check_specs,
    housekeeping_spec,
    table_spec,
)
from iceberg_maint.defs.automation.conditions import housekeeping_condition, maintenance_condition
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import ConfigurationError
from iceberg_maint.loop.context import Context
from iceberg_maint.wiring.integrations import FleetWork

INTERVAL_SECONDS = 60
"""Seconds between two turns of work on the fleet that has no schedule, at least."""


def build_table_asset(
    table: TableId, loop_context: Context, translator: IcebergTranslator
) -> dg.AssetsDefinition:
    """The asset of the data with its checks, as one op: a pool limits one op, and the checks are evaluated batch by batch."""
    spec = table_spec(table, translator, maintenance_condition(table, loop_context, translator))
    return build_op_asset(
        spec,
        check_specs(table, translator),
        _op(translator.get_op_name(table), MaintenanceRun, table, loop_context, translator),
        dg.BackfillPolicy.single_run(),
    )


def build_housekeeping_asset(
    table: TableId, loop_context: Context, translator: IcebergTranslator
) -> dg.AssetsDefinition:
    """The asset of manifests, snapshots and orphan files with its checks, downstream of the table's data. It shares the pool
    of the table's asset, so the two never run at the same time."""
    spec = housekeeping_spec(table, translator, housekeeping_condition(table, loop_context, translator))
    return build_op_asset(
        spec,
        housekeeping_check_specs(table, translator),
        _op(translator.get_housekeeping_op_name(table), HousekeepingRun, table, loop_context, translator),
    )


def _op(
    name: str,
    run: type[MaintenanceRun | HousekeepingRun],
    table: TableId,
    loop_context: Context,
    translator: IcebergTranslator,
) -> Op:
    def execute(context: dg.AssetExecutionContext) -> None:
        run(context, table, on_resource(loop_context, context.resources.pyspark), translator)()

    return Op(name, translator.get_pool(table), execute, frozenset({SPARK_RESOURCE}))


def build_fleet_sensor(work: FleetWork) -> dg.SensorDefinition:
    """A sensor that does the work and requests no run."""

    @dg.sensor(
        name=work.name,
        description=work.description,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def fleet_sensor(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        report = work.run()
        for warning in report.warnings:
            context.log.warning(warning)
        return dg.SkipReason(report.summary)

    return fleet_sensor


def build_fleet_asset(work: FleetWork, translator: IcebergTranslator) -> dg.AssetsDefinition:
    """An asset without a table: each materialization has the page and the numbers of the work."""

    @dg.asset(
        key=translator.get_fleet_key(work.name),
        group_name="fleet",
        kinds={"iceberg"},
        description=work.description,
    )
    def fleet_asset(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        report = work.run()
        context.log.info(report.summary)
        for file in report.files:
            context.log.info(f"wrote {file}")
        page = {"report": dg.MetadataValue.md(report.page)} if report.page else {}
        files = {f"file_{file.suffix[1:]}": dg.MetadataValue.path(file) for file in report.files}
        return dg.MaterializeResult(metadata={**page, **counts_metadata(report.counts), **files})

    return fleet_asset


def build_fleet_schedule(work: FleetWork, asset: dg.AssetsDefinition) -> dg.ScheduleDefinition:
    """The schedule of the asset. Raises ConfigurationError ICM-100 if the cron expression is not valid."""
    assert work.schedule is not None
    try:
        return dg.ScheduleDefinition(
            name=f"{work.name}_schedule",
            description=f"Materializes {work.name}.",
            target=dg.AssetSelection.assets(*asset.keys),
            cron_schedule=work.schedule,
            execution_timezone="UTC",
            default_status=dg.DefaultScheduleStatus.RUNNING,
        )
    except dg.DagsterInvalidDefinitionError as why:
        raise ConfigurationError(
            "ICM-100",
            f"{work.schedule_key} is '{work.schedule}'. It must be a cron expression of five fields.",
            "set it to an expression such as '0 7 * * 1', Mondays at 7 UTC.",
        ) from why
