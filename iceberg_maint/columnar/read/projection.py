"""Projects the columns of a data file to the table's schema by field id (spec: "Column Projection").

An identity-partitioned column has its partition value, whatever the file holds, as in Iceberg's Java readers
(`PartitionUtil.constantsMap`). Another column that the file lacks has its initial default or null. Names and positions do
not matter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_maint.columnar.read.schema import (
    Column,
    ListOf,
    MapOf,
    Struct,
    array_of,
    arrow_field,
    arrow_type,
    child_fields,
    field_id,
)
from iceberg_maint.columnar.task import UnsupportedColumnError, WrongInputError

Convert = Callable[[pa.Array], pa.Array]
"""Converts an array of the file to an array of the table."""
NameMapping = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of a file with its field id, from the file or from the name mapping."""

    field_id: int | None
    field: pa.Field
    children: tuple[FileColumn, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a column of the table: the position of the file's column, or None, and its conversion. None: the
    array is taken as it is."""

    position: int | None
    convert: Convert | None


def file_columns(schema: pa.Schema, name_mapping: str | None, path: str) -> tuple[FileColumn, ...]:
    """Returns the columns of a file. A file without any field id gets them from the name mapping. Without one, Iceberg's readers
    take the position of a column for its id (`ParquetSchemaUtil.addFallbackIds`): raises UnsupportedColumnError, so that
    one of them reads the file."""
    columns = tuple(_with_ids(f) for f in schema)
    if any(_has_id(c) for c in columns):
        return columns
    if name_mapping is None:
        raise UnsupportedColumnError(
            schema.names[0] if schema.names else "",
            f"{path} has no field ids and the table has no name mapping",
        )
    try:
        mapping = json.loads(name_mapping)
    except (ValueError, RecursionError) as why:
        name = schema.names[0] if schema.names else ""
        raise UnsupportedColumnError(
            name, f"the table's name mapping is no JSON: {type(why).__name__}"
        ) from why
    return tuple(_mapped(f, mapping) for f in schema)


def _with_ids(field: pa.Field) -> FileColumn:
    return FileColumn(field_id(field), field, tuple(_with_ids(f) for f in child_fields(field.type)))


def _has_id(column: FileColumn) -> bool:
    return column.field_id is not None or any(_has_id(c) for c in column.children)


def _mapped(field: pa.Field, mapping: NameMapping, alias: str = "") -> FileColumn:
    entry = next((m for m in mapping if (alias or field.name) in m["names"]), None)
    below = entry.get("fields", ()) if entry else ()
    children = child_fields(field.type)
    names: Sequence[str] = [""] * len(children)
    if pa.types.is_map(field.type):
        names = ("key", "value")
    elif pa.types.is_list(field.type):
        names = ("element",)
    return FileColumn(
        entry.get("field-id") if entry else None,
        field,
        tuple(_mapped(f, below, name) for f, name in zip(children, names, strict=True)),
    )


def projection(columns: Sequence[FileColumn], table: Struct, constants: Mapping[int, object]) -> list[Source]:
    """Returns the source of each column of the table."""
    by_id = {c.field_id: i for i, c in enumerate(columns) if c.field_id is not None}
    if len(by_id) != sum(c.field_id is not None for c in columns):
        raise WrongInputError("Two columns of a file have the same field id.")
    sources = []
    for column in table.columns:
        position = None if column.field_id in constants else by_id.get(column.field_id)
        if position is not None:
            sources.append(Source(position, conversion(columns[position], column, constants)))
        else:
            sources.append(Source(None, _filler(column, constants)))
    return sources


def _filler(column: Column, constants: Mapping[int, object]) -> Convert:
    value = constants.get(column.field_id, column.default)
    if value is None and column.required:
        raise UnsupportedColumnError(column.path, "it is required, a file lacks it, and it has no default")
    return lambda array: array_of(column, value, len(array))


def conversion(
    source: FileColumn, column: Column, constants: Mapping[int, object] | None = None
) -> Convert | None:
    """Returns the conversion of a column, None if its arrays are taken as they are. `constants` are the values of fields
    of its structs."""
    match column.kind:
        case Struct(columns):
            return _struct(source, column, columns, constants or {})
        case ListOf(element):
            if not pa.types.is_list(source.field.type):
                raise _mismatch(source, column)
            of_element = _same_child(source.children[0], element, column)
            if of_element is None and source.field.type == arrow_type(column):
                return None
            return _list(column, of_element)
        case MapOf(key, value):
            if not pa.types.is_map(source.field.type):
                raise _mismatch(source, column)
            of_key = _same_child(source.children[0], key, column)
            of_value = _same_child(source.children[1], value, column)
            if of_key is None and of_value is None and source.field.type == arrow_type(column):
                return None
            return _map(column, of_key, of_value)
    return _primitive(source, column)


def _same_child(source: FileColumn, child: Column, parent: Column) -> Convert | None:
    if source.field_id != child.field_id:
        raise UnsupportedColumnError(
            parent.path, f"a file has field id {source.field_id} for its {child.name}"
        )
    _require_values(source, child)
    return conversion(source, child)


def _require_values(source: FileColumn, column: Column) -> None:
    # Arrow ends the process if it makes a list of a child that has a dictionary.
    if pa.types.is_dictionary(source.field.type):
        raise _mismatch(source, column)


def _mismatch(source: FileColumn, column: Column) -> UnsupportedColumnError:
    return UnsupportedColumnError(
        column.path, f"a file has type {source.field.type}; the table has {arrow_type(column)}"
    )


def _struct(
    source: FileColumn, column: Column, columns: Sequence[Column], constants: Mapping[int, object]
) -> Convert | None:
    if not pa.types.is_struct(source.field.type):
        raise _mismatch(source, column)
    sources = projection(source.children, Struct(tuple(columns)), constants)
    for child, of in zip(columns, sources, strict=True):
        if of.position is not None:
            _require_values(source.children[of.position], child)
    same = [Source(i, None) for i in range(len(columns))]
    if sources == same and source.field.type == arrow_type(column):
        return None
    fields = [arrow_field(c) for c in columns]

    def convert(array: pa.Array) -> pa.Array:
        mask = array.is_null() if array.null_count else None
        children = []
        for child, of in zip(columns, sources, strict=True):
            part = array if of.position is None else array.field(of.position)
            found = part if of.convert is None else of.convert(part)
            _require(child, found, mask)
            children.append(found)
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)

    return convert


def _require(column: Column, array: pa.Array, parent_is_null: pa.Array | None) -> None:
    if not column.required or not array.null_count:
        return
    if parent_is_null is not None and not pc.any(pc.and_not(array.is_null(), parent_is_null)).as_py():
        return
    raise WrongInputError(f"The required column {column.path} has a null.")


def _list(column: Column, element: Convert | None) -> Convert:
    kind = arrow_type(column)

    def convert(array: pa.Array) -> pa.Array:
        values = array.values if element is None else element(array.values)
        _require(column.children[0], values, None)
        return pa.Array.from_buffers(
            kind, len(array), array.buffers()[:2], offset=array.offset, children=[values]
        )

    return convert


def _map(column: Column, key: Convert | None, value: Convert | None) -> Convert:
    kind = arrow_type(column)
    fields = [kind.key_field, kind.item_field]

    def convert(array: pa.Array) -> pa.Array:
        keys = array.keys if key is None else key(array.keys)
        items = array.items if value is None else value(array.items)
        for child, found in zip(column.children, (keys, items), strict=True):
            _require(child, found, None)
        entries = pa.StructArray.from_arrays([keys, items], fields=fields)
        return pa.Array.from_buffers(
            kind, len(array), array.buffers()[:2], offset=array.offset, children=[entries]
        )

    return convert


def _primitive(source: FileColumn, column: Column) -> Convert | None:
    found, wanted = source.field.type, arrow_type(column)
    if pa.types.is_dictionary(found):
        found = found.value_type
    if found == wanted:
        return None
    if isinstance(wanted, pa.BaseExtensionType):
        if found == wanted.storage_type:
            return lambda array: pa.ExtensionArray.from_storage(wanted, array)
    elif _is_lossless(found, wanted):
        return lambda array: array.cast(wanted)
    raise _mismatch(source, column)


def _is_lossless(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether the table's type holds each value of the file's type: promotions of the spec, narrow integers and
    milliseconds of imported files, and Arrow's large types."""
    types = pa.types
    if types.is_decimal(found) and types.is_decimal(wanted):
        return bool(found.scale == wanted.scale and found.precision <= wanted.precision)
    if types.is_timestamp(found) and types.is_timestamp(wanted):
        return found.unit == "ms" and (found.tz is None) == (wanted.tz is None)
    narrow = {
        pa.int32(): (pa.int8(), pa.int16()),
        pa.int64(): (pa.int8(), pa.int16(), pa.int32()),
        pa.float64(): (pa.float32(),),
        pa.string(): (pa.large_string(),),
        pa.binary(): (pa.large_binary(),),
        pa.time64("us"): (pa.time32("ms"),),
    }
    return found in narrow.get(wanted, ())


def needed_names(schema: pa.Schema, sources: Sequence[Source]) -> list[str] | None:
    """Returns the names of the columns to read, None for all. A name with a dot or a name of two columns cannot be
    asked for."""
    if any("." in name for name in schema.names) or len(set(schema.names)) != len(schema.names):
        return None
    positions = sorted({s.position for s in sources if s.position is not None})
    return None if len(positions) == len(schema) else [schema.names[i] for i in positions]


def renumbered(sources: Sequence[Source], only_needed: bool) -> Sequence[Source]:
    """Returns the sources with positions among the columns that were read."""
    if not only_needed:
        return sources
    positions = sorted({s.position for s in sources if s.position is not None})
    index = {position: i for i, position in enumerate(positions)}
    return [s if s.position is None else Source(index[s.position], s.convert) for s in sources]


def projected(rows: pa.Table, source: Source) -> pa.ChunkedArray:
    """Returns the column of a table that its source is among the rows of a file."""
    if source.position is None:
        assert source.convert is not None
        return pa.chunked_array([source.convert(pa.nulls(rows.num_rows))])
    column = rows.column(source.position)
    if source.convert is None:
        return column
    if column.num_chunks == 0:
        return pa.chunked_array([source.convert(column.combine_chunks())])
    return pa.chunked_array([source.convert(chunk) for chunk in column.chunks])
