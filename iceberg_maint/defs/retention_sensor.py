"""The sensor that bounds Dagster's storage: a pass over old runs each day, some seconds of work per tick.

No `from __future__ import annotations` here: Dagster reads the annotations of its functions.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta

import dagster as dg
from dagster._core.execution.backfill import PartitionBackfill

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.names import IN_TICK_TAG, OBSERVE_JOB, TABLE_TAG
from iceberg_maint.defs.old_runs import (
    old_runs,
    prune_backfills,
    prune_evaluations,
    prune_run,
    prune_snapshots,
    supported,
)
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.ports.clock import Clock
from iceberg_maint.ports.ledger import Ledger

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
