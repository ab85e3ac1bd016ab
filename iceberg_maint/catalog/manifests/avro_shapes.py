"""The shape of a record, and the regular expression of the records that have it.

The shape of a record are the branches of its unions and the numbers of its items. An expression accepts records of its
shape alone, ends where the reading by value ends, and has a group for each requested value. Expressions read within
their bytes only, and they are faster than a call of Python for each value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from iceberg_maint.catalog.manifests.avro_values import (
    BYTES,
    CLOSE,
    INTEGER,
    LITERAL,
    OPEN,
    OTHER,
    FromGroups,
    Part,
    long_at,
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
