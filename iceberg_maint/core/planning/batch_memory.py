"""Memory: estimates from metadata, before any file is read, what applying equality deletes needs.

A task of the join makes its share of the keys unique with two consecutive hash aggregations of Spark, and
builds a hash relation from them. How these grow is known exactly (Spark's `BytesToBytesMap`,
`RowBasedKeyValueBatch`, `UnsafeHashedRelation`), so the estimate follows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What a batch needs memory for, from metadata.

    `keys` is the number of delete rows, with duplicates. `key_bytes` is the width of one key in memory.
    `rows` is the number of data rows compared with the keys. `correction` is the learned ratio of measured to
    estimated memory.
    """

    keys: int
    key_bytes: int
    rows: int
    correction: float = 1.0


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The estimated and the measured memory of applying a batch's equality deletes.

    Bytes are Spark's execution memory that all tasks of one executor hold at once; `peak_bytes` is the
    measured maximum. `partitions` is the number of partitions of the join in each of the `passes` over the
    data. `correction` is the one used in the estimate. `exceeded`: the batch ran out of memory, so it would
    have needed more than the measured maximum.
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

    Each task holds `1 / (partitions * passes)` of the delete keys at a time. If `broadcast`, every executor
    holds all of them. `estimated_bytes` is what all tasks of one executor hold at once. `scratch_bytes` is
    what one pass leaves on disk until it ends.
    """

    estimated_bytes: int
    partitions: int
    passes: int
    broadcast: bool
    scratch_bytes: int
    filtered: bool = False


class DoesNotFitError(ValueError):
    """Applying equality deletes needs more of a resource than was declared; both values in bytes.

    `resource` is `memory` or `scratch`, as in the policy, or `driver memory`.
    """

    def __init__(self, resource: str, needed_bytes: int, declared_bytes: int) -> None:
        self.resource = resource
        self.needed_bytes = needed_bytes
        self.declared_bytes = declared_bytes
        super().__init__(f"{resource}: {needed_bytes} bytes are needed, {declared_bytes} are declared")


MAX_PARTITIONS = 200
"""Up to this number Spark's shuffle writes without sorting (`spark.shuffle.sort.bypassMergeThreshold`), which
takes no execution memory."""
MAX_PASSES = 64

FIELD_BYTES = 8
"""Bytes of a field in Spark's `UnsafeRow`: a value of up to 8 bytes, or the place of a longer one."""

_KEYS_PER_PARTITION = 250_000
"""A lower bound on the number of tasks, beyond what memory requires: a task of this size takes about a
second."""

_BROADCAST_SHARE = 8
"""Keys are sent to all executors if their table takes at most this fraction of the memory. It is not
execution memory and not part of the estimate."""

_FILTER_SHARE = 8
"""The Bloom filter takes about a byte per key in every task, and at most this fraction of the memory. It is
not execution memory either."""
_FILTERED_KEYS = 4_000_000
"""Spark builds its filter for at most this number of keys
(`spark.sql.optimizer.runtime.bloomFilter.maxNumItems`)."""
_FILTERED_ROWS_PER_KEY = 8
"""With fewer rows per key than this, the second read of the keys for the filter costs more than the rows that
it spares."""

_FIRST_LEVEL_KEYS = 1 << 16
"""The maximum number of keys that the first aggregation holds in a page of its own before its map."""
_SMALLEST_MAP = 1 << 14
_SLOT_BYTES = 16
_VALUE_BYTES = 8

_CORRECTIONS = (0.25, 8.0)
"""Bounds of the learned correction. A few unusual batches must not make the next estimate so high that it is
refused, or far too low."""


_EXCEEDED = 2.0
"""A batch that ran out of memory counts as having needed at least this multiple of its estimate."""


