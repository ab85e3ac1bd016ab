"""Overlap of column ranges per partition, for all files of a table at once.

The depth is that of `core.health.overlap`; here it is found for every partition by the same two sorts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iceberg_maint.core.model.column_bounds import Range, range_of
from iceberg_maint.core.model.sort_order import LayoutOrder, SortColumn

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
Values = NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class FileLayout:
    """Data files' sort order ids (0 where unknown), which of them have bounds of every measured
    column, and the bounds of these: lower and upper ones, column by column."""

    order_id: Integers
    bounded: Mask
    ranges: tuple[tuple[Values, Values], ...]


def file_layout(
    order: LayoutOrder,
    order_ids: Sequence[int | None],
    lower: Sequence[tuple[bytes | None, ...] | None],
    upper: Sequence[tuple[bytes | None, ...] | None],
) -> FileLayout:
    """From what manifests hold, the bounds being those of `order.measured` in its order."""
    found = [ranges_of(order.measured, low, high) for low, high in zip(lower, upper, strict=True)]
    bounded = [ranges for ranges in found if None not in ranges]
    return FileLayout(
        order_id=np.array([i or 0 for i in order_ids], np.int64),
        bounded=np.array([None not in ranges for ranges in found], bool),
        ranges=tuple(
            (_values([r[at][0] for r in bounded]), _values([r[at][1] for r in bounded]))  # type: ignore[index]
            for at in range(len(order.measured))
        ),
    )


def ranges_of(
    columns: Sequence[SortColumn],
    lower: Sequence[bytes | None] | None,
    upper: Sequence[bytes | None] | None,
) -> tuple[Range | None, ...]:
    """The ranges of these columns in one file, from their bounds in the same order."""
    none = (None,) * len(columns)
    return tuple(
        range_of(column.type, low, high)
        for column, low, high in zip(columns, lower or none, upper or none, strict=True)
    )


def joined(parts: Iterable[FileLayout]) -> FileLayout:
    """The files of all parts, in order. There must be one."""
    found = list(parts)
    columns = zip(*(p.ranges for p in found), strict=True)
    return FileLayout(
        order_id=np.concatenate([p.order_id for p in found]),
        bounded=np.concatenate([p.bounded for p in found]),
        ranges=tuple(
            (_concatenated([low for low, _ in ends]), _concatenated([high for _, high in ends]))
            for ends in columns
        ),
    )


def layout_metrics(key: Integers, keys: int, files: FileLayout, sort_order_id: int) -> dict[str, Integers]:
    """The layout metrics of `core.health.metrics` by partition, `key` being each file's one of `keys`."""
    unsorted = (files.order_id != sort_order_id) & bool(sort_order_id)
    found = {
        "unsorted_files": np.bincount(key[unsorted], minlength=keys),
        "unbounded_files": np.bincount(key[~files.bounded], minlength=keys),
        "sort_ranges": np.bincount(key[files.bounded], minlength=keys) * len(files.ranges),
        "overlap_depth_sum": np.zeros(keys, np.int64),
        "max_overlap_depth": np.zeros(keys, np.int64),
    }
    at = key[files.bounded]
    for low, high in files.ranges:
        depths = _depths(at, low, high)
        np.add.at(found["overlap_depth_sum"], at, depths)
        np.maximum.at(found["max_overlap_depth"], at, depths)
    return found


def _depths(key: Integers, low: Values, high: Values) -> Integers:
    """Of every range the depth at its lower end, among those of its key."""
    distinct, rank = np.unique(_concatenated([low, high]), return_inverse=True)
    rank = rank.astype(np.int64) + np.concatenate([key, key]) * len(distinct)
    first, last = rank[: len(low)], rank[len(low) :]
    starts, ends = np.sort(first), np.sort(last)
    begun, ended = np.searchsorted(starts, first, "right"), np.searchsorted(ends, first, "right")
    depth: Integers = (begun - ended + (first == last)).astype(np.int64)
    return depth


def _values(values: list[object]) -> Values:
    """One array; of objects where bytes or integers beyond 64 bits are among them."""
    if all(isinstance(v, float) for v in values):
        return np.array(values, np.float64)
    if all(isinstance(v, int) and -(1 << 63) <= v < 1 << 63 for v in values):
        return np.array(values, np.int64)
    found = np.empty(len(values), object)
    found[:] = values
    return found


def _concatenated(parts: Sequence[Values]) -> Values:
    """The parts as one, of the widest of their types; empty ones say nothing about it."""
    filled = [p for p in parts if len(p)]
    if not filled:
        return np.zeros(0, np.int64)
    kinds = {p.dtype for p in filled}
    if len(kinds) > 1:
        filled = [p.astype(object) for p in filled]
    return np.concatenate(filled)
