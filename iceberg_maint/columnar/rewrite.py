"""Runs a task of the columnar engine: decodes and filters row groups, encodes them, and compares what was encoded with the rows.

In table mode the output, read back from storage, is compared. In streaming mode a row group is encoded in memory, compared, and
copied; the output, read back, must have the bytes that were copied. A second thread decodes and compares. In both modes the metrics
of the manifest are compared with those of all rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_maint.columnar.check.file_proof import manifest_difference
from iceberg_maint.columnar.clock import Clock
from iceberg_maint.columnar.encode import SCHEMA_KEY, GroupEncoder
from iceberg_maint.columnar.parquet.parquet_metadata import MetadataError, ParquetBytes
from iceberg_maint.columnar.read.schema import arrow_schema, table_schema, written_schema
from iceberg_maint.columnar.read.source import check_decoded_size
from iceberg_maint.columnar.row_groups import RowGroups, ShortOfMemoryError
from iceberg_maint.columnar.splice.page_splice import spliced_result
from iceberg_maint.columnar.splice.splice_check import copy_difference
from iceberg_maint.columnar.splice.splice_file import EncodedGroup, Part, SpliceWriter, template
from iceberg_maint.columnar.storage import (
    FileRange,
    Storage,
    arrow_file,
    digest_of,
    is_shortage,
    raise_shortage,
)
from iceberg_maint.columnar.task import OutputMetrics, RewriteProof, RewriteResult, RewriteTask

_SHARE_AFTER_SHORTAGE = 4
"""A task that ran out of memory is tried again with its memory divided by this."""


def rewrite(task: RewriteTask, most_decoded_bytes: int | None = None) -> RewriteResult:
    """Writes the output file of a task and proves it. Commits nothing.

    If the rows fit `memory_limit_bytes`, they are decoded together (table mode). Otherwise one row group is held at a time
    (streaming mode). If the process has no memory for that, the task runs once more, in streaming mode with less. Raises
    UnsupportedColumnError, WrongInputError if an input does not hold what the task states, MemoryError if the
    second run has no memory either. An output file that is left behind by an error is deleted.

    With `most_decoded_bytes`, raises DecodedSizeError before it decodes if the rows may take more, MetadataError for a
    damaged footer. Then all inputs are read at once, so they must be small.
    """
    contents: dict[str, pa.Buffer] = {}
    if most_decoded_bytes is not None:
        storage, table = Storage(task.io), table_schema(task.schema, lineage=task.keep_row_lineage)
        contents = {f.path: storage.read(f.path) for f in task.inputs}
        check_decoded_size(((f, contents[f.path]) for f in task.inputs), table, most_decoded_bytes)
    try:
        if task.splice and (spliced := spliced_result(task)) is not None:
            return spliced
        with suppress(ShortOfMemoryError):
            return _result(task, contents)
        contents.clear()
        return _result(task, None)
    except (MemoryError, RuntimeError, pa.ArrowException, OSError) as why:
        if not is_shortage(why):
            raise
    # Here the error is freed, and with it the frames that hold the rows.
    pa.default_memory_pool().release_unused()
    limit = task.memory_limit_bytes // _SHARE_AFTER_SHORTAGE
    try:
        return _result(replace(task, memory_limit_bytes=limit), None)
    except (RuntimeError, pa.ArrowException, OSError) as why:
        raise_shortage(why)
        raise


def _result(task: RewriteTask, contents: Mapping[str, pa.Buffer] | None) -> RewriteResult:
    """The result of table mode, or of streaming mode without `contents`, those of inputs that were read before."""
    run = _Run(task)
    try:
        return run.result(contents)
    except BaseException:
        if run.created:
            with suppress(OSError):
                run.storage.delete(task.output_path)
        raise


class _Digested:
    """A stream, and the digest of what was written to it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()

    def write(self, data: bytes | memoryview) -> None:
        self.digest.update(data)
        self._stream.write(data)


