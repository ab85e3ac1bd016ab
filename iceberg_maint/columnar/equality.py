"""Drops rows that equality deletes name (spec: "Equality Delete Files"), within the memory of a task.

A delete applies to a row if the delete's sequence number is above that of the row's data file and all key columns are
equal as in Iceberg's reader: null equals null, NaN equals NaN of any bits, -0.0 does not equal 0.0, a null struct does
not equal a struct of nulls. The comparison is exact: keys become numbers column by column, no hash is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_maint.columnar.schema import Column, ListOf, MapOf, Struct
from iceberg_maint.columnar.task import (
    EqualityDelete,
    EqualityDeletesTooLargeError,
    InputFile,
    UnsupportedColumnError,
)

_KEY_BYTES = 12
"""Decoded keys and their numbers per byte of a delete file."""
_MEMORY_SHARE = 4
"""The keys may take one part of this many of the task's memory."""

_SLICE_ROWS = 1 << 20

Numbers = np.ndarray[Any, np.dtype[np.int64]]
ReadDelete = Callable[[EqualityDelete, Struct], pa.Table]


def check_memory(inputs: Sequence[InputFile], limit: int) -> None:
    """Raises EqualityDeletesTooLargeError if the keys that apply to the inputs do not fit the memory of a task."""
    size = sum({d.path: d.size_bytes for f in inputs for d in f.equality_deletes}.values())
    if size * _KEY_BYTES * _MEMORY_SHARE > limit:
        raise EqualityDeletesTooLargeError(size, limit)


def key_schema(table: Struct, field_ids: Sequence[int]) -> Struct:
    """The part of a schema with the key columns and the structs around them, as Iceberg selects it. Raises
    UnsupportedColumnError if the schema lacks a key column or has it inside a list or a map."""
    wanted = set(field_ids)
    selected = Struct(tuple(_selected(table.columns, wanted)))
    if wanted:
        number = min(wanted)
        raise UnsupportedColumnError(
            f"with field id {number}", "an equality delete names it and no struct of the table has it"
        )
    return selected


def _selected(columns: Sequence[Column], wanted: set[int]) -> Iterator[Column]:
    for column in columns:
        if isinstance(column.kind, Struct):
            children = tuple(_selected(column.kind.columns, wanted))
            if children:
                yield replace(column, kind=Struct(children))
        elif column.field_id in wanted and not isinstance(column.kind, (ListOf, MapOf)):
            wanted.discard(column.field_id)
            yield column


def key_columns(rows: pa.Table, keys: Struct) -> list[pa.Array]:
    """The key columns of rows, with whether each struct around a key is null, as arrays that compare by equality."""
    found: list[pa.Array] = []
    for column in keys.columns:
        array = rows.column(column.name).combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
        _add(found, array, column)
    return found


def _add(found: list[pa.Array], array: pa.Array, column: Column) -> None:
    if isinstance(column.kind, Struct):
        found.append(array.is_valid())
        children = array.flatten()
        for child in column.kind.columns:
            _add(found, children[array.type.get_field_index(child.name)], child)
    else:
        found.append(_comparable(array))


