"""Definitions that maintain Iceberg tables within a project of Dagster of its own, whatever its executor, resources and packages."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import dagster as dg

from iceberg_maint.component.environment import Environment
from iceberg_maint.component.launch import Launcher, in_subprocess
from iceberg_maint.component.pipeline import Pipeline, pipeline_of
from iceberg_maint.component.received import Received, launch_extras
from iceberg_maint.component.table_assets import OBSERVE_CRON, TableAssets, table_assets
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.assets.op_asset import Metadata, Op, build_op_asset, omit_missing_outputs
from iceberg_maint.defs.names import ENGINE_TAG, TABLE_TAG
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import ConfigurationError

KEY_PREFIX = "iceberg_maint"
"""First part of the keys by default: the key of a table without it is often that of the asset that loads the table."""
SENSOR = "iceberg_maintenance"
WAIT_MINUTES = 360
_TABLE_NAME = "dagster/table_name"
_OF_DBT = "dagster_dbt/manifest"
_ONLY_NAMED = "dagster/auto_created_stub_asset"
"""Metadata of an asset that another one depends on and that no definition has: a reader of the maintenance names it so."""


@dataclass(frozen=True, slots=True)
class Options:
    """How the assets stand in the project.

    `observe_cron`: when tables are measured besides after their loads; None: nothing starts by itself. `sensor`: the name of
    the sensor that evaluates the conditions; None leaves them to a sensor of the project. `blocking`: a partition that
    crosses a threshold skips assets downstream of the table's in the same run. `wait_minutes`: for how long due maintenance
    waits for loads and readers of the table at most.
    """

    observe_cron: str | None = OBSERVE_CRON
    sensor: str | None = SENSOR
    blocking: bool = False
    wait_minutes: int = WAIT_MINUTES


def build_iceberg_maintenance_defs(
    tables: Iterable[TableId],
    launcher: Launcher | None = None,
    *,
    assets: Mapping[str, Sequence[dg.AssetKey]] | None = None,
    project: dg.Definitions | None = None,
    translator: IcebergTranslator | None = None,
    options: Options | None = None,
) -> dg.Definitions:
    """Returns two assets per table, their checks, and the sensor that starts their runs.

    `launcher` runs the work, by default in a process with this Python. `assets` maps the name of a table to the keys of the
    assets that load it. A table without an entry is loaded by the asset of the `project` with its name as the metadata
    `dagster/table_name`. The assets of the project that depend on a loader read the table. `translator` gives names; by default every key begins with `KEY_PREFIX`.

    Raises ConfigurationError ICM-100 for an asset that the project does not have, for several assets of one table, and for
    a key that one of them has; ICM-126 for an entry of no table.
    """
    specs = [] if project is None else list(project.resolve_all_asset_specs())
    existing = {spec.key for spec in specs}
    for table, keys in (assets or {}).items():
        missing = [key for key in keys if project is not None and key not in existing]
        if missing:
            raise no_such_asset(table, missing[0])
    chosen_names = translator or IcebergTranslator((KEY_PREFIX,))
    run = launcher or in_subprocess(Environment())
    return build_beside(specs, tables, run, assets or {}, chosen_names, options or Options())


def build_beside(
    specs: Sequence[dg.AssetSpec],
    tables: Iterable[TableId],
    run: Launcher,
    assets: Mapping[str, Sequence[dg.AssetKey]],
    names: IcebergTranslator,
    chosen: Options,
) -> dg.Definitions:
    """The same beside assets of these specs, among which those of `assets` need not be."""
    listed = sorted(set(tables))
    pipelines = _pipelines(listed, assets, specs)
    with _quiet():
        built = [
            table_assets(t, names, pipelines[t], chosen.observe_cron, blocking=chosen.blocking)
            for t in listed
        ]
        _refuse_collisions(built, specs)
        definitions = [asset for one in built for asset in _definitions(one, names, run, chosen.wait_minutes)]
        sensor = _sensor(chosen, [key for asset in definitions for key in asset.keys])
    return dg.Definitions(assets=definitions, sensors=sensor)


@contextmanager
def _quiet() -> Iterator[None]:
    """Dagster does not warn of what it calls a preview: partitioned checks, which this uses on purpose, and parts of Pipes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)
        warnings.simplefilter("ignore", dg.BetaWarning)
        yield


def _definitions(
    assets: TableAssets, names: IcebergTranslator, launcher: Launcher, wait_minutes: int
) -> Iterable[dg.AssetsDefinition]:
    def execute(context: dg.AssetExecutionContext) -> Metadata | None:
        received = Received(context, assets, assets.data.key, wait_minutes)
        _execute(context, received, launcher)
        return received.output()

    def execute_housekeeping(context: dg.AssetExecutionContext) -> None:
        _execute(context, Received(context, assets, assets.housekeeping.key, wait_minutes), launcher)

    op = Op(names.get_op_name(assets.table), assets.pool, execute)
    yield build_op_asset(assets.data, assets.data_checks, op, dg.BackfillPolicy.single_run())
    op = Op(names.get_housekeeping_op_name(assets.table), assets.pool, execute_housekeeping)
    yield build_op_asset(assets.housekeeping, assets.housekeeping_checks, op)


