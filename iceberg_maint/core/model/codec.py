"""Converts the core's values to JSON and back: frozen dataclasses, enums, tuples, mappings, scalars, and
bytes as hexadecimal digits. A `NewType` has the form of the type that it is made of."""

from __future__ import annotations

import dataclasses
import enum
import json
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, Union

T = TypeVar("T")
OMITTED_IF_NONE = "omitted_if_none"
"""Key in the metadata of a dataclass field that JSON does not have while it is None: a field added later."""
_EXACT = 2.0**53
"""Above this value a float cannot represent every integer."""


def to_data(value: object) -> Any:
    """Returns the value as JSON data. Raises TypeError for a type that has no JSON form.

    A whole float becomes an integer: 1 and 1.0 are equal, so their text must be equal too.
    """
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        stored = ((f, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {f.name: to_data(v) for f, v in stored if v is not None or OMITTED_IF_NONE not in f.metadata}
    if isinstance(value, (tuple, list)):
        return [to_data(v) for v in value]
    if isinstance(value, Mapping):
        return {str(to_data(k)): to_data(v) for k, v in value.items()}
    raise TypeError(f"{type(value).__name__} has no JSON form")


def from_data(kind: type[T], data: Any) -> T:
    """Returns the value of type `kind` from the data that `to_data` made. Raises ValueError if the data
    have another shape: unknown or missing fields, wrong types."""
    return typing.cast("T", _build(kind, data))


def dumps(value: object) -> str:
    """Returns canonical JSON: sorted keys, no spaces. Equal values give equal text."""
    return json.dumps(to_data(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def loads(kind: type[T], text: str) -> T:
    """Reads a text that `dumps` wrote."""
    return from_data(kind, json.loads(text))


def digest(value: object) -> str:
    """Returns the SHA-256 of the canonical JSON, as hexadecimal digits."""
    import hashlib  # loads OpenSSL

    return hashlib.sha256(dumps(value).encode()).hexdigest()


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _build(kind: Any, data: Any) -> Any:
    origin = typing.get_origin(kind)
    if origin in (Union, types.UnionType):
        return _build_union(kind, data)
    if kind is Any or kind is object:
        return data
    if origin is tuple:
        args = typing.get_args(kind)
        _check(isinstance(data, list), kind, data)
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(_build(args[0], v) for v in data)
        return tuple(_build(a, v) for a, v in zip(args, data, strict=True))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        key, val = typing.get_args(kind)
        _check(isinstance(data, dict), kind, data)
        return {_build(key, int(k) if key is int else k): _build(val, v) for k, v in data.items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, data)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(data)
    if isinstance(kind, typing.NewType):
        return _build(kind.__supertype__, data)
    if kind is bytes:
        _check(isinstance(data, str), kind, data)
        return bytes.fromhex(data)
    if kind is float and type(data) is int:
        return float(data)
    # type(), not isinstance: True must not pass as an integer.
    _check(type(data) is kind, kind, data)
    return data


def _build_dataclass(kind: type, data: Any) -> Any:
    _check(isinstance(data, dict), kind, data)
    hints = _hints(kind)
    unknown = set(data) - set(hints)
    if unknown:
        raise ValueError(f"{kind.__name__} has no field {sorted(unknown)}")
    try:
        return kind(**{name: _build(hints[name], v) for name, v in data.items()})
    except TypeError as why:
        raise ValueError(f"{kind.__name__}: {why}") from why


def _check(holds: bool, kind: Any, data: Any) -> None:
    if not holds:
        raise ValueError(f"{data!r} is not a {getattr(kind, '__name__', kind)}")


def _build_union(kind: Any, data: Any) -> Any:
    options = typing.get_args(kind)
    if data is None and type(None) in options:
        return None
    (only,) = (o for o in options if o is not type(None))
    return _build(only, data)
