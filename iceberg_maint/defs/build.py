"""Builds the definitions: one function of values, so that it can be called any number of times."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.code_location.config_file import ConfigurationFile
from iceberg_maint.defs.code_location.reload import reload_location
from iceberg_maint.defs.executor import build_executor
from iceberg_maint.defs.housekeeping_asset import build_housekeeping_asset
from iceberg_maint.defs.lost_runs import build_lost_runs_sensor
from iceberg_maint.defs.observe import build_observe_job
from iceberg_maint.defs.sensors import (
    build_automation_sensors,
    build_changes_sensor,
    build_observe_schedule,
)
from iceberg_maint.defs.shard import in_shard
from iceberg_maint.defs.table_asset import SPARK_RESOURCE, build_table_asset
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.runner.runtime import Runtime

_log = logging.getLogger(__name__)

OBSERVE_CRON = "*/10 * * * *"


def build_definitions(
    runtime: Runtime,
    tables: Sequence[TableId],
    table_list: Path,
    *,
    translator: IcebergTranslator | None = None,
    shard: tuple[int, int] = (0, 1),
    webserver_url: str | None = None,
    automation: bool = True,
    observe_cron: str = OBSERVE_CRON,
    configuration: ConfigurationFile | None = None,
) -> dg.Definitions:
    """Assets, checks, observe job, sensors and schedule for the tables of this shard.

    `translator` names and describes the tables in Dagster (default: `IcebergTranslator()`); `shard` is
    (index, count) of this code location; `automation` says whether sensors and schedule are on
    at the first load; `configuration` is the file that the lake was made of. Connects to nothing.
    A table that cannot be an asset is left out and told of, in the log and by the sensor; raises
    what was wrong with the first when none can be.
    """
    # Partitioned checks are preview and the sensor in user code is beta in Dagster; both are chosen
    # knowingly, and a thousand tables would say so two thousand times at every start.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)
        warnings.simplefilter("ignore", dg.BetaWarning)
        return _build(
            runtime,
            tables,
            table_list,
            translator or IcebergTranslator(),
            shard,
            webserver_url,
            observe_cron,
            configuration,
            automation=automation,
        )


def _build(
    runtime: Runtime,
    tables: Sequence[TableId],
    table_list: Path,
    translator: IcebergTranslator,
    shard: tuple[int, int],
    webserver_url: str | None,
    observe_cron: str,
    configuration: ConfigurationFile | None,
    *,
    automation: bool,
) -> dg.Definitions:
    index, count = shard
    mine = tuple(sorted(t for t in tables if in_shard(t, index, count)))
    assets, left_out = _assets(mine, runtime, translator)
    for table, why in left_out.items():
        _log.error("table %s is left out: %s", table, runtime.masked(str(why)))
    if left_out and not assets:
        raise next(iter(left_out.values()))
    loaded = tuple(t for t in mine if t not in left_out)
    executor = build_executor(runtime.ledger)
    job = build_observe_job(loaded, runtime, translator, executor)
    running = dg.DefaultSensorStatus.RUNNING if automation else dg.DefaultSensorStatus.STOPPED
    on_time = dg.DefaultScheduleStatus.RUNNING if automation else dg.DefaultScheduleStatus.STOPPED
    changes = build_changes_sensor(
        job,
        loaded,
        left_out,
        runtime,
        table_list,
        configuration,
        lambda table: in_shard(table, index, count),
        lambda location, why: reload_location(webserver_url, location, why),
        running,
    )
    return dg.Definitions(
        assets=assets,
        jobs=[job],
        sensors=[
            changes,
            build_lost_runs_sensor(runtime.ledger, running),
            *build_automation_sensors(loaded, translator, running),
        ],
        schedules=[build_observe_schedule(job, loaded, observe_cron, on_time)],
        resources={
            SPARK_RESOURCE: dg.ResourceDefinition.hardcoded_resource(
                LazySession(runtime), description="The process's Spark session, started at the first batch."
            )
        },
        executor=executor,
    )


def _assets(
    tables: Sequence[TableId], runtime: Runtime, translator: IcebergTranslator
) -> tuple[list[dg.AssetsDefinition], Mapping[TableId, Exception]]:
    """The assets of the tables, and what is wrong with a table that cannot have them: Dagster
    loads all definitions or none."""
    assets: list[dg.AssetsDefinition] = []
    left_out: dict[TableId, Exception] = {}
    named: dict[object, TableId] = {}
    for table in tables:
        try:
            for name in _names(table, translator):
                if (other := named.setdefault(name, table)) != table:
                    raise dg.DagsterInvalidDefinitionError(f"{name} in Dagster is also that of {other}")
            both = [
                build(table, runtime, translator) for build in (build_table_asset, build_housekeeping_asset)
            ]
        except Exception as why:  # noqa: BLE001 - one table must not keep the others from loading
            left_out[table] = why
        else:
            assets += both
    return assets, left_out


def _names(table: TableId, translator: IcebergTranslator) -> tuple[object, ...]:
    """What no two tables may share."""
    return (
        translator.get_asset_key(table),
        translator.get_housekeeping_key(table),
        f"partitions name {translator.get_partitions_name(table)!r}",
        f"op name {translator.get_op_name(table)!r}",
        f"op name {translator.get_housekeeping_op_name(table)!r}",
        f"pool {translator.get_pool(table)!r}",
    )


class LazySession:
    """Dagster's lazy holder of the session, made at the first batch: its settings name jars of
    this machine, which a run without work does not need."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @cached_property
    def spark_session(self) -> Any:
        """The process's Spark session. Static settings hold from the first access on."""
        return LazyPySparkResource(spark_config=dict(self._runtime.spark.conf())).spark_session
