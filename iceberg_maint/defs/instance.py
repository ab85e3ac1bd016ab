"""The Dagster instance: refused settings, pool limits, unfinished runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime

import dagster as dg

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.dagster_internals import stores_in_sqlite, unfinished_backfills
from iceberg_maint.defs.names import OBSERVE_JOB
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import RefusedError

ENDED_STATUSES = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
UNFINISHED_STATUSES = tuple(s for s in dg.DagsterRunStatus if s not in ENDED_STATUSES)

QUEUED_SECONDS = 60
"""A run that waits for longer than this is no reason to hide the state of its checks."""

_FIX = "copy dagster.yaml of this project into DAGSTER_HOME; 'iceberg-maint init' writes one."


def check_instance(instance: dg.DagsterInstance) -> None:
    """Raises RefusedError ICM-117 if a crashed run would block its table, ICM-116 if several runs would
    write SQLite storage at once."""
    if not instance.run_monitoring_enabled:
        raise RefusedError(
            "ICM-117",
            "Dagster's run_monitoring.enabled is false: a crashed run would stay 'started' and "
            "block its table's pool.",
            _FIX,
        )
    if instance.run_monitoring_settings.get("free_slots_after_run_end_seconds") is None:
        raise RefusedError(
            "ICM-117",
            "Dagster's run_monitoring.free_slots_after_run_end_seconds is not set: the pool slot "
            "of a crashed run would never be freed.",
            _FIX,
        )
    queue = instance.get_concurrency_config().run_queue_config
    if stores_in_sqlite(instance) and queue is not None and queue.max_concurrent_runs != 1:
        raise RefusedError(
            "ICM-116",
            f"Dagster stores its runs in SQLite and concurrency.runs.max_concurrent_runs is "
            f"{queue.max_concurrent_runs}. SQLite supports one run at a time.",
            "set it to 1, or give Dagster a PostgreSQL storage.",
        )


def check_home() -> str:
    """Checks the instance that DAGSTER_HOME names and describes it. Raises what `check_instance`
    raises."""
    with dg.DagsterInstance.get() as instance:
        check_instance(instance)
        return f"{instance.root_directory}, {type(instance.event_log_storage).__name__}"


def initialize_pools(
    instance: dg.DagsterInstance, tables: Iterable[TableId], translator: IcebergTranslator
) -> None:
    """Initializes the limits of the tables' pools.

    Dagster's queue reads the limits before it initializes them. Without this the first dequeue of an
    unknown pool would not limit its runs.
    """
    storage = instance.event_log_storage
    if not storage.supports_global_concurrency_limits:
        return
    known = storage.get_concurrency_keys()
    for pool in {translator.get_pool(table) for table in tables} - set(known):
        storage.initialize_concurrency_limit_to_default(pool)


def busy_assets(instance: dg.DagsterInstance) -> Callable[[dg.AssetKey], bool]:
    """Returns a function: whether an unfinished run or backfill may change an asset, as of this call."""
    busy: set[dg.AssetKey] = set()
    everything = False
    for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED_STATUSES)):
        if run.job_name == OBSERVE_JOB:
            continue
        if run.asset_selection is None:
            everything = True
        else:
            busy |= run.asset_selection
    for backfill in unfinished_backfills(instance):
        busy |= set(backfill.asset_selection or ())
    return lambda key: everything or key in busy


def queued_runs(instance: dg.DagsterInstance, now_ms: int) -> Mapping[dg.AssetKey, str]:
    """The runs of each asset that have waited in the queue for a minute, as a text that names them.

    Dagster shows the checks of such a run as planned, not as they are.
    """
    before = datetime.fromtimestamp(now_ms / 1000 - QUEUED_SECONDS, UTC)
    waiting = dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED], created_before=before)
    by_asset: dict[dg.AssetKey, list[str]] = {}
    for run in instance.get_runs(waiting):
        for key in run.asset_selection or ():
            by_asset.setdefault(key, []).append(run.run_id)
    return {key: " ".join(sorted(ids)) for key, ids in by_asset.items()}


def launches_monitored_workers(instance: dg.DagsterInstance) -> bool:
    """Whether Dagster asks the launcher for the worker of every started run, and fails a run without one. A
    launcher that cannot be loaded here counts as such."""
    try:
        return instance.run_launcher.supports_check_run_worker_health
    except Exception:  # noqa: BLE001 - a launcher of the daemon may need what a code server lacks
        return True


def observing(instance: dg.DagsterInstance, tables: Collection[TableId]) -> bool:
    """Whether an observe run of some of these tables is queued or running. A run that names no table may have them all.
    The runs of other code locations have other tables."""
    names = {str(table) for table in tables}
    return any(not (named := _named_tables(run)) or named & names for run in _observe_runs(instance))


def may_observe(instance: dg.DagsterInstance, tables: Collection[TableId]) -> bool:
    """Whether a sensor may request an observe run of some of these tables: none of them is observed, and the observe runs of
    all code locations leave a slot of Dagster's queue to maintenance. They come first in the queue: several locations that
    request one each minute would otherwise keep all slots of a busy machine."""
    queue = instance.get_concurrency_config().run_queue_config
    slots = queue.max_concurrent_runs if queue is not None else -1
    others = len(_observe_runs(instance))
    return not observing(instance, tables) and (slots < 0 or others < max(1, slots - 1))


def _observe_runs(instance: dg.DagsterInstance) -> Sequence[dg.DagsterRun]:
    statuses = [s for s in UNFINISHED_STATUSES if s is not dg.DagsterRunStatus.NOT_STARTED]
    return instance.get_runs(dg.RunsFilter(job_name=OBSERVE_JOB, statuses=statuses))


def _named_tables(run: dg.DagsterRun) -> set[str]:
    """The tables that the configuration of an observe run names."""
    config: object = run.run_config
    for name in ("ops", "observe_tables", "config", "tables"):
        config = config.get(name) if isinstance(config, Mapping) else None
    return set(config) if isinstance(config, list | tuple) else set()
