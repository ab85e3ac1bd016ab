"""Memory: what applying equality deletes needs, from metadata, before anything is read.

A task of the join makes its share of the keys unique by two of Spark's hash aggregations in a row
and builds a hash relation of them; how these grow is known exactly (Spark's `BytesToBytesMap`,
`RowBasedKeyValueBatch`, `UnsafeHashedRelation`), so the estimate follows them.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    the measured maximum. `partitions` of the join, in each of the `passes` over the data;
    `correction` is the one that the estimate holds. `exceeded`: it ended for want of memory, so that
    it would have taken more than was measured by then.
    """

    estimated_bytes: int
    peak_bytes: int
    partitions: int
    passes: int
    correction: float = 1.0
    exceeded: bool = False


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
    filtered: bool = False


class DoesNotFitError(ValueError):
    """What applying equality deletes needs exceeds what was declared for it; both in bytes.

    `resource` is `memory` or `scratch`, as in the policy, or `driver memory`.
    """

    def __init__(self, resource: str, needed_bytes: int, declared_bytes: int) -> None:
        self.resource = resource
        self.needed_bytes = needed_bytes
        self.declared_bytes = declared_bytes
        super().__init__(f"{resource}: {needed_bytes} bytes are needed, {declared_bytes} are declared")


MAX_PARTITIONS = 200
"""Up to here Spark's shuffle writes without sorting (`spark.shuffle.sort.bypassMergeThreshold`), which
takes no execution memory."""
MAX_PASSES = 64

FIELD_BYTES = 8
"""Of a field in Spark's `UnsafeRow`: a value of up to 8 bytes, or where a longer one lies."""

_KEYS_PER_PARTITION = 250_000
"""More tasks than memory asks for: a task of this size takes about a second."""

_BROADCAST_SHARE = 8
"""Keys are sent to all executors when their table takes at most this fraction of the memory; that
is not execution memory, and not in the estimate."""

_FILTER_SHARE = 8
"""The Bloom filter, of about a byte per key, is held by every task and takes at most this fraction
of the memory; that is not execution memory either."""
_FILTERED_KEYS = 4_000_000
"""Spark makes its filter for no more (`spark.sql.optimizer.runtime.bloomFilter.maxNumItems`)."""
_FILTERED_ROWS_PER_KEY = 8
"""Fewer rows than this for every key, and reading the keys once more for the filter costs more than
the rows it spares."""

_FIRST_LEVEL_KEYS = 1 << 16
"""Keys that the first aggregation holds in a page of its own before its map, at most."""
_SMALLEST_MAP = 1 << 14
_SLOT_BYTES = 16
_VALUE_BYTES = 8

_CORRECTIONS = (0.25, 8.0)
"""Bounds of what is learned: a few odd batches must not make the next one refused or reckless."""


_EXCEEDED = 2.0
"""How much more than its estimate a batch that ran out of memory counts as having needed at least."""


