"""Reads and writes structs of Thrift's compact protocol, the encoding of Parquet's metadata.

A struct is a dict: field id → (type, value). A struct that is read and written again keeps the fields that this program
does not know. The value of a boolean field is None, because its type states it. A list is (type, elements).
"""

from __future__ import annotations

from typing import Any

TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_INTEGERS = frozenset({I16, I32, I64})
_LONG_LIST = 15

Struct = dict[int, tuple[int, Any]]


class ThriftError(Exception):
    """The bytes are not a struct of the compact protocol."""


class Reader:
    """Reads values from `data`, from `position` on."""

    __slots__ = ("data", "position")

    def __init__(self, data: Any, position: int = 0) -> None:
        self.data, self.position = data, position

    def struct(self) -> Struct:
        """The struct at the position. Raises ThriftError."""
        try:
            found, self.position = _struct(self.data, self.position)
        except (IndexError, RecursionError) as why:
            raise ThriftError(f"the struct ends outside of its bytes: {why}") from why
        return found


def head(data: bytes, last: int) -> tuple[Struct, int]:
    """The first fields of a struct, through field `last`, and the position after them. Raises ThriftError if a field is
    missing or not an integer, a text or a list."""
    fields: Struct = {}
    position = number = 0
    try:
        while number < last:
            kind, delta = data[position] & 15, data[position] >> 4
            if delta != 1 or kind not in (*_INTEGERS, BINARY, LIST):
                raise ThriftError(f"field {number + 1} is missing or has type {kind}")
            number += 1
            value, position = _value(kind, data, position + 1)
            fields[number] = (kind, value)
    except (IndexError, RecursionError) as why:
        raise ThriftError(f"the struct ends outside of its bytes: {why}") from why
    return fields, position


# The functions return a value and the position after it. A call for each byte would take most of the time of a splice.


def _struct(data: Any, position: int) -> tuple[Struct, int]:
    fields: Struct = {}
    number = 0
    while header := data[position]:
        position += 1
        kind, delta = header & 15, header >> 4
        if delta:
            number += delta
        else:
            number, position = _integer(data, position)
        if number in fields:
            raise ThriftError(f"field {number} occurs twice")
        if kind in _INTEGERS:
            raw = data[position]
            position += 1
            if raw > 127:
                raw, position = _varint(data, position - 1)
            fields[number] = (kind, (raw >> 1) ^ -(raw & 1))
        elif kind == STRUCT:
            value, position = _struct(data, position)
            fields[number] = (STRUCT, value)
        elif kind in (TRUE, FALSE):
            fields[number] = (kind, None)
        else:
            value, position = _value(kind, data, position)
            fields[number] = (kind, value)
    return fields, position + 1


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


def _value(kind: int, data: Any, position: int) -> tuple[Any, int]:
    if kind == BINARY:
        size = data[position]
        position += 1
        if size > 127:
            size, position = _varint(data, position - 1)
        return _bytes(data, position, size)
    if kind in _INTEGERS:
        return _integer(data, position)
    if kind == STRUCT:
        return _struct(data, position)
    if kind in (LIST, SET):
        header = data[position]
        position += 1
        size, element = header >> 4, header & 15
        if size == _LONG_LIST:
            size, position = _varint(data, position)
        if size > len(data) - position:
            raise ThriftError(f"a list of {size} elements ends after the last byte")
        if element in (TRUE, FALSE):
            elements, position = _bytes(data, position, size)
            return (element, list(elements)), position
        values = []
        for _ in range(size):
            value, position = _value(element, data, position)
            values.append(value)
        return (element, values), position
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
    if kind in _INTEGERS:
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
