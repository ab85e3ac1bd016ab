"""The footer proof: counts and bounds of the outputs are those of the inputs merged.

Iceberg keeps the metrics of each file's footer in its manifests; nothing is read here but those.
Row deletes change counts and bounds, so the comparison holds for files without deletes only.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

_VALUES, _NULLS, _NANS = "value-counts", "null-value-counts", "nan-value-counts"

_Counts = Callable[[Sequence[Mapping[str, Any]]], dict[int, int]]

_TRUNCATION_BYTES = 16
"""Iceberg truncates string and binary bounds at 16 characters or bytes by default; a bound that
long may be truncated in one file and whole in another."""


def difference(
    inputs: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]], types: Mapping[int, str]
) -> str | None:
    """The first difference between content files given as Iceberg's JSON, None when there is none.

    `types` are Iceberg types by field id. A metric is compared where every file has it.
    """
    records = [sum(int(f["record-count"]) for f in files) for files in (inputs, outputs)]
    if records[0] != records[1]:
        return f"{records[0]} records in, {records[1]} out"
    if not outputs or not inputs:
        return None
    is_orc = any(f.get("file-format", "").lower() == "orc" for f in (*inputs, *outputs))
    for metric, counts in (_NOT_NULL if is_orc else _EACH).items():
        before, after = counts(inputs), counts(outputs)
        for field_id in sorted(before.keys() & after.keys()):
            if before[field_id] != after[field_id]:
                return f"{metric} of field {field_id}: {before[field_id]} in, {after[field_id]} out"
    for metric, pick in (("lower-bounds", min), ("upper-bounds", max)):
        before_bounds = _bounds(inputs, metric, types, pick)
        after_bounds = _bounds(outputs, metric, types, pick)
        for field_id in sorted(before_bounds.keys() & after_bounds.keys()):
            if before_bounds[field_id] != after_bounds[field_id]:
                return (
                    f"{metric} of field {field_id}: {before_bounds[field_id]!r} in, "
                    f"{after_bounds[field_id]!r} out"
                )
    return None


def _pairs(file: Mapping[str, Any], metric: str) -> dict[int, Any]:
    found = file.get(metric) or {}
    return dict(zip(found.get("keys", ()), found.get("values", ()), strict=True))


def _common(files: Iterable[Mapping[str, Any]], metric: str) -> list[dict[int, Any]]:
    """The metric per file, for the fields that have it in every file."""
    all_pairs = [_pairs(f, metric) for f in files]
    common = set.intersection(*(set(p) for p in all_pairs))
    return [{k: p[k] for k in common} for p in all_pairs]


def _sums(files: Iterable[Mapping[str, Any]], metric: str) -> dict[int, int]:
    pairs = _common(files, metric)
    return {k: sum(int(p[k]) for p in pairs) for k in pairs[0]}


def _not_null(files: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    values, nulls = _sums(files, _VALUES), _sums(files, _NULLS)
    return {k: values[k] - nulls[k] for k in values.keys() & nulls.keys()}


_EACH: Mapping[str, _Counts] = {m: partial(_sums, metric=m) for m in (_VALUES, _NULLS, _NANS)}
_NOT_NULL: Mapping[str, _Counts] = {"non-null values": _not_null, _NANS: _EACH[_NANS]}
"""ORC does not count what is inside a NULL struct: a field in it has as many values as the file has rows
where any is NULL, else those that are there. What is not NULL adds up (Iceberg's `OrcMetrics`)."""


def _bounds(
    files: Iterable[Mapping[str, Any]],
    metric: str,
    types: Mapping[int, str],
    pick: Callable[[Iterable[Any]], Any],
) -> dict[int, Any]:
    # A file without rows, or with NULLs only, has no bounds for a field: no statement about it.
    pairs = _common(files, metric)
    merged: dict[int, Any] = {}
    for field_id in pairs[0]:
        values = [_decode(bytes.fromhex(p[field_id]), types.get(field_id, "")) for p in pairs]
        if all(v is not None for v in values):
            merged[field_id] = pick(values)
    return merged


def _decode(raw: bytes, kind: str) -> Any | None:
    """A bound as something that compares as its type does, None when it may be truncated or the
    type is not known (spec: Appendix D, single-value serialization)."""
    if kind in ("int", "long", "date", "time") or kind.startswith("timestamp"):
        return int.from_bytes(raw, "little", signed=True)
    if kind in ("float", "double"):
        return struct.unpack("<f" if len(raw) == 4 else "<d", raw)[0]
    if kind.startswith("decimal"):
        return int.from_bytes(raw, "big", signed=True)
    if kind == "boolean":
        return raw != b"\0"
    if kind in ("string", "binary") and len(raw) < _TRUNCATION_BYTES:
        return raw
    return None
