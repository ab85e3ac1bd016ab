"""JSON single values (spec: Appendix C) as Arrow scalars: defaults of columns and values of partitions."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

from iceberg_maint.columnar.read.schema import (
    Column,
    ListOf,
    MapOf,
    Primitive,
    Struct,
    arrow_field,
    arrow_type,
)
from iceberg_maint.columnar.storage import raise_shortage
from iceberg_maint.columnar.task import UnsupportedColumnError


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
