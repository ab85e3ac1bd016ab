"""Partition fields, values that are hard to write as text, and the way there and back."""

from __future__ import annotations

import math
import struct

from iceberg_maint.core.model.partition_key import (
    PartitionField,
    PartitionSpec,
    PartitionValue,
    decode_partition,
    encode_partition,
)

UNSAFE = set(",|[]\\\"'` \t\n\r\a\b\f\v\0*?#&;<>(){}")
"""What Dagster, shells, URLs or SQL would read as theirs."""


def field(name: str = "f", transform: str = "identity", kind: str = "string") -> PartitionField:
    return PartitionField(1000, 1, name, transform, kind)


def spec_of(*fields: PartitionField, spec_id: int = 0) -> PartitionSpec:
    return PartitionSpec(spec_id, fields)


def key_of(one: PartitionField, value: PartitionValue) -> str:
    return encode_partition(spec_of(one), (value,), 0)


def back(one: PartitionField, key: str) -> PartitionValue:
    spec = spec_of(one)
    spec_id, values = decode_partition(key, {0: spec}, 0)
    assert spec_id == 0
    return values[0]


def same(a: PartitionValue, b: PartitionValue) -> bool:
    """Equality that tells -0.0 from 0.0, True from 1, and takes all NaNs for one."""
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or struct.pack(">d", a) == struct.pack(">d", b)
    return type(a) is type(b) and a == b


STRINGS: tuple[str, ...] = (
    "",
    " ",
    "null",
    "NULL",
    "None",
    "__HIVE_DEFAULT_PARTITION__",
    "__all__",
    "spec=1/f=x",
    "a=b",
    "a/b",
    "a|b",
    "a,b",
    "[a...b]",
    "...",
    "..",
    ".",
    "a.",
    ".a",
    "a.b",
    "%2F",
    "%",
    "%%",
    "+",
    "a+b",
    "'; DROP TABLE x --",
    "`; CALL system.x()",
    '"quoted"',
    "back\\slash",
    "\0",
    "\n",
    "\r\n",
    "\t",
    "\x7f",
    "\u202eRTL",
    "é",
    "e\u0301",
    "日本語",
    "🧊",
    "\ud800",
    "x" * 10_000,
    "${env}",
    "*",
    "?",
    "#frag",
    "~user",
    "-rf",
    "true",
    "1",
    "NaN",
    "d12",
    "2024-01-01",
)
