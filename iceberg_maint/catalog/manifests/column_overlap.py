"""Computes the overlap of column ranges per partition, for all files of a table at once.

The depth is that of `core.health.layout`. Here the same two sorts compute it for every partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iceberg_maint.core.model.columns import Range, range_of
from iceberg_maint.core.model.table_state import LayoutOrder, SortColumn

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
Values = NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class FileLayout:
    """The sort order ids of data files (0 if unknown), which of them have bounds of every measured
    column, and these lower and upper bounds, column by column."""

    order_id: Integers
    bounded: Mask
    ranges: tuple[tuple[Values, Values], ...]


def file_layout(
    order: LayoutOrder,
    order_ids: Sequence[int | None],
    lower: Sequence[tuple[bytes | None, ...] | None],
    upper: Sequence[tuple[bytes | None, ...] | None],
) -> FileLayout:
    """Returns the layout from the contents of manifests. The bounds are those of `order.measured`, in its
    order."""
    ranges_by_file = [ranges_of(order.measured, low, high) for low, high in zip(lower, upper, strict=True)]
    bounded = [ranges for ranges in ranges_by_file if None not in ranges]
    return FileLayout(
        order_id=np.array([i or 0 for i in order_ids], np.int64),
        bounded=np.array([None not in ranges for ranges in ranges_by_file], bool),
        ranges=tuple(
            (_values([r[column][0] for r in bounded]), _values([r[column][1] for r in bounded]))  # type: ignore[index]
            for column in range(len(order.measured))
        ),
    )


def measured_ids(order: LayoutOrder | None) -> tuple[int, ...]:
    """Returns the field ids of the columns whose bounds show the layout; none without an order."""
    return tuple(c.field_id for c in order.measured) if order else ()


def ranges_of(
    columns: Sequence[SortColumn],
    lower: Sequence[bytes | None] | None,
    upper: Sequence[bytes | None] | None,
) -> tuple[Range | None, ...]:
    """Returns the ranges of these columns in one file, from their bounds in the same order."""
    none = (None,) * len(columns)
    return tuple(
        range_of(column.type, low, high)
        for column, low, high in zip(columns, lower or none, upper or none, strict=True)
    )


def joined(parts: Iterable[FileLayout]) -> FileLayout:
    """Returns the files of all parts, in order. There must be at least one part."""
    layouts = list(parts)
    columns = zip(*(p.ranges for p in layouts), strict=True)
    return FileLayout(
        order_id=np.concatenate([p.order_id for p in layouts]),
        bounded=np.concatenate([p.bounded for p in layouts]),
        ranges=tuple(
            (_concatenated([low for low, _ in ends]), _concatenated([high for _, high in ends]))
            for ends in columns
        ),
    )


def layout_metrics(key: Integers, keys: int, files: FileLayout, sort_order_id: int) -> dict[str, Integers]:
    """Returns the layout metrics of `core.health.metrics` by partition. `key` maps each file to one of
    `keys`."""
    unsorted = (files.order_id != sort_order_id) & bool(sort_order_id)
    metrics = {
        "unsorted_files": np.bincount(key[unsorted], minlength=keys),
        "unbounded_files": np.bincount(key[~files.bounded], minlength=keys),
        "sort_ranges": np.bincount(key[files.bounded], minlength=keys) * len(files.ranges),
        "overlap_depth_sum": np.zeros(keys, np.int64),
        "max_overlap_depth": np.zeros(keys, np.int64),
    }
    bounded_keys = key[files.bounded]
    for low, high in files.ranges:
        depths = _depths(bounded_keys, low, high)
        np.add.at(metrics["overlap_depth_sum"], bounded_keys, depths)
        np.maximum.at(metrics["max_overlap_depth"], bounded_keys, depths)
    return metrics


def _depths(key: Integers, low: Values, high: Values) -> Integers:
    """Returns, for every range, the depth at its lower end among the ranges of its key."""
    distinct, rank = np.unique(_concatenated([low, high]), return_inverse=True)
    rank = rank.astype(np.int64) + np.concatenate([key, key]) * len(distinct)
    first, last = rank[: len(low)], rank[len(low) :]
    starts, ends = np.sort(first), np.sort(last)
    begun, ended = np.searchsorted(starts, first, "right"), np.searchsorted(ends, first, "right")
    depth: Integers = (begun - ended + (first == last)).astype(np.int64)
    return depth


def _values(values: list[object]) -> Values:
    """Returns one array; an array of objects if it contains bytes or integers beyond 64 bits."""
    if all(isinstance(v, float) for v in values):
        return np.array(values, np.float64)
    if all(isinstance(v, int) and -(1 << 63) <= v < 1 << 63 for v in values):
        return np.array(values, np.int64)
    objects = np.empty(len(values), object)
    objects[:] = values
    return objects


def _concatenated(parts: Sequence[Values]) -> Values:
    """Concatenates the parts, with the widest of their types. Empty parts do not affect the type."""
    filled = [p for p in parts if len(p)]
    if not filled:
        return np.zeros(0, np.int64)
    kinds = {p.dtype for p in filled}
    if len(kinds) > 1:
        filled = [p.astype(object) for p in filled]
    return np.concatenate(filled)
