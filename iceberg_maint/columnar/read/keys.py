"""Keys of equality deletes as numbers, and the rows that have one (spec: "Equality Delete Files").

A delete applies to a row if its sequence number is above that of the row's data file and all key columns are equal as in
Iceberg's reader: null equals null, a null struct does not equal a struct of nulls. The comparison is exact: the values of
a column become numbers, and so do the pairs of two columns. No hash is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_maint.columnar.read.leaves import FLOATS
from iceberg_maint.columnar.read.numbers import (
    Mask,
    Numbers,
    array_of_numbers,
    mask_of,
    numbers_of,
    scalar_of,
)
from iceberg_maint.columnar.read.schema import Column, Primitive, Struct
from iceberg_maint.columnar.task import UnsupportedColumnError


def key_schema(table: Struct, field_ids: Sequence[int]) -> Struct:
    """The part of a schema with the key columns and the structs around them, as Iceberg selects it. Raises
    UnsupportedColumnError for a key column that the schema lacks or has inside a list or a map, and for a floating-point
    one."""
    wanted = set(field_ids)
    selected = Struct(tuple(_selected(table.columns, wanted)))
    if wanted:
        reason = "an equality delete names it and no struct of the table has it"
        raise UnsupportedColumnError(f"with field id {min(wanted)}", reason)
    return selected


def _selected(columns: Sequence[Column], wanted: set[int]) -> Iterator[Column]:
    for column in columns:
        if isinstance(column.kind, Struct):
            children = tuple(_selected(column.kind.columns, wanted))
            if children:
                yield replace(column, kind=Struct(children))
        elif column.field_id in wanted and isinstance(column.kind, Primitive):
            if column.kind.base in FLOATS:
                raise UnsupportedColumnError(column.path, "keys of its type are not compared")
            wanted.discard(column.field_id)
            yield column


def key_columns(rows: pa.Table, keys: Struct) -> list[pa.Array]:
    """The key columns of rows, with whether each struct around a key is null, as arrays that compare by equality."""
    found: list[pa.Array] = []
    for column, values in zip(keys.columns, rows.columns, strict=True):
        array = values.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
        _add(found, array, column)
    return found


def _add(found: list[pa.Array], array: pa.Array, column: Column) -> None:
    if isinstance(column.kind, Struct):
        found.append(array.is_valid())
        for child, values in zip(column.kind.columns, array.flatten(), strict=True):
            _add(found, values, child)
    else:
        found.append(array.storage if isinstance(array, pa.ExtensionArray) else array)


class KeySet:
    """Keys of equality deletes with the highest sequence number of a delete of each. The columns have one value per
    delete row, `sequence_numbers` that of its file."""

    def __init__(self, columns: Sequence[pa.Array], sequence_numbers: Numbers) -> None:
        self._values: list[pa.Array] = []
        self._pairs: list[pa.Array | None] = []
        codes: Numbers = np.zeros(len(sequence_numbers), dtype=np.int64)
        for number, column in enumerate(columns):
            values = pc.unique(column)
            own = numbers_of(pc.index_in(column, value_set=values)).astype(np.int64)
            self._values.append(values)
            if number == 0:
                self._pairs.append(None)
                codes = own
                continue
            # Fewer than 2^31 pairs and values each, so the product fits 63 bits.
            pairs = array_of_numbers(codes * max(1, len(values)) + own)
            distinct = pc.unique(pairs)
            codes = numbers_of(pc.index_in(pairs, value_set=distinct)).astype(np.int64)
            self._pairs.append(distinct)
        size = int(codes.max()) + 1 if len(codes) else 0
        self._highest: Numbers = np.full(size, -1, dtype=np.int64)
        np.maximum.at(self._highest, codes, sequence_numbers)

    def deleted(self, columns: Sequence[pa.Array], sequence_numbers: Numbers) -> Mask:
        """Which rows have a key of a delete with a higher sequence number than theirs."""
        rows = len(sequence_numbers)
        result: Mask = np.zeros(rows, dtype=bool)
        if not len(self._highest):
            return result
        codes: Numbers = np.zeros(rows, dtype=np.int64)
        matched: Mask = np.ones(rows, dtype=bool)
        for column, values, pairs in zip(columns, self._values, self._pairs, strict=True):
            own, found = _numbers(column, values)
            matched &= found
            if pairs is None:
                codes = own
            else:
                codes, found = _numbers(array_of_numbers(codes * max(1, len(values)) + own), pairs)
                matched &= found
        result[matched] = self._highest[codes[matched]] > sequence_numbers[matched]
        return result


def _numbers(column: pa.Array, values: pa.Array) -> tuple[Numbers, Mask]:
    """The number of each value, 0 for a value that has none, and whether it has one."""
    found = pc.index_in(column, value_set=values)
    known = mask_of(found.is_valid())
    return numbers_of(found.fill_null(scalar_of(0))).astype(np.int64), known
