"""Finds the positions of the rows under equality deletes. Only key columns are read."""

from __future__ import annotations

from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from iceberg_maint.columnar.read.decode import Decoder, readable
from iceberg_maint.columnar.read.deletes import KeySet, Positions, key_columns, key_schema
from iceberg_maint.columnar.read.leaves import Numbers
from iceberg_maint.columnar.read.projection import file_columns
from iceberg_maint.columnar.read.schema import Column, Primitive, Struct, array_of, table_schema
from iceberg_maint.columnar.storage import FileRange, Storage, arrow_file
from iceberg_maint.columnar.task import (
    DeletedPositionsResult,
    DeletedPositionsTask,
    EqualityDelete,
    InputFile,
    UnsupportedColumnError,
)
from iceberg_maint.core.model.columns import has_one_order, is_outside

_WHOLE_BYTES = 128 * 1024
"""A file up to this size is read at once. Of a larger one, the footer and the key columns are read."""

_Positions = np.ndarray[Any, np.dtype[np.int64]]


def deleted_positions(task: DeletedPositionsTask) -> DeletedPositionsResult:
    """Returns the positions of the rows that the equality deletes of a task delete and no position delete does.

    Raises UnsupportedColumnError for keys that are not compared, WrongInputError if a file does not hold what the task
    states, WrongKeysError for a delete file with keys that its metadata denies.
    """
    finder = _Finder(task)
    by_keys: dict[tuple[int, ...], list[EqualityDelete]] = defaultdict(list)
    for delete in task.deletes:
        by_keys[tuple(sorted(delete.field_ids))].append(delete)
    found: dict[str, list[_Positions]] = defaultdict(list)
    for field_ids, deletes in by_keys.items():
        for file, positions in finder.matches(field_ids, deletes):
            found[file.path].append(positions)
    already = Positions(finder.storage)
    texts = {}
    for file in task.inputs:
        if parts := found.get(file.path):
            bitmap = BitMap64(np.concatenate(parts).astype(np.uint64))
            if (deleted := already.of(file)) is not None:
                bitmap -= BitMap64(deleted.astype(np.uint64))
            if bitmap:
                texts[file.path] = b64encode(bitmap.serialize()).decode()
    return DeletedPositionsResult(texts)


class WrongKeysError(Exception):
    """A delete file has keys outside the bounds of its metadata, or NULL keys that it denies: readers that trust it do not
    apply the file."""


