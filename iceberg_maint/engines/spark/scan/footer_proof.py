"""The proof of a group by footers: the metrics of its input files against those of the written files.

The metrics of an input file are those of its manifest entry. If they differ, the entry that states other metrics than its own
file is searched for.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.conversion import content_json, json_spec
from iceberg_maint.engines.spark.jvm.functions import (
    CONTENT_FILE,
    PARTITION_SPEC,
    STRING,
    TASK,
    JavaFunctions,
)
from iceberg_maint.engines.spark.scan.iceberg_reader import NAME_MAPPING
from iceberg_maint.engines.spark.scan.row_proof import has_deletes
from iceberg_maint.engines.spark.scan.scan import Table
from iceberg_maint.engines.spark.scan.staging import GroupTasks

_VALUES, _NULLS, _NANS = "value-counts", "null-value-counts", "nan-value-counts"

_Counts = Callable[[Sequence[Mapping[str, Any]]], dict[int, int]]

_TRUNCATION_BYTES = 16
"""Iceberg truncates string and binary bounds at 16 characters or bytes by default. A bound of that length may be
truncated in one file and complete in another."""


def statistics_difference(
    inputs: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]], types: Mapping[int, str]
) -> str | None:
    """The first difference between the metrics of inputs and outputs, None if there is none.

    Row deletes change counts and bounds, so the proof is valid only for files without deletes. The files are Iceberg's content-file JSON. `types` are Iceberg types by field id. A metric of a field is compared
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
    if type_name in ("float", "double") and len(raw) in (4, 8):
        return struct.unpack("<f" if len(raw) == 4 else "<d", raw)[0]
    if type_name.startswith("decimal"):
        return int.from_bytes(raw, "big", signed=True)
    if type_name == "boolean":
        return raw != b"\0"
    if type_name in ("string", "binary") and len(raw) < _TRUNCATION_BYTES:
        return raw
    return None


def footer_difference(
    bridge: Bridge, table: Table, group_tasks: GroupTasks, files: Any, kept_records: int
) -> str | None:
    """The first difference between the group's input files and the written files, by footers; None if there is
    none. If deletes apply, only the number of rows is compared."""
    written = [json.loads(content_json(bridge, table.java, f)) for f in bridge.iterate(files)]
    written_records = sum(int(f["record-count"]) for f in written)
    if written_records != kept_records:
        return f"{kept_records} rows were read to be kept, {written_records} were written"

    if has_deletes(group_tasks.group):
        return None
    lambdas = bridge.once(JavaFunctions)
    spec = table.java.specs()[group_tasks.group.spec_id]
    texts = lambdas.texts(group_tasks.tasks.stream().map(_file_json(lambdas, json_spec(bridge, spec))))
    difference = statistics_difference([json.loads(t) for t in texts], written, table.types)
    if difference is None:
        return None
    path = _file_with_other_metrics(bridge, table, group_tasks)
    entry = f", the manifest entry of {path} states other metrics than its footer" if path else ""
    return f"{difference}{entry}; `rewrite_data_files.proof: full` compares rows instead of statistics"


_INEXACT = frozenset({"float", "double"})
"""Types whose bounds in a footer are not those that Iceberg's writer states: NaN."""


def _file_with_other_metrics(bridge: Bridge, table: Table, group_tasks: GroupTasks) -> str:
    """The path of a Parquet file of the group whose manifest entry states other metrics than its footer, "" if there is
    none."""
    iceberg, java = bridge.iceberg, table.java
    config, mapping = iceberg.MetricsConfig.forTable(java), java.properties().get(NAME_MAPPING)
    mapping = mapping and iceberg.mapping.NameMappingParser.fromJson(mapping)
    spec = java.specs()[group_tasks.group.spec_id]
    types = {i: t for i, t in table.types.items() if t not in _INEXACT}
    for task in bridge.iterate(group_tasks.tasks):
        file = task.file()
        if str(file.format()) != "PARQUET":
            continue
        source = java.io().newInputFile(file.location())
        metrics = iceberg.parquet.ParquetUtil.fileMetrics(source, config, mapping)
        of_footer = iceberg.DataFiles.builder(spec).copy(file).withMetrics(metrics).build()
        stated, own = (json.loads(content_json(bridge, java, f)) for f in (file, of_footer))
        if statistics_difference([stated], [own], types):
            return str(file.location())
    return ""


def _file_json(functions: JavaFunctions, spec: Any) -> Any:
    """A function: the data file of a scan task as Iceberg's content-file JSON."""
    # Java: task -> ContentFileParser.toJson(task.file(), spec)
    parser = "org.apache.iceberg.ContentFileParser"
    to_json = functions.static_method(parser, "toJson", STRING, CONTENT_FILE, PARTITION_SPEC)
    to_json = functions.bind_arguments(to_json, 1, spec)
    file = functions.method("org.apache.iceberg.ContentScanTask", "file", CONTENT_FILE)
    return functions.function(functions.compose(file.asType(functions.type_of(CONTENT_FILE, TASK)), to_json))
