"""Encodes rows as Parquet, as Iceberg's writer does: field ids, integers for decimals, page index, checksums, dictionaries.

The columns of a splice that are not copied are encoded one at a time: a column of all inputs is decoded, encoded, compared
with the decoded rows, and freed before the next one. So a task holds one decoded column. New memory costs a worker as
much CPU as decoding into it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from iceberg_maint.columnar.check.file_proof import Comparison
from iceberg_maint.columnar.check.metrics import MetricsBuilder, split_offsets
from iceberg_maint.columnar.clock import Clock
from iceberg_maint.columnar.parquet.parquet_metadata import MetadataError, ParquetBytes
from iceberg_maint.columnar.read.decimals import NotedFile, integer_decimals
from iceberg_maint.columnar.read.decode import DecodedFile, Decoder
from iceberg_maint.columnar.read.leaves import (
    FLOATS,
    Leaf,
    Statistics,
    array_of_numbers,
    has_nan,
    leaves_of,
    values_of,
)
from iceberg_maint.columnar.read.schema import Struct, written_schema
from iceberg_maint.columnar.read.source import source_dictionaries
from iceberg_maint.columnar.storage import FileRange, Storage
from iceberg_maint.columnar.task import FULL_PROOF, Encoding, InputFile, OutputMetrics, RewriteTask

_CODECS = {"uncompressed": "none", "lz4": "lz4_raw"}
"""Arrow's names of codecs, where they differ. Iceberg's lz4 of old properties is written as lz4_raw."""
_LEVELS = {"zstd": 3, "gzip": 6}
"""Codecs with a level, and the level that Parquet's Java writer has by default. Arrow's defaults are others."""
_NO_DECIMALS: Mapping[str, pa.DataType] = {}
_LENGTH_BYTES = 4
"""The bytes of a length that stand before each text in a plain page and in a dictionary."""


SCHEMA_KEY = "iceberg.schema"
"""Under this key Iceberg's writers keep the JSON text of the schema in a file."""


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """`dictionaries` and `statistics` are the Parquet paths of the columns that have them; None: all columns have statistics.
    `batch_rows` are encoded together, 1,024 if it is None: the size of a page is measured after each of them."""

    dictionaries: Collection[str] = ()
    statistics: Collection[str] | None = None
    batch_rows: int | None = None


@contextmanager
def open_writer(
    sink: Any,
    schema: pa.Schema,
    encoding: Encoding,
    options: WriterOptions,
    decimals: Mapping[str, pa.DataType] = _NO_DECIMALS,
) -> Iterator[pq.ParquetWriter]:
    """Gives a writer of tables with this schema. `decimals` are the types of the columns that are integers here and decimals
    in the file, by name."""
    codec = _CODECS.get(encoding.codec.lower(), encoding.codec.lower())
    noted = NotedFile(sink, decimals) if decimals else None
    writer = pq.ParquetWriter(
        sink if noted is None else noted,
        schema,
        compression=codec,
        compression_level=_LEVELS.get(codec)
        if encoding.level is None or codec not in _LEVELS
        else encoding.level,
        use_dictionary=sorted(options.dictionaries) or False,
        write_statistics=True if options.statistics is None else sorted(options.statistics),
        dictionary_pagesize_limit=encoding.dictionary_bytes,
        data_page_size=encoding.page_bytes,
        max_rows_per_page=encoding.page_row_limit,
        store_decimal_as_integer=True,
        store_schema=False,
        write_page_index=True,
        write_page_checksum=True,
        write_batch_size=options.batch_rows,
    )
    with writer:
        yield writer
        if noted is not None:
            noted.keep()
    if noted is not None:
        noted.finish()


def sampled_dictionaries(
    rows: pa.Table, table: Struct, repeating: Collection[int], encoding: Encoding
) -> set[str]:
    """Returns the Parquet paths of the columns that get a dictionary: those that are `repeating` in the input files
    (`SourceDictionaries`). The others are chosen by the first page, as Parquet's Java writer does
    (`DictionaryValuesWriter.isCompressionSatisfying`): files with many values say little of larger ones. A dictionary that
    overflows would be written in vain."""
    head = rows.slice(0, encoding.page_row_limit)
    return {
        leaf.path
        for leaf in leaves_of(table)
        if leaf.primitive.base != "boolean"
        and not _overflows(rows.column(leaf.steps[0]), encoding)
        and (leaf.column.field_id in repeating or _is_smaller(values_of(head, leaf), encoding.page_bytes))
    }


def _overflows(column: pa.ChunkedArray, encoding: Encoding) -> bool:
    """Whether a column that was decoded as a dictionary has too large a one."""
    if not pa.types.is_dictionary(column.type) or not column.num_chunks:
        return False
    return bool(column.chunk(0).dictionary.nbytes > encoding.dictionary_bytes)


