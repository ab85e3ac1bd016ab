"""Builds the definitions of a code location, also of one of several that share the tables: from values, or from environment
variables and the configuration file.

- `ICEBERG_MAINT_CONFIG`: the configuration file.
- `ICEBERG_MAINT_DAGSTER_URL`: the web server that reloads the location when tables or the configuration change.
- `ICEBERG_MAINT_KEY_PREFIX=a/b`: a prefix of the asset keys.
- `ICEBERG_MAINT_TABLE_LIST`: the file that lists the tables (default: `tables.json` in the program's folder).

The attribute `shard_2_of_8` of this module has the definitions of share 2 of 8, counted from 0. `iceberg-maint shards 8`
writes a workspace of such attributes. A code location loads the definitions of its own share only.
"""

from __future__ import annotations

import gc
import logging
import os
import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

from iceberg_maint.config import CONFIG_VARIABLE, load_config
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.assets.asset_definitions import (
    build_fleet_asset,
    build_fleet_schedule,
    build_fleet_sensor,
    build_housekeeping_asset,
    build_table_asset,
)
from iceberg_maint.defs.assets.spark_resource import SPARK_RESOURCE, LazySpark
from iceberg_maint.defs.automation.maintenance_sensor import build_automation_sensors
from iceberg_maint.defs.automation.sensors import build_changes_sensor, build_observe_schedule
from iceberg_maint.defs.automation.tick_observation import READ_TIMEOUT_SECONDS, TickObservation
from iceberg_maint.defs.code_location import (
    CodeLocation,
    ConfigurationFile,
    load_table_list,
)
from iceberg_maint.defs.dagster_internals import executed_run
from iceberg_maint.defs.names import OBSERVE_JOB
from iceberg_maint.defs.runs.observe_job import build_observe_job
from iceberg_maint.defs.runs.upkeep import (
    OldRuns,
    build_executor,
    build_lost_runs_sensor,
    build_old_runs_sensor,
)
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import log_printable_messages
from iceberg_maint.loop.context import Context
from iceberg_maint.wiring import adapters
from iceberg_maint.wiring.integrations import FleetWork, fleet_work

URL_VARIABLE = "ICEBERG_MAINT_DAGSTER_URL"
PREFIX_VARIABLE = "ICEBERG_MAINT_KEY_PREFIX"
TABLE_LIST_VARIABLE = "ICEBERG_MAINT_TABLE_LIST"
_log = logging.getLogger(__name__)


def definitions_from(
    environ: Mapping[str, str],
    translator: IcebergTranslator | None = None,
    shard: tuple[int, int] = (0, 1),
) -> dg.Definitions:
    """Returns the definitions for these environment variables. `translator` replaces the default translator
    and its key prefix. The location has the tables of `shard` (index, count).

    Reads the catalogs only if there is no table list. Raises ConfigurationError.
    """
    configured = environ.get(CONFIG_VARIABLE)
    configuration = (
        ConfigurationFile(Path(configured), lambda: adapters.build(load_config(None, environ)))
        if configured
        else None
    )
    config = load_config(None, environ)
    context = adapters.build(config)
    listed = environ.get(TABLE_LIST_VARIABLE)
    table_list = Path(listed) if listed else config.home / "tables.json"
    location = CodeLocation(
        load_table_list(table_list, context.catalogs),
        table_list,
        shard,
        configuration,
        environ.get(URL_VARIABLE) or None,
        executed_run(),
        config.dagster_keep_days,
    )
    prefix = [p for p in environ.get(PREFIX_VARIABLE, "").split("/") if p]
    work = tuple(fleet_work(config, context)) if location.is_first else ()
    file = str(Path(configured).absolute()) if configured else None
    return build_definitions(context, location, translator or IcebergTranslator(prefix, file), work)


def process_definitions(environ: Mapping[str, str], shard: tuple[int, int] = (0, 1)) -> dg.Definitions:
    """As `definitions_from`, for a process that keeps them until it ends: their objects are never looked at for garbage."""
    with keeping_all():
        return definitions_from(environ, shard=shard)


