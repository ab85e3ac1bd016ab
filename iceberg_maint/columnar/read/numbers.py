"""Arrow's arrays as NumPy's and back, and dictionaries of a part of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


def numbers_of(values: pa.Array) -> np.ndarray[Any, Any]:
    """Returns numbers without nulls as an array of NumPy."""
    numbers: np.ndarray[Any, Any] = np.from_dlpack(values)
    return numbers


def mask_of(values: pa.BooleanArray) -> Mask:
    """Returns booleans without nulls as an array of NumPy, a copy: Arrow's have a bit each."""
    return numbers_of(values.cast(pa.uint8())).astype(bool)


def array_of_numbers(numbers: Numbers) -> pa.Array:
    """Returns 64-bit integers as an array of Arrow."""
    whole = np.ascontiguousarray(numbers, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), len(whole), [None, pa.py_buffer(whole)])


def scalar_of(number: int) -> pa.Int64Scalar:
    """Returns a 64-bit integer as a scalar of Arrow."""
    return array_of_numbers(np.array([number]))[0]


def array_of_mask(mask: Mask) -> pa.BooleanArray:
    """Returns booleans as an array of Arrow, a copy."""
    bits = pa.py_buffer(np.packbits(mask, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, bits])


def compacted(rows: pa.Table) -> pa.Table:
    """Returns rows whose dictionaries have the values of these rows only. A slice of a table keeps the dictionaries of
    the table, and Arrow writes the whole dictionary into each row group. Each column of `rows` has one dictionary."""
    for number, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type) and rows.column(number).num_chunks:
            rows = rows.set_column(number, field, _compacted(rows.column(number)))
    return rows


def _compacted(column: pa.ChunkedArray) -> pa.ChunkedArray:
    dictionary = column.chunk(0).dictionary
    used = pc.unique(pa.chunked_array([c.indices for c in column.chunks])).drop_null()
    if len(used) == len(dictionary):
        return column
    places = np.zeros(len(dictionary), np.int32)
    places[numbers_of(used)] = np.arange(len(used), dtype=np.int32)
    new = pa.Array.from_buffers(pa.int32(), len(places), [None, pa.py_buffer(places)])
    values = dictionary.take(used)
    chunks = [pa.DictionaryArray.from_arrays(new.take(c.indices), values) for c in column.chunks]
    return pa.chunked_array(chunks, column.type)
