"""Builds Dagster's definitions from values. The function keeps no state, so a process may call it several
times."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.assets.housekeeping_asset import build_housekeeping_asset
from iceberg_maint.defs.assets.table_asset import SPARK_RESOURCE, build_table_asset
from iceberg_maint.defs.automation.maintenance_sensor import build_automation_sensors, in_shard
from iceberg_maint.defs.automation.sensors import build_changes_sensor, build_observe_schedule
from iceberg_maint.defs.automation.tick_observation import LOOK_SECONDS, TickObservation
from iceberg_maint.defs.integrations import (
    FleetReporting,
    build_alerts_sensor,
    build_fleet_asset,
    build_fleet_schedule,
)
from iceberg_maint.defs.names import OBSERVE_JOB
from iceberg_maint.defs.reload import ConfigurationFile, executed_keys, reload_location
from iceberg_maint.defs.runs.observe_job import build_observe_job
from iceberg_maint.defs.runs.upkeep import (
    OldRuns,
    build_executor,
    build_lost_runs_sensor,
    build_old_runs_sensor,
)
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import log_printable_messages
from iceberg_maint.integrations.alerts.alert_cycle import PassReport
from iceberg_maint.loop.context import Context
from iceberg_maint.wiring.adapters import end_process

_log = logging.getLogger(__name__)

OBSERVE_CRON = "*/10 * * * *"


def build_definitions(
    context: Context,
    tables: Sequence[TableId],
    table_list: Path,
    *,
    translator: IcebergTranslator | None = None,
    shard: tuple[int, int] = (0, 1),
    webserver_url: str | None = None,
    automation: bool = True,
    observe_cron: str = OBSERVE_CRON,
    configuration: ConfigurationFile | None = None,
    alert_pass: Callable[[], PassReport] | None = None,
    reporting: FleetReporting | None = None,
    run: dg.DagsterRun | None = None,
    keep_days: int | None = None,
) -> dg.Definitions:
    """Returns assets, checks, observe job, sensors and schedule for the tables of this shard. Opens no
    connection.

    `translator` names and describes the tables in Dagster (default: `IcebergTranslator()`). `shard` is
    (index, count) of this code location. If `automation`, sensors and schedule are on after the first load.
    `configuration` is the file that `context` was built from. `alert_pass` sends the alerts; None: no receiver.
    `reporting` makes the report on the fleet; None: there is no asset of it.
    `run` is the run that this process executes: the definitions are then those of its assets, and no sensor. Old runs of
    Dagster are deleted after `keep_days`; None keeps all.

    A table that cannot be an asset is left out. The log and the sensor `table_changes` report it. If no table
    can be an asset, raises the error of the first one.
    """
    log_printable_messages()
    # Dagster warns that partitioned checks are a preview and that sensors in user code are beta. Both are
    # used on purpose. A thousand tables would log two thousand warnings at every start.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)
        warnings.simplefilter("ignore", dg.BetaWarning)
        return _build(
            context,
            tables,
            table_list,
            translator or IcebergTranslator(),
            shard,
            webserver_url,
            observe_cron,
            configuration,
            alert_pass,
            reporting if shard[0] == 0 else None,  # one location of the fleet reports
            run,
            keep_days,
            automation=automation,
        )


def _build(
    context: Context,
    tables: Sequence[TableId],
    table_list: Path,
    translator: IcebergTranslator,
    shard: tuple[int, int],
    webserver_url: str | None,
    observe_cron: str,
    configuration: ConfigurationFile | None,
    alert_pass: Callable[[], PassReport] | None,
    reporting: FleetReporting | None,
    run: dg.DagsterRun | None,
    keep_days: int | None,
    *,
    automation: bool,
) -> dg.Definitions:
    index, count = shard
    shard_tables = tuple(sorted(t for t in tables if in_shard(t, index, count)))
    if run is not None:
        context = context.ended_by(end_process)
    executor = build_executor(context.ledger.leases, context.observers.telemetry, context.process.end)
    resources = {
        SPARK_RESOURCE: dg.ResourceDefinition.hardcoded_resource(
            LazySession(context), description="The process's Spark session, started at the first batch."
        )
    }
    named, left_out = _named(shard_tables, translator)
    report = [build_fleet_asset(reporting, translator)] if reporting else []
    selected = _selected(named, run, translator)
    if selected is not None:
        job = build_observe_job(named, context, translator, executor)
        assets = [*report, *(asset for table in selected for asset in _assets(table, context, translator))]
        jobs = [job]
        return dg.Definitions(assets=assets, jobs=jobs, resources=resources, executor=executor)
    assets = []
    for table in named:
        try:
            assets += _assets(table, context, translator)
        except Exception as why:  # noqa: BLE001 - one table must not keep the others from loading
            left_out[table] = why
    for table, error in left_out.items():
        _log.error("table %s is left out: %s", table, context.process.masked(str(error)))
    if left_out and not assets:
        raise next(iter(left_out.values()))
    asset_tables = tuple(t for t in shard_tables if t not in left_out)
    job = build_observe_job(asset_tables, context, translator, executor)
    sensor_status = dg.DefaultSensorStatus.RUNNING if automation else dg.DefaultSensorStatus.STOPPED
    schedule_status = dg.DefaultScheduleStatus.RUNNING if automation else dg.DefaultScheduleStatus.STOPPED
    in_tick = context.within(LOOK_SECONDS)
    observation = TickObservation(job, asset_tables, in_tick, translator)
    changes = build_changes_sensor(
        job,
        asset_tables,
        left_out,
        in_tick,
        translator,
        observation,
        table_list,
        configuration,
        lambda table: in_shard(table, index, count),
        lambda location, why: reload_location(webserver_url, location, why),
        sensor_status,
    )
    old_runs = (
        OldRuns(keep_days, context.clock, context.ledger.registry.now_ms) if keep_days is not None else None
    )
    return dg.Definitions(
        assets=[*assets, *report],
        jobs=[job],
        sensors=[
            changes,
            build_lost_runs_sensor(context.ledger, sensor_status),
            *([build_old_runs_sensor(old_runs, sensor_status)] if old_runs else []),
            # One location of the fleet sends.
            *([build_alerts_sensor(alert_pass, sensor_status)] if alert_pass and index == 0 else []),
            *build_automation_sensors(asset_tables, context, translator, observation, sensor_status),
        ],
        schedules=[
            build_observe_schedule(job, asset_tables, observe_cron, schedule_status),
            *(build_fleet_schedule(reporting, asset, schedule_status) for asset in report if reporting),
        ],
        resources=resources,
        executor=executor,
    )


def _selected(
    tables: Sequence[TableId], run: dg.DagsterRun | None, translator: IcebergTranslator
) -> list[TableId] | None:
    """Returns the tables whose assets the run executes. None if all definitions are needed."""
    if run is None:
        return None
    by_key = {
        key: t for t in tables for key in (translator.get_asset_key(t), translator.get_housekeeping_key(t))
    }
    report = translator.get_fleet_key()
    keys = executed_keys(run, (OBSERVE_JOB,), lambda key: key == report or key in by_key)
    return None if keys is None else sorted({by_key[key] for key in keys - {report}})


def _named(
    tables: Sequence[TableId], translator: IcebergTranslator
) -> tuple[list[TableId], dict[TableId, Exception]]:
    """Returns the tables that have names of their own in Dagster, and the error of every other table.

    Dagster loads all definitions or none. A table with an error must therefore be left out here.
    """
    named: list[TableId] = []
    left_out: dict[TableId, Exception] = {}
    owners: dict[object, TableId] = {}
    for table in tables:
        try:
            for name in _names(table, translator):
                if (other := owners.setdefault(name, table)) != table:
                    raise dg.DagsterInvalidDefinitionError(f"{name} in Dagster also belongs to {other}")
        except Exception as why:  # noqa: BLE001 - one table must not keep the others from loading
            left_out[table] = why
        else:
            named.append(table)
    return named, left_out


def _assets(
    table: TableId, context: Context, translator: IcebergTranslator
) -> tuple[dg.AssetsDefinition, dg.AssetsDefinition]:
    return build_table_asset(table, context, translator), build_housekeeping_asset(table, context, translator)


def _names(table: TableId, translator: IcebergTranslator) -> tuple[object, ...]:
    """Returns the names that must differ between any two tables."""
    return (
        translator.get_asset_key(table),
        translator.get_housekeeping_key(table),
        f"partitions name {translator.get_partitions_name(table)!r}",
        f"op name {translator.get_op_name(table)!r}",
        f"op name {translator.get_housekeeping_op_name(table)!r}",
        f"pool {translator.get_pool(table)!r}",
    )


class LazySession:
    """The Spark resource. It computes its settings at the first batch.

    The settings name jars of this machine. A run without work needs no jars.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    @cached_property
    def spark_session(self) -> Any:
        """The process's Spark session. The first access fixes Spark's static settings."""
        return LazyPySparkResource(spark_config=dict(self._context.engine.spark.conf())).spark_session
