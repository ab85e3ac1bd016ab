"""History: what earlier runs left behind that a decision must know."""

from __future__ import annotations

from collections.abc import Mapping
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
    """What the ledger knows of one table and operation."""

    paused: bool = False
    paused_reason: str = ""
    lease_owner: str | None = None
    unknown_commits: int = 0
    hour_partitions: int = 0
    hour_bytes: int = 0
    partitions: Mapping[str, PartitionHistory] = field(default_factory=dict)

    def of(self, partition: str) -> PartitionHistory:
        """The partition's history; a clean one when there is none."""
        return self.partitions.get(partition, PartitionHistory())
