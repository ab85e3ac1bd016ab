"""Sort order: by which columns a table's files should be laid out, and what is measured of it."""

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
    """The order of a table's files. `sort_order_id` is that of the table's own order, where this is
    all of it, else 0. `measured` are the columns whose bounds tell the layout: of a z-order all, of
    a sort the first that is not the same in a whole partition."""

    columns: tuple[SortColumn, ...]
    measured: tuple[SortColumn, ...]
    z_order: bool = False
    sort_order_id: int = 0