@contextmanager
def keeping_all() -> Iterator[None]:
    """Collects no garbage in the block, and never looks at the objects that exist at its end.

    Assets, checks and modules live as long as the process of a code location. Python would look at all of them again
    whenever their number has grown by a quarter: a quarter of the CPU that a location takes to load.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


def __getattr__(name: str) -> dg.Definitions:
    shard = re.fullmatch(r"shard_(\d+)_of_(\d+)", name)
    if shard is None or int(shard[1]) >= int(shard[2]):
        raise AttributeError(f"{__name__} has no attribute {name!r}: name a share such as shard_0_of_4")
    return process_definitions(os.environ, (int(shard[1]), int(shard[2])))


def build_definitions(
    context: Context,
    location: CodeLocation,
    translator: IcebergTranslator | None = None,
    fleet_work: Sequence[FleetWork] = (),
) -> dg.Definitions:
    """Returns assets, checks, observe job, sensors and schedules of a code location. Opens no connection. The sensors and
    schedules are on after the first load.

    `translator` names and describes the tables in Dagster (default: `IcebergTranslator()`). `fleet_work` is the work on
    the fleet as a whole, which the first of several locations does.

    A table that cannot be an asset is not loaded. The log and the sensor `table_changes` report it. If no table
    can be an asset, raises the error of the first one.
    """
    log_printable_messages()
    # Dagster warns that partitioned checks are a preview and that sensors in user code are beta. Both are
    # used on purpose. A thousand tables would log two thousand warnings at every start.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)
        warnings.simplefilter("ignore", dg.BetaWarning)
        work = fleet_work if location.is_first else ()
        return _build(context, location, translator or IcebergTranslator(), work)


def _build(
    context: Context, location: CodeLocation, translator: IcebergTranslator, fleet_work: Sequence[FleetWork]
) -> dg.Definitions:
    shard_tables = tuple(sorted(t for t in location.tables if location.has(t)))
    if location.run is not None:
        context = context.ended_by(adapters.end_process)
    executor = build_executor(context.ledger.leases, context.observers.telemetry, context.process.end)
    session = dg.ResourceDefinition.hardcoded_resource(
        LazySpark(context),
        description="The process's Spark session, for other ops. Maintenance starts it only when its work needs it.",
    )
    scheduled = [(w, build_fleet_asset(w, translator)) for w in fleet_work if w.schedule is not None]
    fleet_assets = [asset for _, asset in scheduled]
    named, left_out = _named(shard_tables, translator)
    selected = _selected(named, {key for asset in fleet_assets for key in asset.keys}, location, translator)
    assets = []
    for table in named if selected is None else selected:
        try:
            assets += [
                build_table_asset(table, context, translator),
                build_housekeeping_asset(table, context, translator),
            ]
        except Exception as why:
            if selected is not None:
                raise
            left_out[table] = why  # One table must not keep the others from loading.
    sensors: list[dg.SensorDefinition] = []
    schedules: list[dg.ScheduleDefinition] = []
    asset_tables = tuple(t for t in shard_tables if t not in left_out)
    job = build_observe_job(asset_tables, context, translator, executor)
    if selected is None:
        for table, error in left_out.items():
            _log.error("table %s is not loaded: %s", table, context.process.masked(str(error)))
        if left_out and not assets:
            raise next(iter(left_out.values()))
        observation = TickObservation(job, asset_tables, context.within(READ_TIMEOUT_SECONDS), translator)
        sensors = [
            build_changes_sensor(observation, location, left_out),
            build_lost_runs_sensor(context.ledger),
            *(build_fleet_sensor(w) for w in fleet_work if w.schedule is None),
            *build_automation_sensors(asset_tables, context, translator, observation),
        ]
        if location.keep_days is not None:
            sensors.append(
                build_old_runs_sensor(
                    OldRuns(location.keep_days, context.clock, context.ledger.registry.now_ms)
                )
            )
        schedules = [
            build_observe_schedule(job, asset_tables),
            *(build_fleet_schedule(work, asset) for work, asset in scheduled),
        ]
    return dg.Definitions(
        assets=[*assets, *fleet_assets],
        jobs=[job],
        sensors=sensors or None,
        schedules=schedules or None,
        resources={SPARK_RESOURCE: session},
        executor=executor,
    )


def _selected(
    tables: Sequence[TableId],
    fleet_keys: Collection[dg.AssetKey],
    location: CodeLocation,
    translator: IcebergTranslator,
) -> list[TableId] | None:
    """Returns the tables whose assets the run of the process needs. None if it needs all definitions: without a run, or
    for one that selects an asset of other definitions, or names none."""
    run = location.run
    if run is None:
        return None
    if run.job_name == OBSERVE_JOB:
        return []
    by_key = {
        key: t for t in tables for key in (translator.get_asset_key(t), translator.get_housekeeping_key(t))
    }
    keys = {*(run.asset_selection or ()), *(c.asset_key for c in run.asset_check_selection or ())}
    if not keys or not keys <= by_key.keys() | set(fleet_keys):
        return None
    return sorted({by_key[key] for key in keys if key in by_key})


def _named(
    tables: Sequence[TableId], translator: IcebergTranslator
) -> tuple[list[TableId], dict[TableId, Exception]]:
    """Returns the tables that have names of their own in Dagster, and the error of every other table.

    Dagster loads all definitions or none. A table with an error is therefore not loaded.
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
