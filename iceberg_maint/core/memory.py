"""Memory: what applying equality deletes needs, from metadata, before anything is read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What a batch asks of memory, by metadata.

    `keys` is the number of delete rows, before duplicates are dropped; `key_bytes` the width of
    one key in memory; `rows` the data rows held against them. `correction` is the learned ratio of
    measured to estimated memory.
    """

    keys: int
    key_bytes: int
    rows: int
    correction: float = 1.0


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """What applying a batch's equality deletes was estimated to need and what it took.

    Bytes of Spark's execution memory that all tasks of one executor hold at once; `peak_bytes` is
    the measured maximum. `partitions` of the join, in each of the `passes` over the data.
    """

    estimated_bytes: int
    peak_bytes: int
    partitions: int
    passes: int
