"""Encodes the columns of a splice that are not copied, one at a time: decodes a column of all inputs, encodes it,
compares it with the decoded rows, and frees it before the next one.

So a task holds one decoded column. New memory costs a worker as much CPU as decoding into it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_maint.columnar.check.file_proof import Comparison
from iceberg_maint.columnar.check.metrics import MetricsBuilder, split_offsets
from iceberg_maint.columnar.encode import open_writer, sampled_dictionaries, write_group
from iceberg_maint.columnar.parquet.file_range import FileRange
from iceberg_maint.columnar.parquet.parquet_metadata import MetadataError, ParquetBytes
from iceberg_maint.columnar.read.decimals import integer_decimals
from iceberg_maint.columnar.read.decode import DecodedFile, Decoder
from iceberg_maint.columnar.read.leaves import Statistics, leaves_of
from iceberg_maint.columnar.read.schema import Column, Struct
from iceberg_maint.columnar.read.source import source_dictionaries
from iceberg_maint.columnar.storage import Storage
from iceberg_maint.columnar.task import FULL_PROOF, Encoding, InputFile, OutputMetrics, RewriteTask

V = TypeVar("V")


class SpliceEncoder:
    """Encodes the columns `rest`, a row group at a time. `data` has the inputs by their paths."""

    def __init__(
        self, task: RewriteTask, storage: Storage, rest: Struct, data: Mapping[str, FileRange]
    ) -> None:
        self._data = data
        found = source_dictionaries(lambda f: data[f.path], task, rest)
        self._decoder = Decoder(storage, rest, task.name_mapping, dictionaries=found.strings, integers=True)
        self._columns = [_ColumnEncoder(task, c, found.by_field) for c in rest.columns]

    def encoded(self, files: Sequence[InputFile]) -> list[ParquetBytes]:
        """Returns a Parquet file with one row group in memory for each column. Raises MetadataError if its rows or its
        statistics are not those of the files."""
        opened = [self._decoder.opened(f, self._data[f.path].hold()) for f in files]
        return [c.encoded(self._rows(opened, n)) for n, c in enumerate(self._columns)]

    def _rows(self, files: Sequence[DecodedFile], number: int) -> pa.Table:
        # A dictionary that changes within a row group ends its use.
        return pa.concat_tables([self._decoder.live_column(f, number) for f in files]).unify_dictionaries()

    @property
    def totals(self) -> dict[int, list[Statistics]]:
        """The statistics of the rows of each row group by field id."""
        return {key: found for c in self._columns for key, found in c.totals.items()}

    @property
    def metrics(self) -> list[tuple[Struct, MetricsBuilder]]:
        """What the footer will lack, for each column."""
        return [(c.table, c.metrics) for c in self._columns]


class _ColumnEncoder:
    def __init__(self, task: RewriteTask, column: Column, of_source: dict[int, bool]) -> None:
        self._task, self._of_source = task, of_source
        self.table = Struct((column,))
        self._decimals = integer_decimals(self.table)
        self._dictionaries: set[str] | None = None
        self.metrics = MetricsBuilder(self.table, task.metrics_modes)
        self.totals: dict[int, list[Statistics]] = {}

    def encoded(self, rows: pa.Table) -> ParquetBytes:
        task = self._task
        if self._dictionaries is None:
            self._dictionaries = sampled_dictionaries(rows, self.table, self._of_source, task.encoding)
        sink = pa.BufferOutputStream()
        with open_writer(
            sink,
            rows.schema,
            task.schema,
            task.encoding,
            self._dictionaries,
            self._decimals,
            _batch_rows(rows.column(0), task.encoding),
        ) as writer:
            write_group(writer, rows)
        self.metrics.add(rows)
        contents = sink.getvalue()
        footer = pq.read_metadata(pa.BufferReader(contents))
        starts = OutputMetrics(split_offsets=split_offsets([footer.row_group(0)]))
        comparison = Comparison(self.table, contents, starts, task.metrics_modes)
        problem = comparison.footer_difference(rows.num_rows)
        if task.proof == FULL_PROOF:
            problem = problem or comparison.value_difference(0, rows)
        if problem := problem or comparison.statistics_difference(0, rows):
            raise MetadataError(problem)
        for key, statistics in comparison.totals.items():
            self.totals.setdefault(key, []).extend(statistics)
        return comparison.parsed


def _batch_rows(column: pa.ChunkedArray, encoding: Encoding) -> int | None:
    """The rows that are encoded together. Arrow looks up the bounds of a dictionary once for each batch. If the dictionary
    does not overflow, a page has indexes only, so a batch is never larger than a page may be."""
    if not pa.types.is_dictionary(column.type) or not column.num_chunks:
        return None
    fits = column.chunk(0).dictionary.nbytes <= encoding.dictionary_bytes
    return encoding.page_row_limit if fits else None


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
