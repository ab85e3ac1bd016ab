"""Rewrites a task by page splice, where that is possible: copies the pages of plain columns, encodes the other columns. Files
of one large row group keep it: the chunks of all columns are copied with their dictionaries.

The encoded columns are compared with the decoded input, as in every rewrite. The output, read back from storage, must
have their bytes and the bytes of the copied pages (`splice_check`). The statistics of a copied column are the merged
ones of its inputs, and for floats those of the rows, with the number of NaN. The copied columns of the output are decoded,
and the statistics of footer, manifest and page index are compared with the rows. Row lineage is always encoded, because its
nulls stand for values. If anything is unexpected, the output is deleted and all columns are encoded.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress

import pyarrow.parquet as pq

from iceberg_maint.columnar.check.metrics import MetricsBuilder
from iceberg_maint.columnar.clock import Clock
from iceberg_maint.columnar.encode import SpliceEncoder, metrics_of_parts
from iceberg_maint.columnar.parquet.parquet_metadata import MetadataError, ParquetBytes, get
from iceberg_maint.columnar.read.leaves import sum_of
from iceberg_maint.columnar.read.schema import (
    LINEAGE,
    Column,
    Primitive,
    Struct,
    arrow_schema,
    table_schema,
    written_schema,
)
from iceberg_maint.columnar.splice.splice_check import difference, page_statistics, statistics_difference
from iceberg_maint.columnar.splice.splice_file import Part, SpliceWriter, template
from iceberg_maint.columnar.splice.splice_rules import CODECS, MIN_ROWS_PER_PAGE, needed_bytes, spliceable
from iceberg_maint.columnar.storage import FileRange, Storage, arrow_file, digest_of
from iceberg_maint.columnar.task import OutputMetrics, RewriteProof, RewriteResult, RewriteTask

_MEAN_FILE_BYTES = 200 * 1024
"""Below this mean, parsing the page indexes costs more than encoding saves."""
_SHARE = 0.3
"""The least share of the input's bytes that is copied."""
_MEMORY_PER_BYTE = 6
"""Memory per input byte: the inputs, one decoded column, the encoded columns and the output (measured: 5.5). If all inputs need more than
the task has, a row group is held at a time, and the encoded columns of all."""
_LARGEST_GROUP = 1.5
"""The largest row group of the output, as a multiple of the row group size: parts end with a file."""
LEAST_GROUP_BYTES = 8 * 1024 * 1024
"""A file of one row group from this size on stays a row group, if it has no more columns than `_COLUMNS` for these bytes. Then
its chunks are copied with their dictionaries. Readers pay for each chunk (`bench.columnar.row_groups`)."""
_COLUMNS = 16


