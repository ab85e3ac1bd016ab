"""Decimals as the integers that Parquet stores.

Arrow's decimals have 16 bytes each, and every value is converted on the way in and out. Parquet stores decimals of up to
18 digits as integers, with a note in the schema that they are decimals. Without the note, Arrow decodes and encodes the
same pages as integers. So the note is left out of the footers that Arrow reads, and added to the footer that it writes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from iceberg_maint.columnar.parquet.metadata_forms import START_OF_FOOTER
from iceberg_maint.columnar.parquet.parquet_metadata import MAGIC, TAIL_BYTES, get
from iceberg_maint.columnar.parquet.reader import footer_of
from iceberg_maint.columnar.parquet.thrift import I32, LIST, STRUCT, ThriftError, encoded, head
from iceberg_maint.columnar.parquet.thrift import Struct as Fields
from iceberg_maint.columnar.read.leaves import mask_of
from iceberg_maint.columnar.read.schema import Column, Primitive, Struct, arrow_type
from iceberg_maint.columnar.task import WrongInputError

_DIGITS_OF_32_BITS, _DIGITS_OF_64_BITS = 9, 18
_TYPE, _NAME, _CHILDREN = 1, 4, 5
_CONVERTED, _SCALE, _PRECISION, _LOGICAL = 6, 7, 8, 10
_DECIMAL = 5
"""The number of decimals among the converted types and among the logical types."""
_PHYSICAL = {pa.int32(): 1, pa.int64(): 2}

Integers = Mapping[str, pa.DataType]
"""The integer types of columns of decimals by their names."""
Elements = Sequence[Fields]
_TOP = 2
"""The level of columns, below that of the root."""


def integer_of(column: Column) -> pa.DataType | None:
    """Returns the integer type as which Parquet stores a column of decimals, None if the column is not stored so."""
    kind = column.kind
    if not isinstance(kind, Primitive) or kind.base != "decimal" or "." in column.name:
        return None
    digits = kind.parameters[0]
    if digits > _DIGITS_OF_64_BITS:
        return None
    return pa.int32() if digits <= _DIGITS_OF_32_BITS else pa.int64()


def integer_decimals(table: Struct) -> Mapping[str, pa.DataType]:
    """Returns the types of the top-level columns that are decimals and are stored as integers, by name."""
    return {c.name: arrow_type(c) for c in table.columns if integer_of(c) is not None}


def integers_of(table: Struct) -> Integers:
    """Returns the integer types of the same columns, by name."""
    return {c.name: kind for c in table.columns if (kind := integer_of(c)) is not None}


def with_integers(schema: pa.Schema, table: Struct) -> pa.Schema:
    """Returns the Arrow schema of a table with integers in place of the decimals that Parquet stores so."""
    for index, column in enumerate(table.columns):
        if (kind := integer_of(column)) is not None:
            schema = schema.set(index, schema.field(index).with_type(kind))
    return schema


def unscaled(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns the integers of an array of decimals with at most 18 digits. Raises WrongInputError for a number that
    the integer type cannot hold: a file may have decimals as bytes."""
    if not len(values):
        return pa.array([], kind)
    words = np.frombuffer(values.buffers()[1], dtype="<i8")[2 * values.offset :]
    low = np.ascontiguousarray(words[: 2 * len(values) : 2])
    least, most = (-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
    is_wrong = (words[1 : 2 * len(values) : 2] != low >> 63) | (low < least) | (low > most)
    if values.null_count:
        is_wrong &= mask_of(values.is_valid())
    if is_wrong.any():
        raise WrongInputError(f"A decimal has more digits than its type {values.type}.")
    integers = pa.Array.from_buffers(pa.int64(), len(low), [None, pa.py_buffer(low)])
    if values.null_count:
        integers = pc.if_else(values.is_null(), pa.nulls(1, pa.int64())[0], integers)
    return integers.cast(kind)


class IntegerFooters:
    """Reads footers without notes. Files of one writer start their footers alike, so the last start is kept."""

    def __init__(self) -> None:
        self._last: tuple[Integers, bytes, bytes] = {}, b"", b""

    def metadata(self, contents: Any, integers: Integers) -> pq.FileMetaData | None:
        """Returns Arrow's metadata of a file with the bytes `contents`, with columns as integers. None: the footer has
        not the usual form."""
        footer = footer_of(contents)
        last, before, after = self._last
        if not before or last != integers or not footer.startswith(before):
            try:
                before, after = _starts(footer, lambda elements: without_notes(elements, integers))
            except ThriftError:
                return None
            self._last = integers, before, after
        changed = after + footer[len(before) :]
        framed = MAGIC + changed + len(changed).to_bytes(4, "little") + MAGIC
        return pq.read_metadata(pa.BufferReader(framed))


class NotedFile(io.RawIOBase):
    """A sink for Arrow's writer. The footer is kept back, and `finish` writes it with the notes that the columns named
    in `decimals` are decimals of these types."""

    def __init__(self, sink: Any, decimals: Mapping[str, pa.DataType]) -> None:
        self._sink, self._decimals = sink, decimals
        self._kept: list[bytes] | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self._kept is None:
            self._sink.write(data)
        else:
            self._kept.append(bytes(data))
        return len(data)

    def keep(self) -> None:
        """Keeps back what is written from now on: the end of the file."""
        self._kept = []

    def finish(self) -> None:
        """Writes what was kept back. Raises ThriftError if it does not end with a footer."""
        end = b"".join(self._kept or ())
        start = len(end) - TAIL_BYTES - int.from_bytes(end[-8:-4], "little")
        before, after = _starts(end[start:-TAIL_BYTES], self._with_notes)
        footer = after + end[start + len(before) : -TAIL_BYTES]
        self._sink.write(end[:start] + footer + len(footer).to_bytes(4, "little") + MAGIC)

    def _with_notes(self, elements: Elements) -> Elements:
        return _changed(elements, lambda e: _noted(e, self._decimals.get(_name(e))))


def without_notes(elements: Elements, integers: Integers) -> Elements:
    """Returns schema elements without the notes that these columns are decimals."""
    return _changed(elements, lambda e: _plain(e, integers.get(_name(e))))


def _changed(elements: Elements, change: Callable[[Fields], Fields]) -> Elements:
    """The elements with changes of the columns at the top level without children."""
    found: list[Fields] = []
    # The elements below this one, per level, that are still to come.
    to_come: list[int] = [1]
    for element in elements:
        if not to_come:
            raise ThriftError("the schema has an element below no other")
        children = get(element, _CHILDREN, 0)
        is_top = len(to_come) == _TOP and not children
        found.append(change(element) if is_top else element)
        to_come[-1] -= 1
        if children:
            to_come.append(children)
        while to_come and not to_come[-1]:
            to_come.pop()
    return found


def _name(element: Fields) -> str:
    name: bytes = get(element, _NAME)
    return name.decode()


def _noted(element: Fields, kind: pa.DataType | None) -> Fields:
    if kind is None:
        return element
    scale, precision = (I32, kind.scale), (I32, kind.precision)
    logical = {_DECIMAL: (STRUCT, {1: scale, 2: precision})}
    notes: Fields = {
        _CONVERTED: (I32, _DECIMAL),
        _SCALE: scale,
        _PRECISION: precision,
        _LOGICAL: (STRUCT, logical),
    }
    return {**element, **notes}


def _plain(element: Fields, kind: pa.DataType | None) -> Fields:
    is_decimal = get(element, _CONVERTED) == _DECIMAL or _DECIMAL in get(element, _LOGICAL, {})
    if kind is None or not is_decimal or get(element, _TYPE) != _PHYSICAL[kind]:
        return element
    return {n: v for n, v in element.items() if n not in (_CONVERTED, _SCALE, _PRECISION, _LOGICAL)}


def _starts(footer: bytes, change: Callable[[Elements], Elements]) -> tuple[bytes, bytes]:
    """The first bytes of a footer, through its schema, and what they become if the schema changes so."""
    fields, end = head(footer, 2, START_OF_FOOTER)
    kind, elements = fields[2][1]
    changed = {**fields, 2: (LIST, (kind, change(elements)))}
    # The last byte ends a struct. Fields count from the one before, which stays the schema.
    return footer[:end], encoded(changed)[:-1]
