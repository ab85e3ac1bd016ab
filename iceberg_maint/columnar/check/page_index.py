"""Compares the page index of a column chunk with the rows of its pages.

Readers skip pages by the bounds and the null pages of the index, and find the rows of a page by its first row, so a wrong
entry loses rows.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Protocol

import pyarrow as pa

from iceberg_maint.columnar.parquet.parquet_metadata import (
    DATA_PAGE,
    DATA_PAGE_V2,
    INT32,
    INT64,
    Chunk,
    MetadataError,
    get,
    page_header,
)
from iceberg_maint.columnar.parquet.thrift import TRUE, Reader, Struct
from iceberg_maint.columnar.read.leaves import (
    FLOATS,
    Leaf,
    Statistics,
    Value,
    java_order,
    row_statistics,
    sum_of,
    values_of,
)
from iceberg_maint.columnar.storage import FileRange
from iceberg_maint.columnar.task import UnsupportedColumnError
from iceberg_maint.core.model.columns import INTEGERS


class Parts(Protocol):
    """The rows of a column chunk as they were written."""

    def statistics(self, start: int, end: int, *, exact: bool) -> Statistics:
        """The statistics of the rows from one number to another, which it excludes. Without `exact`, the bounds may be
        wider."""

    def whole(self, *, exact: bool) -> Statistics:
        """The statistics of all rows. Without `exact`, the bounds may be wider."""


def starts_of(chunk: Chunk) -> list[int]:
    """The number of the first row of each page, 0 alone if there is no page index."""
    locations = get(chunk.offset_index or {}, 1, (0, ()))[1]
    return [get(page, 3) for page in locations] or [0]


def index_difference(place: str, chunk: Chunk, leaf: Leaf, rows: int, parts: Parts) -> str:
    """Returns the first difference between the page index of an encoded chunk and its rows, "" if there is none or no
    page index: without one, readers read all pages. Raises UnsupportedColumnError if a page of a list or a map has no row:
    Arrow writes such pages, and Java's reader fails on them."""
    if leaf.repeated and _has_empty_page(chunk, rows):
        raise UnsupportedColumnError(leaf.column.path, "Arrow wrote a page without a row")
    try:
        if chunk.column_index is None or chunk.offset_index is None:
            return ""
        if problem := _location_difference(chunk, leaf, rows):
            return f"{place}: {problem}"
        bounds = list(pairwise([*starts_of(chunk), rows]))
        for exact in (False, True):
            pages = [parts.statistics(start, end, exact=exact) for start, end in bounds]
            if not (problem := page_difference(place, chunk, leaf, pages)):
                return ""
    except (MetadataError, struct.error) as why:
        return f"{place}: the page index cannot be read: {why}"
    return problem


def page_difference(place: str, chunk: Chunk, leaf: Leaf, pages: Sequence[Statistics]) -> str:
    """Compares the column index of a chunk with the statistics of the rows of its pages."""
    entries = chunk.column_index
    if entries is None or chunk.offset_index is None:
        return f"{place}: there is no page index"
    nulls = get(entries, 5, (0, ()))[1] or [None] * len(pages)
    columns = [get(entries, field)[1] for field in (1, 2, 3)]
    if any(len(column) != len(pages) for column in (*columns, nulls)):
        return f"{place}: the page index has another number of pages"
    row = 0
    for found, is_null, lower, upper, null_count in zip(pages, *columns, nulls, strict=True):
        here = f"{place}, rows from {row}"
        row += found.values
        # The empty lists of a page are nulls in its index.
        if null_count is not None and null_count != found.nulls and not leaf.repeated:
            return f"{here}: the page index states {null_count} nulls; the rows have {found.nulls}"
        has_values = found.nulls < found.values
        if (is_null == TRUE) == has_values and (has_values or not leaf.repeated):
            return f"{here}: the page index states otherwise whether all values are null"
        if found.lower is None or found.upper is None:
            continue
        low, high = _bound(lower, leaf, chunk), _bound(upper, leaf, chunk)
        if not java_order(low) <= java_order(found.lower) or not java_order(high) >= java_order(found.upper):
            return f"{here}: the page index states bounds that a row is outside of"
    return ""


def _bound(stored: bytes, leaf: Leaf, chunk: Chunk) -> Value:
    """A bound as it compares. NaN is in no order."""
    base = leaf.primitive.base
    if base in FLOATS:
        return float(struct.unpack("<f" if base == "float" else "<d", stored)[0])
    if base == "decimal" and get(chunk.metadata, 1) not in (INT32, INT64):
        return int.from_bytes(stored, "big", signed=True)
    if base in INTEGERS or base in {"boolean", "decimal"}:
        return int.from_bytes(stored, "little", signed=base != "boolean")
    return stored


