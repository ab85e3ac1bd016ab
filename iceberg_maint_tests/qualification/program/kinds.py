"""Kinds of columns: their Iceberg types, the values that programs write, and how each is told.

A value is what Iceberg's JSON of single values says, so that every reader and the model speak of the
same: a timestamp is its text, a map is a pair of lists. A floating-point number is text as well: NaN
is equal to itself then, and -0.0 is not 0.0.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

EPOCH = dt.date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Kind:
    """One type of column. `wider` is the kind it may be promoted to."""

    type: Any
    spark: str
    values: tuple[Any, ...]
    is_key: bool = True
    wider: str | None = None


KINDS: Mapping[str, Kind] = {
    "int": Kind("int", "int", (0, 1, 2, 3, -1), wider="long"),
    "long": Kind("long", "bigint", (0, 1, 2, 3, 2**40)),
    "string": Kind("string", "string", ("a", "b", "", "é☃ 日本", "it's")),
    "boolean": Kind("boolean", "boolean", (True, False)),
    "float": Kind("float", "float", ("0.0", "-0.0", "1.5", "NaN"), is_key=False, wider="double"),
    "double": Kind("double", "double", ("0.0", "-0.0", "-2.25", "NaN"), is_key=False),
    "decimal": Kind("decimal(9, 2)", "decimal(9,2)", ("1.00", "-1.00", "0.05"), wider="long_decimal"),
    "long_decimal": Kind("decimal(20, 2)", "decimal(20,2)", ("1.00", "123456789012345678.99")),
    "date": Kind("date", "date", ("1969-12-31", "2024-02-29", "2024-03-01")),
    "timestamp": Kind(
        "timestamp", "timestamp_ntz", ("1969-12-31T23:59:59.999999", "2024-02-29T12:00:00.123456")
    ),
    "timestamptz": Kind(
        "timestamptz", "timestamp", ("1969-12-31T23:59:59.000001+00:00", "2024-02-29T12:00:00.123456+00:00")
    ),
    # Both of one sign: of others Iceberg's reader, which checks here, leaves deletes out (docs, deletes-scope.md).
    "uuid": Kind(
        "uuid", "string", ("379c3e09-677c-4bbd-a479-3f349cb785e7", "00000000-0000-0000-0000-000000000001")
    ),
    # Iceberg's generic reader does not find such a key in every file.
    "fixed": Kind("fixed[4]", "binary", ("01020304", "FFFFFFFF"), is_key=False),
    "binary": Kind("binary", "binary", ("", "00FF", "61")),
    "struct": Kind(
        {
            "type": "struct",
            "fields": [
                {"id": 1, "name": "x", "required": False, "type": "int"},
                {"id": 2, "name": "y", "required": False, "type": "string"},
            ],
        },
        "struct<x: int, y: string>",
        (),
        is_key=False,
    ),
    "keyed_struct": Kind(
        {
            "type": "struct",
            "fields": [
                {"id": 1, "name": "x", "required": True, "type": "int"},
                {"id": 2, "name": "y", "required": False, "type": "string"},
            ],
        },
        "struct<x: int, y: string>",
        (),
        is_key=False,
    ),
    "list": Kind(
        {"type": "list", "element-id": 1, "element": "int", "element-required": False},
        "array<int>",
        ([], [1, None, 3], [7]),
        is_key=False,
    ),
    "map": Kind(
        {
            "type": "map",
            "key-id": 1,
            "key": "string",
            "value-id": 2,
            "value": "long",
            "value-required": False,
        },
        "map<string, bigint>",
        ({"keys": [], "values": []}, {"keys": ["a", "ü"], "values": [1, 2**40]}),
        is_key=False,
    ),
}
"""By name. Nanoseconds are not among them: Spark reads no such column. The struct's values are drawn by
its fields. `keyed_struct` has a required field, by which equality deletes go."""

STRUCTS = ("struct", "keyed_struct")


def sql_literal(kind: Kind, value: Any) -> str:
    """The value as an expression of Spark's."""
    if value is None:
        return f"cast(null as {kind.spark})"
    match kind.type:
        case "string":
            text = f"X'{value.encode().hex()}'"
        case "fixed[4]" | "binary":
            text = f"X'{value}'"
        case {"type": "list"}:
            text = f"array({', '.join('null' if v is None else str(v) for v in value)})"
        case {"type": "map"}:
            pairs = zip(value["keys"], value["values"], strict=True)
            listed = ", ".join(
                f"{sql_literal(KINDS['string'], k)}, {sql_literal(KINDS['long'], v)}" for k, v in pairs
            )
            text = f"map({listed})"
        case {"type": "struct"}:
            x, y = (sql_literal(KINDS[k], value.get(name)) for k, name in (("int", "x"), ("string", "y")))
            text = f"named_struct('x', {x}, 'y', {y})"
        case _:
            text = f"'{value}'" if isinstance(value, str) else str(value)
    return f"cast({text} as {kind.spark})"


def of_json(kind: Any, value: Any) -> Any:
    """A value of a type (in Iceberg's JSON) as that JSON says it."""
    if value is None or isinstance(kind, Mapping):
        is_map = value is not None and kind["type"] == "map"
        return _map(zip(value["keys"], value["values"], strict=True)) if is_map else value
    return _floating(value) if kind in ("float", "double") else value


def of_python(kind: Any, value: Any) -> Any:
    """The same of a value as Arrow hands it to Python."""
    match value:
        case dt.datetime() | dt.date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case bytes():
            return value.hex().upper()
        case list() if isinstance(kind, Mapping) and kind["type"] == "map":
            return _map(value)
    if kind == "uuid" and value is not None:
        return str(value)
    return of_json(kind, value)


def _map(pairs: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    """In order of the keys, since a map has none."""
    ordered = sorted(pairs)
    return {"keys": [key for key, _ in ordered], "values": [value for _, value in ordered]}


def _floating(value: Any) -> str:
    # Text is what JSON says of NaN.
    text = repr(float(value))
    return "NaN" if text == "nan" else text


def days(value: str | None) -> int | None:
    """A date as Iceberg's transforms take it."""
    return None if value is None else (dt.date.fromisoformat(value) - EPOCH).days
