"""What loads a table and what reads it in the project: their runs, for which the maintenance of the table waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import dagster as dg

from iceberg_maint.defs.dagster_internals import unfinished_backfills
from iceberg_maint.defs.names import ENGINE_TAG

_WITH_A_SLOT = (
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)
_IN_PROGRESS = (dg.DagsterRunStatus.QUEUED, *_WITH_A_SLOT)
_PLANNED, _DONE = dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED, dg.DagsterEventType.ASSET_MATERIALIZATION


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The assets that load a table, each with those that read what it loads."""

    readers: Mapping[dg.AssetKey, tuple[dg.AssetKey, ...]] = field(default_factory=dict)

    @property
    def loaders(self) -> tuple[dg.AssetKey, ...]:
        """The assets that load it."""
        return tuple(self.readers)

    @property
    def keys(self) -> set[dg.AssetKey]:
        """Both."""
        return {*self.readers, *(key for keys in self.readers.values() for key in keys)}


def pipeline_of(loaders: Sequence[dg.AssetKey], specs: Sequence[dg.AssetSpec]) -> Pipeline:
    """The loaders with the assets of `specs` that depend on one of them."""
    reads = {spec.key: {dep.asset_key for dep in spec.deps} for spec in specs if spec.key not in set(loaders)}
    return Pipeline({loader: tuple(sorted(k for k in reads if loader in reads[k])) for loader in loaders})


def uses_in_progress(
    instance: dg.DagsterInstance, pipeline: Pipeline, own_run_id: str
) -> dict[str, dg.AssetKey]:
    """The unfinished runs and backfills, but for this run, that will still materialize an asset of the pipeline, with the
    asset. A run that waits in the queue is one of them."""
    keys = pipeline.keys
    return dict(sorted(_uses(instance, keys, own_run_id))) if keys else {}


def _uses(
    instance: dg.DagsterInstance, keys: set[dg.AssetKey], own_run_id: str
) -> Iterator[tuple[str, dg.AssetKey]]:
    for run in instance.get_runs(dg.RunsFilter(statuses=list(_IN_PROGRESS))):
        if run.run_id != own_run_id:
            for key in keys & _to_materialize(instance, run.run_id):
                yield f"{key.to_user_string()} (run {run.run_id[:8]})", key
    for backfill in unfinished_backfills(instance):
        for key in keys & set(backfill.asset_selection or ()):
            yield f"{key.to_user_string()} (backfill {backfill.backfill_id[:8]})", key


def waiting_for_the_slot(instance: dg.DagsterInstance) -> dict[str, dg.AssetKey | None]:
    """The queued runs of others that start as soon as a run ends: the instance runs as many as it may at once."""
    queue = instance.get_concurrency_config().run_queue_config
    limit = -1 if queue is None else queue.max_concurrent_runs
    if limit < 0 or instance.get_runs_count(dg.RunsFilter(statuses=list(_WITH_A_SLOT))) < limit:
        return {}
    queued = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED]))
    return {f"run {run.run_id[:8]} in the queue": None for run in queued if ENGINE_TAG not in run.tags}


def _to_materialize(instance: dg.DagsterInstance, run_id: str) -> set[dg.AssetKey]:
    """The assets with an output that the run has planned and not materialized."""
    records = instance.get_records_for_run(run_id, of_type={_PLANNED, _DONE}).records
    open_outputs: dict[tuple[dg.AssetKey, str | None], bool] = {}
    for record in records:
        event = record.event_log_entry.get_dagster_event()
        if event.asset_key is not None:
            open_outputs[event.asset_key, event.partition] = event.event_type is _PLANNED
    return {key for (key, _), is_open in open_outputs.items() if is_open}