def _has_empty_page(chunk: Chunk, rows: int) -> bool:
    """Whether the offset index, if it can be read, states a page without a row."""
    with suppress(MetadataError, struct.error):
        return any(start == end for start, end in pairwise([*starts_of(chunk), rows]))
    return False


def _location_difference(chunk: Chunk, leaf: Leaf, rows: int) -> str:
    """Compares the offset index of a chunk with the place of its pages, and with their headers if they are in memory."""
    locations = get(chunk.offset_index or {}, 1)[1]
    starts = [get(page, 3) for page in locations]
    if not starts or starts[0] != 0 or any(b <= a for a, b in pairwise([*starts, rows])):
        return "the first rows of the pages are in no order"
    position = get(chunk.metadata, 9)
    for page in locations:
        if get(page, 1) != position:
            return "the offset index has another place of a page"
        position += get(page, 2)
    if position != chunk.start + chunk.size:
        return "the pages of the offset index do not end with the chunk"
    if leaf.repeated or (isinstance(chunk.data, FileRange) and chunk.data.contents is None):
        return ""
    if [_values_stated(chunk, p) for p in locations] != [b - a for a, b in pairwise([*starts, rows])]:
        return "a page has other rows than the offset index states"
    return ""


def _values_stated(chunk: Chunk, page: Struct) -> int | None:
    """The number of values that the header of a page states, None if it is no data page."""
    start = get(page, 1)
    header = page_header(Reader(chunk.data[start : start + get(page, 2)]))
    detail = get(header, {DATA_PAGE: 5, DATA_PAGE_V2: 8}.get(get(header, 1), -1))
    return None if detail is None else int(get(detail, 1))


class ColumnParts:
    """Parts of a column that is in memory. The statistics of values without a dictionary are taken once: those of the
    whole follow from the pages of `chunk`."""

    def __init__(self, values: Sequence[pa.Array], leaf: Leaf, chunk: Chunk) -> None:
        self._values, self._leaf = values, leaf
        self._column = pa.chunked_array(values)
        self._has_dictionary = pa.types.is_dictionary(self._column.type)
        self._pages: dict[tuple[int, int], Statistics] = {}
        if self._has_dictionary:
            self._whole = row_statistics(values, leaf.primitive, exact=False)
        else:
            for start, end in _pages_of(chunk, len(self._column)):
                self._pages[start, end] = self._exact(start, end)
            self._whole = sum_of(list(self._pages.values()))

    def statistics(self, start: int, end: int, *, exact: bool) -> Statistics:
        """The statistics of a part. Without `exact`, a part with a dictionary has the bounds of the whole."""
        if not self._has_dictionary:
            return self._pages.get((start, end)) or self._exact(start, end)
        if exact:
            return self._exact(start, end)
        part = self._column.slice(start, end - start)
        return Statistics(len(part), part.null_count, 0, self._whole.lower, self._whole.upper)

    def whole(self, *, exact: bool) -> Statistics:
        """The statistics of all rows. Without `exact`, a column with a dictionary has the bounds of its dictionary."""
        return row_statistics(self._values, self._leaf.primitive) if exact else self._whole

    def _exact(self, start: int, end: int) -> Statistics:
        chunks = self._column.slice(start, end - start).chunks
        if self._has_dictionary:
            chunks = [c.dictionary_decode() for c in chunks]
        return row_statistics(chunks, self._leaf.primitive)


def _pages_of(chunk: Chunk, rows: int) -> list[tuple[int, int]]:
    """The rows of each page as its index states them, all rows as one page if there is no order in it."""
    try:
        pages = list(pairwise([*starts_of(chunk), rows]))
        is_sound = pages[0][0] == 0 and all(a < b for a, b in pages)
    except (MetadataError, struct.error):
        is_sound = False
    return pages if is_sound else [(0, rows)]


class ListParts:
    """Parts of a column inside lists or maps, by the rows of the table."""

    def __init__(self, rows: pa.Table, leaf: Leaf) -> None:
        self._rows, self._leaf = rows, leaf

    def statistics(self, start: int, end: int, *, exact: bool) -> Statistics:
        """The statistics of the values in these rows, always exact."""
        del exact
        values = values_of(self._rows.slice(start, end - start), self._leaf)
        return row_statistics(values, self._leaf.primitive)

    def whole(self, *, exact: bool) -> Statistics:
        """The statistics of all values, always exact."""
        return self.statistics(0, self._rows.num_rows, exact=exact)
