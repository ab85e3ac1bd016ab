"""The proof of an output file: the file, read back from storage, against the decoded and filtered input.

The rewrite keeps the order of rows, so columns are compared value by value, floats as bits. The statistics of footer
and manifest are compared with the rows.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_maint.columnar.check.metrics import COUNTS, NONE, chunk_statistics, mode_of, split_offsets
from iceberg_maint.columnar.check.page_index import ColumnParts, ListParts, Parts, index_difference
from iceberg_maint.columnar.parquet.parquet_metadata import MetadataError, ParquetBytes
from iceberg_maint.columnar.parquet.reader import opened
from iceberg_maint.columnar.read.decimals import IntegerFooters, integers_of
from iceberg_maint.columnar.read.leaves import (
    FLOATS,
    Leaf,
    Statistics,
    Value,
    java_order,
    layout_type,
    leaves_of,
    values_of,
    viewed,
)
from iceberg_maint.columnar.read.schema import Column, Primitive, Struct, arrow_schema, child_fields, field_id
from iceberg_maint.columnar.storage import FileRange, raise_shortage
from iceberg_maint.columnar.task import OutputMetrics
from iceberg_maint.core.model.columns import INTEGERS

_READ_BYTES = 1024 * 1024
"""Decoded bytes of columns that are read in one call."""
_PART_BYTES = 16 * 1024 * 1024
"""Decoded bytes of a larger column that are read at a time."""
_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


class Comparison:
    """Compares an output file with the row groups that were written. Methods return the first difference, "" if there
    is none. `contents` is the file as read back from storage. `totals` are the statistics of the rows of each row group
    by field id, as they were compared."""

    def __init__(
        self,
        table: Struct,
        contents: pa.Buffer | FileRange,
        metrics: OutputMetrics,
        modes: Mapping[int, str],
    ) -> None:
        self._table = table
        self._metrics = metrics
        self._modes = modes
        self._leaves = leaves_of(table)
        self._contents = contents
        self._footers = IntegerFooters()
        self._integers = integers_of(table)
        self.totals: dict[int, list[Statistics]] = {}
        self._problem = ""
        try:
            self._file, self._parsed = opened(contents, verify=False), ParquetBytes.of(contents)
        except (pa.ArrowException, OSError, MetadataError) as why:
            raise_shortage(why)
            self._problem = f"the output cannot be read: {why}"

    @property
    def parsed(self) -> ParquetBytes:
        """The file's bytes and footer. Raises MetadataError if it cannot be read."""
        if self._problem:
            raise MetadataError(self._problem)
        return self._parsed

    def footer_difference(self, rows: int) -> str:
        """Compares row count, schema with field ids, and split offsets."""
        if self._problem:
            return self._problem
        footer = self._file.metadata
        if footer.num_rows != rows:
            return f"the footer states {footer.num_rows} rows; {rows} were written"
        groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
        if sum(g.num_rows for g in groups) != rows:
            return f"the row groups state {sum(g.num_rows for g in groups)} rows; {rows} were written"
        wanted, found = arrow_schema(self._table), self._file.schema_arrow.remove_metadata()
        if len(wanted) != len(found):
            return f"the file has {len(found)} columns; the schema has {len(wanted)}"
        for column, field, other in zip(self._table.columns, wanted, found, strict=True):
            if not same_field(field, other):
                return f"column {column.path}: the file states {other} with {other.metadata}"
        if split_offsets(groups) != self._metrics.split_offsets:
            return f"split offsets are {self._metrics.split_offsets}; row groups start at {split_offsets(groups)}"
        return ""

    def group_difference(self, number: int, group: pa.Table, *, values: bool) -> str:
        """Compares a row group with its rows: its statistics, and with `values` every value."""
        difference = self.value_difference(number, group) if values else ""
        return difference or self.statistics_difference(number, group)

    def value_difference(self, number: int, group: pa.Table) -> str:
        """Compares every value of a row group with its rows."""
        if difference := self._row_difference(number, group.num_rows):
            return difference
        reader = self._reader(group.schema)
        for columns in _read_together(self._table.columns, group):
            if difference := self._value_difference(reader, number, columns, group):
                return difference
        return ""

    def statistics_difference(self, number: int, group: pa.Table) -> str:
        """Compares the statistics of a row group with its rows. Collects them for `end_difference`."""
        if difference := self._row_difference(number, group.num_rows):
            return difference
        for index, leaf in enumerate(self._leaves):
            chunk = self._parsed.chunk(number, index)
            parts: Parts
            if leaf.repeated:
                parts = ListParts(group, leaf)
            else:
                parts = ColumnParts(values_of(group, leaf), leaf, chunk)
            if difference := self._chunk_difference(number, index, leaf, parts):
                return difference
            place = f"column {leaf.column.path}, row group {number}"
            if difference := index_difference(place, chunk, leaf, group.num_rows, parts):
                return difference
        return ""

    def column_difference(self, number: int, index: int, rows: int, found: Statistics) -> str:
        """Compares the statistics of the leaf column `index` in a row group with those that its rows have, `found`. `rows`
        is the number of rows. Collects them for `end_difference`."""
        return self._row_difference(number, rows) or self._chunk_difference(
            number, index, self._leaves[index], found
        )

    def _row_difference(self, number: int, rows: int) -> str:
        if number >= self._file.metadata.num_row_groups:
            return f"the file has {self._file.metadata.num_row_groups} row groups"
        footer = self._file.metadata.row_group(number)
        if footer.num_rows != rows:
            return f"row group {number} states {footer.num_rows} rows; {rows} were written"
        return ""

    def _value_difference(
        self, reader: pq.ParquetFile, number: int, columns: Sequence[Column], group: pa.Table
    ) -> str:
        place = f"column {columns[0].path}, row group {number}"
        names = [c.name for c in columns]
        try:
            if len(columns) == 1 and _is_read_in_parts(group.column(names[0])):
                return self._difference_in_parts(reader, number, columns[0], group.column(names[0]))
            found = reader.read_row_group(number, columns=names, use_threads=False).select(names)
        except (pa.ArrowException, OSError, KeyError) as why:
            raise_shortage(why)
            # Alone, the column that cannot be read is named.
            alone = (self._value_difference(reader, number, [c], group) for c in columns if len(columns) > 1)
            return next(filter(None, alone), f"{place}: it cannot be read: {why}")
        for column in columns:
            rows, other = group.column(column.name), found.column(column.name)
            if not same_values(rows, other):
                return f"column {column.path}, row group {number}: values differ{_position(rows, other, 0)}"
        return ""

    def _difference_in_parts(
        self, reader: pq.ParquetFile, number: int, column: Column, rows: pa.ChunkedArray
    ) -> str:
        """Compares a large column: a second copy of it is never in memory as a whole."""
        place, start = f"column {column.path}, row group {number}", 0
        size = max(1, len(rows) * _PART_BYTES // rows.nbytes)
        for batch in reader.iter_batches(size, [number], columns=[column.name], use_threads=False):
            part, other = rows.slice(start, batch.num_rows), pa.chunked_array([batch.column(column.name)])
            if not same_values(part, other):
                return f"{place}: values differ{_position(part, other, start)}"
            start += batch.num_rows
        return "" if start == len(rows) else f"{place}: {len(rows)} rows were written and {start} read"

    def _reader(self, schema: pa.Schema) -> pq.ParquetFile:
        """Returns a reader that decodes columns to these types: dictionaries, or integers in place of decimals."""
        metadata, kinds = self._file.metadata, {f.name: f.type for f in schema}
        kept = [name for name, kind in kinds.items() if pa.types.is_dictionary(kind)]
        integers = {name: kind for name, kind in self._integers.items() if kinds.get(name) == kind}
        if integers:
            metadata = self._footers.metadata(self._contents, integers) or metadata
        elif not kept:
            return self._file
        return opened(self._contents, metadata=metadata, dictionaries=kept, verify=False)

    def _chunk_difference(self, number: int, index: int, leaf: Leaf, parts: Parts | Statistics) -> str:
        chunk = self._file.metadata.row_group(number).column(index)
        place = f"column {leaf.column.path}, row group {number}"
        if chunk.path_in_schema != leaf.path:
            return f"{place}: the chunk states path {chunk.path_in_schema}"
        stated = _without_nan(chunk_statistics(chunk, leaf.primitive))
        if isinstance(parts, Statistics):
            rows = parts
        else:
            rows = parts.whole(exact=False)
            if _bound_difference(place, "the footer", stated.lower, stated.upper, rows):
                rows = parts.whole(exact=True)
        if not leaf.repeated:
            self.totals.setdefault(leaf.column.field_id, []).append(rows)
            if stated.values != rows.values:
                return f"{place}: the footer states {stated.values} values; the rows have {rows.values}"
            # A column of floats has no statistics if one of its row groups has NaN.
            is_stated = chunk.is_stats_set or leaf.primitive.base not in FLOATS
            if is_stated and stated.nulls != rows.nulls:
                return f"{place}: the footer states {stated.nulls} nulls; the rows have {rows.nulls}"
        return _bound_difference(place, "the footer", stated.lower, stated.upper, rows)

    def end_difference(self) -> str:
        """Compares the metrics of the manifest with all rows. Call it after all row groups."""
        return manifest_difference(self._table, self.totals, self._metrics, self._modes)


def manifest_difference(
    table: Struct,
    totals: Mapping[int, Sequence[Statistics]],
    stated: OutputMetrics,
    modes: Mapping[int, str],
) -> str:
    """Compares the metrics of a manifest with those of the rows: `totals`, the statistics of each row group by field id."""
    for leaf in leaves_of(table):
        key, place = leaf.column.field_id, f"column {leaf.column.path}"
        mode = mode_of(modes, leaf)
        if leaf.repeated or mode == NONE:
            if key in {*stated.value_counts, *stated.lower_bounds, *stated.upper_bounds}:
                return f"{place}: the manifest states counts or bounds"
            continue
        parts = totals.get(key, [])
        counts = [
            ("values", stated.value_counts.get(key), sum(p.values for p in parts)),
            ("nulls", stated.null_value_counts.get(key), sum(p.nulls for p in parts)),
        ]
        if leaf.primitive.base in FLOATS:
            counts.append(("NaNs", stated.nan_value_counts.get(key), sum(p.nans for p in parts)))
        for name, count, rows in counts:
            if count != rows:
                return f"{place}: the manifest states {count} {name}; the rows have {rows}"
        lower, upper = stated.lower_bounds.get(key), stated.upper_bounds.get(key)
        if mode == COUNTS and (lower is not None or upper is not None):
            return f"{place}: the manifest states bounds"
        low = None if lower is None else value_of(lower, leaf.primitive)
        high = None if upper is None else value_of(upper, leaf.primitive)
        for part in parts:
            if difference := _bound_difference(place, "the manifest", low, high, part):
                return difference
    return ""


def _read_together(columns: Sequence[Column], group: pa.Table) -> Iterator[list[Column]]:
    """Columns that together take few bytes: a call costs more than the rows of a small column."""
    together: list[Column] = []
    size = 0
    for column in columns:
        size += group.column(column.name).nbytes
        if together and size > _READ_BYTES:
            yield together
            together, size = [], group.column(column.name).nbytes
        together.append(column)
    yield together


def _without_nan(stated: Statistics) -> Statistics:
    """What a reader takes from a footer: it ignores a bound that is NaN (Parquet's `ColumnOrder`). Java's writer states
    such bounds."""
    lower, upper = (
        None if isinstance(v, float) and math.isnan(v) else v for v in (stated.lower, stated.upper)
    )
    return replace(stated, lower=lower, upper=upper)


def _bound_difference(
    place: str, source: str, lower: Value | None, upper: Value | None, rows: Statistics
) -> str:
    # A bound of a manifest that is NaN is not at most any value.
    if rows.lower is not None and lower is not None and not java_order(lower) <= java_order(rows.lower):
        return f"{place}: {source} states lower bound {lower!r}; a row has {rows.lower!r}"
    if rows.upper is not None and upper is not None and not java_order(upper) >= java_order(rows.upper):
        return f"{place}: {source} states upper bound {upper!r}; a row has {rows.upper!r}"
    return ""


def same_field(field: pa.Field, other: pa.Field) -> bool:
    """Whether two columns have the same names, field ids, types and optionality at each level."""
    if (field.name, field.nullable, field_id(field)) != (other.name, other.nullable, field_id(other)):
        return False
    children, others = child_fields(field.type), child_fields(other.type)
    if not children or len(children) != len(others) or field.type.id != other.type.id:
        return bool(field.type == other.type)
    return all(same_field(a, b) for a, b in zip(children, others, strict=True))


def value_of(stored: bytes, primitive: Primitive) -> Value:
    """Reads a binary single value (spec: Appendix D) as it compares."""
    if primitive.base in INTEGERS:
        return int.from_bytes(stored, "little", signed=True)
    if primitive.base in FLOATS:
        return float(struct.unpack("<f" if primitive.base == "float" else "<d", stored)[0])
    if primitive.base == "decimal":
        return int.from_bytes(stored, "big", signed=True)
    return stored


def same_values(rows: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    """Whether two columns hold the same values in the same order. Floats are compared as bits."""
    if pa.types.is_dictionary(rows.type) and pa.types.is_dictionary(other.type):
        if (
            not (one := _only_dictionary(rows))
            or not (two := _only_dictionary(other))
            or not one[0].equals(two[0])
        ):
            return same_values(rows.cast(pa.string()), other.cast(pa.string()))
        return bool(_indices(rows).equals(_indices(other)))
    if pa.types.is_dictionary(rows.type):
        rows = rows.cast(rows.type.value_type)
    if pa.types.is_dictionary(other.type):
        other = other.cast(other.type.value_type)
    return bool(_as_bits(rows).equals(_as_bits(other)))


def _only_dictionary(column: pa.ChunkedArray) -> list[pa.Array]:
    first = [c.dictionary for c in column.chunks[:1]]
    return first if all(c.dictionary.equals(first[0]) for c in column.chunks) else []


def _indices(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([c.indices for c in column.chunks], pa.int32())


def bit_type(kind: pa.DataType) -> pa.DataType:
    """Returns a type with integers in place of floats, and the same layout."""
    return layout_type(kind, _BITS)


def _as_bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = bit_type(column.type)
    if kind == column.type:
        return column
    return pa.chunked_array([viewed(c, kind) for c in column.chunks], kind)


def _is_read_in_parts(column: pa.ChunkedArray) -> bool:
    """Parts of a column that is read as a dictionary have a dictionary each."""
    return column.nbytes > _PART_BYTES and not pa.types.is_dictionary(column.type)


def _position(rows: pa.ChunkedArray, found: pa.ChunkedArray, start: int) -> str:
    if len(rows) != len(found):
        return f": {len(rows)} rows were written and {len(found)} read"
    low, high = 0, len(rows)
    while high - low > 1:
        middle = (low + high) // 2
        if same_values(rows.slice(low, middle - low), found.slice(low, middle - low)):
            low = middle
        else:
            high = middle
    return f" at row {start + low}"