def _execute(context: dg.AssetExecutionContext, received: Received, launcher: Launcher) -> None:
    """Does the work of an asset of a table, or measures the table if the run has checks only."""
    assets = received.assets
    omit_missing_outputs(context.log)
    if TABLE_TAG not in context.run.tags:
        context.instance.add_run_tags(context.run.run_id, {TABLE_TAG: str(assets.table)})
    _limit_pool(context.instance, assets.pool)
    if received.must_yield():
        received.leave_due()
        return
    if received.may_be_left():
        return
    command = "run" if context.selected_asset_keys else "observe"
    extras = launch_extras(context, assets, received.own)
    try:
        with _quiet():
            code = launcher(context, [command, "--pipes", str(assets.table)], extras, received.take)
    except ConfigurationError as why:
        raise dg.Failure(str(why), allow_retries=False) from why
    finally:
        received.close()
    received.result(code)


def _limit_pool(instance: dg.DagsterInstance, pool: str) -> None:
    """One op at a time on a table, where Dagster frees the slot of a run that died: elsewhere the lease of the ledger alone keeps
    them apart, and the later one waits. The default limit of the instance, which holds for other pools too, stays."""
    settings = instance.run_monitoring_settings if instance.run_monitoring_enabled else {}
    storage = instance.event_log_storage
    if (
        settings.get("free_slots_after_run_end_seconds") is None
        or not storage.supports_global_concurrency_limits
    ):
        return
    if pool not in storage.get_concurrency_keys():
        storage.set_concurrency_slots(pool, 1)


def _sensor(options: Options, keys: Sequence[dg.AssetKey]) -> list[dg.SensorDefinition]:
    if options.observe_cron is None or options.sensor is None or not keys:
        return []
    return [
        dg.AutomationConditionSensorDefinition(
            options.sensor,
            target=dg.AssetSelection.assets(*keys),
            default_status=dg.DefaultSensorStatus.RUNNING,
            # Where runs wait for one another, those of the project are first.
            run_tags={ENGINE_TAG: "spark", "dagster/priority": "-1"},
            description="Measures tables after their loads, and requests the maintenance that is due.",
        )
    ]


def assets_by_table_name(
    tables: Iterable[TableId],
    specs: Iterable[dg.AssetSpec],
    named: Mapping[str, Sequence[dg.AssetKey]],
) -> dict[str, Sequence[dg.AssetKey]]:
    """The assets that load each table: those `named`, else that with the table's name in its metadata. Raises
    ConfigurationError ICM-100 if several have it."""
    listed = list(tables)
    unnamed = {str(table) for table in listed} - set(named)
    without_catalog = {".".join(table.parts[1:]): str(table) for table in listed}
    found: dict[str, list[dg.AssetKey]] = {}
    for spec in specs:
        table = str(spec.metadata.get(_TABLE_NAME, ""))
        if _OF_DBT in spec.metadata and len(without_catalog) == len(listed):
            # The manifest of dbt names no catalog where dbt-spark builds the model.
            table = without_catalog.get(table, table)
        if table in unnamed:
            found.setdefault(table, []).append(spec.key)
    for table, keys in found.items():
        if len(keys) > 1:
            several = sorted(key.to_user_string() for key in keys)
            raise ConfigurationError(
                "ICM-100",
                f"{table} is the {_TABLE_NAME} of {' and '.join(several)}.",
                f"name what loads it in assets, such as assets: {{{table}: {several[0]}}}.",
            )
    return {**found, **named}


def no_such_asset(table: str, key: dg.AssetKey) -> ConfigurationError:
    """The error of an entry whose asset the project does not have."""
    return ConfigurationError(
        "ICM-100",
        f"assets maps {table} to {key.to_user_string()}, which is no asset of the project.",
        "correct the key: its parts are separated by /.",
    )


def no_such_table(table: str) -> ConfigurationError:
    """The error of an entry whose table the component does not have."""
    return ConfigurationError(
        "ICM-126",
        f"assets names {table}, which is no table of this component.",
        "correct the name; if the table is new, run dg utils refresh-defs-state when it exists.",
    )


def _pipelines(
    tables: Sequence[TableId],
    assets: Mapping[str, Sequence[dg.AssetKey]],
    specs: Sequence[dg.AssetSpec],
) -> dict[TableId, Pipeline]:
    if unknown := sorted(set(assets) - {str(table) for table in tables}):
        raise no_such_table(unknown[0])
    loaders = assets_by_table_name(tables, specs, assets)
    return {table: pipeline_of(loaders.get(str(table), ()), specs) for table in tables}


def _refuse_collisions(built: Sequence[TableAssets], specs: Sequence[dg.AssetSpec]) -> None:
    taken = {key for assets in built for key in assets.pipeline.loaders}
    taken |= {spec.key for spec in specs if not spec.metadata.get(_ONLY_NAMED)}
    for assets in built:
        for key in (assets.data.key, assets.housekeeping.key):
            if key in taken:
                raise ConfigurationError(
                    "ICM-100",
                    f"the maintenance of {assets.table} has the key {key.to_user_string()}, which an asset of the project has.",
                    "set key_prefix to another one.",
                )
            taken.add(key)
