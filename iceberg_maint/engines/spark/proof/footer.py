"""The footer proof: compares the counts and bounds of the outputs with those of all inputs together.

Iceberg stores the metrics of each file's footer in manifests. The proof reads only these metrics.
Row deletes change counts and bounds, so the proof is valid only for files without deletes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

_VALUES, _NULLS, _NANS = "value-counts", "null-value-counts", "nan-value-counts"

_Counts = Callable[[Sequence[Mapping[str, Any]]], dict[int, int]]

_TRUNCATION_BYTES = 16
"""Iceberg truncates string and binary bounds at 16 characters or bytes by default. A bound of that length may be
truncated in one file and complete in another."""


def difference(
    inputs: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]], types: Mapping[int, str]
) -> str | None:
    """The first difference between the metrics of inputs and outputs, None if there is none.

    The files are Iceberg's content-file JSON. `types` are Iceberg types by field id. A metric of a field is compared
    if every file has it.
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
    pairs = file.get(metric) or {}
    return dict(zip(pairs.get("keys", ()), pairs.get("values", ()), strict=True))


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
"""ORC does not count the values inside a NULL struct. The value count of a field in a struct is the number of rows
if any value is NULL, else the number of values. The counts of non-NULL values add up (Iceberg's `OrcMetrics`)."""


def _bounds(
    files: Iterable[Mapping[str, Any]],
    metric: str,
    types: Mapping[int, str],
    pick: Callable[[Iterable[Any]], Any],
) -> dict[int, Any]:
    # A file without rows, or with NULLs only, has no bounds for a field. That field is not compared.
    pairs = _common(files, metric)
    merged: dict[int, Any] = {}
    for field_id in pairs[0]:
        values = [_decode(bytes.fromhex(p[field_id]), types.get(field_id, "")) for p in pairs]
        if all(v is not None for v in values):
            merged[field_id] = pick(values)
    return merged


def _decode(raw: bytes, type_name: str) -> Any | None:
    """A bound as a value that compares as its type does; None if it may be truncated or if the
    type is unknown (spec: Appendix D, single-value serialization)."""
    if type_name in ("int", "long", "date", "time") or type_name.startswith("timestamp"):
        return int.from_bytes(raw, "little", signed=True)
    if type_name in ("float", "double"):
        return struct.unpack("<f" if len(raw) == 4 else "<d", raw)[0]
    if type_name.startswith("decimal"):
        return int.from_bytes(raw, "big", signed=True)
    if type_name == "boolean":
        return raw != b"\0"
    if type_name in ("string", "binary") and len(raw) < _TRUNCATION_BYTES:
        return raw
    return None
