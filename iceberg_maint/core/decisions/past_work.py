"""Past work: what earlier batches show of a partition's writers: how often they win over a batch, and how soon they replace its data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from iceberg_maint.core.model.ids import PartitionKey

LEAST_REPLACEMENTS = 3
"""Replacements of a partition's data from which its life is known."""


@dataclass(frozen=True, slots=True)
class PastWork:
    """One earlier batch. `is_lost`: other commits won. `sequence_number` is that of its pinned snapshot, which the written
    files have. `oldest` is the lowest sequence number of a live data file, by partition, when it was planned. Both are
    None or empty if not recorded."""

    at_ms: int
    seconds: float
    partitions: tuple[PartitionKey, ...]
    is_landed: bool
    is_lost: bool
    sequence_number: int | None = None
    oldest: Mapping[PartitionKey, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitLosses:
    """How many batches other commits won, and the seconds that all batches worked."""

    lost: int = 0
    seconds: float = 0.0


def commit_losses(partition: PartitionKey, work: Sequence[PastWork]) -> CommitLosses:
    """Returns the losses of the batches that had the partition. Batches that ended otherwise are left out."""
    own = [w for w in work if partition in w.partitions and (w.is_landed or w.is_lost)]
    return CommitLosses(sum(w.is_lost for w in own), sum(w.seconds for w in own))


def life_seconds(
    partition: PartitionKey, work: Sequence[PastWork], oldest_sequence_number: int, now_ms: int
) -> float | None:
    """Returns the mean time until writers replace all data of the partition, None if they did so fewer than
    `LEAST_REPLACEMENTS` times since the first recorded batch. `oldest_sequence_number` is the lowest one of a live data file
    now.

    Data was replaced between two batches if every file that was live at the second one is newer than the first.
    """
    landed = sorted((w for w in work if partition in w.partitions and w.is_landed), key=lambda w: w.at_ms)
    if not landed:
        return None
    oldest = [*(w.oldest.get(partition) for w in landed[1:]), oldest_sequence_number]
    replaced = sum(
        w.sequence_number is not None and after is not None and after > w.sequence_number
        for w, after in zip(landed, oldest, strict=True)
    )
    if replaced < LEAST_REPLACEMENTS:
        return None
    return max(0, now_ms - landed[0].at_ms) / 1000 / replaced
