"""Memory: what applying equality deletes needs, from metadata, before anything is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


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


@dataclass(frozen=True, slots=True)
class Preflight:
    """How a batch's equality deletes are applied within the declared memory and scratch space.

    The delete keys are held `1 / (partitions * passes)` at a time by each task, or all of them by
    every executor when `broadcast`. `estimated_bytes` is what all tasks of one executor hold at
    once, `scratch_bytes` what one pass leaves on disk until it ends.
    """

    estimated_bytes: int
    partitions: int
    passes: int
    broadcast: bool
    scratch_bytes: int


class DoesNotFitError(ValueError):
    """What applying equality deletes needs exceeds what was declared for it; both in bytes.

    `resource` is `memory` or `scratch`, as in the policy.
    """

    def __init__(self, resource: str, needed_bytes: int, declared_bytes: int) -> None:
        self.resource = resource
        self.needed_bytes = needed_bytes
        self.declared_bytes = declared_bytes
        super().__init__(f"{resource}: {needed_bytes} bytes are needed, {declared_bytes} are declared")


MAX_PARTITIONS = 200
MAX_PASSES = 64

_KEYS_PER_PARTITION = 250_000
"""More tasks than memory asks for: a task of this size takes about a second."""

_BROADCAST_SHARE = 8
"""Keys are sent to all executors when that takes at most this fraction of the memory."""


_CORRECTIONS = (0.25, 8.0)
"""Bounds of what is learned: a few odd batches must not make the next one refused or reckless."""


def learned_correction(ratios: Sequence[float]) -> float:
    """The correction of the next estimate from `Ledger.memory_ratios`: their median, 1 for none."""
    if not ratios:
        return 1.0
    least, most = _CORRECTIONS
    return min(max(median(ratios), least), most)


def preflight(need: MemoryNeed, *, memory_bytes: int, scratch_bytes: int | None, slots: int) -> Preflight:
    """The fewest partitions and passes that keep to the declared bytes.

    `slots` are the tasks that one executor runs at once. Raises DoesNotFitError.
    """
    whole = _broadcast_bytes(need)
    if whole * _BROADCAST_SHARE <= memory_bytes:
        return Preflight(whole, partitions=1, passes=1, broadcast=True, scratch_bytes=0)
    on_disk = _scratch_bytes(need)
    passes = 1
    while passes <= MAX_PASSES:
        if scratch_bytes is None or on_disk // passes <= scratch_bytes:
            for partitions in _partitions(need, passes, slots):
                estimated = _task_bytes(need, partitions * passes) * slots
                if estimated <= memory_bytes:
                    return Preflight(estimated, partitions, passes, False, on_disk // passes)
        passes += 1
    if scratch_bytes is not None and on_disk // MAX_PASSES > scratch_bytes:
        raise DoesNotFitError("scratch", on_disk // MAX_PASSES, scratch_bytes)
    needed = _task_bytes(need, MAX_PARTITIONS * MAX_PASSES) * slots
    raise DoesNotFitError("memory", needed, memory_bytes)


def _partitions(need: MemoryNeed, passes: int, slots: int) -> range:
    fewest = max(slots, -(-need.keys // passes // _KEYS_PER_PARTITION))
    return range(min(fewest, MAX_PARTITIONS), MAX_PARTITIONS + 1)


def _task_bytes(need: MemoryNeed, parts: int) -> int:
    keys = -(-need.keys // parts)
    return int(keys * (120 + 2 * need.key_bytes) * need.correction) + 4 * 1024**2


def _broadcast_bytes(need: MemoryNeed) -> int:
    return int(need.keys * (120 + 2 * need.key_bytes) * need.correction) + 1024**2


def _scratch_bytes(need: MemoryNeed) -> int:
    return (need.keys + need.rows) * (need.key_bytes + 16)