class _Run:
    """One try of a task."""

    def __init__(self, task: RewriteTask) -> None:
        self.task = task
        self.storage = Storage(task.io)
        self.created = False
        self._table = table_schema(task.schema, lineage=task.keep_row_lineage)
        self._clock = Clock()
        self._rows = 0

    def result(self, contents: Mapping[str, pa.Buffer] | None) -> RewriteResult:
        """Raises ShortOfMemoryError in table mode."""
        task = self.task
        source = RowGroups(task, self._table, self._clock, contents)
        encoder = GroupEncoder(task, self._table, source.repeating, self._clock)
        metrics, difference, digest = OutputMetrics(), "", ""
        try:
            output = self._copied(encoder, source) if contents is None else self._written(encoder, source)
            if output is not None:
                metrics, digest = self._metrics(encoder, output[0]), output[1]
        except MetadataError as why:
            difference, digest = str(why), digest_of(())
        rows, rows_in = self._rows, sum(f.record_count for f in task.inputs)
        if not difference and rows + source.deleted != rows_in:
            difference = f"{rows_in} rows were read, {source.deleted} are deleted and {rows} were written"
        return RewriteResult(
            path=task.output_path if rows else "",
            size_bytes=self.storage.size_bytes(task.output_path) if self.created else 0,
            record_count=rows,
            sort_order_id=task.sort_order_id,
            metrics=metrics,
            proof=RewriteProof(task.proof, rows_in, source.deleted, rows, difference),
            streamed=contents is None,
            cpu_seconds=self._clock.seconds,
            digest=digest,
        )

    def _written(self, encoder: GroupEncoder, source: RowGroups) -> tuple[FileRange, str] | None:
        """Encodes the row groups together, and compares the output with them. Returns it with its digest. None: there is no row,
        and no file."""
        if not (groups := source.together()):
            return None
        self._rows = sum(g.num_rows for g in groups)
        with self.storage.create(self.task.output_path) as stream:
            self.created = True
            encoder.write(groups, stream)
        with self._clock.phase("read"):
            output = FileRange(self.storage, self.task.output_path, 0, hold=True)
        encoder.compared(groups, output.hold())
        with self._clock.phase("proof"):
            return output, digest_of(output.chunks())

    def _copied(self, encoder: GroupEncoder, source: RowGroups) -> tuple[FileRange, str] | None:
        """Encodes each row group in memory, compares it and copies it, then compares the output with the copies. Returns it with its
        digest. None: there is no row, and no file."""
        form, copies = template(arrow_schema(self._table)), list[EncodedGroup]()
        schema = written_schema(self.task.schema, lineage=self.task.keep_row_lineage)
        with ThreadPoolExecutor(1) as thread, ExitStack() as stack:
            writer: SpliceWriter | None = None
            for part in self._parts(encoder, source, thread):
                if writer is None:
                    sink = _Digested(stack.enter_context(self.storage.create(self.task.output_path)))
                    self.created = True
                    writer = SpliceWriter(sink, form, (), {SCHEMA_KEY: schema})
                with self._clock.phase("copy"):
                    writer.write(part)
                copies.append(EncodedGroup.of(part))
                del part
            if writer is None:
                return None
            writer.close()
        size = self.storage.size_bytes(self.task.output_path)
        output = FileRange(self.storage, self.task.output_path, size, hold=False)
        with self._clock.phase("proof"):
            if (digest := digest_of(output.chunks())) != sink.digest.hexdigest():
                raise MetadataError("the output on storage has other bytes than were written")
            if problem := copy_difference(output, form, copies):
                raise MetadataError(problem)
        return output, digest

    def _parts(self, encoder: GroupEncoder, source: RowGroups, thread: Executor) -> Iterator[Part]:
        """The encoded row groups. `thread` decodes the next one and compares the last one while this one is encoded."""
        compared: Future[ParquetBytes] | None = None
        for group in source.one_by_one(thread):
            self._rows += group.num_rows
            sink = pa.BufferOutputStream()
            encoder.write([group], sink)
            if compared is not None:
                yield Part((), [compared.result()])
            compared = thread.submit(encoder.compared, [group], sink.getvalue())
            # They are needed no longer.
            del group, sink
        if compared is not None:
            yield Part((), [compared.result()])

    def _metrics(self, encoder: GroupEncoder, output: FileRange) -> OutputMetrics:
        """The metrics of the output, compared with all rows."""
        with self._clock.phase("metrics"):
            metrics = encoder.metrics.of_footer(pq.read_metadata(arrow_file(output)))
        with self._clock.phase("proof"):
            problem = manifest_difference(self._table, encoder.totals, metrics, self.task.metrics_modes)
        if problem:
            raise MetadataError(problem)
        return metrics
