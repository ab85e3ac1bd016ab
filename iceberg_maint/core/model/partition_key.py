"""Partition keys: readable, reversible names of partitions.

A key is `field=value/field2=value2`: the partition field's name and the transformed value, both
percent-encoded. NULL is the bare field name. Partitions of any spec but the table's first carry
`spec=N/`. The key of a spec without partition fields is `__all__`. Keys are safe in Dagster's range
syntax.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote, unquote

from iceberg_maint.core.model.ids import UNPARTITIONED_KEY, PartitionKey

if TYPE_CHECKING:
    from uuid import UUID

FIRST_SPEC_ID = 0
"""The spec that every table is created with (Iceberg `TableMetadata.INITIAL_SPEC_ID`). It is a constant,
so that keys stay the same when that spec is removed."""

PartitionValue: TypeAlias = "bool | int | float | str | bytes | Decimal | UUID | None"
"""A value as stored in manifests: dates in days, times and timestamps in µs (ns for `*_ns`) since the
epoch."""

_EPOCH = date(1970, 1, 1)
_DAY_RANGE = range((date.min - _EPOCH).days, (date.max - _EPOCH).days + 1)


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of a partition spec. `result_type` is the Iceberg type of the stored value.

    `loses_values`: the source column was dropped, and Iceberg's Java library no longer knows the type of
    the value (`PartitionSpec.partitionType`: identity and truncate). The library reads the values, but
    writes NULL in their place whenever it copies a manifest's entries.
    """

    field_id: int
    source_id: int
    name: str
    transform: str
    result_type: str
    loses_values: bool = False

    @property
    def is_void(self) -> bool:
        """Whether this is a dropped field of a v1 table: always NULL, no part in partitioning."""
        return self.transform == "void"


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """A partition spec: its fields in tuple order."""

    spec_id: int
    fields: tuple[PartitionField, ...]

    @property
    def is_unpartitioned(self) -> bool:
        """Whether the spec has no fields, or only void ones (Iceberg `PartitionSpec.isUnpartitioned`)."""
        return all(f.is_void for f in self.fields)

    @property
    def loses_values(self) -> bool:
        """Whether a copied entry of this spec lies in another partition than the original."""
        return any(f.loses_values for f in self.fields)


def encode_partition(
    spec: PartitionSpec, values: Sequence[PartitionValue], first_spec_id: int
) -> PartitionKey:
    """Returns the key of one partition. `values` are in the order of `spec.fields`."""
    if spec.is_unpartitioned:
        return UNPARTITIONED_KEY
    parts = []
    for field, value in zip(spec.fields, values, strict=True):
        if field.is_void:
            continue
        name = _quote(field.name)
        parts.append(name if value is None else f"{name}={_quote(_to_text(field, value))}")
    key = "/".join(parts)
    if spec.spec_id != first_spec_id:
        return PartitionKey(f"spec={spec.spec_id}/{key}")
    # A first spec may have a field called "spec" or "__all__". Escape it, so that it does not read as
    # ours.
    if key == UNPARTITIONED_KEY or key.startswith("spec="):
        key = f"%{ord(key[0]):02X}{key[1:]}"
    return PartitionKey(key)


def decode_partition(
    key: PartitionKey, specs: Mapping[int, PartitionSpec], first_spec_id: int
) -> tuple[int, tuple[PartitionValue, ...]]:
    """Returns the spec id and the typed values of a key made by `encode_partition`.

    For `__all__` the spec id is the lowest unpartitioned one. Raises ValueError for a key that names no
    spec or whose fields or values do not fit the spec.
    """
    if key == UNPARTITIONED_KEY:
        ids = sorted(s.spec_id for s in specs.values() if s.is_unpartitioned)
        if not ids:
            raise ValueError(f"'{key}': the table has no unpartitioned spec")
        return ids[0], (None,) * len(specs[ids[0]].fields)
    spec_id, fields_text = first_spec_id, str(key)
    if match := re.fullmatch(r"spec=(\d+)/(.+)", key, re.DOTALL):
        spec_id, fields_text = int(match[1]), match[2]
    if spec_id not in specs:
        raise ValueError(f"'{key}': the table has no partition spec {spec_id}")
    fields = specs[spec_id].fields
    parts = fields_text.split("/")
    names = [f.name for f in fields if not f.is_void]
    key_names = [_unquote(p.split("=", 1)[0]) for p in parts]
    if key_names != names:
        raise ValueError(f"'{key}': the fields {key_names} are not those of spec {spec_id}: {names}")
    texts = iter(p.split("=", 1)[1:] for p in parts)
    values: list[PartitionValue] = []
    for field in fields:
        text = [] if field.is_void else next(texts)
        try:
            values.append(_from_text(field, _unquote(text[0])) if text else None)
        except ValueError as why:
            raise ValueError(f"'{key}': '{text[0]}' is no value of {field.name} ({why})") from why
    result = (spec_id, tuple(values))
    if encode_partition(specs[spec_id], result[1], first_spec_id) != key:
        raise ValueError(f"'{key}' is not the canonical form of a partition key of this table")
    return result


