"""Sort order: the columns that a table's files should be sorted by, and the columns that the layout is
measured by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SortField:
    """One field of a table's own sort order (spec: Sorting)."""

    source_id: int
    transform: str
    descending: bool = False
    nulls_last: bool = False


@dataclass(frozen=True, slots=True)
class SortColumn:
    """A column to sort by: its dotted name, field id and Iceberg type."""

    name: str
    field_id: int
    type: str
    descending: bool = False
    nulls_last: bool = False


@dataclass(frozen=True, slots=True)
class LayoutOrder:
    """The target order of a table's files. `sort_order_id` is the id of the table's own order if this
    order is the whole of it, else 0. `measured` are the columns whose bounds show the layout: all columns
    of a z-order; of a sort, the first column that varies within a partition."""

    columns: tuple[SortColumn, ...]
    measured: tuple[SortColumn, ...]
    z_order: bool = False
    sort_order_id: int = 0