def learned_correction(uses: Sequence[MemoryUse]) -> float:
    """Returns the correction of the next estimate from `Ledger.records.memory_uses`: the median of measured to
    estimated memory, 1 without any use. It is at least what each batch that ran out of memory would have
    needed.

    Each ratio refers to the estimate without its own correction. Otherwise a correction would cancel itself.
    """
    least, most = _CORRECTIONS
    known = sorted(_ratio(u) for u in uses if not u.exceeded and u.estimated_bytes > 0 and u.peak_bytes > 0)
    median = (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2 if known else 1.0
    bounds = (max(_ratio(u), _EXCEEDED * u.correction) for u in uses if u.exceeded)
    return min(max(median, least, *bounds), most)


def _ratio(use: MemoryUse) -> float:
    return use.correction * use.peak_bytes / max(use.estimated_bytes, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredBytes:
    """What the tasks of one executor may take.

    `slots` is the number of tasks that it runs at once. `page_bytes` is the step by which Spark's
    hash maps grow. `beside_bytes` is what a row of keys takes in addition to the keys. The driver builds the
    table of broadcast keys in its own heap, `driver_heap_bytes`.
    """

    memory_bytes: int
    scratch_bytes: int | None
    slots: int
    page_bytes: int
    beside_bytes: int = FIELD_BYTES
    driver_heap_bytes: int | None = None


def preflight(need: MemoryNeed, declared: DeclaredBytes) -> Preflight:
    """Returns the fewest partitions and passes that stay within the declared bytes. Raises DoesNotFitError."""
    memory_bytes, scratch_bytes, slots = declared.memory_bytes, declared.scratch_bytes, declared.slots

    def task_bytes(parts: int) -> int:
        # The parts are equal on average, but some are larger by chance. The correction applies to the keys,
        # not to the bytes: what a task takes without keys is known.
        share = need.keys * need.correction / parts
        return peak_task_bytes(
            int(share + 4 * share**0.5), need.key_bytes, declared.page_bytes, declared.beside_bytes
        )

    estimated = 2 * declared.page_bytes * slots
    heap_bytes = declared.driver_heap_bytes
    least_bytes = memory_bytes if heap_bytes is None else min(memory_bytes, heap_bytes)
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
"""Spark itself, and reading and writing files. 52 MB of it are used before anything runs."""
_FILE_BYTES = 4096
"""For each file: its scan task, staged, and its entry in the broadcast; 3,500 measured with 20,000 files."""
_BITMAP_ROWS = 1 << 15
_BITMAP_BYTES = 2 * 4096
"""For each bitmap of 2^15 rows, while it is collected (6,600 measured) or written."""


def driver_bytes(files: int, rows: int) -> int:
    """Returns the heap that Spark's driver needs to find `rows` deleted rows in `files` data and delete
    files, and to write their positions."""
    bitmaps = files + rows // _BITMAP_ROWS
    return _DRIVER_BYTES + files * _FILE_BYTES + bitmaps * _BITMAP_BYTES


def _filter_pays(need: MemoryNeed, memory_bytes: int, slots: int) -> bool:
    fits = need.keys <= _FILTERED_KEYS and need.keys * (slots + 1) * _FILTER_SHARE <= memory_bytes
    return fits and need.rows >= _FILTERED_ROWS_PER_KEY * need.keys


def peak_task_bytes(keys: int, key_bytes: int, page_bytes: int, beside_bytes: int = FIELD_BYTES) -> int:
    """Returns the most execution memory that a task of the join holds for this number of unique keys.

    The first aggregation holds the first keys in a page of its own and the others in its map. It passes on
    and frees the page, then the map, while the second aggregation grows. The hash relation is built from the
    keys of the second one.
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
    """Returns the bytes of a key as Spark's `UnsafeRow`: the NULL bits and the fields."""
    return 8 + -(-(key_bytes + beside_bytes) // 8) * 8


def _table_bytes(need: MemoryNeed) -> int:
    """Returns the bytes of all keys in one hash relation, with the copy that is sent."""
    records = need.keys * (16 + 2 * _row_bytes(need.key_bytes) + _VALUE_BYTES)
    return int((2 * records + need.keys * 4 * _SLOT_BYTES) * need.correction)


def _scratch_bytes(need: MemoryNeed) -> int:
    """Returns the bytes of shuffle files, uncompressed: keys and rows with one number each."""
    return (need.keys + need.rows) * (4 + _row_bytes(need.key_bytes) + _VALUE_BYTES)