def _quote(text: str) -> str:
    # Lone surrogates pass: unusual text must not fail here.
    quoted = quote(text, safe="", errors="surrogatepass")
    # A dot stays readable if it cannot join the dots of a range.
    return re.sub(r"^\.|\.$|\.{2,}", lambda m: "%2E" * len(m[0]), quoted)


def _unquote(text: str) -> str:
    return unquote(text, errors="surrogatepass")


def _to_text(field: PartitionField, value: PartitionValue) -> str:
    transform, kind = field.transform, field.result_type
    if isinstance(value, int) and not isinstance(value, bool):
        if transform == "year":
            return str(1970 + value)
        if transform == "month":
            return f"{1970 + value // 12:04d}-{value % 12 + 1:02d}"
        if transform == "hour":
            return f"{_day_text(value // 24)}-{value % 24:02d}"
        if transform == "day" or kind == "date":
            return _day_text(value)
        if kind == "time":
            return _clock_text(value, 6)
        if kind.startswith("timestamp"):
            digits = 9 if kind.endswith("_ns") else 6
            days, units = divmod(value, 86_400 * 10**digits)
            return f"{_day_text(days)}T{_clock_text(units, digits)}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(value)


def _from_text(field: PartitionField, text: str) -> PartitionValue:
    transform, kind = field.transform, field.result_type
    if transform == "year":
        return int(text) - 1970
    if transform == "month":
        year, month = text.rsplit("-", 1)
        return (int(year) - 1970) * 12 + int(month) - 1
    if transform == "hour":
        day, hour = text.rsplit("-", 1)
        return _day_value(day) * 24 + int(hour)
    if transform == "day" or kind == "date":
        return _day_value(text)
    if transform.startswith("bucket") or kind in ("int", "long"):
        return int(text)
    if kind == "time":
        return _clock_value(text, 6)
    if kind.startswith("timestamp"):
        digits = 9 if kind.endswith("_ns") else 6
        day, clock = text.split("T")
        units_per_day: int = 86_400 * 10**digits
        return _day_value(day) * units_per_day + _clock_value(clock, digits)
    if kind == "boolean":
        return text == "true"
    if kind in ("float", "double"):
        return float(text)
    if kind == "uuid":
        from uuid import UUID

        return UUID(text)
    if kind.startswith("decimal"):
        return _decimal_value(text)
    if kind == "binary" or kind.startswith("fixed"):
        return bytes.fromhex(text)
    return text


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value)


def _day_text(days: int) -> str:
    # Iceberg's dates may lie outside Python's calendar: those are written as d<days>.
    return (_EPOCH + timedelta(days=days)).isoformat() if days in _DAY_RANGE else f"d{days}"


def _day_value(text: str) -> int:
    return int(text[1:]) if text.startswith("d") else (date.fromisoformat(text) - _EPOCH).days


def _decimal_value(text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation as why:
        raise ValueError(f"'{text}' is not a decimal number") from why
    if not value.is_finite():
        raise ValueError(f"'{text}' is not a decimal number of a partition key")
    return value


def _clock_text(units: int, digits: int) -> str:
    seconds, fraction = divmod(units, 10**digits)
    return f"{seconds // 3600:02d}-{seconds // 60 % 60:02d}-{seconds % 60:02d}.{fraction:0{digits}d}"


def _clock_value(text: str, digits: int) -> int:
    clock, fraction = text.split(".")
    hours, minutes, seconds = (int(p) for p in clock.split("-"))
    if hours > 23:
        raise ValueError(f"'{text}' is not a time of day")
    units_per_second: int = 10**digits
    return ((hours * 60 + minutes) * 60 + seconds) * units_per_second + int(fraction)
