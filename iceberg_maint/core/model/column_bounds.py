"""Column bounds of data files, as values that compare as Iceberg orders the column.

Manifests keep bounds in the form of the spec's "Binary single-value serialization" (Appendix D).
"""

from __future__ import annotations

import struct

Bound = int | float | bytes
"""A bound: numbers, dates and times as stored, decimals unscaled, text and binary as bytes."""
Range = tuple[Bound, Bound]
"""Lower and upper bound of one column in one file, both included."""

TRUNCATED_AT = 16
"""Characters or bytes of a bound that writers keep by default (Iceberg's
`write.metadata.metrics.default`, `truncate(16)`)."""

INTEGERS = frozenset(
    {"boolean", "int", "long", "date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"}
)
_FLOATS = {4: "<f", 8: "<d"}
_BYTES = ("string", "binary", "uuid", "fixed")
_BIG_ENDIAN = "decimal"


def is_orderable(kind: str) -> bool:
    """Returns whether bounds of a column of this Iceberg type can be compared."""
    return kind in INTEGERS or kind in ("float", "double") or kind.startswith((*_BYTES, _BIG_ENDIAN))


def range_of(kind: str, lower: bytes | None, upper: bytes | None) -> Range | None:
    """Returns the range of a column of this type. None if a bound is missing or is not a number.

    Text or binary values that are equal up to the truncated length count as one point: no sort order can
    separate them by their bounds.
    """
    if lower is None or upper is None:
        return None
    if kind in ("string", "binary") and _same_when_truncated(kind, lower, upper):
        return lower, lower
    low, high = _bound(kind, lower), _bound(kind, upper)
    # The comparison is also false if a bound is NaN, which the spec forbids and older writers wrote.
    return (low, high) if low <= high else None  # type: ignore[operator]


def _bound(kind: str, value: bytes) -> Bound:
    if kind in INTEGERS:
        # A column promoted from int to long keeps four-byte bounds in older files.
        return int.from_bytes(value, "little", signed=True)
    if kind in ("float", "double"):
        return float(struct.unpack(_FLOATS[len(value)], value)[0])
    if kind.startswith(_BIG_ENDIAN):
        return int.from_bytes(value, "big", signed=True)
    return value


def _same_when_truncated(kind: str, lower: bytes, upper: bytes) -> bool:
    if len(lower) < TRUNCATED_AT:
        return False
    if kind == "binary":
        return len(lower) == TRUNCATED_AT and lower[:-1] == upper[: TRUNCATED_AT - 1]
    text = lower.decode(errors="surrogateescape")
    head = text[:-1].encode(errors="surrogateescape")
    return len(text) == TRUNCATED_AT and upper.startswith(head)
