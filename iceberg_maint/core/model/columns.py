"""Columns: their types, the bounds of their values, and the settings of Parquet's writer for them."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_COMMON = frozenset(
    "boolean int long float double date timestamp timestamptz string uuid binary".split()  # noqa: SIM905
)
_COMMON_WITH_PARAMETERS = re.compile(r"(decimal|fixed)\s*[(\[]")


def uncommon_types(schema: Mapping[str, Any]) -> dict[str, str]:
    """Returns the columns of a schema in Iceberg's JSON whose type is not a common one: path → type as
    written. Paths are Iceberg's: `s.x` of a struct, `l.element` of a list, `m.key` and `m.value` of a map."""
    return {
        path: type_name
        for path, type_name in _columns(schema, "")
        if type_name not in _COMMON and not _COMMON_WITH_PARAMETERS.match(type_name)
    }


def base_type(type_name: str) -> str:
    """Returns a type without its parameters: `geometry(srid:4326)` → `geometry`."""
    return re.split(r"[(\[]", type_name, maxsplit=1)[0].strip()


def _columns(node: Mapping[str, Any] | str, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, str):
        yield path, node
        return
    prefix = f"{path}." if path else ""
    match node["type"]:
        case "struct":
            for field in node["fields"]:
                yield from _columns(field["type"], prefix + field["name"])
        case "list":
            yield from _columns(node["element"], f"{prefix}element")
        case "map":
            yield from _columns(node["key"], f"{prefix}key")
            yield from _columns(node["value"], f"{prefix}value")
        case other:
            yield path, str(other)


Bound = int | float | bytes
"""A bound: numbers, dates and times as stored, decimals unscaled, text and binary as bytes."""
Range = tuple[Bound, Bound]
"""Lower and upper bound of one column in one file, both included."""

KeyBounds = Mapping[int, tuple[str | None, str | None]]
"""Lower and upper bounds by field id, as hexadecimal text."""


class KeyMetadata(NamedTuple):
    """What the metadata of an equality delete file says of its keys: `without_null` are the columns that have no NULL."""

    bounds: KeyBounds
    without_null: frozenset[int]


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
    """Returns the range of a column of this type. None if a bound is missing, is not a number, or has a length that no value
    of the type has.

    Text or binary values that are equal up to the truncated length count as one point: no sort order can
    separate them by their bounds.
    """
    if lower is None or upper is None:
        return None
    if kind in ("float", "double") and not _FLOATS.keys() >= {len(lower), len(upper)}:
        return None
    if kind in ("string", "binary") and _same_when_truncated(kind, lower, upper):
        return lower, lower
    low, high = _bound(kind, lower), _bound(kind, upper)
    # The comparison is also false if a bound is NaN, which the spec forbids and older writers wrote.
    return (low, high) if low <= high else None  # type: ignore[operator]


def is_outside(kind: str, value: Bound, bounds: tuple[str | None, str | None]) -> bool:
    """Returns whether a value of a column of this type is outside its file's bounds, lower and upper as hexadecimal text. False for types whose bounds
    readers compare in several ways, and for bounds from before the column became a timestamp."""
    if not has_one_order(kind):
        return False
    low, high = (
        None
        if b is None or (kind.startswith("timestamp") and len(b) != 16)
        else _bound(kind, bytes.fromhex(b))
        for b in bounds
    )
    return (low is not None and value < low) or (high is not None and value > high)  # type: ignore[operator]


def has_one_order(kind: str) -> bool:
    """Returns whether all readers compare bounds of a column of this type in one way. UUIDs are signed numbers to Java."""
    return kind in INTEGERS or kind in ("string", "binary") or kind.startswith(_BIG_ENDIAN)


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


_LEVEL = "write.parquet.compression-level"
_COUNTS = tuple(
    f"write.parquet.{name}"
    for name in ("row-group-size-bytes", "page-size-bytes", "page-row-limit", "dict-size-bytes")
)
_LARGEST_INT = 2**31 - 1
_CODEC = "write.parquet.compression-codec"
CODECS = frozenset({"zstd", "gzip", "snappy", "lz4", "lz4_raw", "uncompressed"})
"""The codecs of which Spark needs no jar."""
CLASSES_OF_CODECS: Mapping[str, str] = {
    "brotli": "org.apache.hadoop.io.compress.BrotliCodec",
    "lzo": "com.hadoop.compression.lzo.LzoCodec",
}
"""The other codecs of Iceberg, and the class that Parquet's Java reader and writer need (`CompressionCodecName`)."""


def wrong_number(properties: Mapping[str, str]) -> str:
    """Returns the first property that is no number which Iceberg's writer takes (`Parquet.WriteBuilder`), with its value and the
    rule, "" if there is none or the table writes another format. Arrow's writer would write pages of 0 rows without end."""
    if not writes_parquet(properties):
        return ""
    for name in (*_COUNTS, _LEVEL):
        least = -_LARGEST_INT if name == _LEVEL else 1
        if name in properties and not _is_number(properties[name], least):
            rule = "a whole number" if name == _LEVEL else f"a whole number from 1 to {_LARGEST_INT}"
            return f"{name} = {properties[name]}; it must be {rule}"
    return ""


def wrong_property(properties: Mapping[str, str]) -> str:
    """Returns the sentence of the first number or codec that no writer takes, whatever jars Spark has; "" if there is none."""
    return wrong_number(properties) or wrong_codec(codec_of(properties), has_class=True)


def codec_of(properties: Mapping[str, str]) -> str:
    """Returns the codec that the table names, in lower case, "" if it names none or writes another format."""
    return properties.get(_CODEC, "").lower() if writes_parquet(properties) else ""


def wrong_codec(codec: str, *, has_class: bool) -> str:
    """Returns the sentence of a codec that Spark does not write, "" if it does. `has_class`: Spark has the class of
    CLASSES_OF_CODECS."""
    needed = CLASSES_OF_CODECS.get(codec)
    if not codec or codec in CODECS or (needed and has_class):
        return ""
    lacks = f"; Spark's jars have no class {needed}" if needed else ""
    return f"{_CODEC} = {codec}{lacks}; without a jar of its own Spark writes {', '.join(sorted(CODECS))}"


def writes_parquet(properties: Mapping[str, str]) -> bool:
    """Whether new data files of the table are Parquet."""
    return properties.get("write.format.default", "parquet").lower() == "parquet"


def _is_number(value: str, least: int) -> bool:
    try:
        return least <= int(value) <= _LARGEST_INT
    except ValueError:
        return False
