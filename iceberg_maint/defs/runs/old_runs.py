"""Old runs in Dagster's storage. Dagster bounds its ticks, not its runs, events and evaluations.

What Dagster shows as the present state stays, however old it is: the last materialization and the last observation of
each partition, the last attempt of a partition without a later materialization, and the last evaluation of each check.
Everything else of an old run is deleted, and the run itself if nothing of it stays.

Dagster deletes whole runs only. The statements here use its tables, by the columns that its own queries use.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.execution.backfill import (
    BULK_ACTION_TERMINAL_STATUSES,
    BulkActionsFilter,
    PartitionBackfill,
)
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.dagster_run import FINISHED_STATUSES
from dagster._core.storage.event_log import SqlEventLogStorage, SqliteEventLogStorage
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.runs import SqlRunStorage
from dagster._core.storage.runs.schema import BackfillTagsTable, BulkActionsTable, RunsTable, SnapshotsTable
from sqlalchemy import Connection, Select, delete, func, or_, select

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.names import IN_TICK_TAG, OBSERVE_JOB, TABLE_TAG
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.ports.clock import Clock
from iceberg_maint.ports.ledger import Ledger

_events = SqlEventLogStorageTable.c
_checks = AssetCheckExecutionsTable.c
_MATERIALIZED = dg.DagsterEventType.ASSET_MATERIALIZATION.value
_SUPERSEDED_BY: Mapping[str, tuple[str, ...]] = {
    t.value: (t.value, _MATERIALIZED)
    for t in (
        dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED,
        dg.DagsterEventType.ASSET_FAILED_TO_MATERIALIZE,
    )
}
"""Types of events that end with a materialization. An event of another type ends with the next one of its type."""
_AT_ONCE = 400
"""Values in one statement. SQLite accepts some thousands."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """An old run that has finished. `created` is in UTC."""

    run: dg.DagsterRun
    created: datetime


def supported(instance: dg.DagsterInstance) -> bool:
    """Whether Dagster's storage is a database that this module knows: SQLite or PostgreSQL."""
    return isinstance(instance.event_log_storage, SqlEventLogStorage) and isinstance(
        instance.run_storage, SqlRunStorage
    )


def old_runs(
    instance: dg.DagsterInstance, after: datetime | None, before: datetime, limit: int
) -> Sequence[StoredRun]:
    """The oldest finished runs that were created later than `after` and earlier than `before`."""
    wanted = dg.RunsFilter(statuses=list(FINISHED_STATUSES), created_after=after, created_before=before)
    records = instance.get_run_records(wanted, limit=limit, order_by="create_timestamp", ascending=True)
    return [StoredRun(r.dagster_run, r.create_timestamp) for r in records]