def learned_correction(uses: Sequence[MemoryUse]) -> float:
    """The correction of the next estimate from `Ledger.memory_uses`: the median of measured to
    estimated memory, 1 for none, and no less than what any that ran out of memory would have needed.

    Each ratio is of the estimate before its own correction, so that a correction made of them does
    not undo itself.
    """
    least, most = _CORRECTIONS
    known = sorted(_ratio(u) for u in uses if not u.exceeded and u.estimated_bytes > 0 and u.peak_bytes > 0)
    median = (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2 if known else 1.0
    bounds = (max(_ratio(u), _EXCEEDED * u.correction) for u in uses if u.exceeded)
    return min(max(median, least, *bounds), most)


def _ratio(use: MemoryUse) -> float:
    return use.correction * use.peak_bytes / max(use.estimated_bytes, 1)


def preflight(
    need: MemoryNeed,
    *,
    memory_bytes: int,
    scratch_bytes: int | None,
    slots: int,
    page_bytes: int = 8 * 1024**2,
    beside_bytes: int = FIELD_BYTES,
    driver_heap_bytes: int | None = None,
) -> Preflight:
    """The fewest partitions and passes that keep to the declared bytes.

    `slots` are the tasks that one executor runs at once, `page_bytes` is what Spark's hash maps
    grow by, `beside_bytes` what a row of keys takes beside the keys; the driver, with its own heap, makes the table
    of keys that are broadcast. Raises DoesNotFitError.
    """

    def task_bytes(parts: int) -> int:
        # Of many parts of equal size on average some are larger by chance. Corrected are the keys, not
        # the bytes: what a task takes for none of them has no part in what was wrong.
        share = need.keys * need.correction / parts
        return peak_task_bytes(int(share + 4 * share**0.5), need.key_bytes, page_bytes, beside_bytes)

    estimated = 2 * page_bytes * slots
    least_bytes = memory_bytes if driver_heap_bytes is None else min(memory_bytes, driver_heap_bytes)
    if _table_bytes(need) * _BROADCAST_SHARE <= least_bytes and estimated <= memory_bytes:
        return Preflight(estimated, partitions=1, passes=1, broadcast=True, scratch_bytes=0)
    on_disk = _scratch_bytes(need)
    for passes in range(1, MAX_PASSES + 1):
        if scratch_bytes is not None and on_disk // passes > scratch_bytes:
            continue
        fewest = max(slots, -(-need.keys // passes // _KEYS_PER_PARTITION))
        for partitions in range(min(fewest, MAX_PARTITIONS), MAX_PARTITIONS + 1):
            estimated = task_bytes(partitions * passes) * slots
            if estimated <= memory_bytes:
                return Preflight(
                    estimated,
                    partitions,
                    passes,
                    broadcast=False,
                    scratch_bytes=on_disk // passes,
                    filtered=_filter_pays(need, memory_bytes, slots),
                )
    if scratch_bytes is not None and on_disk // MAX_PASSES > scratch_bytes:
        raise DoesNotFitError("scratch", on_disk // MAX_PASSES, scratch_bytes)
    raise DoesNotFitError("memory", task_bytes(MAX_PARTITIONS * MAX_PASSES) * slots, memory_bytes)


_DRIVER_BYTES = 128 * 1024**2
"""Of Spark's own, and what reading and writing files takes; 52 MB of it are there before anything runs."""
_FILE_BYTES = 4096
"""Of a file: its scan task, staged, and its line in what is sent to all executors; 3,500 measured with
20,000 files."""
_BITMAP_ROWS = 1 << 15
_BITMAP_BYTES = 2 * 4096
"""Of each bitmap of 2^15 rows, while it is collected (6,600 measured) or written."""


def driver_bytes(files: int, rows: int) -> int:
    """Heap that Spark's driver takes to find deleted rows in so many data and delete files, and to
    write down where they are."""
    bitmaps = files + rows // _BITMAP_ROWS
    return _DRIVER_BYTES + files * _FILE_BYTES + bitmaps * _BITMAP_BYTES


def _filter_pays(need: MemoryNeed, memory_bytes: int, slots: int) -> bool:
    fits = need.keys <= _FILTERED_KEYS and need.keys * (slots + 1) * _FILTER_SHARE <= memory_bytes
    return fits and need.rows >= _FILTERED_ROWS_PER_KEY * need.keys


def peak_task_bytes(keys: int, key_bytes: int, page_bytes: int, beside_bytes: int = FIELD_BYTES) -> int:
    """The most execution memory that a task of the join holds for so many unique keys.

    The first aggregation keeps the keys that come first in a page of their own and the others in its
    map. It hands over the page and lets it go, then the map, while the second one grows; of what that
    one holds the relation is built.
    """
    row_bytes = _row_bytes(key_bytes, beside_bytes)
    aggregated = 16 + row_bytes + 8 + _VALUE_BYTES
    related = 16 + row_bytes + row_bytes + _VALUE_BYTES

    def pages(count: int, record_bytes: int) -> int:
        return max(1, -(-count * record_bytes // page_bytes)) * page_bytes

    def slots(count: int) -> int:
        # A map is at most half full.
        return max(_SMALLEST_MAP, 1 << (2 * count - 1).bit_length()) * _SLOT_BYTES if count else 0

    first = min(keys, _FIRST_LEVEL_KEYS, page_bytes // aggregated)
    left = pages(keys - first, aggregated) + slots(keys - first)
    return max(
        page_bytes + left + pages(first, aggregated) + slots(first),
        left + pages(keys, aggregated) + slots(keys),
        pages(keys, aggregated) + pages(keys, related) + slots(keys),
    )


def _row_bytes(key_bytes: int, beside_bytes: int = FIELD_BYTES) -> int:
    """Bytes of a key as Spark's `UnsafeRow`: which fields are NULL, and the fields."""
    return 8 + -(-(key_bytes + beside_bytes) // 8) * 8


def _table_bytes(need: MemoryNeed) -> int:
    """Bytes of all keys in one hash relation, with the copy in which it travels."""
    records = need.keys * (16 + 2 * _row_bytes(need.key_bytes) + _VALUE_BYTES)
    return int((2 * records + need.keys * 4 * _SLOT_BYTES) * need.correction)


def _scratch_bytes(need: MemoryNeed) -> int:
    """Bytes of shuffle files, uncompressed: keys and rows with one number each."""
    return (need.keys + need.rows) * (4 + _row_bytes(need.key_bytes) + _VALUE_BYTES)