def _comparable(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        return array.storage
    if pa.types.is_dictionary(array.type):
        return array.dictionary_decode()
    if pa.types.is_floating(array.type):
        bits = pa.int32() if pa.types.is_float32(array.type) else pa.int64()
        is_nan = pc.fill_null(pc.is_nan(array), fill_value=False)
        nan = pa.scalar(float("nan"), array.type)
        return pc.if_else(is_nan, nan, array).view(bits)
    return array


class KeySet:
    """Keys of equality deletes with the highest sequence number of a delete of each."""

    def __init__(self, columns: Sequence[pa.Array], sequence_numbers: Numbers) -> None:
        self._values: list[pa.Array] = []
        self._pairs: list[pa.Array] = []
        codes: Numbers = np.zeros(len(sequence_numbers), dtype=np.int64)
        for column in columns:
            values = pc.unique(column)
            own = np.asarray(pc.index_in(column, value_set=values), dtype=np.int64)
            # Fewer than 2^31 pairs and values each, so the product fits 63 bits.
            pairs = pa.array(codes * max(1, len(values)) + own)
            distinct = pc.unique(pairs)
            codes = np.asarray(pc.index_in(pairs, value_set=distinct), dtype=np.int64)
            self._values.append(values)
            self._pairs.append(distinct)
        size = int(codes.max()) + 1 if len(codes) else 0
        self._highest: Numbers = np.full(size, -1, dtype=np.int64)
        np.maximum.at(self._highest, codes, sequence_numbers)

    def deleted(
        self, columns: Sequence[pa.Array], sequence_number: int
    ) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which rows have a key of a delete with a higher sequence number."""
        rows = len(columns[0])
        codes: Numbers = np.zeros(rows, dtype=np.int64)
        matched = np.full(rows, len(self._highest) > 0)
        for column, values, pairs in zip(columns, self._values, self._pairs, strict=True):
            own, found = _numbers(column, values)
            matched &= found
            codes, found = _numbers(pa.array(codes * max(1, len(values)) + own), pairs)
            matched &= found
        result = np.zeros(rows, dtype=bool)
        result[matched] = self._highest[codes[matched]] > sequence_number
        return result


def _numbers(column: pa.Array, values: pa.Array) -> tuple[Numbers, np.ndarray[Any, np.dtype[np.bool_]]]:
    found = pc.index_in(column, value_set=values)
    known = np.asarray(found.is_valid())
    return np.asarray(found.fill_null(0), dtype=np.int64), known


Scope = tuple[tuple[int, ...], tuple[str, ...]]
"""Deletes with the same key columns: the field ids of these, and the paths of the deletes. The sequence number of a
row's data file decides which of them apply."""


class EqualityFilter:
    """Drops the deleted rows of the inputs of a task. `read` returns the rows of a delete file in a schema."""

    def __init__(self, table: Struct, inputs: Sequence[InputFile], read: ReadDelete) -> None:
        self._table, self._read = table, read
        self._deletes = {d.path: d for f in inputs for d in f.equality_deletes}
        # If each input lists exactly the deletes with a higher sequence number, all inputs share a scope per set of key
        # columns, and a key is stored once.
        self._shared = all(
            {d.path for d in f.equality_deletes}
            == {p for p, d in self._deletes.items() if d.data_sequence_number > f.data_sequence_number}
            for f in inputs
        )
        self._sets: dict[Scope, tuple[Struct, KeySet]] = {}
        self._rows: dict[tuple[tuple[int, ...], str], list[pa.Array]] = {}

    def live(self, file: InputFile, rows: pa.Table) -> tuple[pa.Table, int]:
        """The rows of a file that no equality delete names, and the number of the others."""
        if not file.equality_deletes or not rows.num_rows:
            return rows, 0
        deleted = np.zeros(rows.num_rows, dtype=bool)
        for scope in self._scopes(file):
            keys, found = self._set(scope)
            for start in range(0, rows.num_rows, _SLICE_ROWS):
                columns = key_columns(rows.slice(start, _SLICE_ROWS), keys)
                deleted[start : start + _SLICE_ROWS] |= found.deleted(columns, file.data_sequence_number)
        count = int(np.count_nonzero(deleted))
        return (rows.filter(pa.array(~deleted)), count) if count else (rows, 0)

    def _scopes(self, file: InputFile) -> list[Scope]:
        by_keys: dict[tuple[int, ...], list[str]] = {}
        for delete in self._deletes.values() if self._shared else file.equality_deletes:
            by_keys.setdefault(tuple(sorted(delete.field_ids)), []).append(delete.path)
        return [(ids, tuple(sorted(paths))) for ids, paths in by_keys.items()]

    def _set(self, scope: Scope) -> tuple[Struct, KeySet]:
        if scope not in self._sets:
            ids, paths = scope
            keys = key_schema(self._table, ids)
            parts = [self._keys(ids, keys, self._deletes[path]) for path in paths]
            columns = [pa.concat_arrays(column) for column in zip(*parts, strict=True)]
            numbers = [
                np.full(len(part[0]), self._deletes[path].data_sequence_number, dtype=np.int64)
                for part, path in zip(parts, paths, strict=True)
            ]
            self._sets[scope] = keys, KeySet(columns, np.concatenate(numbers))
        return self._sets[scope]

    def _keys(self, ids: tuple[int, ...], keys: Struct, delete: EqualityDelete) -> list[pa.Array]:
        if (ids, delete.path) not in self._rows:
            self._rows[ids, delete.path] = key_columns(self._read(delete, keys), keys)
        return self._rows[ids, delete.path]