def prune_run(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Deletes what the run has and Dagster's present state does not need. Returns whether the run is gone.

    The log of the run goes in any case. If the process ends in between, a second call does the rest.
    """
    storage, run_id = _event_storage(instance), run.run_id
    with storage.index_connection() as conn:
        needed = _needed(conn, run_id)
        of_run = _events.run_id == run_id
        others = select(_events.id).where(of_run, _events.id.not_in(needed))
        conn.execute(delete(AssetEventTagsTable).where(AssetEventTagsTable.c.event_id.in_(others)))
        conn.execute(delete(SqlEventLogStorageTable).where(of_run, _events.id.not_in(needed)))
    if isinstance(storage, SqliteEventLogStorage):
        # A file per run, which Dagster itself never deletes.
        for suffix in ("", "-wal", "-shm"):
            Path(f"{storage.path_for_shard(run_id)}{suffix}").unlink(missing_ok=True)
    instance.compute_log_manager.delete_logs(prefix=[run_id])
    if not needed:
        instance.run_storage.delete_run(run_id)
    return not needed


def prune_snapshots(instance: dg.DagsterInstance, runs: Iterable[dg.DagsterRun]) -> None:
    """Deletes the definitions of the jobs of these deleted runs, if no other run has them. Only of runs of chosen
    assets: the definition of a whole job may be the parent of others."""
    plans = {
        r.job_snapshot_id: r.execution_plan_snapshot_id
        for r in runs
        if r.job_snapshot_id and (r.asset_selection or r.asset_check_selection)
    }
    if not plans:
        return
    with _run_storage(instance).connect() as conn:
        used = set(conn.scalars(select(RunsTable.c.snapshot_id).where(RunsTable.c.snapshot_id.in_(plans))))
        unused = [i for job, plan in plans.items() if job not in used for i in (job, plan) if i]
        conn.execute(delete(SnapshotsTable).where(SnapshotsTable.c.snapshot_id.in_(unused)))


def prune_evaluations(instance: dg.DagsterInstance, assets: Collection[dg.AssetKey], before: datetime) -> int:
    """Deletes the evaluations of these assets' checks that are older than `before`, except the last result and the
    last plan of each check and partition. Returns their number."""
    names = [key.to_string() for key in assets]
    planned = AssetCheckExecutionRecordStatus.PLANNED.value
    with _event_storage(instance).index_connection() as conn:
        return int(
            conn.execute(
                delete(AssetCheckExecutionsTable).where(
                    _checks.asset_key.in_(names),
                    _checks.evaluation_event_timestamp < before.replace(tzinfo=None),
                    _checks.id.not_in(_last_of_each(names)),
                    _checks.id.not_in(_last_of_each(names).where(_checks.execution_status != planned)),
                )
            ).rowcount
        )


def _last_of_each(assets: Sequence[str]) -> Select[Any]:
    last = select(func.max(_checks.id)).where(_checks.asset_key.in_(assets))
    return last.group_by(_checks.asset_key, _checks.check_name, _checks.partition)


def prune_backfills(
    instance: dg.DagsterInstance, is_ours: Callable[[PartitionBackfill], bool], before: datetime
) -> int:
    """Deletes finished backfills of ours that are older than `before`. Returns their number."""
    old = BulkActionsFilter(statuses=list(BULK_ACTION_TERMINAL_STATUSES), created_before=before)
    ids = [b.backfill_id for b in instance.get_backfills(filters=old) if is_ours(b)]
    with _run_storage(instance).connect() as conn:
        for chunk in _chunks(ids):
            conn.execute(delete(BackfillTagsTable).where(BackfillTagsTable.c.backfill_id.in_(chunk)))
            conn.execute(delete(BulkActionsTable).where(BulkActionsTable.c.key.in_(chunk)))
    return len(ids)


def _needed(conn: Connection, run_id: str) -> list[int]:
    """The ids of the run's events that Dagster's present state consists of."""
    columns = (_events.id, _events.asset_key, _events.dagster_event_type, _events.partition)
    rows = conn.execute(select(*columns).where(_events.run_id == run_id, _events.asset_key.is_not(None)))
    groups: dict[tuple[str, str], dict[str | None, int]] = {}
    for number, asset, kind, partition in rows:
        newest = groups.setdefault((asset, kind), {})
        newest[partition] = max(number, newest.get(partition, 0))
    # SQLite would use the id of the newest event again.
    newest_event = select(func.max(_events.id)).scalar_subquery()
    needed = list(
        conn.scalars(select(_events.id).where(_events.run_id == run_id, _events.id == newest_event))
    )
    for (asset, kind), newest in groups.items():
        last = _last_events(conn, asset, _SUPERSEDED_BY.get(kind, (kind,)), newest)
        needed += [number for partition, number in newest.items() if last.get(partition) == number]
    return needed


def _last_events(
    conn: Connection, asset: str, kinds: Sequence[str], partitions: Iterable[str | None]
) -> dict[str | None, int]:
    """The last event of these types of each of these partitions of an asset."""
    last: dict[str | None, int] = {}
    named = [p for p in partitions if p is not None]
    conditions = [_events.partition.in_(chunk) for chunk in _chunks(named)]
    if len(named) < len(list(partitions)):
        conditions.append(_events.partition.is_(None))
    for condition in conditions:
        query = select(_events.partition, func.max(_events.id)).where(
            _events.asset_key == asset, or_(*(_events.dagster_event_type == k for k in kinds)), condition
        )
        last |= {row[0]: row[1] for row in conn.execute(query.group_by(_events.partition))}
    return last


def _chunks(values: Sequence[str]) -> Iterator[Sequence[str]]:
    return (values[i : i + _AT_ONCE] for i in range(0, len(values), _AT_ONCE))


def _event_storage(instance: dg.DagsterInstance) -> SqlEventLogStorage:
    storage = instance.event_log_storage
    assert isinstance(storage, SqlEventLogStorage)
    return storage


def _run_storage(instance: dg.DagsterInstance) -> SqlRunStorage:
    storage = instance.run_storage
    assert isinstance(storage, SqlRunStorage)
    return storage


RETENTION_INTERVAL_SECONDS = 60
WORK_SECONDS = 10.0
"""Seconds after which a tick begins nothing more."""
PASS_EVERY_MS = 24 * 3600 * 1000
_RUNS_AT_ONCE = 50
_TABLES_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the pass has come. `tables` have their evaluations pruned; runs created up to `after`, an ISO time, were
    examined. After the end of a pass the next one begins at `next_ms`."""

    tables: int = 0
    after: str | None = None
    next_ms: int = 0


class RetentionPass:
    """Prunes what the tables of one code location have in Dagster's storage. What is older than `keep_days`
    is old."""

    def __init__(
        self,
        tables: Sequence[TableId],
        translator: IcebergTranslator,
        clock: Clock,
        ledger: Ledger,
        keep_days: int,
    ) -> None:
        self._tables, self._translator, self.keep_days = tables, translator, keep_days
        self._clock, self._ledger = clock, ledger

    def work(
        self, instance: dg.DagsterInstance, location: str | None, progress: Progress
    ) -> tuple[Progress, str]:
        """Works for `WORK_SECONDS` at most, or until the pass has ended. Returns how far it has come, as a sentence
        too. `location` is the name of the code location, None outside the daemon."""
        # The earlier of two clocks: one that is ahead must not make everything old.
        now_ms = min(self._clock.now_ms(), self._ledger.now_ms())
        if now_ms < progress.next_ms:
            return progress, "the pass of the day has ended"
        before = datetime.fromtimestamp(now_ms / 1000, UTC) - timedelta(days=self.keep_days)
        deadline = self._clock.monotonic_seconds() + WORK_SECONDS
        evaluations = examined = gone = 0
        while self._clock.monotonic_seconds() < deadline:
            if progress.tables < len(self._tables):
                chunk = self._tables[progress.tables : progress.tables + _TABLES_AT_ONCE]
                evaluations += prune_evaluations(instance, self._keys(chunk), before)
                progress = replace(progress, tables=progress.tables + len(chunk))
                continue
            after = datetime.fromisoformat(progress.after) if progress.after else None
            runs = old_runs(instance, after, before, _RUNS_AT_ONCE)
            if not runs:
                backfills = prune_backfills(instance, self._is_ours, before)
                progress = Progress(next_ms=now_ms + PASS_EVERY_MS)
                counts = f"{evaluations} evaluations, {gone} of {examined} old runs, {backfills} backfills"
                return progress, f"deleted {counts}; the pass has ended"
            deleted = []
            for stored in runs:
                if self._clock.monotonic_seconds() >= deadline:
                    break
                progress = replace(progress, after=stored.created.isoformat())
                if _belongs(stored.run, location):
                    examined += 1
                    if prune_run(instance, stored.run):
                        deleted.append(stored.run)
            gone += len(deleted)
            prune_snapshots(instance, deleted)
        return progress, f"deleted {evaluations} evaluations, {gone} of {examined} old runs; the pass goes on"

    def _keys(self, tables: Sequence[TableId]) -> list[dg.AssetKey]:
        names = self._translator
        return [k for t in tables for k in (names.get_asset_key(t), names.get_housekeeping_key(t))]

    def _is_ours(self, backfill: PartitionBackfill) -> bool:
        keys = set(self._keys(self._tables))
        return bool(backfill.asset_selection) and keys.issuperset(backfill.asset_selection or ())


def build_retention_sensor(retention: RetentionPass, status: dg.DefaultSensorStatus) -> dg.SensorDefinition:
    """The sensor of `retention`. It requests no run. Its cursor is the progress of the pass."""

    @dg.sensor(
        name="old_runs",
        description=f"Deletes what Dagster stores of runs older than {retention.keep_days} days and does not need for the "
        "state of assets and checks. It starts no run.",
        minimum_interval_seconds=RETENTION_INTERVAL_SECONDS,
        default_status=status,
    )
    def old_runs_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        if not supported(context.instance):
            return dg.SkipReason(f"{type(context.instance.event_log_storage).__name__} is not known here")
        origin = context.code_location_origin
        progress = Progress(**json.loads(context.cursor or "{}"))
        progress, sentence = retention.work(
            context.instance, origin.location_name if origin else None, progress
        )
        return dg.SensorResult(skip_reason=sentence, cursor=json.dumps(asdict(progress)))

    return old_runs_sensor


def _belongs(run: dg.DagsterRun, location: str | None) -> bool:
    """Whether the run is of this code location. One without a location is ours by its job or its tag."""
    origin = run.remote_job_origin
    name = run.tags.get(IN_TICK_TAG) if origin is None else origin.location_name
    return name == location if name else run.job_name == OBSERVE_JOB or TABLE_TAG in run.tags
