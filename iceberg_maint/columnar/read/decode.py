"""Decodes the live rows of data files as tables in the table's schema."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from iceberg_maint.columnar.parquet.reader import Schemas, opened
from iceberg_maint.columnar.read.decimals import IntegerFooters, Integers, integer_of, unscaled, with_integers
from iceberg_maint.columnar.read.deletes import Positions
from iceberg_maint.columnar.read.leaves import array_of_mask, array_of_numbers, leaves_of, scalar_of
from iceberg_maint.columnar.read.packing import SmallFile, is_small, packed
from iceberg_maint.columnar.read.projection import (
    Source,
    file_columns,
    needed_names,
    projected,
    projection,
    renumbered,
)
from iceberg_maint.columnar.read.schema import LAST_UPDATED, ROW_ID, Struct, arrow_schema
from iceberg_maint.columnar.storage import FileRange, Storage, raise_shortage
from iceberg_maint.columnar.task import InputFile, UnsupportedColumnError, WrongInputError, unreadable
from iceberg_maint.errors import wrong_count

_BATCH_ROWS = 65_536
_LINEAGE = frozenset({ROW_ID, LAST_UPDATED})


@dataclass(frozen=True, slots=True)
class DecodedFile:
    """The rows of a file as it has them. `sources` has the columns of the table among them, `positions` the deleted
    rows, None if there are none. `rows` is None for a small file: `parquet` has `needed` columns, and `live` decodes
    several together."""

    file: InputFile
    rows: pa.Table | None
    sources: Sequence[Source]
    positions: np.ndarray[Any, Any] | None
    parquet: pq.ParquetFile | None = None
    needed: list[str] | None = None
    contents: pa.Buffer | None = None

    @property
    def uncompressed_bytes(self) -> int:
        """The bytes of an open file's pages without compression. The rows may take more: a dictionary has a value once."""
        return 0 if self.parquet is None else sum(size for _, size in _groups(self.parquet))

    def check_rows(self, most_bytes: int) -> int:
        """Returns the mean bytes of a row of an open file without compression, in the row group with the largest rows. Raises
        MemoryError if they are more than `most_bytes`."""
        groups = () if self.parquet is None else _groups(self.parquet)
        row_bytes = max((size // rows for rows, size in groups if rows), default=0)
        if row_bytes > most_bytes:
            raise MemoryError(f"{self.file.path} has rows of {row_bytes} bytes")
        return row_bytes


class Decoder:
    """Decodes files. `dictionaries` are the field ids of top-level string columns that keep their dictionaries.
    `integers`: decimals that Parquet stores as integers stay integers."""

    def __init__(
        self,
        storage: Storage,
        table: Struct,
        name_mapping: str | None,
        *,
        dictionaries: Collection[int] = (),
        integers: bool = False,
    ) -> None:
        self.table = table
        self._columns = len(leaves_of(table))
        schema = arrow_schema(table)
        self._decimals = {
            c.field_id: (f.type, kind)
            for c, f in zip(table.columns, schema, strict=True)
            if integers and (kind := integer_of(c)) is not None
        }
        schema = with_integers(schema, table) if integers else schema
        self.schema = _with_dictionaries(schema, table, dictionaries)
        self._footers, self._schemas = IntegerFooters(), Schemas()
        self._storage = storage
        self._name_mapping = name_mapping
        self._dictionaries = frozenset(dictionaries)
        self._positions = Positions(storage)
        self._has_lineage = any(c.field_id in _LINEAGE for c in table.columns)
        self._last: (
            tuple[pa.Schema, Mapping[int, object], tuple[list[str] | None, Sequence[Source]]] | None
        ) = None

    def table_of(self, file: InputFile, contents: pa.Buffer | FileRange) -> tuple[pa.Table, int]:
        """Returns the live rows of a file and the number of its deleted rows."""
        return self._live_of(self.decoded(file, contents))

    def decoded(self, file: InputFile, contents: pa.Buffer | FileRange) -> DecodedFile:
        """Returns the rows of a file for `live`."""
        return self.read(self.opened(file, contents))

    def read(self, found: DecodedFile) -> DecodedFile:
        """Returns the rows of an open file for `live`."""
        file = found.file
        if is_small(file.size_bytes, self._columns) and self._is_joinable(found):
            return found
        return DecodedFile(file, _rows(found), found.sources, found.positions)

    def opened(self, file: InputFile, contents: pa.Buffer | FileRange) -> DecodedFile:
        """Returns an open file for `live_column`. It has no rows, because the columns are read later."""
        parquet, schema = self._open(file, contents)
        needed, sources = self._projection(file, schema)
        whole = None if isinstance(contents, FileRange) else contents
        return DecodedFile(file, None, sources, self._positions.of(file), parquet, needed, whole)

    def live_column(self, file: DecodedFile, number: int) -> pa.Table:
        """Returns the live rows of an open file with one column, the one of this number in the table. Reads all
        columns if some cannot be asked for by name."""
        source = file.sources[number]
        if source.position is None:
            rows = _read(file, [])
        elif file.needed is None:
            rows = _rows(file)
        else:
            rows, source = _read(file, [file.needed[source.position]]), Source(0, source.convert)
        return self._live(file.file, rows, {number: source}, 0, file.positions)[0]

    def live(self, files: Sequence[DecodedFile]) -> tuple[pa.Table, int]:
        """Returns the live rows of files in their order and the number of their deleted rows. Consecutive files with
        the same schema and without deletes are projected as one table: a call per column of each tiny file costs
        more than the column."""
        tables, deleted, run = [], 0, list[DecodedFile]()
        for file in files:
            if run and not (self._is_joinable(file) and _is_alike(file, run[0])):
                tables.append(self._joined(run))
                run = []
            if self._is_joinable(file):
                run.append(file)
            else:
                table, count = self._live_of(file)
                tables.append(table)
                deleted += count
        if run:
            tables.append(self._joined(run))
        return pa.concat_tables(tables), deleted

    def _is_joinable(self, file: DecodedFile) -> bool:
        """Whether no row of the file depends on its position or on the file's values in the manifest."""
        return file.positions is None and not self._has_lineage

    def _joined(self, run: Sequence[DecodedFile]) -> pa.Table:
        """The rows of files of one projection."""
        if len(run) == 1:
            return self._live_of(run[0])[0]
        rows = self._packed_rows(run)
        if rows is None:
            rows = pa.concat_tables([_rows(f) for f in run])
        if any(pa.types.is_dictionary(f.type) for f in rows.schema):
            rows = rows.unify_dictionaries()
        whole = DecodedFile(run[0].file, rows.combine_chunks(), run[0].sources, None)
        try:
            return self._live_of(whole)[0]
        except WrongInputError:
            # The error names the first file. Alone, the wrong file names itself.
            for file in run:
                self._live_of(file)
            raise

    def _packed_rows(self, run: Sequence[DecodedFile]) -> pa.Table | None:
        """The rows of small files of one projection, decoded together. None: decode them one by one."""
        files = [
            SmallFile(memoryview(f.contents).cast("B"), f.parquet.metadata)
            for f in run
            if f.parquet and f.contents
        ]
        if run[0].parquet is None or len(files) != len(run):
            return None
        names, integers = self._kept(run[0].parquet.schema_arrow, run[0].file.path)
        contents = packed(files, integers)
        if contents is None:
            return None
        try:
            parquet = opened(contents, dictionaries=names)
            rows = parquet.read(columns=run[0].needed, use_threads=False)
        except (pa.ArrowException, OSError) as why:
            raise_shortage(why)
            # One by one, the file that cannot be read is named.
            return None
        return rows if rows.num_rows == sum(f.file.record_count for f in run) else None

    def _live_of(self, file: DecodedFile) -> tuple[pa.Table, int]:
        return self._live(file.file, _rows(file), dict(enumerate(file.sources)), 0, file.positions)

    def batches_of(
        self, file: InputFile, contents: pa.Buffer | FileRange, read_bytes: int, most_bytes: int
    ) -> Iterator[tuple[pa.Table, int]]:
        """Yields the live rows of a file and the number of deleted rows among them, in parts of about `most_bytes` at most. Of
        a column, `read_bytes` are read at once. Raises MemoryError before it decodes if that is less than a row."""
        parquet, schema = self._open(file, contents, read_bytes)
        row_bytes = DecodedFile(file, None, (), None, parquet).check_rows(most_bytes)
        needed, sources = self._projection(file, schema)
        positions, start = self._positions.of(file), 0
        if needed == []:
            yield self.table_of(file, contents)
            return
        count = min(_BATCH_ROWS, most_bytes // max(1, row_bytes))
        batches = parquet.iter_batches(count, columns=needed, use_threads=False)
        while True:
            with readable(file.path):
                batch = next(batches, None)
            if batch is None:
                break
            rows = pa.Table.from_batches([batch])
            yield self._live(file, rows, dict(enumerate(sources)), start, positions)
            start += rows.num_rows
        _check_rows(file, start)

    def _open(
        self, file: InputFile, contents: pa.Buffer | FileRange, read_bytes: int = 0
    ) -> tuple[pq.ParquetFile, pa.Schema]:
        """Returns a reader of the file, and the schema of its columns as the file has them. 0 `read_bytes`: column chunks
        are read whole."""
        check_size(file, len(contents))
        with readable(file.path):
            parquet = opened(contents, read_bytes=read_bytes)
            schema, metadata = self._schemas.of(parquet, contents), parquet.metadata
            # A small file is decoded with others. Alone, it is not worth another reader.
            if not is_small(file.size_bytes, self._columns):
                names, integers = self._kept(schema, file.path)
                if integers:
                    metadata = self._footers.metadata(contents, integers) or metadata
                if names or metadata is not parquet.metadata:
                    parquet = opened(contents, metadata=metadata, dictionaries=names, read_bytes=read_bytes)
        _check_rows(file, parquet.metadata.num_rows)
        return parquet, schema

    def _kept(self, schema: pa.Schema, path: str) -> tuple[list[str], Integers]:
        """The columns of a file that keep their dictionaries, and those whose decimals stay integers."""
        if not self._dictionaries and not self._decimals:
            return [], {}
        names: list[str] = []
        integers: dict[str, pa.DataType] = {}
        for column in file_columns(schema, self._name_mapping, path):
            field = column.field
            if column.field_id is None or "." in field.name:
                continue
            if column.field_id in self._dictionaries and pa.types.is_string(field.type):
                names.append(field.name)
            kind, integer = self._decimals.get(column.field_id, (None, None))
            # Columns are read by name, and a conversion of another column of the name expects decimals.
            if kind is not None and field.type == kind and schema.names.count(field.name) == 1:
                integers[field.name] = integer
        return names, integers

    def _projection(self, file: InputFile, schema: pa.Schema) -> tuple[list[str] | None, Sequence[Source]]:
        """Returns the names of the columns to read, None for all, and the sources of the table's columns among them.
        Files of one writer share their schema, so the last ones are kept."""
        if self._last is not None:
            last_schema, constants, found = self._last
            is_same = last_schema is schema or last_schema.equals(schema, check_metadata=True)
            if is_same and constants == file.constants:
                return found
        with readable(file.path):
            columns = file_columns(schema, self._name_mapping, file.path)
            with _named(file.path):
                sources = projection(columns, self.table, file.constants)
            needed = needed_names(schema, sources)
        found = needed, renumbered(sources, needed is not None)
        self._last = schema, file.constants, found
        return found

    def _live(
        self,
        file: InputFile,
        rows: pa.Table,
        sources: Mapping[int, Source],
        start: int,
        positions: np.ndarray[Any, Any] | None,
    ) -> tuple[pa.Table, int]:
        """The live rows of the columns with these numbers."""
        arrays, fields = [], []
        for number, source in sources.items():
            column, field = self.table.columns[number], self.schema.field(number)
            fields.append(field)
            with _named(file.path):
                found = projected(rows, source)
            if column.field_id in _LINEAGE:
                found = _lineage(column.field_id, found, file, start)
            if column.required and found.null_count:
                raise WrongInputError(f"{file.path}: the required column {column.path} has a null.")
            if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(found.type):
                found = found.dictionary_encode()
            if pa.types.is_decimal(found.type) and pa.types.is_integer(field.type):
                with _named(file.path):
                    found = pa.chunked_array([unscaled(c, field.type) for c in found.chunks], field.type)
            arrays.append(found)
        table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
        if positions is None:
            return table, 0
        low, high = np.searchsorted(positions, [start, start + table.num_rows])
        if low == high:
            return table, 0
        keep = np.ones(table.num_rows, dtype=bool)
        keep[positions[low:high] - start] = False
        return table.filter(array_of_mask(keep)), int(len(keep) - np.count_nonzero(keep))


def _groups(parquet: pq.ParquetFile) -> Iterator[tuple[int, int]]:
    """The rows of each row group, and the bytes of its pages without compression."""
    groups = (parquet.metadata.row_group(i) for i in range(parquet.metadata.num_row_groups))
    return ((g.num_rows, g.total_byte_size) for g in groups)


def _is_alike(file: DecodedFile, other: DecodedFile) -> bool:
    """Whether two files have one projection, and rows of one schema. The rows of a large file have dictionaries and
    integers as its pages do. Small files get theirs when they are decoded together."""
    if file.sources is not other.sources:
        return False
    if file.rows is None or other.rows is None:
        return file.rows is other.rows
    return bool(file.rows.schema.equals(other.rows.schema))


def _rows(file: DecodedFile) -> pa.Table:
    return _read(file, file.needed) if file.rows is None else file.rows


def _read(file: DecodedFile, names: list[str] | None) -> pa.Table:
    """The columns of these names of an open file, None for all."""
    assert file.parquet is not None
    with readable(file.file.path):
        rows = file.parquet.read(columns=names, use_threads=False)
    if names != []:
        _check_rows(file.file, rows.num_rows)
    return rows


def check_size(file: InputFile, size_bytes: int) -> None:
    """Raises WrongInputError if a file of this size has another size by its manifest."""
    if size_bytes != file.size_bytes:
        raise WrongInputError(f"{file.path} has {size_bytes} bytes; its manifest states {file.size_bytes}.")


def _check_rows(file: InputFile, rows: int) -> None:
    if rows != file.record_count:
        raise WrongInputError(wrong_count(file.path, rows, file.record_count))


@contextmanager
def readable(path: str) -> Iterator[None]:
    """Names the file if it cannot be read as Parquet: raises WrongInputError."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as why:
        raise_shortage(why)
        raise unreadable(f"{path} cannot be read as Parquet", why) from why


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Names the file in the error of a column."""
    try:
        yield
    except WrongInputError as why:
        raise WrongInputError(f"{path}: {why}") from why


def _with_dictionaries(schema: pa.Schema, table: Struct, dictionaries: Collection[int]) -> pa.Schema:
    for index, column in enumerate(table.columns):
        if column.field_id in dictionaries:
            schema = schema.set(index, schema.field(index).with_type(pa.dictionary(pa.int32(), pa.string())))
    return schema


def _lineage(field: int, found: pa.ChunkedArray, file: InputFile, start: int) -> pa.ChunkedArray:
    """Returns row ids or sequence numbers: those in the file, and inherited ones for its nulls (spec: "Row Lineage").
    A file without `first_row_id` has none."""
    if file.first_row_id is None:
        if found.null_count != len(found):
            raise UnsupportedColumnError(
                "_row_id", f"{file.path} has row ids and its manifest states no first row id"
            )
        return found
    if not found.null_count:
        return found
    if field == LAST_UPDATED:
        return found.fill_null(scalar_of(file.data_sequence_number))
    first = file.first_row_id + start
    return pc.coalesce(found, pa.chunked_array([array_of_numbers(np.arange(first, first + len(found)))]))
