"""Iceberg's schemas as trees of columns, the Arrow types of their columns (spec: "Schemas and Data Types"), and JSON single
values (spec: Appendix C) as Arrow scalars."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from functools import cached_property
from typing import Any
from uuid import UUID

import pyarrow as pa

from iceberg_maint.columnar.storage import raise_shortage
from iceberg_maint.columnar.task import UnsupportedColumnError

ROW_ID = 2147483540
LAST_UPDATED = 2147483539
FIELD_ID_KEY = b"PARQUET:field_id"


@dataclass(frozen=True)
class Primitive:
    """A type without children, as the schema's JSON writes it: `long`, `decimal(9, 2)`, `fixed[16]`."""

    name: str

    @cached_property
    def base(self) -> str:
        """The type without its parameters."""
        return re.split(r"[(\[]", self.name, maxsplit=1)[0].strip()

    @property
    def parameters(self) -> tuple[int, ...]:
        """The numbers in its parentheses."""
        return tuple(int(n) for n in re.findall(r"\d+", self.name.removeprefix(self.base)))


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct, and the table itself."""

    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list."""

    element: Column


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map."""

    key: Column
    value: Column


ColumnType = Primitive | Struct | ListOf | MapOf


@dataclass(frozen=True, slots=True)
class Column:
    """A column, a field of a struct, an element of a list, or a key or value of a map. `path` is Iceberg's:
    `s.x`, `l.element`, `m.key`. `default` is the initial default as a JSON single value, None if it has none."""

    field_id: int
    name: str
    path: str
    required: bool
    kind: ColumnType
    default: object = None

    @property
    def children(self) -> tuple[Column, ...]:
        """The columns directly below."""
        match self.kind:
            case Struct(columns):
                return columns
            case ListOf(element):
                return (element,)
            case MapOf(key, value):
                return (key, value)
        return ()


LINEAGE = (
    Column(ROW_ID, "_row_id", "_row_id", False, Primitive("long")),
    Column(
        LAST_UPDATED,
        "_last_updated_sequence_number",
        "_last_updated_sequence_number",
        False,
        Primitive("long"),
    ),
)


def table_schema(text: str, *, lineage: bool) -> Struct:
    """Reads a schema from Iceberg's JSON. `lineage` appends the columns of row lineage: raises UnsupportedColumnError if the
    schema has a column of that name, because Arrow finds columns by name."""
    columns = _struct(json.loads(text), "").columns
    if taken := lineage and {c.name for c in columns} & {c.name for c in LINEAGE}:
        raise UnsupportedColumnError(
            min(taken), "the table has a column with the name of a column of row lineage"
        )
    return Struct(columns + LINEAGE if lineage else columns)


def written_schema(text: str, *, lineage: bool) -> str:
    """Returns the JSON of the schema of a written file, with the columns of row lineage as Iceberg's writer has them."""
    if not lineage:
        return text
    node = json.loads(text)
    added = [{"id": c.field_id, "name": c.name, "required": False, "type": "long"} for c in LINEAGE]
    return json.dumps({**node, "fields": [*node["fields"], *added]})


def _struct(node: Mapping[str, Any], prefix: str) -> Struct:
    return Struct(
        tuple(
            Column(
                field["id"],
                field["name"],
                prefix + field["name"],
                field["required"],
                _kind(field["type"], prefix + field["name"]),
                field.get("initial-default"),
            )
            for field in node["fields"]
        )
    )


def _kind(node: Mapping[str, Any] | str, path: str) -> ColumnType:
    if isinstance(node, str):
        return Primitive(node)
    match node["type"]:
        case "struct":
            return _struct(node, f"{path}.")
        case "list":
            return ListOf(_child(node, "element", path))
        case "map":
            return MapOf(_child(node, "key", path), _child(node, "value", path))
        case other:
            return Primitive(str(other))


def _child(node: Mapping[str, Any], name: str, path: str) -> Column:
    required = name == "key" or bool(node[f"{name}-required"])
    return Column(node[f"{name}-id"], name, f"{path}.{name}", required, _kind(node[name], f"{path}.{name}"))


_TYPES: dict[str, Callable[[], pa.DataType]] = {
    "boolean": pa.bool_,
    "int": pa.int32,
    "long": pa.int64,
    "float": pa.float32,
    "double": pa.float64,
    "date": pa.date32,
    "time": lambda: pa.time64("us"),
    "timestamp": lambda: pa.timestamp("us"),
    "timestamptz": lambda: pa.timestamp("us", "UTC"),
    "timestamp_ns": lambda: pa.timestamp("ns"),
    "timestamptz_ns": lambda: pa.timestamp("ns", "UTC"),
    "string": pa.string,
    "binary": pa.binary,
    "uuid": pa.uuid,
}


