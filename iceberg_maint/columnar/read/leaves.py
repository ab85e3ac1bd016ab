"""Leaf columns: their paths in the file, their values with the nulls of all structs around them, as Arrow's arrays and
NumPy's, their statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_maint.columnar.read.schema import Column, ListOf, MapOf, Primitive, Struct

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


Value = int | float | bytes
"""A value as it is stored: dates and times as numbers, decimals unscaled, text as bytes. Values of a column compare
as Iceberg orders them."""
FLOATS = frozenset({"float", "double"})
_SAME: Mapping[pa.DataType, pa.DataType] = {}


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf column. `steps` are the positions to it from the table down, where a map is a list of entries.
    `repeated`: inside a list or a map."""

    column: Column
    path: str
    steps: tuple[int, ...]
    repeated: bool

    @property
    def primitive(self) -> Primitive:
        """Its type."""
        assert isinstance(self.column.kind, Primitive)
        return self.column.kind


def leaves_of(table: Struct) -> list[Leaf]:
    """Returns the leaf columns of a table in the order of the file's column chunks."""
    return [leaf for i, c in enumerate(table.columns) for leaf in _leaves(c, c.name, (i,), False)]


def _leaves(column: Column, path: str, steps: tuple[int, ...], repeated: bool) -> Iterator[Leaf]:
    match column.kind:
        case Struct(columns):
            for index, child in enumerate(columns):
                yield from _leaves(child, f"{path}.{child.name}", (*steps, index), repeated)
        case ListOf(element):
            yield from _leaves(element, f"{path}.list.element", (*steps, 0), True)
        case MapOf(key, value):
            yield from _leaves(key, f"{path}.key_value.key", (*steps, 0, 0), True)
            yield from _leaves(value, f"{path}.key_value.value", (*steps, 0, 1), True)
        case Primitive():
            yield Leaf(column, path, steps, repeated)


def values_of(rows: pa.Table, leaf: Leaf) -> list[pa.Array]:
    """Returns the values of a leaf column, chunk by chunk. A null struct makes a null; a null or empty list makes
    nothing."""
    return [_descend(chunk, leaf.steps[1:]) for chunk in rows.column(leaf.steps[0]).chunks]


def _descend(array: pa.Array, steps: Sequence[int]) -> pa.Array:
    # Arrow cannot flatten an empty map that holds UUIDs.
    array = viewed(array, layout_type(array.type))
    for step in steps:
        array = array.flatten()[step] if pa.types.is_struct(array.type) else array.flatten()
    return array


def layout_type(kind: pa.DataType, primitives: Mapping[pa.DataType, pa.DataType] = _SAME) -> pa.DataType:
    """Returns a type with the same layout: storage types in place of extension types, lists in place of maps, and
    `primitives` in place of others."""
    if kind in primitives:
        return primitives[kind]
    if isinstance(kind, pa.BaseExtensionType):
        return layout_type(kind.storage_type, primitives)
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return pa.struct([f.with_type(layout_type(f.type, primitives)) for f in fields])
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        entries = [f.with_type(layout_type(f.type, primitives)) for f in (key, item)]
        return pa.list_(pa.field("key_value", pa.struct(entries), nullable=False))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(layout_type(kind.value_type, primitives)))
    return kind


def viewed(array: Any, kind: pa.DataType) -> pa.Array:
    """Returns the array with the same buffers as another type of the same layout."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        children = [viewed(array.field(i), kind.field(i).type) for i in range(kind.num_fields)]
        fields = [kind.field(i) for i in range(kind.num_fields)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    if pa.types.is_list(kind):
        children = [viewed(array.values, kind.value_type)]
        return pa.Array.from_buffers(
            kind, len(array), array.buffers()[:2], offset=array.offset, children=children
        )
    return array.view(kind)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts and bounds of values. NaN is in no bound. No bounds: every value is null or NaN."""

    values: int
    nulls: int
    nans: int
    lower: Value | None
    upper: Value | None


