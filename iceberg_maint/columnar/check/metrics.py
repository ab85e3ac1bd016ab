"""The metrics of an output file, as Iceberg's Java writer computes them (`ParquetMetrics`).

Counts and bounds come from the footer's statistics, those of float columns from the rows. Columns inside lists and maps
have sizes only.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_maint.columnar.read.leaves import (
    FLOATS,
    Leaf,
    Statistics,
    Value,
    leaves_of,
    row_statistics,
    sum_of,
    values_of,
)
from iceberg_maint.columnar.read.schema import Primitive, Struct
from iceberg_maint.columnar.task import OutputMetrics

DEFAULT_MODE = "truncate(16)"
NONE, COUNTS, FULL = "none", "counts", "full"
_FOOTER_BYTES = 4096
"""Arrow writes no bounds into the footer that are longer together."""
_LAST_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
_LAST_BYTE = 0xFF


class MetricsBuilder:
    """Collects what the footer will lack while the row groups are written, and builds the metrics of the file."""

    def __init__(self, table: Struct, modes: Mapping[int, str]) -> None:
        self._leaves = leaves_of(table)
        self._modes = modes
        self._rows: dict[int, list[Statistics]] = {}
        self._groups: dict[tuple[int, int], Statistics] = {}
        self._count = 0

    def add(self, group: pa.Table) -> None:
        """Adds the next row group."""
        for leaf in self._leaves:
            mode = mode_of(self._modes, leaf)
            if leaf.repeated or mode == NONE:
                continue
            if leaf.primitive.base in FLOATS:
                statistics = row_statistics(values_of(group, leaf), leaf.primitive)
                self._rows.setdefault(leaf.column.field_id, []).append(statistics)
            elif mode != COUNTS and leaf.primitive.base in {"string", "binary"}:
                chunks = values_of(group, leaf)
                if _longest(chunks) * 2 > _FOOTER_BYTES:
                    statistics = row_statistics(chunks, leaf.primitive)
                    self._groups[self._count, leaf.column.field_id] = statistics
        self._count += 1

    def add_floats(self, groups: Mapping[int, list[Statistics]]) -> None:
        """States, in place of `add`, what the rows of each row group have, by field id. Columns of other types are left out."""
        floats = {leaf.column.field_id for leaf in self._leaves if leaf.primitive.base in FLOATS}
        self._rows.update((key, parts) for key, parts in groups.items() if key in floats)

    def of_footer(self, footer: Any) -> OutputMetrics:
        """Returns the metrics of the written file. `footer` is its Parquet metadata."""
        groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
        sizes: dict[int, int] = {}
        values: dict[int, int] = {}
        nulls: dict[int, int] = {}
        nans: dict[int, int] = {}
        lowers: dict[int, bytes] = {}
        uppers: dict[int, bytes] = {}
        for index, leaf in enumerate(self._leaves):
            mode, key = mode_of(self._modes, leaf), leaf.column.field_id
            if mode == NONE:
                continue
            chunks = [group.column(index) for group in groups]
            sizes[key] = sum(c.total_compressed_size for c in chunks)
            if leaf.repeated:
                continue
            if key in self._rows:
                merged = _merged(self._rows[key])
                nans[key] = merged.nans
            else:
                merged = _merged([self._of_chunk(i, c, leaf) for i, c in enumerate(chunks)])
            values[key], nulls[key] = merged.values, merged.nulls
            if mode == COUNTS or merged.lower is None or merged.upper is None:
                continue
            length = truncation(mode)
            if (lower := lower_bound(merged.lower, leaf.primitive, length)) is not None:
                lowers[key] = lower
            if (upper := upper_bound(merged.upper, leaf.primitive, length)) is not None:
                uppers[key] = upper
        return OutputMetrics(sizes, values, nulls, nans, lowers, uppers, split_offsets(groups))

    def _of_chunk(self, group: int, chunk: Any, leaf: Leaf) -> Statistics:
        found = chunk_statistics(chunk, leaf.primitive)
        of_rows = self._groups.get((group, leaf.column.field_id))
        if of_rows is None or found.lower is not None:
            return found
        return Statistics(found.values, found.nulls, 0, of_rows.lower, of_rows.upper)


def mode_of(modes: Mapping[int, str], leaf: Leaf) -> str:
    """Returns the metrics mode of a leaf column, in lower case."""
    return modes.get(leaf.column.field_id, DEFAULT_MODE).strip().lower()


def truncation(mode: str) -> int | None:
    """Returns the length to which a mode truncates bounds of text and binary, None if it does not."""
    if mode == FULL:
        return None
    found = re.fullmatch(r"truncate\((\d+)\)", mode)
    if not found:
        raise ValueError(f"{mode!r} is no metrics mode.")
    return int(found.group(1))


def split_offsets(groups: list[Any]) -> tuple[int, ...]:
    """Returns the offset of each row group: of the first page of its first column chunk."""
    first = [g.column(0) for g in groups]
    return tuple(
        min(c.data_page_offset, c.dictionary_page_offset) if c.dictionary_page_offset else c.data_page_offset
        for c in first
    )


def chunk_statistics(chunk: Any, primitive: Primitive) -> Statistics:
    """Returns the statistics that the footer states of a column chunk."""
    stated = chunk.statistics
    nulls = stated.null_count if stated is not None and stated.has_null_count else 0
    if stated is None or not stated.has_min_max:
        return Statistics(chunk.num_values, nulls, 0, None, None)
    return Statistics(
        chunk.num_values, nulls, 0, _physical(stated.min_raw, primitive), _physical(stated.max_raw, primitive)
    )


def _physical(value: Any, primitive: Primitive) -> Value:
    if primitive.base == "decimal" and isinstance(value, bytes):
        return int.from_bytes(value, "big", signed=True)
    if isinstance(value, str):
        return value.encode()
    return int(value) if isinstance(value, bool) else value


def _merged(parts: list[Statistics]) -> Statistics:
    merged = sum_of(parts)
    # A chunk that has values and states no bounds makes the bounds of the file unknown.
    is_known = all(p.lower is not None or p.nulls + p.nans == p.values for p in parts)
    return merged if is_known else replace(merged, lower=None, upper=None)


def _longest(chunks: list[pa.Array]) -> int:
    lengths = [
        pc.max(pc.binary_length(c.dictionary if pa.types.is_dictionary(c.type) else c)).as_py()
        for c in chunks
    ]
    return max((n for n in lengths if n is not None), default=0)


def single_value(value: Value, primitive: Primitive) -> bytes:
    """Returns a value in the spec's binary single-value serialization (Appendix D)."""
    match primitive.base:
        case "boolean":
            return bytes([int(value)])
        case "int" | "date":
            return struct.pack("<i", value)
        case "float":
            return struct.pack("<f", value)
        case "double":
            return struct.pack("<d", value)
        case "decimal":
            number = int(value)
            length = (number if number >= 0 else ~number).bit_length() // 8 + 1
            return number.to_bytes(length, "big", signed=True)
    if isinstance(value, bytes):
        return value
    return struct.pack("<q", value)


