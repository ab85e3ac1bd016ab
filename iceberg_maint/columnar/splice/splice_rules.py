"""Which columns a splice may copy, how their statistics merge, and what memory the others need."""

from __future__ import annotations

import math
import struct
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from iceberg_maint.columnar.parquet.parquet_metadata import (
    BOOLEAN,
    BYTE_ARRAY,
    DICTIONARY_ENCODINGS,
    DOUBLE_TYPE,
    FIXED,
    FLOAT,
    INT32,
    INT64,
    PLAIN,
    Chunk,
    Leaf,
    MetadataError,
    ParquetBytes,
    get,
)
from iceberg_maint.columnar.parquet.thrift import FALSE, TRUE, Struct

CODECS = {"uncompressed": 0, "snappy": 1, "gzip": 2, "lz4": 7, "zstd": 6, "lz4_raw": 7}
"""Parquet's numbers of Iceberg's codec names. `lz4` is written as `lz4_raw`."""

ENCODINGS = DICTIONARY_ENCODINGS | {0, 3, 4}
"""Dictionaries, plain values, and the two encodings of levels. Not every reader of the table knows others."""

MIN_ROWS_PER_PAGE = 10_000
"""Readers pay about 10 microseconds per page and column. From this average on, no reader measured a loss."""

Order = Callable[[bytes], Any]


def order_of(leaf: Leaf) -> Order | None:
    """The sort key of a column's statistics as Parquet's type-defined order. None: the column has no such order.

    Raises MetadataError, when it is called, for a NaN: its place in the order is not defined.
    """
    kind = leaf.physical_type
    if kind in (INT32, INT64):
        return lambda b: int.from_bytes(b, "little", signed=True)
    if kind in (FLOAT, DOUBLE_TYPE):
        return _float_key
    if kind in (BYTE_ARRAY, FIXED):
        return _decimal_key if leaf.is_decimal else bytes
    return bytes if kind == BOOLEAN else None


def _decimal_key(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def _float_key(value: bytes) -> tuple[float, float]:
    (number,) = struct.unpack("<f" if len(value) == 4 else "<d", value)
    if math.isnan(number):
        raise MetadataError("a bound is NaN")
    return number, math.copysign(1.0, number)


def spliceable(
    sources: Sequence[ParquetBytes],
    wanted: Leaf,
    codec: int,
    min_rows_per_page: int = MIN_ROWS_PER_PAGE,
    *,
    alone: bool = False,
) -> str:
    """Returns why the column with the field id of `wanted` cannot be spliced into a column of that form, "" if it
    can. `alone`: each chunk stays a chunk, so readers have the pages that they had before, whatever their size."""
    order = order_of(wanted)
    if order is None:
        return f"physical type {wanted.physical_type} has no order"
    pages = rows = 0
    try:
        for source in sources:
            index = source.leaf_by_id.get(wanted.field_id or -1)
            if index is None:
                return "a file lacks the column"
            if source.leaves[index].form != wanted.form:
                return "a file has another type or repetition"
            for group, metadata in enumerate(source.row_groups):
                chunk = source.chunk(group, index)
                if reason := _chunk_problem(chunk, wanted, codec, order, alone):
                    return reason
                locations = get(chunk.offset_index or {}, 1, (0, ()))[1]
                pages += len(locations)
                rows += get(metadata, 3)
    except MetadataError as why:
        return str(why)
    if not pages:
        return "there is no page"
    return "" if alone or rows >= pages * min_rows_per_page else f"pages have {rows // pages} rows on average"


def _chunk_problem(chunk: Chunk, wanted: Leaf, codec: int, order: Order, alone: bool) -> str:
    md, statistics = chunk.metadata, chunk.statistics
    # PyArrow ends the process if it makes an object of a chunk of another type.
    if get(md, 1) != wanted.physical_type:
        return "a chunk has another physical type than its column"
    if get(md, 4) != codec:
        return "a chunk has another codec"
    if not alone and (get(md, 11) or DICTIONARY_ENCODINGS & set(get(md, 2)[1])):
        return "a chunk has a dictionary"
    if not set(get(md, 2)[1]) <= ENCODINGS:
        return "a chunk has an encoding that Iceberg's writer does not use"
    # Pages of version 2 have booleans in runs.
    if wanted.physical_type == BOOLEAN and PLAIN not in get(md, 2)[1]:
        return "a chunk has booleans that Iceberg's vectorized reader does not read"
    if 14 in md:
        return "a chunk has a bloom filter"
    if chunk.column_index is None or chunk.offset_index is None:
        return "a chunk has no page index"
    nulls = get(statistics, 3)
    if nulls is None:
        return "a chunk has no null count"
    if any(statistics.get(number, (TRUE, None))[0] == FALSE for number in (7, 8)):
        return "a chunk has shortened bounds"
    low, high = get(statistics, 6), get(statistics, 5)
    if low is None or high is None:
        return "" if nulls == chunk.values else "a chunk has no bounds"
    return "" if order(low) <= order(high) else "the bounds of a chunk are in the wrong order"


def merged_statistics(chunks: Sequence[Chunk], leaf: Leaf) -> Struct:
    """The statistics of the chunk that has all pages of these chunks."""
    order = order_of(leaf)
    if order is None:
        raise MetadataError(f"physical type {leaf.physical_type} has no order")
    merged: Struct = {3: (6, sum(get(c.statistics, 3) for c in chunks))}
    bounded = [c.statistics for c in chunks if 5 in c.statistics]
    if not bounded:
        return merged
    highest = max(bounded, key=lambda s: order(get(s, 5)))
    lowest = min(bounded, key=lambda s: order(get(s, 6)))
    merged[5], merged[6] = highest[5], lowest[6]
    for number, bound in ((7, highest), (8, lowest)):
        if number in bound:
            merged[number] = bound[number]
    return merged


_VALUE_BYTES = 8
_DECODED_COPIES = 2
"""The rows of a column from the input, and from the output that they are compared with."""
_BYTES_PER_BYTE = 3
"""The inputs, the encoded columns and the output of a row group."""
_SIZES, _TEXT_BYTES = 16, 1
"""Parquet's `SizeStatistics` of a chunk, and in it the bytes of its texts."""


def needed_bytes(sources: Iterable[ParquetBytes], spliced: Collection[int]) -> int:
    """Returns the bytes of memory that a row group of these files takes. A column of few values has few bytes in a file and
    many in memory."""
    size = 0
    decoded: dict[tuple[bytes, ...], int] = defaultdict(int)
    for source in sources:
        size += len(source.data)
        copied = {source.leaf_by_id[i] for i in spliced if i in source.leaf_by_id}
        for group, metadata in enumerate(source.row_groups):
            for index in range(len(get(metadata, 1)[1])):
                if index not in copied:
                    chunk = source.chunk(group, index)
                    decoded[tuple(get(chunk.metadata, 3)[1][:1])] += _decoded_bytes(chunk)
    return _BYTES_PER_BYTE * size + _DECODED_COPIES * max(decoded.values(), default=0)


def _decoded_bytes(chunk: Chunk) -> int:
    kind, stated = get(chunk.metadata, 1), int(get(chunk.metadata, 6))
    of_values = chunk.values * _VALUE_BYTES
    if kind == BYTE_ARRAY:
        texts = int(get(get(chunk.metadata, _SIZES, {}), _TEXT_BYTES, 0))
        return of_values + max(stated, texts)
    return of_values * 2 if kind == FIXED else of_values