def _is_smaller(chunks: Sequence[pa.Array], page_bytes: int) -> bool:
    """Whether dictionary and indexes of a page take fewer bytes than its values. True for a page without values."""
    if not chunks:
        return True
    values, size_of = _measured(pa.chunked_array(chunks))
    values = values.drop_null()
    size = size_of(values)
    if size > page_bytes:
        values = values.slice(0, max(1, len(values) * page_bytes // size))
        size = size_of(values)
    if not len(values):
        return True

    def is_smaller(dictionary: pa.Array) -> bool:
        index_bits = max(1, (len(dictionary) - 1).bit_length())
        return size_of(dictionary) + len(values) * index_bits // 8 < size

    # To look for distinct values takes several times as long as to look for the bounds.
    possible = _all_between(values)
    return (possible is not None and is_smaller(possible)) or is_smaller(values.unique())


def _all_between(values: pa.ChunkedArray) -> pa.Array | None:
    """All integers between the bounds of integers or dates. None: others, or more of them than values."""
    if not (pa.types.is_integer(values.type) or pa.types.is_date32(values.type)):
        return None
    found = pc.min_max(values)
    low, high = (int(b.value if pa.types.is_date32(values.type) else b.as_py()) for b in found.values())
    # The number after the largest long is none of 64 bits.
    return array_of_numbers(low + np.arange(high - low + 1)) if high - low < len(values) else None


def _measured(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, Callable[[Any], int]]:
    """Returns values to compare, and a function that returns the bytes of some of them in a plain page. Texts with a
    dictionary are compared by its indexes: decoded, a page of long texts can take gigabytes."""
    if not pa.types.is_dictionary(column.type):
        return column, _size
    column = column.unify_dictionaries()
    lengths = pc.binary_length(column.chunk(0).dictionary)
    indexes = pa.chunked_array([c.indices for c in column.chunks])
    return indexes, lambda some: _text_size(lengths.take(some))


def _size(values: pa.ChunkedArray | pa.Array) -> int:
    """The bytes of values without nulls in a plain page."""
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        return _text_size(pc.binary_length(values))
    return len(values) * int(values.type.bit_width) // 8


def _text_size(lengths: pa.ChunkedArray | pa.Array) -> int:
    return int(pc.sum(lengths).as_py() or 0) + _LENGTH_BYTES * len(lengths)


def write_group(writer: pq.ParquetWriter, rows: pa.Table) -> None:
    """Writes rows as one row group."""
    if rows.num_rows:
        writer.write_table(rows, row_group_size=rows.num_rows)


V = TypeVar("V")


class SpliceEncoder:
    """Encodes the columns `rest`, a row group at a time. `data` has the inputs by their paths."""

    def __init__(self, task: RewriteTask, rest: Struct, data: Mapping[str, FileRange], clock: Clock) -> None:
        self._data, self._clock = data, clock
        found = source_dictionaries(lambda f: data[f.path], task, rest)
        self._decoder = Decoder(
            Storage(task.io), rest, task.name_mapping, dictionaries=found.strings, integers=True
        )
        self._columns = [GroupEncoder(task, Struct((c,)), found.repeating, clock) for c in rest.columns]

    def encoded(self, files: Sequence[InputFile]) -> list[ParquetBytes]:
        """Returns a Parquet file with one row group in memory for each column. Raises MetadataError if its rows or its
        statistics are not those of the files."""
        opened = [self._decoder.opened(f, self._data[f.path].hold()) for f in files]
        return [c.encoded([self._rows(opened, n)]) for n, c in enumerate(self._columns)]

    def _rows(self, files: Sequence[DecodedFile], number: int) -> pa.Table:
        with self._clock.phase("decode"):
            # A dictionary that changes within a row group ends its use.
            return pa.concat_tables(
                [self._decoder.live_column(f, number) for f in files]
            ).unify_dictionaries()

    @property
    def totals(self) -> dict[int, list[Statistics]]:
        """The statistics of the rows of each row group by field id."""
        return {key: found for c in self._columns for key, found in c.totals.items()}

    @property
    def metrics(self) -> list[tuple[Struct, MetricsBuilder]]:
        """What the footer will lack, for each column."""
        return [(c.table, c.metrics) for c in self._columns]


class GroupEncoder:
    """Encodes row groups of a table and compares them with their rows. `metrics` collects what the footer will lack,
    `totals` the statistics of the rows of each row group by field id."""

    def __init__(self, task: RewriteTask, table: Struct, repeating: Collection[int], clock: Clock) -> None:
        self._task, self._repeating, self._clock = task, repeating, clock
        self.table = table
        self._leaves = leaves_of(table)
        self._decimals = integer_decimals(self.table)
        self._dictionaries: set[str] | None = None
        self._compared = 0
        self.metrics = MetricsBuilder(self.table, task.metrics_modes)
        self.totals: dict[int, list[Statistics]] = {}

    def encoded(self, groups: Sequence[pa.Table]) -> ParquetBytes:
        """Returns a Parquet file in memory with these row groups. Raises MetadataError if its values or statistics are others."""
        sink = pa.BufferOutputStream()
        self.write(groups, sink)
        return self.compared(groups, sink.getvalue())

    def write(self, groups: Sequence[pa.Table], sink: Any) -> None:
        """Writes a Parquet file with these row groups."""
        task, first = self._task, groups[0]
        with self._clock.phase("encode"):
            if self._dictionaries is None:
                self._dictionaries = sampled_dictionaries(first, self.table, self._repeating, task.encoding)
            batch_rows = _batch_rows(first, task.encoding)
            options = WriterOptions(self._dictionaries, _stated(groups, self._leaves), batch_rows)
            with open_writer(sink, first.schema, task.encoding, options, self._decimals) as writer:
                schema = written_schema(task.schema, lineage=task.keep_row_lineage)
                writer.add_key_value_metadata({SCHEMA_KEY: schema})
                for rows in groups:
                    write_group(writer, rows)
        with self._clock.phase("metrics"):
            for rows in groups:
                self.metrics.add(rows)

    def compared(self, groups: Sequence[pa.Table], contents: pa.Buffer) -> ParquetBytes:
        """Returns a file with these contents. Raises MetadataError if its values or statistics are not those of the row groups."""
        task = self._task
        with self._clock.phase("proof"):
            footer = pq.read_metadata(pa.BufferReader(contents))
            starts = split_offsets([footer.row_group(n) for n in range(footer.num_row_groups)])
            metrics = OutputMetrics(split_offsets=starts)
            comparison = Comparison(self.table, contents, metrics, task.metrics_modes)
            problem = comparison.footer_difference(sum(g.num_rows for g in groups))
            for number, rows in enumerate(groups):
                full = task.proof == FULL_PROOF
                problem = problem or comparison.group_difference(number, rows, values=full)
        if problem:
            raise MetadataError(
                f"after {self._compared} row groups, {problem}" if self._compared else problem
            )
        self._compared += len(groups)
        for key, statistics in comparison.totals.items():
            self.totals.setdefault(key, []).extend(statistics)
        return comparison.parsed


def _stated(groups: Sequence[pa.Table], leaves: Sequence[Leaf]) -> list[str] | None:
    """The Parquet paths of the columns with statistics, None for all of them. Spark and DuckDB order NaN above all numbers, and
    Arrow's bounds leave it out, so a filter would skip it. Java's writer states bounds that readers ignore."""
    floats = [leaf for leaf in leaves if leaf.primitive.base in FLOATS and not leaf.repeated]
    without = {leaf.path for leaf in floats if any(has_nan(g, leaf) for g in groups)}
    return [leaf.path for leaf in leaves if leaf.path not in without] if without else None


def _batch_rows(rows: pa.Table, encoding: Encoding) -> int | None:
    """The rows of a single column that are encoded together, None for Arrow's default. Arrow looks up the bounds of a dictionary
    once for each batch. If it does not overflow, a page has indexes only, so a batch is never larger than a page may be."""
    if rows.num_columns != 1 or not pa.types.is_dictionary(rows.schema.field(0).type):
        return None
    return None if _overflows(rows.column(0), encoding) else encoding.page_row_limit


def metrics_of_parts(
    footer: Any, table: Struct, parts: Sequence[tuple[Struct, MetricsBuilder]]
) -> OutputMetrics:
    """Returns the metrics of a file. Each part of its columns has its own builder."""
    numbers = {c.field_id: n for n, c in enumerate(table.columns)}
    leaves = list(enumerate(leaves_of(table)))
    of_parts = []
    for part, builder in parts:
        own = {numbers[c.field_id] for c in part.columns}
        indexes = [i for i, leaf in leaves if leaf.steps[0] in own]
        of_parts.append(builder.of_footer(_Projected(footer, indexes)))
    return OutputMetrics(
        _merged(m.column_sizes for m in of_parts),
        _merged(m.value_counts for m in of_parts),
        _merged(m.null_value_counts for m in of_parts),
        _merged(m.nan_value_counts for m in of_parts),
        _merged(m.lower_bounds for m in of_parts),
        _merged(m.upper_bounds for m in of_parts),
        split_offsets([footer.row_group(i) for i in range(footer.num_row_groups)]),
    )


def _merged(parts: Iterable[Mapping[int, V]]) -> dict[int, V]:
    return {key: value for part in parts for key, value in part.items()}


@dataclass(frozen=True, slots=True)
class _Projected:
    """Parquet metadata with some of the columns."""

    footer: Any
    indexes: Sequence[int]

    @property
    def num_row_groups(self) -> int:
        return int(self.footer.num_row_groups)

    def row_group(self, number: int) -> _ProjectedGroup:
        return _ProjectedGroup(self.footer.row_group(number), self.indexes)


@dataclass(frozen=True, slots=True)
class _ProjectedGroup:
    group: Any
    indexes: Sequence[int]

    def column(self, number: int) -> Any:
        return self.group.column(self.indexes[number])
