"""Rewrites a task by page splice, where that is possible: copies the pages of plain columns, encodes the other columns.

The encoded columns are compared with the decoded input, as in every rewrite. The output, read back from storage, must
have their bytes and the bytes of the copied pages (`splice_check`). The statistics of a copied column are the merged
ones of its inputs. The copied columns of the output are decoded, and the statistics of footer, manifest and page index
are compared with the rows (`splice_statistics`). Float columns are always encoded, because the manifest needs their NaN counts. If
anything is unexpected, the output is deleted and all columns are encoded.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_maint.columnar.decode import Decoder
from iceberg_maint.columnar.encode import open_writer, sampled_dictionaries, write_group
from iceberg_maint.columnar.leaves import FLOATS
from iceberg_maint.columnar.metrics import MetricsBuilder, split_offsets
from iceberg_maint.columnar.parquet_metadata import MetadataError, ParquetBytes
from iceberg_maint.columnar.proof import Comparison
from iceberg_maint.columnar.schema import Column, Primitive, Struct, arrow_schema, table_schema
from iceberg_maint.columnar.source import source_dictionaries
from iceberg_maint.columnar.splice import Part, SpliceWriter, template
from iceberg_maint.columnar.splice_check import difference
from iceberg_maint.columnar.splice_rules import CODECS, spliceable
from iceberg_maint.columnar.splice_statistics import statistics_difference
from iceberg_maint.columnar.storage import Storage
from iceberg_maint.columnar.task import FULL_PROOF, OutputMetrics, RewriteProof, RewriteResult, RewriteTask

_MEAN_FILE_BYTES = 200 * 1024
"""Below this mean, parsing the page indexes costs more than encoding saves."""
_SHARE = 0.3
"""The least share of the input's bytes that is copied."""
_HELD_PER_BYTE = 8
"""Memory per input byte: the inputs, the decoded columns, their encoding and the output."""
_LARGEST_GROUP = 1.5
"""The largest row group of the output, as a multiple of the row group size: parts end with a file."""


def spliced_result(task: RewriteTask) -> RewriteResult | None:
    """Returns the result of a task whose output has copied pages. None: the task does not qualify or the output is not
    as expected; then there is no output file, and all columns must be encoded."""
    size = sum(f.size_bytes for f in task.inputs)
    if (
        any(f.deletes for f in task.inputs)
        or size < _MEAN_FILE_BYTES * max(1, len(task.inputs))
        or size * _HELD_PER_BYTE > task.memory_limit_bytes
        or task.encoding.codec.lower() not in CODECS
    ):
        return None
    run = _Splice(task)
    try:
        result = run.result()
    except MetadataError:
        result = None
    finally:
        # Also on an error: the caller writes to the same location.
        if run.created and not run.complete:
            with suppress(OSError):
                run.storage.delete(task.output_path)
    return result


