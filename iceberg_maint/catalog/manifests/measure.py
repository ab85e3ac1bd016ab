"""Aggregates live entries to health: numpy columns in, `Measured` out. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from iceberg_maint.catalog.manifests.column_overlap import FileLayout, joined, layout_metrics
from iceberg_maint.catalog.manifests.reader import (
    DATA,
    DELETION_VECTOR,
    EQUALITY_DELETES,
    POSITION_DELETES,
    Integers,
    LiveEntries,
)
from iceberg_maint.core.health.metrics import (
    SIZE_EDGES_BYTES,
    Measured,
    PartitionHealth,
    measured_of,
)
from iceberg_maint.core.health.thresholds import size_limits, target_file_size_bytes
from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.core.model.partition_key import encode_partition
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy

Mask = NDArray[np.bool_]

_NEVER = np.iinfo(np.int64).max
_UNKNOWN_MS = -1
_TIMES = ("last_change_ms", "oldest_equality_delete_ms", "oldest_dangling_equality_delete_ms")
_BINS = len(SIZE_EDGES_BYTES) + 1


@dataclass(frozen=True, slots=True)
class Columns:
    """All live entries of a table.

    `key` indexes `keys`. `scope` indexes `(spec id, key)` pairs, within which deletes apply. `commit_ms`
    is the time of the entry's commit, -1 if it has expired. `added` is the sequence number of the commit
    that added a data file. `named` and `unreferenced` are those of `References`. `layout` is that of the
    data files and `layout_key` their keys, if an order is measured.
    """

    keys: tuple[PartitionKey, ...]
    key: Integers
    scope: Integers
    spec_id: Integers
    is_global: Mask
    kind: Integers
    records: Integers
    size_bytes: Integers
    sequence_number: Integers
    commit_ms: Integers
    added: Integers
    named: Integers
    unreferenced: Mask
    layout: FileLayout | None = None
    layout_key: Integers = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class References:
    """The data file that each entry names, as a number, -1 for none. `unreferenced` is true for entries that
    name a data file that is not live or is newer than the entry."""

    named: Integers
    unreferenced: Mask

    @classmethod
    def none(cls, length: int) -> References:
        """Returns the references of entries that name no file."""
        return cls(np.full(length, -1, np.int64), np.zeros(length, bool))


def measure(state: TableState, columns: Columns, policy: RewriteDataFilesPolicy) -> Measured:
    """Returns the health per partition and table of the pinned snapshot, as `core.health.metrics` defines
    it."""
    target = target_file_size_bytes(policy, dict(state.properties))
    limits = size_limits(policy, target)
    per_key = _sums(columns, limits.small_below_bytes, limits.large_above_bytes)
    per_key |= _deletes(columns, state)
    if state.order is not None and columns.layout is not None:
        keys, files = len(columns.keys), columns.layout
        per_key |= layout_metrics(columns.layout_key, keys, files, state.order.sort_order_id)
    names = tuple(per_key)
    rows = zip(*(values.tolist() for values in per_key.values()), strict=True)
    specs = _spec_ids(columns)
    partitions = {
        key: _partition(dict(zip(names, row, strict=True)), spec_ids)
        for key, row, spec_ids in zip(columns.keys, rows, specs, strict=True)
    }
    return measured_of(state, target, dict(sorted(partitions.items())))


def to_columns(
    state: TableState,
    parts: Sequence[LiveEntries],
    references: Sequence[References],
    added: Sequence[Integers],
) -> Columns:
    """Joins the columns of all manifests. Partitions with equal keys become one.

    `references` and `added` have one element per element of `parts`.
    """
    keys: dict[PartitionKey, int] = {}
    scopes: dict[tuple[int, PartitionKey], int] = {}
    key_codes: list[Integers] = []
    scope_codes: list[Integers] = []
    for part in parts:
        spec = state.specs[part.spec_id]
        names = [encode_partition(spec, values, state.first_spec_id) for values in part.partitions]  # type: ignore[arg-type]
        of_keys = [keys.setdefault(name, len(keys)) for name in names]
        of_scopes = [scopes.setdefault((part.spec_id, name), len(scopes)) for name in names]
        key_codes.append(_take(of_keys, part.partition))
        scope_codes.append(_take(of_scopes, part.partition))
    unpartitioned = [s.spec_id for s in state.specs.values() if s.is_unpartitioned]
    spec_id = _joined([np.full(len(p), p.spec_id, np.int64) for p in parts])
    laid_out = [(p.layout, codes) for p, codes in zip(parts, key_codes, strict=True) if p.layout]
    sequence_number = _joined([p.sequence_number for p in parts])
    return Columns(
        keys=tuple(keys),
        key=_joined(key_codes),
        scope=_joined(scope_codes),
        spec_id=spec_id,
        is_global=np.isin(spec_id, unpartitioned),
        kind=_joined([p.kind for p in parts]),
        records=_joined([p.records for p in parts]),
        size_bytes=_joined([p.size_bytes for p in parts]),
        sequence_number=sequence_number,
        commit_ms=_commit_ms(state, _joined([p.snapshot_id for p in parts]), sequence_number),
        added=_joined(added),
        named=_joined([r.named for r in references]),
        unreferenced=np.concatenate([np.zeros(0, bool), *(r.unreferenced for r in references)]),
        layout=joined(part for part, _ in laid_out) if laid_out else None,
        layout_key=_joined([codes for _, codes in laid_out]),
    )


def _take(values: Sequence[int], at: Integers) -> Integers:
    return np.array(values, np.int64)[at] if len(at) else at


def _joined(arrays: Iterable[Integers]) -> Integers:
    return np.concatenate([np.zeros(0, np.int64), *arrays])


def _commit_ms(state: TableState, snapshot_ids: Integers, sequence_numbers: Integers) -> Integers:
    """Returns the time of the snapshot that an entry names, else of the snapshot with its sequence
    number, else -1."""
    by_id = {s.snapshot_id: s.timestamp_ms for s in state.snapshots}
    # Format v1 gives every snapshot the number 0, so the number identifies none of them.
    by_number = {s.sequence_number: s.timestamp_ms for s in state.snapshots if s.sequence_number}
    named = _look_up(snapshot_ids, by_id)
    return np.where(named == _UNKNOWN_MS, _look_up(sequence_numbers, by_number), named)


def _look_up(values: Integers, times: Mapping[int, int]) -> Integers:
    distinct, at = np.unique(values, return_inverse=True)
    return _take([times.get(v, _UNKNOWN_MS) for v in distinct.tolist()], at)


def _sums(c: Columns, small_below_bytes: int, large_above_bytes: int) -> dict[str, Integers]:
    """Returns counts, bytes and rows per key, by kind of file."""
    data = c.kind == DATA
    small = data & (c.size_bytes < small_below_bytes)
    large = data & (c.size_bytes > large_above_bytes)
    sums = {
        "data_files": _count(c, data),
        "data_bytes": _sum(c, data, c.size_bytes),
        "records": _sum(c, data, c.records),
        "small_files": _count(c, small),
        "small_bytes": _sum(c, small, c.size_bytes),
        "large_files": _count(c, large),
        "size_histogram": _histogram(c, data),
    }
    for code, files, name in (
        (POSITION_DELETES, "position_delete_files", "position_delete"),
        (DELETION_VECTOR, "deletion_vectors", "deletion_vector"),
        (EQUALITY_DELETES, "equality_delete_files", "equality_delete"),
    ):
        mask = c.kind == code
        sums[files] = _count(c, mask)
        sums[f"{name}_records"] = _sum(c, mask, c.records)
        sums[f"{name}_bytes"] = _sum(c, mask, c.size_bytes)
    oldest = _lowest(c.key[data], c.sequence_number[data], len(c.keys))
    sums["min_data_sequence_number"] = np.where(oldest == _NEVER, 0, oldest)
    sums["max_data_sequence_number"] = _highest(c.key, c.sequence_number, len(c.keys))
    sums["last_change_ms"] = _highest(c.key, c.commit_ms, len(c.keys), _UNKNOWN_MS)
    return sums


def _deletes(c: Columns, state: TableState) -> dict[str, Integers]:
    """Returns what deletes apply to. Restates the rule of `core.model.table_state` on whole columns."""
    data = c.kind == DATA
    scopes = int(c.scope.max(initial=-1)) + 1
    oldest_of_scope = _lowest(c.scope[data], c.sequence_number[data], scopes)
    oldest_of_key = _lowest(c.key[data], c.sequence_number[data], len(c.keys))
    oldest = int(c.sequence_number[data].min(initial=_NEVER))

    equality = c.kind == EQUALITY_DELETES
    reach = np.where(c.is_global, oldest, oldest_of_scope[c.scope])
    unused_equality = equality & (c.sequence_number <= reach)
    position = (c.kind == POSITION_DELETES) | (c.kind == DELETION_VECTOR)
    # A delete that names no single file can only name files that existed when it was committed.
    shared = (c.kind == POSITION_DELETES) & (c.named < 0)
    first = np.where(shared, _lowest(c.scope[data], c.added[data], scopes)[c.scope], oldest_of_scope[c.scope])
    unused_position = position & (c.unreferenced | (c.sequence_number < first))
    used = (c.kind == POSITION_DELETES) & ~unused_position

    own = equality & ~c.is_global & ~unused_equality
    applicable = _count(c, own)
    # A delete with an expired commit is at least as old as the oldest commit that has not expired.
    floor_ms = min((s.timestamp_ms for s in state.snapshots), default=0)
    commit_ms = np.where(c.commit_ms == _UNKNOWN_MS, floor_ms, c.commit_ms)
    oldest_ms = _lowest(c.key[own], commit_ms[own], len(c.keys))
    everywhere = equality & c.is_global
    order = np.argsort(c.sequence_number[everywhere], kind="stable")
    numbers = c.sequence_number[everywhere][order]
    if len(numbers):
        # Of the global deletes, those above a partition's oldest data apply: a tail of `numbers`.
        first = np.searchsorted(numbers, oldest_of_key, side="right")
        applicable = applicable + len(numbers) - first
        tail_ms = np.minimum.accumulate(commit_ms[everywhere][order][::-1])[::-1]
        oldest_ms = np.minimum(oldest_ms, np.append(tail_ms, _NEVER)[first])
    return {
        "applicable_equality_delete_files": applicable,
        "dangling_delete_files": _count(c, unused_equality | unused_position),
        "dangling_equality_delete_files": _count(c, unused_equality),
        "dangling_position_delete_records": _sum(c, unused_position, c.records),
        "mergeable_delete_files": _count(c, used) - _named_files(c, used),
        "oldest_equality_delete_ms": _or_unknown(oldest_ms),
        "oldest_dangling_equality_delete_ms": _or_unknown(
            _lowest(c.key[unused_equality], commit_ms[unused_equality], len(c.keys))
        ),
    }


def _or_unknown(times_ms: Integers) -> Integers:
    return np.where(times_ms == _NEVER, _UNKNOWN_MS, times_ms)


def _count(c: Columns, mask: Mask) -> Integers:
    return np.bincount(c.key[mask], minlength=len(c.keys)).astype(np.int64)


def _named_files(c: Columns, mask: Mask) -> Integers:
    """Returns the number of data files that these deletes name, each counted once, per key."""
    naming = mask & (c.named >= 0)
    pairs = np.unique(np.stack([c.key[naming], c.named[naming]]), axis=1)
    return np.bincount(pairs[0], minlength=len(c.keys)).astype(np.int64)


def _sum(c: Columns, mask: Mask, values: Integers) -> Integers:
    sums = np.zeros(len(c.keys), np.int64)
    np.add.at(sums, c.key[mask], values[mask])
    return sums


def _lowest(at: Integers, values: Integers, length: int) -> Integers:
    lowest = np.full(length, _NEVER)
    np.minimum.at(lowest, at, values)
    return lowest


def _highest(at: Integers, values: Integers, length: int, start: int = 0) -> Integers:
    highest = np.full(length, start, np.int64)
    np.maximum.at(highest, at, values)
    return highest


def _histogram(c: Columns, data: Mask) -> Integers:
    bins = np.searchsorted(np.array(SIZE_EDGES_BYTES), c.size_bytes[data], side="right")
    cells = np.bincount(c.key[data] * _BINS + bins, minlength=len(c.keys) * _BINS)
    return cells.reshape(len(c.keys), _BINS)


def _spec_ids(c: Columns) -> list[tuple[int, ...]]:
    ids_by_key: list[set[int]] = [set() for _ in c.keys]
    # A scope has one spec and one key, so one entry of each is enough.
    _, first = np.unique(c.scope, return_index=True)
    for key, spec_id in zip(c.key[first].tolist(), c.spec_id[first].tolist(), strict=True):
        ids_by_key[key].add(spec_id)
    return [tuple(sorted(ids)) for ids in ids_by_key]


def _partition(values: dict[str, object], spec_ids: tuple[int, ...]) -> PartitionHealth:
    histogram = values["size_histogram"]
    assert isinstance(histogram, list)
    values["size_histogram"] = tuple(histogram)
    for name in _TIMES:
        values[name] = None if values[name] == _UNKNOWN_MS else values[name]
    return PartitionHealth(**values, spec_ids=spec_ids)  # type: ignore[arg-type]
