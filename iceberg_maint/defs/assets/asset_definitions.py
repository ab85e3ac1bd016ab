"""The definitions of assets: a table's data, its housekeeping, and work on the fleet as a whole.

No `from __future__ import annotations` here: Dagster reads the annotations of its functions.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.assets.data_run import MaintenanceRun
from iceberg_maint.defs.assets.housekeeping_run import HousekeepingRun
from iceberg_maint.defs.assets.metadata import counts_metadata, definition_metadata
from iceberg_maint.defs.assets.partition_checks import check_specs
from iceberg_maint.defs.assets.table_checks import housekeeping_check_specs
from iceberg_maint.defs.automation.conditions import housekeeping_condition, maintenance_condition
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import ConfigurationError
from iceberg_maint.loop.context import Context
from iceberg_maint.wiring.integrations import FleetWork

SPARK_RESOURCE = "pyspark"
INTERVAL_SECONDS = 60
"""Seconds between two turns of work on the fleet that has no schedule, at least."""
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

    `dagster.multi_asset` builds the same from a function. For each asset it examines the function's signature and resolves
    its annotations, which takes more time than all the rest of the definition of a table.

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
    """The asset of the data with its checks, as one op: a pool limits one op, and the checks are evaluated batch by batch."""
    partitions = dg.DynamicPartitionsDefinition(name=translator.get_partitions_name(table))
    spec = dg.AssetSpec(
        translator.get_asset_key(table),
        description=translator.get_description(table),
        partitions_def=partitions,
        group_name=translator.get_group_name(table),
        automation_condition=maintenance_condition(table, loop_context, translator),
        **_shared(table, translator),
    )
    return build_op_asset(
        spec,
        check_specs(table, partitions, translator),
        translator.get_op_name(table),
        translator.get_pool(table),
        _execute(MaintenanceRun, table, loop_context, translator),
        dg.BackfillPolicy.single_run(),
    )


def build_housekeeping_asset(
    table: TableId, loop_context: Context, translator: IcebergTranslator
) -> dg.AssetsDefinition:
    """The asset of manifests, snapshots and orphan files with its checks, downstream of the table's data. It shares the pool
    of the table's asset, so the two never run at the same time."""
    spec = dg.AssetSpec(
        translator.get_housekeeping_key(table),
        deps=[translator.get_asset_key(table)],
        description=translator.get_housekeeping_description(table),
        group_name=translator.get_housekeeping_group_name(table),
        automation_condition=housekeeping_condition(table, loop_context, translator),
        **_shared(table, translator),
    )
    return build_op_asset(
        spec,
        housekeeping_check_specs(table, translator),
        translator.get_housekeeping_op_name(table),
        translator.get_pool(table),
        _execute(HousekeepingRun, table, loop_context, translator),
    )


def _shared(table: TableId, translator: IcebergTranslator) -> dict[str, Any]:
    return {
        "skippable": True,
        "kinds": set(translator.get_kinds(table)),
        "owners": list(translator.get_owners(table)),
        "tags": dict(translator.get_tags(table)),
        "metadata": definition_metadata(table, translator),
    }


def _execute(
    run: type[MaintenanceRun | HousekeepingRun],
    table: TableId,
    loop_context: Context,
    translator: IcebergTranslator,
) -> Callable[[dg.AssetExecutionContext], None]:
    def execute(context: dg.AssetExecutionContext) -> None:
        run(context, table, loop_context, translator, lambda: context.resources.pyspark.spark_session)()

    return execute


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
