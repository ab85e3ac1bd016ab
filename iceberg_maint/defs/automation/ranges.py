"""The due partitions that one tick requests: few contiguous ranges, because each becomes a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from iceberg_maint.core.model.ids import PartitionKey

MAX_RANGES = 8
"""Contiguous ranges requested per table and tick at most; each becomes one run."""
MAX_PARTITIONS = 500
"""Partitions requested per table and tick at most."""


def pick_ranges(
    order: Sequence[PartitionKey],
    due: Mapping[PartitionKey, float],
    max_ranges: int = MAX_RANGES,
    max_partitions: int = MAX_PARTITIONS,
) -> set[PartitionKey]:
    """The contiguous ranges of due partitions with the highest scores, within both limits.

    `order` is Dagster's order of the partitions; `due` maps partition → score. Every range becomes one
    run, so scattered partitions need one run each.
    """
    pieces: list[list[PartitionKey]] = []
    open_piece = False
    for partition in order:
        if partition in due:
            if not open_piece:
                pieces.append([])
            pieces[-1].append(partition)
        open_piece = partition in due
    pieces.sort(key=lambda piece: -sum(due[p] for p in piece))
    picked: set[PartitionKey] = set()
    for piece in pieces[:max_ranges]:
        picked.update(piece[: max_partitions - len(picked)])
    return picked