def lower_bound(value: Value, primitive: Primitive, length: int | None) -> bytes | None:
    """Returns a lower bound, truncated to `length` characters or bytes."""
    stored = single_value(value, primitive)
    if length is None or primitive.base not in {"string", "binary"}:
        return stored
    if primitive.base == "binary":
        return stored[:length]
    text = _text(stored)
    return None if text is None else text[:length].encode()


def upper_bound(value: Value, primitive: Primitive, length: int | None) -> bytes | None:
    """Returns an upper bound. If it is truncated, its last code point or byte that can be incremented is. None if none
    can be."""
    stored = single_value(value, primitive)
    if length is None or primitive.base not in {"string", "binary"}:
        return stored
    if primitive.base == "binary":
        return stored if len(stored) <= length else _next_bytes(stored[:length])
    text = _text(stored)
    if text is None or len(text) <= length:
        return None if text is None else stored
    return _next_text(text[:length])


def _text(stored: bytes) -> str | None:
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return None


def _next_bytes(head: bytes) -> bytes | None:
    kept = head.rstrip(bytes([_LAST_BYTE]))
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _next_text(head: str) -> bytes | None:
    for index in range(len(head) - 1, -1, -1):
        following = ord(head[index]) + 1
        if following in _SURROGATES:
            following = _SURROGATES.stop
        if following <= _LAST_CODE_POINT:
            return (head[:index] + chr(following)).encode()
    return None
