"""Dictionaries of a part of a table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_maint.columnar.numbers import numbers_of


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
