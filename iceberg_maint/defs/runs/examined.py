"""Healthy partitions that were never maintained: reported to Dagster once, as materialized and unchanged.

Without it Dagster shows a healthy table as missing. The report says that nothing was done.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import dagster as dg

from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.core.model.reasons import Decision, Reason
from iceberg_maint.defs.assets.metadata import Metadata, nothing_due_metadata
from iceberg_maint.defs.names import EXAMINED

MAX_EXAMINED = 200
"""Partitions reported as examined per table and observation at most. Dagster stores about 40 events per second."""
_HEALTHY = frozenset({Reason.HEALTHY, Reason.OTHER_OPERATION})
_NO_WORK = frozenset({Reason.HEALTHY, Reason.DISABLED, Reason.GC_DISABLED})


def unexamined_partitions(
    materialized: Callable[[], Collection[str]], measured: Measured, decision: Decision
) -> list[PartitionKey]:
    """The healthy partitions of the table that are not `materialized` in Dagster, in their order."""
    healthy = [
        p.partition
        for p in decision.partitions
        if p.reason in _HEALTHY and not p.findings and p.partition in measured.partitions
    ]
    return sorted(set(healthy).difference(materialized())) if healthy else []


def examined_partitions(
    key: dg.AssetKey, measured: Measured, partitions: Collection[PartitionKey], run_id: str, card: Metadata
) -> list[dg.AssetMaterialization]:
    """The reports of these partitions."""
    return [
        dg.AssetMaterialization(
            key,
            description=EXAMINED,
            partition=p,
            metadata=card | nothing_due_metadata(measured.partitions[p], Reason.HEALTHY, run_id),
        )
        for p in partitions
    ]


def examined_housekeeping(
    instance: dg.DagsterInstance, key: dg.AssetKey, decisions: Sequence[Decision], card: Metadata
) -> list[dg.AssetMaterialization]:
    """The report of housekeeping that is not due and was never done; none otherwise."""
    if not decisions or any(d.reason not in _NO_WORK for d in decisions):
        return []
    if instance.get_latest_materialization_event(key) is not None:
        return []
    return [dg.AssetMaterialization(key, description=EXAMINED, metadata=card)]
