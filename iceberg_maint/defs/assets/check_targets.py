"""What an evaluation of a partitioned check refers to, and the last evaluations of others."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import dagster as dg

from iceberg_maint.defs.dagster_internals import CheckStatus, CheckTarget


def materialization_targets(
    instance: dg.DagsterInstance, key: dg.AssetKey, partitions: Collection[str]
) -> dict[str, CheckTarget]:
    """Each partition's latest materialization.

    Without it Dagster assigns the evaluation to an older state and shows the check as missing.
    """
    latest = instance.get_latest_storage_id_by_partition(
        key, dg.DagsterEventType.ASSET_MATERIALIZATION, partitions=set(partitions)
    )
    if not latest:
        return {}
    latest_ids = dg.AssetRecordsFilter(asset_key=key, storage_ids=list(latest.values()))
    records = instance.fetch_materializations(latest_ids, limit=len(latest)).records
    materializations = {r.storage_id: r for r in records}
    return {
        partition: CheckTarget(
            storage_id=storage_id,
            run_id=materializations[storage_id].run_id,
            timestamp=materializations[storage_id].timestamp,
        )
        for partition, storage_id in latest.items()
        if storage_id in materializations
    }


def last_results(
    instance: dg.DagsterInstance, keys: Iterable[dg.AssetCheckKey]
) -> Iterator[dg.AssetCheckEvaluation]:
    """The last results of checks without partitions, which a run repeats that cannot evaluate them again."""
    for key in keys:
        yield from (r.evaluation for r in _last_records(instance, key) if r.evaluation is not None)


def result_age_seconds(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> float:
    """Seconds since the last result of a check without partitions. Infinite without one."""
    return min((time.time() - r.create_timestamp for r in _last_records(instance, key)), default=math.inf)


def _last_records(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> Sequence[Any]:
    results = {CheckStatus.SUCCEEDED, CheckStatus.FAILED}
    return instance.event_log_storage.get_asset_check_execution_history(key, limit=1, status=results)
