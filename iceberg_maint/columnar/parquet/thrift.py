"""Reads and writes structs of Thrift's compact protocol, the encoding of Parquet's metadata.

A struct is a dict: field id → (type, value). A struct that is read and written again keeps the fields that this program
does not know. The value of a boolean field is None, because its type states it. A list is (type, elements).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
INTEGERS = frozenset({I16, I32, I64})
_KINDS = frozenset(range(1, 13))
_LONG_LIST = 15

Struct = dict[int, tuple[int, Any]]


class ThriftError(Exception):
    """The bytes are not a struct of the compact protocol, or a struct of another form."""


@dataclass(frozen=True)
class ListOf:
    """A list of elements of one of these types, or of structs of one form. An empty one may state any type."""

    kinds: Collection[int]
    form: Form | None = None


@dataclass(frozen=True)
class Form:
    """The fields of a struct that are read: the types of a field, its list or its struct, by its number. Fields that a
    form does not name may have any type. The protocol names no struct, so damaged bytes may be a struct of other fields.
    """

    name: str
    required: Mapping[int, Collection[int] | ListOf | Form] = field(default_factory=dict)
    optional: Mapping[int, Collection[int] | ListOf | Form] = field(default_factory=dict)

    @cached_property
    def rules(self) -> Mapping[int, _Rule]:
        """The rules of all fields by their number."""
        return {number: _rule(wanted) for number, wanted in {**self.required, **self.optional}.items()}

    def lacking(self, fields: Struct) -> str:
        """Which field a struct lacks."""
        return f"the {self.name} lacks field {min(self.required.keys() - fields.keys())}"


_Rule = tuple[Collection[int], Collection[int], Form]
"""The types of a field, those of its elements, and the form of its struct or of theirs."""
ANY = Form("struct")
_ANY_RULE: _Rule = (_KINDS, _KINDS, ANY)


def _rule(wanted: Collection[int] | ListOf | Form) -> _Rule:
    if isinstance(wanted, Form):
        return (STRUCT,), _KINDS, wanted
    if isinstance(wanted, ListOf):
        return (LIST,), wanted.kinds, wanted.form or ANY
    return wanted, _KINDS, ANY


class Reader:
    """Reads values from `data`, from `position` on."""

    __slots__ = ("data", "position")

    def __init__(self, data: Any, position: int = 0) -> None:
        self.data, self.position = data, position

    def struct(self, form: Form = ANY) -> Struct:
        """The struct at the position. Raises ThriftError, also for a struct of another form."""
        try:
            found, self.position = _struct(self.data, self.position, form)
        except (IndexError, RecursionError) as why:
            raise ThriftError(f"the struct ends outside of its bytes: {why}") from why
        return found


def head(data: bytes, last: int, form: Form = ANY) -> tuple[Struct, int]:
    """The first fields of a struct, through field `last`, and the position after them. Raises ThriftError if a field is
    missing or not an integer, a text or a list, or has another form."""
    fields: Struct = {}
    position = number = 0
    try:
        while number < last:
            kind, delta = data[position] & 15, data[position] >> 4
            if delta != 1 or kind not in (*INTEGERS, BINARY, LIST):
                raise ThriftError(f"field {number + 1} is missing or has type {kind}")
            number += 1
            position = _field(fields, number, kind, data, position + 1, form)
    except (IndexError, RecursionError) as why:
        raise ThriftError(f"the struct ends outside of its bytes: {why}") from why
    return fields, position


# The functions return a value and the position after it. A call for each byte would take most of the time of a splice,
# and so would a second reading of each field for its form.


def _struct(data: Any, position: int, form: Form) -> tuple[Struct, int]:
    fields: Struct = {}
    number = 0
    rules = form.rules
    while header := data[position]:
        position += 1
        kind = header & 15
        if header > 15:
            number += header >> 4
        else:
            number, position = _integer(data, position)
        if number in fields:
            raise ThriftError(f"field {number} occurs twice")
        if kind in INTEGERS:
            if number in rules and kind not in rules[number][0]:
                raise _other_type(number, form)
            raw = data[position]
            position += 1
            if raw > 127:
                following = data[position]
                if following < 128:
                    raw = raw & 127 | following << 7
                    position += 1
                else:
                    raw, position = _varint(data, position - 1)
            fields[number] = (kind, (raw >> 1) ^ -(raw & 1))
        else:
            position = _field(fields, number, kind, data, position, form)
    if not form.required.keys() <= fields.keys():
        raise ThriftError(form.lacking(fields))
    return fields, position + 1


def _field(fields: Struct, number: int, kind: int, data: Any, position: int, form: Form) -> int:
    """Reads the value of a field, and returns the position after it."""
    kinds, of_elements, inner = form.rules.get(number, _ANY_RULE)
    if kind not in kinds:
        raise _other_type(number, form)
    value: Any = None
    if kind == BINARY:
        value, position = _text(data, position)
    elif kind == STRUCT:
        value, position = _struct(data, position, inner)
    elif kind in (LIST, SET):
        element, size, position = _list_header(data, position)
        if size and element not in of_elements:
            raise _other_type(number, form)
        elements, position = _elements(element, size, data, position, inner)
        value = element, elements
    elif kind not in (TRUE, FALSE):
        value, position = _value(kind, data, position)
    fields[number] = (kind, value)
    return position


def _other_type(number: int, form: Form) -> ThriftError:
    return ThriftError(f"field {number} of the {form.name} has another type")


def _varint(data: Any, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return result, position
        shift += 7
        if shift > 63:
            raise ThriftError("an integer has more than 64 bits")


def _integer(data: Any, position: int) -> tuple[int, int]:
    raw, position = _varint(data, position)
    return (raw >> 1) ^ -(raw & 1), position


def _bytes(data: Any, position: int, size: int) -> tuple[bytes, int]:
    end = position + size
    if end > len(data):
        raise ThriftError(f"a value of {size} bytes ends after the last byte")
    return bytes(data[position:end]), end


def _text(data: Any, position: int) -> tuple[bytes, int]:
    size = data[position]
    position += 1
    if size > 127:
        size, position = _varint(data, position - 1)
    return _bytes(data, position, size)


def _list_header(data: Any, position: int) -> tuple[int, int, int]:
    """The type of a list's elements, their number, and the position of the first."""
    header = data[position]
    position += 1
    size = header >> 4
    if size == _LONG_LIST:
        size, position = _varint(data, position)
    if size > len(data) - position:
        raise ThriftError(f"a list of {size} elements ends after the last byte")
    return header & 15, size, position


