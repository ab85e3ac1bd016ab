"""Runs a task of the columnar engine: read, decode, filter, encode, prove."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_maint.columnar.check.file_proof import Comparison
from iceberg_maint.columnar.check.metrics import MetricsBuilder
from iceberg_maint.columnar.encode import SCHEMA_KEY, open_writer, sampled_dictionaries, write_group
from iceberg_maint.columnar.read.decimals import integer_decimals
from iceberg_maint.columnar.read.decode import DecodedFile, Decoder
from iceberg_maint.columnar.read.leaves import compacted, leaves_of
from iceberg_maint.columnar.read.schema import Struct, table_schema, written_schema
from iceberg_maint.columnar.read.source import check_decoded_size, source_dictionaries
from iceberg_maint.columnar.splice.page_splice import spliced_result
from iceberg_maint.columnar.storage import (
    FileRange,
    Storage,
    arrow_file,
    digest_of,
    is_shortage,
    raise_shortage,
)
from iceberg_maint.columnar.task import (
    FULL_PROOF,
    InputFile,
    OutputMetrics,
    RewriteProof,
    RewriteResult,
    RewriteTask,
)

_DECODED_PER_BYTE = 6
"""Decoded bytes per compressed byte, before a file is decoded."""
_DECODED_COPIES = 1.5
"""The decoded rows, and a row group of them that is read again."""
_GROUPS_IN_MEMORY, _ROWS_IN_MEMORY = 6, 24
"""In streaming mode, the decoded row groups, and the parts of large files, for which a task has memory (measured: a row group takes five
times its bytes while it is proved). A larger row is refused in both modes: it is in memory a dozen times."""
_CHUNK_ROWS = 65_536
_CHUNK_BYTES, _COLUMN_BYTES = 4 * 1024 * 1024, 16 * 1024
"""Rows, and bytes of files or mean bytes of a column if these are more, that are copied into one table."""
_OWN_ROWS = 16_384
"""A file with at least this many rows is a table of its own: to copy its rows costs more than a copy saves."""
_MOST_GROUP_ROWS = 64 * 1024 * 1024
_VALUE_BYTES = 8
"""The least decoded bytes of a value, for most types."""
_READS_IN_MEMORY = 8
"""In streaming mode, the parts of all columns that are read together take the memory of a row group divided by this."""
_LEAST_READ_BYTES, _MOST_READ_BYTES = 64 * 1024, 8 * 1024 * 1024
_SHARE_AFTER_SHORTAGE = 4
"""A task that ran out of memory is tried again with its memory divided by this."""
_NOT_READ: Mapping[str, pa.Buffer] = {}


@dataclass(slots=True)
class _Clock:
    """CPU seconds by phase."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = time.thread_time()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.thread_time() - start


class _ShortOfMemoryError(Exception):
    """The decoded rows do not fit the memory of the task."""