def spliced_result(task: RewriteTask) -> RewriteResult | None:
    """Returns the result of a task whose output has copied pages. None: the task does not qualify or the output is not
    as expected; then there is no output file, and all columns must be encoded."""
    size = sum(f.size_bytes for f in task.inputs)
    rows = sum(f.record_count for f in task.inputs)
    # A file has a page at least.
    has_small_pages = rows < MIN_ROWS_PER_PAGE * len(task.inputs)
    if (
        any(f.has_deletes for f in task.inputs)
        or size < _MEAN_FILE_BYTES * max(1, len(task.inputs))
        or (has_small_pages and any(f.size_bytes < LEAST_GROUP_BYTES for f in task.inputs if f.record_count))
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
        self._holds = sum(f.size_bytes for f in task.inputs) * _MEMORY_PER_BYTE <= task.memory_limit_bytes
        self._data: dict[str, FileRange] = {}
        self._sources: list[ParquetBytes] = []

    def result(self) -> RewriteResult | None:
        clock = Clock()
        form = template(arrow_schema(self._table))
        with clock.phase("read"):
            if not self._read_sources(form):
                return None
            spliced, groups = self._plan(form)
        if not spliced or groups is None:
            return None
        rest = Struct(tuple(c for c in self._table.columns if c.field_id not in spliced))
        encoder = SpliceEncoder(self.task, rest, self._data, clock) if rest.columns else None
        parts: list[Part] = []
        with self.storage.create(self.task.output_path) as stream:
            self.created = True
            schema = written_schema(self.task.schema, lineage=self.task.keep_row_lineage)
            writer = SpliceWriter(stream, form, spliced, {"iceberg.schema": schema})
            for group in groups:
                for index in group:
                    self._data[self.task.inputs[index].path].hold()
                others = encoder.encoded([self.task.inputs[i] for i in group]) if encoder else []
                parts.append(Part([self._sources[i] for i in group], others))
                with clock.phase("copy"):
                    writer.write(parts[-1])
                if not self._holds:
                    for index in group:
                        self._data[self.task.inputs[index].path].release()
            writer.close()
            size = writer.size_bytes
        output = FileRange(self.storage, self.task.output_path, size, hold=self._holds)
        with clock.phase("proof"):
            if difference(output, form, parts, spliced):
                return None
            metrics = self._proved_metrics(output, spliced, encoder)
            digest = digest_of(output.chunks())
        if metrics is None:
            return None
        self.complete = True
        rows = sum(p.rows for p in parts)
        return RewriteResult(
            path=self.task.output_path,
            size_bytes=len(output),
            record_count=rows,
            sort_order_id=self.task.sort_order_id,
            metrics=metrics,
            proof=RewriteProof(self.task.proof, rows, 0, rows),
            cpu_seconds=clock.seconds,
            spliced=tuple(sorted(spliced)),
            digest=digest,
        )

    def _proved_metrics(
        self, output: FileRange, spliced: frozenset[int], encoder: SpliceEncoder | None
    ) -> OutputMetrics | None:
        """The metrics of the output. None: a statistic is not that of the rows."""
        pages = page_statistics(output, self._table, spliced)
        copied = Struct(tuple(c for c in self._table.columns if c.field_id in spliced))
        builder = MetricsBuilder(copied, self.task.metrics_modes)
        builder.add_floats({key: [sum_of(p) for p in groups] for key, groups in pages.items()})
        builders = [(copied, builder), *(encoder.metrics if encoder else [])]
        metrics = metrics_of_parts(pq.read_metadata(arrow_file(output)), self._table, builders)
        totals = encoder.totals if encoder else {}
        problem = statistics_difference(output, self._table, pages, totals, metrics, self.task.metrics_modes)
        return None if problem else metrics

    def _read_sources(self, form: ParquetBytes) -> bool:
        """Reads the footers of the inputs, with the contents if all of them fit the memory. Returns whether the inputs
        qualify."""
        for file in self.task.inputs:
            data = FileRange(self.storage, file.path, file.size_bytes, hold=self._holds)
            source = ParquetBytes.of(data)
            if source.rows != file.record_count:
                return False
            # Files of one writer are alike: without such a column in the first with rows, the others are not read.
            is_first = source.rows and not any(s.rows for s in self._sources)
            if is_first and not self._spliced([source], form, alone=_is_large_group(source)):
                return False
            self._data[file.path] = data
            self._sources.append(source)
        return True

    def _plan(self, form: ParquetBytes) -> tuple[frozenset[int], list[list[int]] | None]:
        """The field ids of the columns to splice, and the indexes of the inputs of each row group."""
        if all(_is_large_group(s) for s in self._sources if s.rows):
            spliced = self._spliced(self._sources, form, alone=True)
            groups = self._groups(spliced, alone=True)
            if spliced and groups is not None:
                return spliced, groups
        spliced = self._spliced(self._sources, form, alone=False)
        return spliced, self._groups(spliced, alone=False)

    def _spliced(self, sources: Sequence[ParquetBytes], form: ParquetBytes, *, alone: bool) -> frozenset[int]:
        """The field ids of the columns to splice, none if too few bytes could be copied. `alone`: each row group stays
        one."""
        codec = CODECS[self.task.encoding.codec.lower()]
        sources = [s for s in sources if s.rows]
        # The value of these columns is that of the manifest, whatever the pages hold.
        partitioned = frozenset(i for f in self.task.inputs for i in f.constants)
        columns = {c.field_id: c for c in self._table.columns if c.field_id not in partitioned}
        chosen = {
            leaf.field_id: leaf
            for leaf in form.leaves.values()
            if leaf.field_id in columns
            and _may_splice(columns[leaf.field_id])
            and not spliceable(sources, leaf, codec, alone=alone)
        }
        copied = sum(
            s.chunk(g, s.leaf_by_id[i]).size
            for s in sources
            for g in range(len(s.row_groups))
            for i in chosen
        )
        total = sum(len(s.data) for s in sources)
        return frozenset(chosen) if copied >= _SHARE * total else frozenset()

    def _groups(self, spliced: frozenset[int], *, alone: bool) -> list[list[int]] | None:
        """The indexes of the inputs of each row group, one each with `alone`. None: a row group would be too large for the
        table or for the memory."""
        sizes = [len(s.data) if s.rows else 0 for s in self._sources]
        memory = self.task.memory_limit_bytes
        limit = self.task.encoding.row_group_bytes
        if not self._holds:
            limit = min(limit, memory // (_MEMORY_PER_BYTE + 1))
        total = sum(sizes)
        share = total / max(1, -(-total // limit))
        groups: list[list[int]] = []
        taken = share
        for index, size in enumerate(sizes):
            if not size:
                continue
            if alone or taken >= share or (not self._holds and taken + size > limit):
                groups.append([])
                taken = 0
            groups[-1].append(index)
            taken += size
        largest = max((sum(sizes[i] for i in g) for g in groups), default=0)
        if not groups or largest > _LARGEST_GROUP * limit:
            return None
        if max(needed_bytes([self._sources[i] for i in g], spliced) for g in groups) > memory:
            return None
        if not self._holds and largest * _MEMORY_PER_BYTE + total - self._copied_bytes(spliced) > memory:
            return None
        return groups

    def _copied_bytes(self, spliced: Collection[int]) -> int:
        return sum(
            s.chunk(g, s.leaf_by_id[i]).size
            for s in self._sources
            for g in range(len(s.row_groups))
            for i in spliced
        )


def _is_large_group(source: ParquetBytes) -> bool:
    """Whether a file has one row group, and chunks that are large enough for readers."""
    groups = [get(g, 1)[1] for g in source.row_groups if get(g, 3)]
    return len(groups) == 1 and len(source.data) >= LEAST_GROUP_BYTES * max(1, len(groups[0]) / _COLUMNS)


def _may_splice(column: Column) -> bool:
    # A null of row lineage stands for a value that follows from its file. In the output it would have another one.
    if column in LINEAGE:
        return False
    # Arrow reads columns by path, where a dot separates names.
    return isinstance(column.kind, Primitive) and "." not in column.name
