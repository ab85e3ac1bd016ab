"""History: what earlier runs left behind that a decision must know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PartitionHistory:
    """Back-off and quarantine of one partition.

    `ineffective` counts failed or useless attempts in a row, `crashes` those that never reported
    back; a success clears both.
    """

    ineffective: int = 0
    crashes: int = 0
    not_before_ms: int | None = None
    quarantined: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TableHistory:
    """What the ledger knows of one table and operation. `last_done_ms` is when it last ended well,
    with or without effect."""

    paused: bool = False
    paused_reason: str = ""
    lease_owner: str | None = None
    unknown_commits: int = 0
    hour_partitions: int = 0
    hour_bytes: int = 0
    last_done_ms: int | None = None
    partitions: Mapping[str, PartitionHistory] = field(default_factory=dict)

    def of(self, partition: str) -> PartitionHistory:
        """The partition's history; a clean one when there is none."""
        return self.partitions.get(partition, PartitionHistory())


def combine_histories(histories: Sequence[TableHistory]) -> TableHistory:
    """Several operations' histories of one table as one: what holds one back shows for all, and
    the hour's work adds up. Raises ValueError for none."""
    first, *rest = histories
    if not rest:
        return first
    partitions: dict[str, PartitionHistory] = {}
    for history in histories:
        for key, past in history.partitions.items():
            partitions[key] = _worse(partitions[key], past) if key in partitions else past
    return TableHistory(
        paused=any(h.paused for h in histories),
        paused_reason=next((h.paused_reason for h in histories if h.paused), ""),
        lease_owner=next((h.lease_owner for h in histories if h.lease_owner is not None), None),
        unknown_commits=sum(h.unknown_commits for h in histories),
        hour_partitions=sum(h.hour_partitions for h in histories),
        hour_bytes=sum(h.hour_bytes for h in histories),
        partitions=partitions,
    )


def _worse(one: PartitionHistory, other: PartitionHistory) -> PartitionHistory:
    waits = [h.not_before_ms for h in (one, other) if h.not_before_ms is not None]
    # The reason shown is that of the history that holds back hardest.
    worst = max((one, other), key=lambda h: (h.quarantined, h.not_before_ms or 0))
    return PartitionHistory(
        ineffective=max(one.ineffective, other.ineffective),
        crashes=max(one.crashes, other.crashes),
        not_before_ms=max(waits, default=None),
        quarantined=one.quarantined or other.quarantined,
        reason=worst.reason,
    )
