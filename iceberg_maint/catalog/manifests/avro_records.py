"""The shape of a record, and the regular expression of the records that have it.

The shape of a record are the branches of its unions and the numbers of its items. An expression accepts records of its
shape alone, ends where the reading by value ends, and has a group for each requested value. Expressions read within
their bytes only, and they are faster than a call of Python for each value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from iceberg_maint.catalog.manifests.avro_values import (
    BYTES,
    CLOSE,
    INTEGER,
    LITERAL,
    OPEN,
    OTHER,
    FromGroups,
    KeyedArray,
    Node,
    Part,
    ValueReader,
    item_kinds,
    kind_of,
    long_at,
    raw_text,
)

_LONG = rb"[\x80-\xff]{0,9}+[\x00-\x7f]"
_SHORT = 64
"""Lengths below this one take one byte."""
_MOST_LENGTHS = 512
_FIRST_SEEN, _SEEN_FACTOR = 16, 2
"""A shape is compiled when it was read by value for the 16th time, again for the 32nd, and so on: until then the
expression learns which integers are always the same, and which lengths there are."""


def key_of(parts: Sequence[Part]) -> tuple[object, ...]:
    """Returns what records of one shape have in common."""
    return tuple(part if part[0] in (LITERAL, OTHER) else part[0] for part in parts)


class Shape:
    """What the records of one shape had in common so far, and the expression that accepts such records."""

    def __init__(self, parts: Sequence[Part], row: FromGroups) -> None:
        self._parts, self.row = parts, row
        self._different: list[set[bytes]] = [set() for kind, _ in parts if kind in (INTEGER, BYTES)]
        self._seen, self._due = 0, _FIRST_SEEN
        self.match: Callable[[bytes, int], re.Match[bytes] | None]

    def sees(self, parts: Sequence[Part]) -> bool:
        """Notes a record of this shape. Returns whether the expression is to be compiled."""
        raws = (part for part in parts if part[0] in (INTEGER, BYTES))
        for different, (kind, raw) in zip(self._different, raws, strict=True):
            if kind == BYTES or len(different) < 2:
                different.add(raw)
        self._seen += 1
        if self._seen < self._due:
            return False
        self._due *= _SEEN_FACTOR
        return True

    def compile(self) -> None:
        """Compiles the expression."""
        self.match = re.compile(b"".join(self._expressions()), re.DOTALL).match

    def _expressions(self) -> Iterator[bytes]:
        different = iter(self._different)
        for kind, raw in self._parts:
            if kind == LITERAL:
                yield re.escape(raw)
            elif kind == INTEGER:
                raws = next(different)
                yield re.escape(min(raws)) if len(raws) == 1 else _LONG
            elif kind == BYTES:
                yield _bytes_expression(next(different))
            else:
                yield {OPEN: b"(", CLOSE: b")"}.get(kind, raw)


def _bytes_expression(raws: set[bytes]) -> bytes:
    """Returns the expression of bytes with these lengths, or with any length near them if there are many."""
    lengths = {raw: long_at(raw, 0)[0] for raw in raws}
    low, high = min(lengths.values()), max(lengths.values())
    if len(raws) > 4:
        if high - low > _MOST_LENGTHS:
            return b"(?!)"
        low, high = (0, _SHORT - 1) if high < _SHORT else (low, high)
        lengths = {_encoded(length): length for length in range(low, high + 1)}
    choices = (re.escape(raw) + b".{%d}" % length for raw, length in lengths.items())
    return b"(?:%b)" % b"|".join(choices)


def _encoded(length: int) -> bytes:
    zigzag, encoded = 2 * length, bytearray()
    while zigzag > 127:
        encoded.append(zigzag & 127 | 128)
        zigzag >>= 7
    return bytes([*encoded, zigzag])


_MOST_SHAPES = 8
_MOST_KEPT = 64
_MOST_VALUES, _MOST_TEXTS = 4096, 64

Rows = list[tuple[Any, ...]]
"""Records: the bytes of each requested field, but of an array of (integer, value) the value."""


class RecordReader:
    """Reads the requested of these fields (type, whether it is requested). Structs become tuples, decimals and uuids keep
    their types. An array of (integer, integer) becomes pairs, ordered by key. An array of (integer, bytes) becomes the
    values of `map_keys`; None: pairs, ordered by key. If `prefixed`, a fixed stands behind its length."""

    def __init__(
        self, fields: Sequence[tuple[Node, bool]], map_keys: tuple[int, ...] | None, *, prefixed: bool
    ) -> None:
        self._fields, self._keys = fields, map_keys
        self._values = ValueReader(prefixed=prefixed, converts=False)
        converter = ValueReader(prefixed=prefixed, converts=True)
        self._shapes: dict[tuple[object, ...], Shape] = {}
        self._known: list[Shape] = []
        self._columns: list[Callable[[Sequence[Any]], Sequence[Any]]] = [
            _COLUMNS.get(_keyed_kind(node) or "") or _Values(converter, node).of
            for node, requested in fields
            if requested
        ]

    def __call__(self, data: bytes, count: int, rows: Rows) -> int:
        """Adds this number of records to the rows. Returns the position behind them. Raises AvroError, IndexError at the
        end of the bytes, KeyError for a type that Avro does not have."""
        add, pos, known = rows.append, 0, self._known
        for _ in range(count):
            for number, shape in enumerate(known):
                if matched := shape.match(data, pos):
                    add(shape.row(matched.groups()))
                    pos = matched.end()
                    if number:
                        known.insert(0, known.pop(number))
                    break
            else:
                row, pos = self._read(data, pos)
                add(row)
        return pos

    def columns(self, rows: Rows) -> list[Sequence[Any]]:
        """Returns the values of the rows, one column per requested field, in the order of the file."""
        return [of(column) for column, of in zip(zip(*rows, strict=True), self._columns, strict=True)]

    def _read(self, data: bytes, pos: int) -> tuple[tuple[Any, ...], int]:
        """Reads a record value by value, and learns its shape."""
        parts: list[Part] = []
        row: list[Any] = []
        arrays: list[KeyedArray | None] = []
        for node, requested in self._fields:
            keyed = KeyedArray(self._keys) if requested and _keyed_kind(node) else None
            is_group = requested and keyed is None
            parts += [(OPEN, b"")] * is_group
            value, end = self._values.value_at(node, data, pos, parts, 0, keyed)
            parts += [(CLOSE, b"")] * is_group
            if requested:
                row.append(data[pos:end] if is_group else value)
                arrays.append(keyed)
            pos = end
        self._learn(parts, arrays)
        return tuple(row), pos

    def _learn(self, parts: Sequence[Part], arrays: Sequence[KeyedArray | None]) -> None:
        key = key_of(parts)
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) == _MOST_KEPT:
                return
            shape = self._shapes[key] = Shape(parts, _row_of(arrays))
        if shape.sees(parts) and (shape in self._known or len(self._known) < _MOST_SHAPES):
            shape.compile()
            if shape not in self._known:
                self._known.append(shape)


class _Values(dict[bytes, Any]):
    """The values of one field by their bytes. Most fields of a manifest have few different values."""

    def __init__(self, reader: ValueReader, node: Node) -> None:
        self._is_integer = kind_of(node) in ("int", "long")
        self._read: Callable[[bytes], Any] = lambda raw: reader.value_at(node, raw, 0, [])[0]
        self._most = _MOST_VALUES
        # Texts are formats or paths: few of them are equal, or all differ.
        if kind_of(node) == "string":
            self._most = _MOST_TEXTS
            self._read = raw_text

    def of(self, column: Sequence[bytes]) -> list[Any]:
        """Returns the values of these bytes."""
        if self._is_integer:
            return _integers(column)
        # A field whose values differ is read without reading those before.
        return list(map(self._read, column)) if len(self) >= self._most else [self[raw] for raw in column]

    def __missing__(self, raw: bytes) -> Any:
        value = self._read(raw)
        self[raw] = value
        return value


def _pairs(column: Sequence[tuple[Sequence[int], Sequence[bytes]] | None]) -> list[Any]:
    """Returns the pairs of (integer, integer) of a column of keys and the bytes of their values."""
    raws = [raw for both in column if both is not None for raw in both[1]]
    integers = iter(_integers(raws) if raws else ())
    # The keys come first: a pair takes no integer behind the last key.
    return [None if both is None else tuple(zip(both[0], integers, strict=False)) for both in column]


_COLUMNS: dict[str, Callable[[Sequence[Any]], Sequence[Any]]] = {"long": _pairs, "bytes": list}


def _integers(column: Sequence[bytes]) -> list[int]:
    """Returns the integers of these bytes, computed for all of them at once."""
    data = np.frombuffer(b"".join(column), np.uint8)
    ends = np.flatnonzero(data < 128) + 1
    starts = np.concatenate([[0], ends[:-1]])
    lengths = ends - starts
    values = np.zeros(len(ends), np.uint64)
    for place in range(int(lengths.max())):
        longer = lengths > place
        part = (data[starts[longer] + place] & 127).astype(np.uint64)
        values[longer] |= part << np.uint64(7 * place)
    integers: list[int] = (
        ((values >> np.uint64(1)) ^ (~(values & np.uint64(1)) + np.uint64(1))).view(np.int64).tolist()
    )
    return integers


def _row_of(arrays: Sequence[KeyedArray | None]) -> FromGroups:
    """Returns what makes a row of the groups of a match. `arrays` has None for a field that is one group."""
    if not any(arrays):
        return tuple
    parts: list[FromGroups] = []
    first = 0
    for keyed in arrays:
        parts.append(itemgetter(first) if keyed is None else keyed.from_groups(first))
        first += 1 if keyed is None else keyed.groups
    return lambda groups: tuple([part(groups) for part in parts])


def _keyed_kind(node: Node) -> str | None:
    """Returns the type of the values of an array of (integer, value), or of a union that has one; None for other types."""
    kind = kind_of(node)
    if kind == "union":
        return next(filter(None, map(_keyed_kind, node)), None)
    kinds = item_kinds(node["items"]) if kind == "array" else []
    return kinds[1] if kinds in (["int", "long"], ["int", "bytes"]) else None
