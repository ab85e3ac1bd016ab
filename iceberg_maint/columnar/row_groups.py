"""The live rows of a task, decoded and divided into row groups: all at once (table mode), or a row group at a time if they do not fit
the memory of the task (streaming mode).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor

import pyarrow as pa

from iceberg_maint.columnar.clock import Clock
from iceberg_maint.columnar.read.decode import DecodedFile, Decoder
from iceberg_maint.columnar.read.leaves import compacted, leaves_of
from iceberg_maint.columnar.read.schema import Struct
from iceberg_maint.columnar.read.source import source_dictionaries
from iceberg_maint.columnar.storage import FileRange, Storage
from iceberg_maint.columnar.task import InputFile, RewriteTask

_DECODED_PER_BYTE = 6
"""Decoded bytes per compressed byte, before a file is decoded."""
_DECODED_COPIES = 1.5
"""The decoded rows, and a row group of them that is read again."""
_GROUPS_IN_MEMORY, _ROWS_IN_MEMORY = 8, 24
"""In streaming mode, the decoded row groups, and the parts of large files, for which a task has memory: one is decoded while another is
encoded and a third compared (`bench.columnar.tasks` has the peaks). A larger row is refused in both modes: it is in memory a dozen times."""
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


class ShortOfMemoryError(Exception):
    """The decoded rows do not fit the memory of the task."""


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


class RowGroups:
    """The row groups of one try of a task. `repeating` are the field ids of the columns whose values repeat in the inputs;
    `deleted` is the number of deleted rows among those that were decoded."""

    def __init__(
        self, task: RewriteTask, table: Struct, clock: Clock, contents: Mapping[str, pa.Buffer] | None
    ) -> None:
        """`contents` are those of inputs that were read before, in table mode; None: streaming mode. Raises ShortOfMemoryError in
        table mode."""
        self._task, self._table, self._clock = task, table, clock
        self._storage = Storage(task.io)
        self._input_bytes = sum(f.size_bytes for f in task.inputs)
        self._input_rows = sum(f.record_count for f in task.inputs)
        self._contents = dict(contents or {})
        self.deleted = 0
        if contents is not None and self._input_bytes * _DECODED_PER_BYTE > task.memory_limit_bytes:
            raise ShortOfMemoryError
        with clock.phase("read"):
            found = source_dictionaries(self._range if contents is None else self._head, task, table)
        self.repeating = found.repeating
        self._decoder = Decoder(
            self._storage, table, task.name_mapping, dictionaries=found.strings, integers=True
        )

    def one_by_one(self, thread: Executor) -> Iterator[pa.Table]:
        """Yields the row groups of streaming mode, and does not hold them after that. `thread` decodes the next one."""
        groups = self._streamed_groups()

        def following() -> pa.Table | None:
            with self._clock.phase("decode"):
                return next(groups, None)

        decoded = thread.submit(following)
        while (group := decoded.result()) is not None:
            decoded = thread.submit(following)
            yield group
            del group

    def together(self) -> list[pa.Table]:
        """The row groups of all live rows. Raises ShortOfMemoryError."""
        tables = _Tables(self._decoder)
        uncompressed_bytes = 0
        for file in self._task.inputs:
            with self._clock.phase("read"):
                contents = self._read(file)
            with self._clock.phase("decode"):
                found = self._decoder.opened(file, contents)
                found.check_rows(self._most_row_bytes)
                uncompressed_bytes += found.uncompressed_bytes
                if uncompressed_bytes * _DECODED_COPIES > self._task.memory_limit_bytes:
                    raise ShortOfMemoryError
                tables.add(self._decoder.read(found))
            self._check_memory(tables)
        with self._clock.phase("decode"):
            tables.copy()
        self._check_memory(tables)
        if not tables.parts:
            return []
        self.deleted += tables.deleted
        rows = pa.concat_tables(tables.parts).unify_dictionaries()
        size = self._group_rows(rows.num_rows)
        groups = [rows.slice(start, size) for start in range(0, rows.num_rows, size)]
        return groups if len(groups) < 2 else [compacted(g) for g in groups]

    def _check_memory(self, tables: _Tables) -> None:
        # The encoded output and one row group of it, read again, come on top of the decoded rows.
        if (
            self._input_bytes * (_DECODED_COPIES * tables.decoded_per_byte + 2)
            > self._task.memory_limit_bytes
        ):
            raise ShortOfMemoryError

    def _head(self, file: InputFile) -> pa.Buffer:
        """The contents of a file that is decoded later. They are kept until then, so a file is read once."""
        if file.path not in self._contents:
            self._contents[file.path] = self._storage.read(file.path)
        return self._contents[file.path]

    def _range(self, file: InputFile) -> FileRange:
        return FileRange(self._storage, file.path, file.size_bytes, hold=False)

    def _read(self, file: InputFile) -> pa.Buffer:
        contents = self._contents.pop(file.path, None)
        return self._storage.read(file.path) if contents is None else contents

    def _streamed_groups(self) -> Iterator[pa.Table]:
        """The row groups of all live rows, one at a time: as many rows as a row group holds, fewer if they take an
        eighth of the memory. A file that may take more is decoded in parts, and never in memory as a whole."""
        parts: list[pa.Table] = []
        rows, decoded_bytes = 0, 0
        size = self._group_rows(self._input_rows)
        most_bytes = self._task.memory_limit_bytes // _GROUPS_IN_MEMORY
        row_bytes = _VALUE_BYTES * len(leaves_of(self._table))
        for file in self._task.inputs:
            is_small = max(file.size_bytes * _DECODED_PER_BYTE, file.record_count * row_bytes) <= most_bytes
            contents = self._read(file) if is_small else self._range(file)
            found = self._decoder.opened(file, contents) if is_small else None
            if found is not None and found.uncompressed_bytes <= most_bytes:
                if decoded_bytes * (rows + file.record_count) > most_bytes * rows:
                    # The rows of this file exceed the row group. It is written before they are decoded.
                    yield _taken(parts)
                    rows = decoded_bytes = 0
                parts_of: Iterable[tuple[pa.Table, int]] = [self._decoder.live([self._decoder.read(found)])]
            else:
                read_bytes = self._read_bytes(most_bytes)
                parts_of = self._decoder.batches_of(file, contents, read_bytes, self._most_row_bytes)
            for part, deleted in parts_of:
                self.deleted += deleted
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
        return max(_LEAST_READ_BYTES, self._task.memory_limit_bytes // _ROWS_IN_MEMORY)

    def _read_bytes(self, most_bytes: int) -> int:
        """The bytes of a column that are read at once: a row group may be larger than the memory."""
        share = most_bytes // (_READS_IN_MEMORY * len(leaves_of(self._table)))
        return max(_LEAST_READ_BYTES, min(_MOST_READ_BYTES, share))

    def _group_rows(self, rows: int) -> int:
        """The rows of a row group: row groups of about equal size, none above the bytes of the encoding."""
        share = rows / max(1, self._input_rows)
        groups = -(-int(self._input_bytes * share) // self._task.encoding.row_group_bytes)
        return min(_MOST_GROUP_ROWS, max(1, -(-rows // max(1, groups))))


def _taken(parts: list[pa.Table]) -> pa.Table:
    """Returns the rows of all parts, which are no longer held."""
    rows = compacted(pa.concat_tables(parts).unify_dictionaries())
    parts.clear()
    return rows