def arrow_type(column: Column) -> pa.DataType:
    """Returns the Arrow type of a column. Raises UnsupportedColumnError for a type that the engine does not write."""
    match column.kind:
        case Struct(columns):
            if not columns:
                raise UnsupportedColumnError(column.path, "Parquet has no struct without fields")
            return pa.struct([arrow_field(c) for c in columns])
        case ListOf(element):
            return pa.list_(arrow_field(element))
        case MapOf(key, value):
            return pa.map_(arrow_field(key), arrow_field(value))
    primitive = column.kind
    if primitive.base == "decimal":
        return pa.decimal128(*primitive.parameters)
    if primitive.base == "fixed":
        return pa.binary(*primitive.parameters)
    if primitive.base not in _TYPES:
        raise UnsupportedColumnError(column.path, f"the engine does not read type {primitive.name}")
    return _TYPES[primitive.base]()


def arrow_field(column: Column) -> pa.Field:
    """Returns the Arrow field of a column, with its field id."""
    metadata = {FIELD_ID_KEY: str(column.field_id).encode()}
    return pa.field(column.name, arrow_type(column), nullable=not column.required, metadata=metadata)


def arrow_schema(table: Struct) -> pa.Schema:
    """Returns the Arrow schema of a table. Raises UnsupportedColumnError for a column that the engine does not
    write."""
    return pa.schema([arrow_field(c) for c in table.columns])


def field_id(field: pa.Field) -> int | None:
    """Returns the field id of a column of a Parquet file, None if it has none."""
    value = (field.metadata or {}).get(FIELD_ID_KEY)
    return None if value is None or int(value) < 0 else int(value)


def child_fields(kind: pa.DataType) -> tuple[pa.Field, ...]:
    """Returns the fields of a struct, the element of a list, or the key and the value of a map."""
    if pa.types.is_struct(kind):
        return tuple(kind.field(i) for i in range(kind.num_fields))
    if pa.types.is_map(kind):
        return (kind.key_field, kind.item_field)
    if pa.types.is_list(kind):
        return (kind.value_field,)
    return ()


def array_of(column: Column, value: object, length: int) -> pa.Array:
    """Returns an array that repeats a JSON single value. None is null."""
    if value is None:
        return _nulls(column, length)
    kind = arrow_type(column)
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    try:
        array = pa.repeat(pa.scalar(_value(column, value), storage), length)
    except (ValueError, TypeError, KeyError, pa.ArrowException) as why:
        raise_shortage(why)
        raise UnsupportedColumnError(column.path, f"{value!r} is no value of its type") from why
    return pa.ExtensionArray.from_storage(kind, array) if isinstance(kind, pa.BaseExtensionType) else array


def _nulls(column: Column, length: int) -> pa.Array:
    """Returns nulls. A required field of a null struct has no null itself: Arrow's writer refuses it."""
    if isinstance(column.kind, Struct):
        return _structs(column.kind, length, pa.repeat(True, length))
    return pa.nulls(length, arrow_type(column))


def _structs(struct: Struct, length: int, mask: pa.Array | None) -> pa.Array:
    children = [_without_nulls(c, length) if c.required else _nulls(c, length) for c in struct.columns]
    return pa.StructArray.from_arrays(children, fields=[arrow_field(c) for c in struct.columns], mask=mask)


def _without_nulls(column: Column, length: int) -> pa.Array:
    """Returns values that no reader sees, because a struct around them is null."""
    if isinstance(column.kind, Struct):
        return _structs(column.kind, length, None)
    kind = arrow_type(column)
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    nulls = pa.nulls(length, storage)
    _, *buffers = nulls.buffers()[: storage.num_buffers]
    below = [nulls.values] if isinstance(column.kind, ListOf | MapOf) else None
    array = pa.Array.from_buffers(storage, length, [None, *buffers], children=below)
    return pa.ExtensionArray.from_storage(kind, array) if isinstance(kind, pa.BaseExtensionType) else array


def _value(column: Column, value: Any) -> Any:
    if value is None:
        return None
    match column.kind:
        case Struct(columns):
            return {c.name: _value(c, value.get(str(c.field_id), c.default)) for c in columns}
        case ListOf(element):
            return [_value(element, v) for v in value]
        case MapOf(key, item):
            pairs = zip(value["keys"], value["values"], strict=True)
            return [(_value(key, k), _value(item, v)) for k, v in pairs]
    return _primitive(column.kind, value)


def _primitive(kind: Primitive, value: Any) -> Any:
    match kind.base:
        case "decimal":
            return Decimal(value)
        case "date":
            return date.fromisoformat(value)
        case "time":
            return time.fromisoformat(value)
        case "timestamp" | "timestamptz":
            return datetime.fromisoformat(value)
        case "timestamp_ns" | "timestamptz_ns":
            return _nanoseconds(value)
        case "uuid":
            return UUID(value).bytes
        case "fixed" | "binary":
            return bytes.fromhex(value)
        case "float" | "double":
            return float(value)
    return value


def _nanoseconds(value: str) -> int:
    text = value.removesuffix("+00:00")
    seconds, _, fraction = text.partition(".")
    whole = datetime.fromisoformat(f"{seconds}+00:00").timestamp()
    return int(whole) * 1_000_000_000 + int(fraction.ljust(9, "0"))