def sum_of(parts: Sequence[Statistics]) -> Statistics:
    """Returns the statistics of the rows of all parts of a column."""
    return Statistics(
        sum(p.values for p in parts),
        sum(p.nulls for p in parts),
        sum(p.nans for p in parts),
        min((p.lower for p in parts if p.lower is not None), key=java_order, default=None),
        max((p.upper for p in parts if p.upper is not None), key=java_order, default=None),
    )


def java_order(value: Value) -> Any:
    """Returns what orders values of a column as Java does, which has -0.0 before 0.0 (`Double.compare`)."""
    return (value, not np.signbit(value)) if isinstance(value, float) else value


def has_nan(rows: pa.Table, leaf: Leaf) -> bool:
    """Whether a value of a column of floats is NaN."""
    return any(pc.any(pc.is_nan(chunk)).as_py() for chunk in values_of(rows, leaf))


def row_statistics(chunks: Sequence[pa.Array], primitive: Primitive, *, exact: bool = True) -> Statistics:
    """Returns the statistics of values. Without `exact`, the bounds of a column with dictionaries are those of the
    dictionaries, which may have values that no row has."""
    nulls = sum(c.null_count for c in chunks)
    values = sum(len(c) for c in chunks)
    if primitive.base in FLOATS:
        nans, lower, upper = _float_bounds(chunks)
        return Statistics(values, nulls, nans, lower, upper)
    if values == nulls:
        return Statistics(values, nulls, 0, None, None)
    distinct = _dictionary_values(chunks, exact=exact) if pa.types.is_dictionary(chunks[0].type) else chunks
    if pa.types.is_string(distinct[0].type):
        distinct = [c.view(pa.binary()) for c in distinct]
    found = pc.min_max(pa.chunked_array(distinct))
    return Statistics(values, nulls, 0, _stored(found["min"]), _stored(found["max"]))


def _dictionary_values(chunks: Sequence[pa.DictionaryArray], *, exact: bool) -> list[pa.Array]:
    """Returns the values of each dictionary, with `exact` only those that a row has."""
    dictionaries: dict[tuple[int, ...], pa.Array] = {}
    used: dict[tuple[int, ...], np.ndarray[Any, Any]] = {}
    for chunk in chunks:
        values = chunk.dictionary
        # Chunks of a unified column share the memory of one dictionary.
        addresses = [0 if buffer is None else buffer.address for buffer in values.buffers()]
        key = (*addresses, values.offset, len(values))
        dictionaries[key] = values
        if exact:
            mask = used.setdefault(key, np.zeros(len(values), dtype=bool))
            mask[numbers_of(chunk.indices.drop_null())] = True
    if not exact:
        return list(dictionaries.values())
    return [values.filter(array_of_mask(used[key])) for key, values in dictionaries.items()]


def _float_bounds(chunks: Sequence[pa.Array]) -> tuple[int, float | None, float | None]:
    nans, lows, highs = 0, [], []
    for chunk in chunks:
        numbers = numbers_of(chunk.drop_null())
        not_a_number = np.isnan(numbers)
        count = int(np.count_nonzero(not_a_number))
        nans += count
        if count == len(numbers):
            continue
        finite = numbers[~not_a_number] if count else numbers
        lows.append(_with_sign(finite, float(finite.min()), negative=True))
        highs.append(_with_sign(finite, float(finite.max()), negative=False))
    return nans, min(lows, key=java_order, default=None), max(highs, key=java_order, default=None)


def _with_sign(numbers: np.ndarray[Any, Any], bound: float, *, negative: bool) -> float:
    if bound != 0.0:
        return bound
    signs = np.signbit(numbers[numbers == 0.0])
    return -0.0 if (signs.any() if negative else signs.all()) else 0.0


def _stored(scalar: pa.Scalar) -> Value:
    if isinstance(scalar, pa.Decimal128Scalar):
        sign, digits, _ = scalar.as_py().as_tuple()
        number = int("".join(map(str, digits)))
        return -number if sign else number
    if pa.types.is_temporal(scalar.type):
        return int(scalar.value)
    value = scalar.as_py()
    return int(value) if isinstance(value, bool) else value