def rewrite(task: RewriteTask, most_decoded_bytes: int | None = None) -> RewriteResult:
    """Writes the output file of a task and proves it. Commits nothing.

    If the rows fit `memory_limit_bytes`, they are decoded once (table mode). Otherwise one row group is held at a time
    and the proof decodes the input again (streaming mode). If the process has no memory for that, the task runs once
    more, in streaming mode with less. Raises UnsupportedColumnError before it writes, WrongInputError if an input does
    not hold what the task states, MemoryError if the second run has no memory either. An output file that is left
    behind by an error is deleted.

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
        return _result(task, contents)
    except (MemoryError, pa.ArrowException, OSError) as why:
        if not is_shortage(why):
            raise
    # Here the error is freed, and with it the frames that hold the rows.
    pa.default_memory_pool().release_unused()
    limit = task.memory_limit_bytes // _SHARE_AFTER_SHORTAGE
    try:
        return _result(replace(task, memory_limit_bytes=limit), streamed=True)
    except (pa.ArrowException, OSError) as why:
        raise_shortage(why)
        raise


def _result(
    task: RewriteTask, contents: Mapping[str, pa.Buffer] = _NOT_READ, *, streamed: bool = False
) -> RewriteResult:
    """The result of table mode, or of streaming mode if it is asked for or the rows do not fit. `contents` are those of
    inputs that were read before."""
    run = _Run(task, contents)
    try:
        if not streamed:
            with suppress(_ShortOfMemoryError):
                return run.result(streamed=False)
        return run.result(streamed=True)
    except BaseException:
        if run.created:
            with suppress(OSError):
                run.storage.delete(task.output_path)
        raise


class _Tables:
    """Decoded files in their order. Consecutive small ones are copied into one table, because each chunk of each column
    costs a call."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._small: list[DecodedFile] = []
        self._small_rows = self._small_bytes = 0
        self._most_bytes = max(_CHUNK_BYTES, _COLUMN_BYTES * len(leaves_of(decoder.table)))
        self._part_bytes = self._read_bytes = 0
        self.parts: list[pa.Table] = []
        self.deleted = 0

    def add(self, file: DecodedFile) -> None:
        is_small = file.file.record_count < _OWN_ROWS
        if not is_small:
            self.copy()
        self._small.append(file)
        self._small_rows += file.file.record_count
        self._small_bytes += file.file.size_bytes
        if not is_small or self._small_rows >= _CHUNK_ROWS or self._small_bytes >= self._most_bytes:
            self.copy()

    def copy(self) -> None:
        """Adds the rows of the files that wait to `parts`."""
        if not self._small:
            return
        table, deleted = self._decoder.live(self._small)
        self.parts.append(table.unify_dictionaries().combine_chunks() if len(self._small) > 1 else table)
        self.deleted += deleted
        # A call costs as much as the decoding of two columns of a tiny file.
        self._part_bytes += table.nbytes
        self._read_bytes += self._small_bytes
        self._small, self._small_rows, self._small_bytes = [], 0, 0

    @property
    def decoded_per_byte(self) -> float:
        """Decoded bytes per compressed byte of the parts."""
        return self._part_bytes / max(1, self._read_bytes)


