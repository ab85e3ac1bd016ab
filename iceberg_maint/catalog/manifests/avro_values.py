"""Reads Avro values from bytes in Python alone. Every access is checked against the end of the bytes.

PyIceberg's compiled decoder checks no bounds: bytes out of step with their schema make it read the memory of the process,
or end the process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, NoReturn
from uuid import UUID

from pyiceberg.utils.decimal import bytes_to_decimal

Node = Any
"""A type of an Avro schema in which named types are replaced by their definitions."""


_ALL_BITS = (1 << 64) - 1
_MOST_LEVELS = 20
"""Types in each other. A manifest has four."""
_FLOATS = {"float": Struct("<f"), "double": Struct("<d")}

# Parts of a record: its literal bytes, and what may differ between records of one shape.
LITERAL, INTEGER, BYTES, OTHER, OPEN, CLOSE = range(6)
Part = tuple[int, bytes]
"""The kind of a part, and its bytes: of `BYTES` those of the length, of `OTHER` an expression. `OPEN` and `CLOSE` are around a
requested value."""


FromGroups = Callable[[Sequence[bytes]], Any]
"""Makes something of the groups of a match."""


class AvroError(ValueError):
    """The file is not an Avro container, or its bytes disagree with its schema."""


def kind_of(node: Node) -> str:
    """The type's name; `union` for a list of types."""
    return str(node) if isinstance(node, str) else "union" if isinstance(node, list) else str(node["type"])


def item_kinds(items: Node) -> list[str]:
    """Returns the types of the fields of an array's items, or of the items if they are not records."""
    return [kind_of(f["type"]) for f in items["fields"]] if kind_of(items) == "record" else [kind_of(items)]


def is_prefixed(node: Node) -> bool:
    """Whether Iceberg's Java writer puts the length before the value: a fixed that is no uuid and no decimal."""
    return kind_of(node) == "fixed" and node.get("logicalType") not in ("decimal", "uuid")


def long_at(data: bytes, pos: int) -> tuple[int, int]:
    """Returns the integer at a position, and the position behind it. Raises IndexError at the end of the bytes."""
    value = shift = 0
    while True:
        byte = data[pos]
        value |= (byte & 127) << shift
        pos += 1
        if byte < 128:
            value &= _ALL_BITS
            return (value >> 1) ^ -(value & 1), pos
        shift += 7
        if shift > 63:
            raise AvroError("an integer has more than ten bytes")


def end_of(data: bytes, pos: int, length: int) -> int:
    """Returns the position behind this number of bytes. Raises AvroError if the data ends before."""
    if not 0 <= length <= len(data) - pos:
        raise AvroError(f"a value of {length} bytes exceeds the {len(data) - pos} bytes that follow")
    return pos + length


def bytes_at(data: bytes, pos: int) -> tuple[bytes, int]:
    """Returns the bytes behind their length, and the position behind them."""
    length, pos = long_at(data, pos)
    end = end_of(data, pos, length)
    return data[pos:end], end


def fixed_at(data: bytes, pos: int, size: int) -> tuple[bytes, int]:
    """Returns a fixed value as Iceberg's Java writer writes it: behind its length."""
    length, pos = long_at(data, pos)
    if length != size:
        raise AvroError(f"a fixed value of {size} bytes states {length}")
    end = end_of(data, pos, size)
    return data[pos:end], end


def boolean_at(data: bytes, pos: int) -> tuple[bool, int]:
    """Returns the boolean at a position, and the position behind it."""
    if data[pos] > 1:
        raise AvroError(f"a boolean is {data[pos]}")
    return data[pos] == 1, pos + 1


def count_at(data: bytes, pos: int) -> tuple[int, int]:
    """Returns the number of items of a block of an array or a map, and the position of the first one."""
    count, pos = long_at(data, pos)
    if count < 0:  # the block's size in bytes follows
        count, (_, pos) = -count, long_at(data, pos)
    if count > len(data) - pos:
        raise AvroError(f"{count} items exceed the {len(data) - pos} bytes that follow")
    return count, pos


def no_branch(branch: int) -> NoReturn:
    """Raises the error of a union that has no such branch."""
    raise AvroError(f"a union has no branch {branch}")


