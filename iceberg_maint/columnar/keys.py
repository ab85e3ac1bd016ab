"""Rows under equality deletes: rows whose key columns have the values of a deleted key (spec: "Equality Delete Files").

A null key deletes rows with null in that column. Values compare as Iceberg compares them after promotion to the table's
types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_maint.columnar.leaves import FLOATS
from iceberg_maint.columnar.projection import file_columns, projection
from iceberg_maint.columnar.schema import Column, Primitive, Struct, arrow_schema
from iceberg_maint.columnar.storage import Storage
from iceberg_maint.columnar.task import (
    EqualityDeleteReference,
    InputFile,
    KeyMemoryError,
    UnsupportedColumnError,
    WrongInputError,
)

Ids = tuple[int, ...]


class DeletedKeys:
    """The keys of the equality delete files of a task. Each file is read once. The keys may take `most_bytes`."""

    def __init__(self, storage: Storage, table: Struct, name_mapping: str | None, most_bytes: int) -> None:
        self._storage = storage
        self._columns = {c.field_id: c for c in table.columns}
        self._positions = {c.field_id: i for i, c in enumerate(table.columns)}
        self._name_mapping = name_mapping
        self._most_bytes = most_bytes
        self._files: dict[str, pa.Table] = {}

    def kept(self, file: InputFile, rows: pa.Table) -> np.ndarray[Any, Any] | None:
        """Returns, for each row of a file, whether no key deletes it. None if no equality delete applies."""
        if not file.equality_deletes:
            return None
        by_ids: dict[Ids, list[pa.Table]] = {}
        for reference in file.equality_deletes:
            by_ids.setdefault(tuple(sorted(reference.equality_ids)), []).append(self._read(reference))
        kept = np.ones(rows.num_rows, dtype=bool)
        for ids, tables in by_ids.items():
            kept &= ~_has_key(
                [rows.column(self._positions[i]) for i in ids], pa.concat_tables(tables).columns
            )
        return kept

    def _read(self, reference: EqualityDeleteReference) -> pa.Table:
        if reference.path not in self._files:
            self._files[reference.path] = self._keys(reference)
            if sum(t.nbytes for t in self._files.values()) > self._most_bytes:
                raise KeyMemoryError(f"The keys of equality deletes take more than {self._most_bytes} bytes.")
        return self._files[reference.path]

    def _keys(self, reference: EqualityDeleteReference) -> pa.Table:
        columns = Struct(tuple(self._key_column(i, reference) for i in sorted(reference.equality_ids)))
        contents = self._storage.read(reference.path)
        try:
            found = pq.ParquetFile(pa.BufferReader(contents)).read(use_threads=False)
        except (pa.ArrowException, OSError) as why:
            raise WrongInputError(
                f"{reference.path} cannot be read as an equality delete file: {why}"
            ) from why
        if len(contents) != reference.size_bytes or found.num_rows != reference.record_count:
            raise WrongInputError(
                f"{reference.path} has {len(contents)} bytes and {found.num_rows} rows; its manifest states "
                f"{reference.size_bytes} and {reference.record_count}."
            )
        arrays = []
        sources = projection(file_columns(found.schema, self._name_mapping, reference.path), columns, {})
        for column, source in zip(columns.columns, sources, strict=True):
            if source.position is None:
                raise WrongInputError(f"{reference.path} lacks its key column {column.path}.")
            values = found.column(source.position).combine_chunks()
            arrays.append(values if source.convert is None else source.convert(values))
        return pa.Table.from_arrays(arrays, schema=arrow_schema(columns))

    def _key_column(self, field_id: int, reference: EqualityDeleteReference) -> Column:
        column = self._columns.get(field_id)
        if column is None:
            raise UnsupportedColumnError(
                f"with field id {field_id}",
                f"it is a key of {reference.path} and no top-level column of the table",
            )
        if not isinstance(column.kind, Primitive) or column.kind.base in FLOATS:
            raise UnsupportedColumnError(
                column.path, "the engine applies no equality deletes with a key of its type"
            )
        return column


def _has_key(rows: Sequence[pa.ChunkedArray], keys: Sequence[pa.ChunkedArray]) -> np.ndarray[Any, Any]:
    """Returns whether each row is equal to a key. Each column becomes codes of its distinct values, null included.
    The codes of several columns are combined into one."""
    count = len(keys[0])
    codes = np.zeros(count + len(rows[0]), dtype=np.int64)
    for of_rows, of_keys in zip(rows, keys, strict=True):
        values = pa.chunked_array([*_plain(of_keys), *_plain(of_rows)])
        encoded = values.combine_chunks().dictionary_encode(null_encoding="encode")
        codes = codes * max(1, len(encoded.dictionary)) + np.asarray(encoded.indices)
        _, codes = np.unique(codes, return_inverse=True)
    return np.isin(codes[count:], codes[:count])


def _plain(column: pa.ChunkedArray) -> list[pa.Array]:
    chunks = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in column.chunks]
    return [c.storage if isinstance(c, pa.ExtensionArray) else c for c in chunks]