class _Run:
    """One try of a task."""

    def __init__(self, task: RewriteTask, contents: Mapping[str, pa.Buffer]) -> None:
        self.task = task
        self.storage = Storage(task.io)
        self.created = False
        self._table: Struct = table_schema(task.schema, lineage=task.keep_row_lineage)
        self._clock = _Clock()
        self._input_bytes = sum(f.size_bytes for f in task.inputs)
        self._input_rows = sum(f.record_count for f in task.inputs)
        self._deleted = 0
        self._contents = dict(contents)

    def result(self, *, streamed: bool) -> RewriteResult:
        """Raises _ShortOfMemoryError in table mode."""
        if not streamed and self._input_bytes * _DECODED_PER_BYTE > self.task.memory_limit_bytes:
            raise _ShortOfMemoryError
        if streamed:
            self._contents.clear()
        with self._clock.phase("read"):
            head = self._range if streamed else self._head
            found = source_dictionaries(head, self.task, self._table)
        decoder = Decoder(
            self.storage,
            self._table,
            self.task.name_mapping,
            dictionaries=found.strings,
            integers=True,
        )
        self._deleted = 0
        metrics = MetricsBuilder(self._table, self.task.metrics_modes)
        if streamed:
            groups: Iterator[pa.Table] = self._streamed_groups(decoder)
        else:
            kept = self._table_groups(decoder)
            groups = iter(kept)
        rows = self._write(groups, metrics, found.repeating)
        deleted = self._deleted
        if rows == 0:
            proof = RewriteProof(self.task.proof, self._input_rows, deleted, 0, self._count(rows, deleted))
            return RewriteResult(
                "", 0, 0, self.task.sort_order_id, OutputMetrics(), proof, streamed, self._clock.seconds
            )
        with self._clock.phase("read"):
            contents = self._output(hold=not streamed)
        with self._clock.phase("metrics"):
            footer = pq.read_metadata(arrow_file(contents))
            of_file = metrics.of_footer(footer)
        comparison = Comparison(self._table, contents, of_file, self.task.metrics_modes)
        with self._clock.phase("proof"):
            difference = self._count(rows, deleted) or comparison.footer_difference(rows)
            full = self.task.proof == FULL_PROOF
            again = self._streamed_groups(decoder) if streamed else iter(kept)
            for number, group in enumerate(again):
                difference = difference or comparison.group_difference(number, group, values=full)
            difference = difference or comparison.end_difference()
            digest = digest_of(contents.chunks())
        return RewriteResult(
            path=self.task.output_path,
            size_bytes=len(contents),
            record_count=rows,
            sort_order_id=self.task.sort_order_id,
            metrics=of_file,
            proof=RewriteProof(self.task.proof, self._input_rows, deleted, rows, difference),
            streamed=streamed,
            cpu_seconds=self._clock.seconds,
            digest=digest,
        )

    def _count(self, rows: int, deleted: int) -> str:
        if rows + deleted == self._input_rows:
            return ""
        return f"{self._input_rows} rows were read, {deleted} are deleted and {rows} were written"

    def _write(self, groups: Iterator[pa.Table], metrics: MetricsBuilder, repeating: Collection[int]) -> int:
        """Writes the row groups to a new file. Returns the number of rows. Without rows there is no file."""
        first = next(groups, None)
        if first is None:
            return 0
        encoding = self.task.encoding
        schema = written_schema(self.task.schema, lineage=self.task.keep_row_lineage)
        chosen = sampled_dictionaries(first, self._table, repeating, encoding)
        rows = 0
        with self.storage.create(self.task.output_path) as stream:
            self.created = True
            decimals = integer_decimals(self._table)
            with open_writer(stream, first.schema, encoding, chosen, decimals) as writer:
                writer.add_key_value_metadata({SCHEMA_KEY: schema})
                group: pa.Table | None = first
                while group is not None:
                    with self._clock.phase("encode"):
                        write_group(writer, group)
                    with self._clock.phase("metrics"):
                        metrics.add(group)
                    rows += group.num_rows
                    group = next(groups, None)
        return rows

    def _table_groups(self, decoder: Decoder) -> list[pa.Table]:
        """The row groups of all live rows. Raises _ShortOfMemoryError."""
        tables = _Tables(decoder)
        uncompressed_bytes = 0
        for file in self.task.inputs:
            with self._clock.phase("read"):
                contents = self._read(file)
            with self._clock.phase("decode"):
                found = decoder.opened(file, contents)
                found.check_rows(self._most_row_bytes)
                uncompressed_bytes += found.uncompressed_bytes
                if uncompressed_bytes * _DECODED_COPIES > self.task.memory_limit_bytes:
                    raise _ShortOfMemoryError
                tables.add(decoder.read(found))
            self._check_memory(tables)
        with self._clock.phase("decode"):
            tables.copy()
        self._check_memory(tables)
        if not tables.parts:
            return []
        self._deleted += tables.deleted
        rows = pa.concat_tables(tables.parts).unify_dictionaries()
        size = self._group_rows(rows.num_rows)
        groups = [rows.slice(start, size) for start in range(0, rows.num_rows, size)]
        return groups if len(groups) < 2 else [compacted(g) for g in groups]

    def _check_memory(self, tables: _Tables) -> None:
        # The encoded output and one row group of it, read again, come on top of the decoded rows.
        if self._input_bytes * (_DECODED_COPIES * tables.decoded_per_byte + 2) > self.task.memory_limit_bytes:
            raise _ShortOfMemoryError

    def _head(self, file: InputFile) -> pa.Buffer:
        """The contents of a file that is decoded later. They are kept until then, so a file is read once."""
        if file.path not in self._contents:
            self._contents[file.path] = self.storage.read(file.path)
        return self._contents[file.path]

    def _range(self, file: InputFile) -> FileRange:
        return FileRange(self.storage, file.path, file.size_bytes, hold=False)

    def _output(self, *, hold: bool) -> FileRange:
        """The output as it is on storage."""
        location = self.task.output_path
        size = 0 if hold else self.storage.size_bytes(location)
        return FileRange(self.storage, location, size, hold=hold)

    def _read(self, file: InputFile) -> pa.Buffer:
        contents = self._contents.pop(file.path, None)
        return self.storage.read(file.path) if contents is None else contents

    def _streamed_groups(self, decoder: Decoder) -> Iterator[pa.Table]:
        """The row groups of all live rows, one at a time: as many rows as a row group holds, fewer if they take a
        sixth of the memory. A file that may take more is decoded in parts, and never in memory as a whole."""
        parts: list[pa.Table] = []
        rows, decoded_bytes = 0, 0
        size = self._group_rows(self._input_rows)
        most_bytes = self.task.memory_limit_bytes // _GROUPS_IN_MEMORY
        row_bytes = _VALUE_BYTES * len(leaves_of(self._table))
        for file in self.task.inputs:
            is_small = max(file.size_bytes * _DECODED_PER_BYTE, file.record_count * row_bytes) <= most_bytes
            contents = self._read(file) if is_small else self._range(file)
            found = decoder.opened(file, contents) if is_small else None
            if found is not None and found.uncompressed_bytes <= most_bytes:
                if decoded_bytes * (rows + file.record_count) > most_bytes * rows:
                    # The rows of this file exceed the row group. It is written before they are decoded.
                    yield _taken(parts)
                    rows = decoded_bytes = 0
                parts_of: Iterable[tuple[pa.Table, int]] = [decoder.live([decoder.read(found)])]
            else:
                read_bytes = self._read_bytes(most_bytes)
                parts_of = decoder.batches_of(file, contents, read_bytes, self._most_row_bytes)
            for part, deleted in parts_of:
                self._deleted += deleted
                parts.append(part)
                rows += part.num_rows
                decoded_bytes += part.nbytes
                while rows >= size or (rows and decoded_bytes >= most_bytes):
                    whole = pa.concat_tables(parts).unify_dictionaries()
                    parts.clear()
                    group, rest = compacted(whole.slice(0, size)), compacted(whole.slice(size))
                    del whole
                    yield group
                    # The caller needs the group no longer.
                    del group
                    parts = [rest] if rest.num_rows else []
                    rows, decoded_bytes = rest.num_rows, rest.nbytes if rest.num_rows else 0
        if rows:
            yield _taken(parts)

    @property
    def _most_row_bytes(self) -> int:
        return max(_LEAST_READ_BYTES, self.task.memory_limit_bytes // _ROWS_IN_MEMORY)

    def _read_bytes(self, most_bytes: int) -> int:
        """The bytes of a column that are read at once: a row group may be larger than the memory."""
        share = most_bytes // (_READS_IN_MEMORY * len(leaves_of(self._table)))
        return max(_LEAST_READ_BYTES, min(_MOST_READ_BYTES, share))

    def _group_rows(self, rows: int) -> int:
        """The rows of a row group: row groups of about equal size, none above the bytes of the encoding."""
        share = rows / max(1, self._input_rows)
        groups = -(-int(self._input_bytes * share) // self.task.encoding.row_group_bytes)
        return min(_MOST_GROUP_ROWS, max(1, -(-rows // max(1, groups))))


def _taken(parts: list[pa.Table]) -> pa.Table:
    """Returns the rows of all parts, which are no longer held."""
    rows = compacted(pa.concat_tables(parts).unify_dictionaries())
    parts.clear()
    return rows