class ValueReader:
    """Reads values of any type. If `prefixed`, a fixed stands behind its length. Bytes become texts, decimals and uuids if it
    `converts` them."""

    def __init__(self, *, prefixed: bool, converts: bool) -> None:
        self._prefixed, self._converts = prefixed, converts

    def value_at(
        self,
        node: Node,
        data: bytes,
        pos: int,
        parts: list[Part],
        level: int = 0,
        keyed: KeyedArray | None = None,
    ) -> tuple[Any, int]:
        """Returns the value at a position and the position behind it. Appends the parts of its shape. Raises AvroError,
        IndexError at the end of the bytes, KeyError for a type that Avro does not have."""
        kind = kind_of(node)
        if level > _MOST_LEVELS:
            raise AvroError(f"the schema has more than {_MOST_LEVELS} types in each other")
        if kind in ("int", "long"):
            value, end = long_at(data, pos)
            parts.append((INTEGER, data[pos:end]))
            return value, end
        if kind == "union":
            branch, start = long_at(data, pos)
            if not 0 <= branch < len(node):
                no_branch(branch)
            parts.append((LITERAL, data[pos:start]))
            return self.value_at(node[branch], data, start, parts, level + 1, keyed)
        if kind == "record":
            values = []
            for each in node["fields"]:
                value, pos = self.value_at(each["type"], data, pos, parts, level + 1)
                values.append(value)
            return tuple(values), pos
        if kind in ("array", "map"):
            return self._items_at(node, data, pos, parts, level, keyed)
        if kind == "null":
            return None, pos
        if kind == "boolean":
            parts.append((OTHER, rb"[\x00\x01]"))
            return boolean_at(data, pos)
        if kind in _FLOATS:
            end = end_of(data, pos, _FLOATS[kind].size)
            parts.append((OTHER, b".{%d}" % (end - pos)))
            return _FLOATS[kind].unpack(data[pos:end])[0], end
        return self._bytes_at(node, kind, data, pos, parts)

    def _bytes_at(self, node: Node, kind: str, data: bytes, pos: int, parts: list[Part]) -> tuple[Any, int]:
        if kind != "fixed":
            value, end = bytes_at(data, pos)
            parts.append((BYTES, data[pos : end - len(value)]))
            if kind not in ("bytes", "string"):
                raise KeyError(kind)
            if kind == "string" and self._converts:
                return value.decode(), end
        elif self._prefixed and is_prefixed(node):
            value, end = fixed_at(data, pos, int(node["size"]))
            parts += (LITERAL, data[pos : end - len(value)]), (OTHER, b".{%d}" % len(value))
        else:
            end = end_of(data, pos, int(node["size"]))
            value = data[pos:end]
            parts.append((OTHER, b".{%d}" % len(value)))
        logical = node.get("logicalType") if isinstance(node, dict) and self._converts else None
        if logical == "decimal":
            return bytes_to_decimal(value, int(node.get("scale", 0))), end
        return (UUID(bytes=value) if logical == "uuid" else value), end

    def _items_at(
        self, node: Node, data: bytes, pos: int, parts: list[Part], level: int, keyed: KeyedArray | None
    ) -> tuple[Any, int]:
        values: list[Any] = []
        if keyed is not None:
            keyed.begin(node["items"])
        while True:
            count, start = count_at(data, pos)
            parts.append((LITERAL, data[pos:start]))
            pos = start
            if not count:
                return (tuple(values) if keyed is None else keyed.value()), pos
            for _ in range(count):
                if keyed is not None:
                    pos = self._pair_at(node["items"], data, pos, parts, keyed)
                    continue
                if node["type"] == "map":
                    _, pos = self.value_at("string", data, pos, parts, level + 1)
                item = node["values"] if node["type"] == "map" else node["items"]
                value, pos = self.value_at(item, data, pos, parts, level + 1)
                values.append(value)

    def _pair_at(self, node: Node, data: bytes, pos: int, parts: list[Part], keyed: KeyedArray) -> int:
        key, start = long_at(data, pos)
        parts.append((LITERAL, data[pos:start]))
        if not keyed.wants(key):
            return self.value_at(node["fields"][1]["type"], data, start, parts)[1]
        parts.append((OPEN, b""))
        end = self.value_at(node["fields"][1]["type"], data, start, parts)[1]
        parts.append((CLOSE, b""))
        keyed.add(key, data[start:end])
        return end


def raw_bytes(raw: bytes) -> bytes:
    return raw[1:] if raw[0] < 128 else raw[2:] if raw[1] < 128 else bytes_at(raw, 0)[0]


def raw_text(raw: bytes) -> str:
    return raw[1:].decode() if raw[0] < 128 else raw[2:].decode() if raw[1] < 128 else raw_bytes(raw).decode()


class KeyedArray:
    """An array of (integer, value) in one record: the requested values by key."""

    def __init__(self, keys: tuple[int, ...] | None) -> None:
        self._keys = keys
        self._items: Node = None
        self._places: dict[int, int] = {}
        self._values: list[bytes] = []

    def begin(self, items: Node) -> None:
        """The record has the array, with items of this type."""
        self._items = items

    def wants(self, key: int) -> bool:
        """Whether the value of this key is requested. Those of integers all are."""
        return self._keys is None or not self._is_of_bytes() or key in self._keys

    def add(self, key: int, raw: bytes) -> None:
        """Adds the bytes of a value. The last one of a key counts."""
        self._places[key] = len(self._values)
        self._values.append(raw)

    def value(self) -> Any:
        """Returns the value of this record, as it is in a row."""
        return self.from_groups(0)(self._values)

    def from_groups(self, first: int) -> FromGroups:
        """Returns what makes the value of a record of this shape, whose groups begin with this number: of bytes the values of
        the requested keys, or pairs; of integers the keys, and the bytes of the values."""
        if self._items is None:
            return lambda _groups: None
        if self._keys is not None and self._is_of_bytes():
            chosen = [self._places.get(key) for key in self._keys]
            if len(chosen) == 1 and chosen[0] is not None:
                only = first + chosen[0]
                return lambda groups: (raw_bytes(groups[only]),)
            return lambda groups: tuple(
                [None if place is None else raw_bytes(groups[first + place]) for place in chosen]
            )
        keys = tuple(sorted(self._places))
        places = [first + self._places[key] for key in keys]
        last = first + len(keys)
        in_order = places == list(range(first, last))
        if self._is_of_bytes():
            if in_order:
                return lambda groups: tuple(zip(keys, map(raw_bytes, groups[first:last]), strict=True))
            return lambda groups: tuple(
                [(k, raw_bytes(groups[at])) for k, at in zip(keys, places, strict=True)]
            )
        if in_order:
            return lambda groups: (keys, groups[first:last])
        return lambda groups: (keys, [groups[at] for at in places])

    @property
    def groups(self) -> int:
        """The number of groups of the array."""
        return len(self._values)

    def _is_of_bytes(self) -> bool:
        return self._items is not None and item_kinds(self._items)[1] == "bytes"