class _Splice:
    def __init__(self, task: RewriteTask) -> None:
        self.task = task
        self.storage = Storage(task.io)
        self.created = self.complete = False
        self._table = table_schema(task.schema, lineage=task.keep_row_lineage)
        self._contents: dict[str, pa.Buffer] = {}

    def result(self) -> RewriteResult | None:
        start = time.thread_time()
        form = template(arrow_schema(self._table))
        sources: list[ParquetBytes] = []
        for file in self.task.inputs:
            self._contents[file.path] = self.storage.read(file.path)
            source = ParquetBytes.of(self._contents[file.path])
            # Files of one writer are alike: without such a column in the first, the others are not read.
            if source.rows != file.record_count or not (sources or self._spliced([source], form)):
                return None
            sources.append(source)
        spliced = self._spliced(sources, form)
        groups = self._groups(sources)
        if not spliced or groups is None:
            return None
        rest = Struct(tuple(c for c in self._table.columns if c.field_id not in spliced))
        encoded = self._encoded(rest, groups) if rest.columns else None
        if encoded is not None and encoded.difference:
            return None
        others = None if encoded is None else ParquetBytes.of(encoded.contents)
        parts = [Part([sources[i] for i in g], others, n) for n, g in enumerate(groups)]
        with self.storage.create(self.task.output_path) as stream:
            self.created = True
            writer = SpliceWriter(stream, form, spliced, {"iceberg.schema": self.task.schema})
            for part in parts:
                writer.write(part)
            writer.close()
        output = self.storage.read(self.task.output_path)
        if difference(output, form, parts, spliced):
            return None
        metrics = self._metrics(output, form, spliced, encoded)
        tables = () if encoded is None else encoded.tables
        if statistics_difference(output, self._table, spliced, tables, metrics, self.task.metrics_modes):
            return None
        self.complete = True
        rows = sum(p.rows for p in parts)
        return RewriteResult(
            path=self.task.output_path,
            size_bytes=len(output),
            record_count=rows,
            sort_order_id=self.task.sort_order_id,
            metrics=metrics,
            proof=RewriteProof(self.task.proof, rows, 0, rows, len(self._table.columns)),
            cpu_seconds={"splice": time.thread_time() - start},
            spliced=tuple(sorted(spliced)),
        )

    def _spliced(self, sources: Sequence[ParquetBytes], form: ParquetBytes) -> frozenset[int]:
        """The field ids of the columns to splice, none if too few bytes could be copied."""
        codec = CODECS[self.task.encoding.codec.lower()]
        columns = {c.field_id: c for c in self._table.columns}
        chosen = {
            leaf.field_id: leaf
            for leaf in form.leaves.values()
            if leaf.field_id is not None
            and _may_splice(columns[leaf.field_id])
            and not spliceable(sources, leaf, codec)
        }
        copied = sum(
            s.chunk(g, s.leaf_by_id[i]).size
            for s in sources
            for g in range(len(s.row_groups))
            for i in chosen
        )
        total = sum(len(s.data) for s in sources)
        return frozenset(chosen) if copied >= _SHARE * total else frozenset()

    def _groups(self, sources: Sequence[ParquetBytes]) -> list[list[int]] | None:
        """The indexes of the inputs of each row group. None: a row group would be too large."""
        limit = self.task.encoding.row_group_bytes
        total = sum(len(s.data) for s in sources)
        share = total / max(1, -(-total // limit))
        groups: list[list[int]] = []
        taken = share
        for index, source in enumerate(sources):
            if not source.rows:
                continue
            if taken >= share:
                groups.append([])
                taken = 0
            groups[-1].append(index)
            taken += len(source.data)
        largest = max((sum(len(sources[i].data) for i in g) for g in groups), default=0)
        return groups if groups and largest <= _LARGEST_GROUP * limit else None

    def _encoded(self, rest: Struct, groups: Sequence[Sequence[int]]) -> _Encoded:
        """Encodes the columns that are not spliced, and compares them with the decoded rows."""
        task = self.task
        of_source = source_dictionaries(lambda f: self._contents[f.path], task, rest)
        decoder = Decoder(self.storage, rest, task.name_mapping, dictionaries=of_source.strings)
        # One dictionary per column for all row groups: a dictionary that changes within a row group ends its use.
        of_file = [decoder.table_of(f, self._contents[f.path])[0] for f in task.inputs]
        tables = [pa.concat_tables([of_file[i] for i in g]).unify_dictionaries() for g in groups]
        metrics = MetricsBuilder(rest, task.metrics_modes)
        chosen = sampled_dictionaries(tables[0], rest, of_source.by_field)
        sink = pa.BufferOutputStream()
        with open_writer(sink, tables[0].schema, task.schema, task.encoding, chosen) as writer:
            for table in tables:
                write_group(writer, table)
                metrics.add(table)
        contents = sink.getvalue()
        of_columns = metrics.of_footer(pq.read_metadata(pa.BufferReader(contents)))
        comparison = Comparison(rest, contents, of_columns, task.metrics_modes)
        problem = comparison.footer_difference(sum(t.num_rows for t in tables))
        for number, table in enumerate(tables):
            if task.proof == FULL_PROOF:
                problem = problem or comparison.value_difference(number, table)
        return _Encoded(contents, of_columns, tables, problem)

    def _metrics(
        self, output: pa.Buffer, form: ParquetBytes, spliced: frozenset[int], encoded: _Encoded | None
    ) -> OutputMetrics:
        footer = pq.read_metadata(pa.BufferReader(output))
        copied = Struct(tuple(c for c in self._table.columns if c.field_id in spliced))
        indexes = [form.leaf_by_id[c.field_id] for c in copied.columns]
        found = MetricsBuilder(copied, self.task.metrics_modes).of_footer(_Projected(footer, indexes))
        other = OutputMetrics() if encoded is None else encoded.metrics
        return OutputMetrics(
            {**other.column_sizes, **found.column_sizes},
            {**other.value_counts, **found.value_counts},
            {**other.null_value_counts, **found.null_value_counts},
            dict(other.nan_value_counts),
            {**other.lower_bounds, **found.lower_bounds},
            {**other.upper_bounds, **found.upper_bounds},
            split_offsets([footer.row_group(i) for i in range(footer.num_row_groups)]),
        )


@dataclass(frozen=True, slots=True)
class _Encoded:
    """A Parquet file in memory with the encoded columns. `tables` are the decoded rows of its row groups. `difference`
    is "" if its rows are these."""

    contents: pa.Buffer
    metrics: OutputMetrics
    tables: Sequence[pa.Table]
    difference: str


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


def _may_splice(column: Column) -> bool:
    # Arrow reads columns by path, where a dot separates names.
    return isinstance(column.kind, Primitive) and column.kind.base not in FLOATS and "." not in column.name