class _Finder:
    """Reads the key columns of the files of a task."""

    def __init__(self, task: DeletedPositionsTask) -> None:
        self.storage = Storage(task.io)
        self._task = task
        self._table = table_schema(task.schema, lineage=False)

    def matches(
        self, field_ids: Sequence[int], deletes: Sequence[EqualityDelete]
    ) -> Iterator[tuple[InputFile, _Positions]]:
        """Yields data files with positions of rows that these deletes delete. The deletes have the same key columns."""
        newest = max(d.data_sequence_number for d in deletes)
        files = [f for f in self._task.inputs if f.data_sequence_number < newest]
        if not files:
            return
        table = key_schema(self._table, field_ids)
        constants = self._constants(table, field_ids)
        varying = Struct(tuple(c for c in table.columns if c.field_id not in constants))
        columns, numbers = self._keys(table, varying, constants, deletes)
        if not len(numbers):
            return
        if not varying.columns:
            yield from self._whole_files(files, int(numbers.max()))
            return
        keys = KeySet(columns, numbers)
        del columns, numbers
        decoder = Decoder(self.storage, varying, self._task.name_mapping)
        for some, rows in self._slices(decoder, files):
            counts = [f.record_count for f, _ in some]
            own = np.repeat(np.asarray([f.data_sequence_number for f, _ in some], dtype=np.int64), counts)
            deleted = np.flatnonzero(keys.deleted(key_columns(rows, varying), own))
            starts = np.cumsum([0, *counts])
            bounds = np.searchsorted(deleted, starts)
            for i, (file, _) in enumerate(some):
                if bounds[i] < bounds[i + 1]:
                    yield file, deleted[bounds[i] : bounds[i + 1]] - starts[i]

    def _constants(self, table: Struct, field_ids: Sequence[int]) -> dict[int, tuple[Column, object]]:
        """The key columns that are identity partition values, with these."""
        wanted = {i: v for i, v in self._task.constants.items() if i in field_ids}
        top = {c.field_id: c for c in table.columns}
        if nested := wanted.keys() - top.keys():
            raise UnsupportedColumnError(
                f"with field id {min(nested)}", "it is a key inside a struct and a partition value"
            )
        return {i: (top[i], v) for i, v in wanted.items()}

    def _keys(
        self,
        table: Struct,
        varying: Struct,
        constants: Mapping[int, tuple[Column, object]],
        deletes: Sequence[EqualityDelete],
    ) -> tuple[list[pa.Array], Numbers]:
        """The varying key columns of the delete rows whose other key columns have the partition's values, and the
        sequence number of each row."""
        decoder = Decoder(self.storage, table, self._task.name_mapping)
        parts, numbers = [], []
        for delete in deletes:
            rows = self._delete_rows(decoder, table, delete)
            for index, column in enumerate(table.columns):
                if column.field_id in constants:
                    rows = rows.filter(_equals(rows.column(index), *constants[column.field_id]))
            parts.append(rows.select([i for i, c in enumerate(table.columns) if c.field_id not in constants]))
            numbers.append(np.full(rows.num_rows, delete.data_sequence_number, dtype=np.int64))
        return key_columns(pa.concat_tables(parts), varying), np.concatenate(numbers)

    def _delete_rows(self, decoder: Decoder, table: Struct, delete: EqualityDelete) -> pa.Table:
        file = InputFile(delete.path, delete.size_bytes, delete.record_count, delete.data_sequence_number)
        contents = self._contents(file)
        with readable(delete.path):
            schema = pq.read_schema(arrow_file(contents))
            columns = file_columns(schema, self._task.name_mapping, delete.path)
        lacking = set(_ids(table.columns)) - set(_ids(columns))
        if lacking:
            # The projection would fill it with a default, which would delete rows with that value.
            column = next((c.path for c in table.columns if c.field_id in lacking), table.columns[0].path)
            reason = f"{delete.path} lacks its key column with field id {min(lacking)}"
            raise UnsupportedColumnError(column, reason)
        rows = decoder.table_of(file, contents)[0]
        _check_bounds(rows.columns, table.columns, delete)
        _check_null_counts(rows, table.columns, delete)
        return rows

    def _slices(
        self, decoder: Decoder, files: Sequence[InputFile]
    ) -> Iterator[tuple[list[tuple[InputFile, int]], pa.Table]]:
        """Yields files with their numbers of rows, and the rows of them all. A file is in one slice."""
        some: list[tuple[InputFile, int]] = []
        parts: list[pa.Table] = []
        count = 0
        for file in files:
            # The deletes of the file would move the positions of its rows.
            plain = InputFile(file.path, file.size_bytes, file.record_count, file.data_sequence_number)
            parts.append(decoder.table_of(plain, self._contents(file))[0])
            some.append((file, file.record_count))
            count += file.record_count
            if count >= self._task.slice_rows:
                yield some, pa.concat_tables(parts)
                some, parts, count = [], [], 0
        if some:
            yield some, pa.concat_tables(parts)

    def _contents(self, file: InputFile) -> pa.Buffer | FileRange:
        if file.size_bytes <= _WHOLE_BYTES:
            return self.storage.read(file.path)
        return FileRange(self.storage, file.path, file.size_bytes, hold=False)

    def _whole_files(self, files: Sequence[InputFile], newest: int) -> Iterator[tuple[InputFile, _Positions]]:
        """All rows of the files that are older than a delete whose key is the partition itself."""
        for file in files:
            if file.data_sequence_number < newest:
                yield file, np.arange(file.record_count, dtype=np.int64)


def _equals(values: pa.ChunkedArray, column: Column, value: object) -> pa.ChunkedArray:
    """Which values are that of the partition. Null equals null."""
    if value is None:
        return pc.is_null(values)
    wanted = array_of(column, value, 1)
    if isinstance(wanted, pa.ExtensionArray):
        wanted = wanted.storage
        values = pa.chunked_array([c.storage for c in values.chunks], wanted.type)
    return pc.fill_null(pc.equal(values, wanted[0]), fill_value=False)


def _check_bounds(values: Sequence[Any], columns: Sequence[Column], delete: EqualityDelete) -> None:
    for array, column in zip(values, columns, strict=True):
        if isinstance(column.kind, Struct):
            _check_bounds(pa.table({"": array}).flatten().columns, column.kind.columns, delete)
        elif (
            column.field_id in delete.bounds
            and isinstance(column.kind, Primitive)
            and has_one_order(kind := column.kind.name)
        ):
            ends = (v for v in pc.min_max(array).values() if v.is_valid)
            if any(is_outside(kind, _bound(v), delete.bounds[column.field_id]) for v in ends):
                raise WrongKeysError(f"{delete.path} has keys outside its bounds of column {column.path}")


def _check_null_counts(rows: pa.Table, columns: Sequence[Column], delete: EqualityDelete) -> None:
    # Of a struct's field it is each writer's own whether a row without the struct counts.
    for values, column in zip(rows.columns, columns, strict=True):
        if column.field_id in delete.without_null and values.null_count:
            reason = f"its metadata says that column {column.path} has none"
            raise WrongKeysError(f"{delete.path} has NULL keys, and {reason}")


def _bound(scalar: Any) -> int | bytes:
    value = scalar.value if pa.types.is_temporal(scalar.type) else scalar.as_py()
    if isinstance(value, Decimal):
        return int(value.scaleb(scalar.type.scale))
    return value.encode() if isinstance(value, str) else value


def _ids(columns: Any) -> Iterator[int]:
    for column in columns:
        yield column.field_id
        yield from _ids(column.children)
