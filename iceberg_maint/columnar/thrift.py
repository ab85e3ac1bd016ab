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
            return self._struct()
        except (IndexError, RecursionError) as why:
            raise ThriftError(f"the struct ends outside of its bytes: {why}") from why

    def _struct(self) -> Struct:
        fields: Struct = {}
        number = 0
        while header := self._byte():
            kind, delta = header & 15, header >> 4
            number = number + delta if delta else self._integer()
            if number in fields:
                raise ThriftError(f"field {number} occurs twice")
            fields[number] = (kind, None if kind in (TRUE, FALSE) else self._value(kind))
        return fields

    def _byte(self) -> int:
        value: int = self.data[self.position]
        self.position += 1
        return value

    def _varint(self) -> int:
        result = shift = 0
        while True:
            byte = self._byte()
            result |= (byte & 127) << shift
            if byte < 128:
                return result
            shift += 7
            if shift > 63:
                raise ThriftError("an integer has more than 64 bits")

    def _integer(self) -> int:
        raw = self._varint()
        return (raw >> 1) ^ -(raw & 1)

    def _bytes(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self.data):
            raise ThriftError(f"a value of {size} bytes ends after the last byte")
        value = bytes(self.data[self.position : end])
        self.position = end
        return value

    def _value(self, kind: int) -> Any:
        if kind in _INTEGERS:
            return self._integer()
        if kind == BINARY:
            return self._bytes(self._varint())
        if kind == STRUCT:
            return self._struct()
        if kind in (LIST, SET):
            header = self._byte()
            size, element = header >> 4, header & 15
            size = self._varint() if size == _LONG_LIST else size
            if size > len(self.data) - self.position:
                raise ThriftError(f"a list of {size} elements ends after the last byte")
            if element in (TRUE, FALSE):
                return element, list(self._bytes(size))
            return element, [self._value(element) for _ in range(size)]
        if kind == I8:
            return self._byte()
        if kind == DOUBLE:
            return self._bytes(8)
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