def _elements(kind: int, size: int, data: Any, position: int, form: Form) -> tuple[list[Any], int]:
    if kind in (TRUE, FALSE):
        flags, position = _bytes(data, position, size)
        return list(flags), position
    values: list[Any] = []
    if kind == STRUCT:
        for _ in range(size):
            value, position = _struct(data, position, form)
            values.append(value)
        return values, position
    for _ in range(size):
        value, position = _value(kind, data, position)
        values.append(value)
    return values, position


def _value(kind: int, data: Any, position: int) -> tuple[Any, int]:
    if kind == BINARY:
        return _text(data, position)
    if kind in INTEGERS:
        return _integer(data, position)
    if kind == STRUCT:
        return _struct(data, position, ANY)
    if kind in (LIST, SET):
        element, size, position = _list_header(data, position)
        elements, position = _elements(element, size, data, position, ANY)
        return (element, elements), position
    if kind == I8:
        return data[position], position + 1
    if kind == DOUBLE:
        return _bytes(data, position, 8)
    raise ThriftError(f"type {kind} does not occur in Parquet's metadata")


def encoded(fields: Struct) -> bytes:
    """The bytes of a struct."""
    out = bytearray()
    _write_struct(out, fields)
    return bytes(out)


def _write_varint(out: bytearray, value: int) -> None:
    while value > 127:
        out.append((value & 127) | 128)
        value >>= 7
    out.append(value)


def _write_integer(out: bytearray, value: int) -> None:
    _write_varint(out, (value << 1) ^ (value >> 63))


def _write_struct(out: bytearray, fields: Struct) -> None:
    last = 0
    for number in sorted(fields):
        kind, value = fields[number]
        delta = number - last
        if 0 < delta <= 15:
            out.append(delta << 4 | kind)
        else:
            out.append(kind)
            _write_integer(out, number)
        if kind not in (TRUE, FALSE):
            _write_value(out, kind, value)
        last = number
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in INTEGERS:
        _write_integer(out, value)
    elif kind == BINARY:
        _write_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind in (LIST, SET):
        element, elements = value
        if len(elements) < _LONG_LIST:
            out.append(len(elements) << 4 | element)
        else:
            out.append(_LONG_LIST << 4 | element)
            _write_varint(out, len(elements))
        if element in (TRUE, FALSE):
            out += bytes(elements)
        else:
            for item in elements:
                _write_value(out, element, item)
    elif kind == I8:
        out.append(value)
    elif kind == DOUBLE:
        out += value
    else:
        raise ThriftError(f"type {kind} does not occur in Parquet's metadata")
