"""Converts the core's values to JSON and back: frozen dataclasses, enums, tuples, mappings, scalars, and
bytes as hexadecimal digits. A `NewType` has the form of the type that it is made of."""

from __future__ import annotations

import dataclasses
import enum
import json
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar, Union


class MalformedTextError(ValueError):
    """A stored text is not one that `dumps` wrote of this type."""


T = TypeVar("T")
Build = Callable[[Any], Any]
_PLAIN = frozenset((int, str, bool, type(None)))
_EXACT = 2.0**53
"""Above this value a float cannot represent every integer."""


def json_of(text: str | bytes) -> Any:
    """The JSON of a file. Raises ValueError for a text that is no JSON or nests too deeply."""
    try:
        return json.loads(text)
    except RecursionError as why:
        raise ValueError("its JSON nests too deeply") from why


def to_data(value: object) -> Any:
    """Returns the value as JSON data. Raises TypeError for a type that has no JSON form.

    A whole float becomes an integer: 1 and 1.0 are equal, so their text must be equal too. -0.0 stays: no integer has its sign.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return value if str(value) == "-0.0" else int(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        stored = ((name, getattr(value, name)) for name in _fields(type(value)))
        return {name: v if type(v) in _PLAIN else to_data(v) for name, v in stored}
    if isinstance(value, (tuple, list)):
        return [v if type(v) in _PLAIN else to_data(v) for v in value]
    if isinstance(value, Mapping):
        # A call for each number would double the time of a document of many partitions.
        return {
            k if type(k) is str else str(to_data(k)): v if type(v) in _PLAIN else to_data(v)
            for k, v in value.items()
        }
    raise TypeError(f"{type(value).__name__} has no JSON form")


@cache
def _fields(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(kind))


def from_data(kind: type[T], data: Any) -> T:
    """Returns the value of type `kind` from the data that `to_data` made. Raises ValueError if the data
    have another shape: unknown or missing fields, wrong types."""
    return typing.cast("T", _builder(typing.cast(Any, kind))(data))


def dumps(value: object) -> str:
    """Returns canonical JSON: sorted keys, no spaces. Equal values give equal text."""
    return json.dumps(to_data(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def loads(kind: type[T], text: str) -> T:
    """Reads a text that `dumps` wrote. Raises MalformedTextError for another text."""
    try:
        return from_data(kind, json.loads(text))
    except ValueError as why:
        raise MalformedTextError(str(why)) from why


def digest(value: object) -> str:
    """Returns the SHA-256 of the canonical JSON, as hexadecimal digits."""
    import hashlib  # loads OpenSSL

    return hashlib.sha256(dumps(value).encode()).hexdigest()


@cache
def _builder(kind: Any) -> Build:
    """Returns the function that builds values of the type. A type is read once, not once per value."""
    origin = typing.get_origin(kind)
    if origin in (Union, types.UnionType):
        return _union_builder(kind)
    if kind is Any or kind is object:
        return lambda data: data
    if origin is tuple:
        return _tuple_builder(kind)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping_builder(kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _dataclass_builder(kind)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind
    if isinstance(kind, typing.NewType):
        return _builder(kind.__supertype__)
    return _scalar_builder(kind)


def _scalar_builder(kind: Any) -> Build:
    def build(data: Any) -> Any:
        # type(), not isinstance: True must not pass as an integer.
        if type(data) is kind:
            return data
        _check(kind is float and type(data) is int, kind, data)
        return float(data)

    def build_bytes(data: Any) -> bytes:
        _check(isinstance(data, str), kind, data)
        return bytes.fromhex(data)

    return build_bytes if kind is bytes else build


def _tuple_builder(kind: Any) -> Build:
    args = typing.get_args(kind)
    builders = [_builder(a) for a in args if a is not Ellipsis]
    repeated = len(args) == 2 and args[1] is Ellipsis

    def build(data: Any) -> Any:
        _check(isinstance(data, list), kind, data)
        if repeated:
            return tuple(map(builders[0], data))
        return tuple(b(v) for b, v in zip(builders, data, strict=True))

    return build


def _mapping_builder(kind: Any) -> Build:
    key, value = typing.get_args(kind)
    build_key, build_value = _builder(key), _builder(value)

    def build(data: Any) -> Any:
        _check(isinstance(data, dict), kind, data)
        return {build_key(int(k) if key is int else k): build_value(v) for k, v in data.items()}

    return build


def _dataclass_builder(kind: type) -> Build:
    @cache
    def builders() -> dict[str, Build]:
        # Not before the first value: a class may have fields of its own type.
        return {name: _builder(hint) for name, hint in typing.get_type_hints(kind).items()}

    def build(data: Any) -> Any:
        _check(isinstance(data, dict), kind, data)
        of_fields = builders()
        if different := data.keys() ^ of_fields.keys():
            raise ValueError(f"{kind.__name__} has other fields: {sorted(different)}")
        return kind(**{name: of_fields[name](v) for name, v in data.items()})

    return build


def _union_builder(kind: Any) -> Build:
    options = typing.get_args(kind)
    has_none = type(None) in options

    def build(data: Any) -> Any:
        if data is None and has_none:
            return None
        (only,) = (o for o in options if o is not type(None))
        return _builder(only)(data)

    return build


def _check(holds: bool, kind: Any, data: Any) -> None:
    if not holds:
        raise ValueError(f"{data!r} is not a {getattr(kind, '__name__', kind)}")
