"""The row fingerprint as Spark expressions: algorithm `xxh64x2-1` of `core.outcomes.proof`.

There are two lanes. For a column with Iceberg field id `f` the seed is the 32-bit integer
`f` in lane 0 and `~f` in lane 1. Every hash is Spark's `xxhash64`: XXH64 with start seed 42, where the hash
of the arguments before it is the seed of each argument. NULL does not change the hash. -0.0 counts as 0.0. All NaN
values are equal.

    column hash = xxhash64(seed, terms of the column…)
    row hash    = xxhash64(XOR of the column hashes)
    table       = row count, Σ (row hash & 0xFFFFFFFF), Σ (row hash >>> 32), per lane

The seeds are field ids, not positions, so a renamed or moved column does not change the fingerprint. On v3 the two
lineage columns are included under their reserved ids. Terms of a value x:

- flat top-level column: x itself. The hash of NULL is the hash of the seed alone; another value has it only by chance.
- flat value inside another: isnull(x), x.
- struct: isnull(x), then the terms of each field in order. A struct in six others is a list of one element: the code that
  Spark makes doubles with each level.
- list: isnull(x), size(x) (-1 for NULL), and one 64-bit hash per element, xxhash64(its terms).
- map: as the list of its (key, value) structs in stored order.
- decimal up to 18 digits: the unscaled value as a 64-bit integer. Longer decimals: its two's complement
  bytes, big-endian, as short as possible.
- uuid: its text, lower case with hyphens. fixed and binary: the bytes. string: UTF-8.
- date: days, int. timestamps: µs, 64 bits. boolean: 0 or 1, int.
- variant: the text of its schema and its JSON text.

The sums fit 64 bits below 2^31 rows. A file group has fewer rows.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any

from iceberg_maint.core.outcomes.verification import Fingerprint
from iceberg_maint.core.planning.work import FileGroup
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.conversion import content_json, json_spec, quoted
from iceberg_maint.engines.spark.jvm.functions import (
    CONTENT_FILE,
    PARTITION_SPEC,
    STRING,
    TASK,
    JavaFunctions,
)
from iceberg_maint.engines.spark.scan.scan import Table, quoted_columns, scan_task
from iceberg_maint.engines.spark.scan.staging import GroupTasks, read_staged, staged

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType
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


LANES = 2
_MOST_DEPTH = 6
"""Structs in each other whose terms are one expression."""

_LOW = 0xFFFFFFFF


def measures(schema: StructType, field_ids: Mapping[str, int], kept: Column | None = None) -> list[Column]:
    """Aggregates for `fingerprint_of` over a frame that has these columns.

    `schema` lists the included columns, `field_ids` their ids by name. With `kept`, only
    rows for which it is true count.
    """
    return sums([row_hash(schema, field_ids, lane) for lane in range(LANES)], kept)


def sums(row_hashes: Sequence[Column], kept: Column | None = None) -> list[Column]:
    """As `measures`, but from the row hashes of each lane."""
    from pyspark.sql import functions as F

    columns = [F.count(F.lit(1) if kept is None else F.when(kept, 1)).alias("rows")]
    for lane, row in enumerate(row_hashes):
        for half, part in (("low", row.bitwiseAND(_LOW)), ("high", F.shiftrightunsigned(row, 32))):
            kept_part = part if kept is None else F.when(kept, part)
            columns.append(F.coalesce(F.sum(kept_part), F.lit(0)).alias(f"{half}{lane}"))
    return columns


def fingerprint_of(values: Mapping[str, Any]) -> Fingerprint:
    """The fingerprint from the values of `measures`, by name."""
    lanes = tuple((int(values[f"low{lane}"]), int(values[f"high{lane}"])) for lane in range(LANES))
    return Fingerprint(int(values["rows"]), lanes)


def total(parts: Sequence[Fingerprint]) -> Fingerprint:
    """The fingerprint of all parts together. Without parts it is the fingerprint of no rows."""
    return reduce(add, parts, Fingerprint(0, ((0, 0),) * LANES))


def row_hash(schema: StructType, field_ids: Mapping[str, int], lane: int) -> Column:
    """The 64-bit hash of a row in one lane."""
    from pyspark.sql import functions as F

    hashes = []
    for field in schema.fields:
        seed = field_ids[field.name]
        value = F.col(quoted(field.name))
        hashes.append(F.xxhash64(F.lit(~seed if lane else seed), *_column_terms(value, field.dataType)))
    # A chain of 1,000 terms would overflow the stack of Spark's planner.
    while len(hashes) > 1:
        odd = hashes[len(hashes) // 2 * 2 :]
        hashes = [a.bitwiseXOR(b) for a, b in zip(hashes[::2], hashes[1::2], strict=False)] + odd
    return F.xxhash64(hashes[0] if hashes else F.lit(0).cast("long"))


def _column_terms(value: Column, data_type: DataType) -> list[Column]:
    terms = _terms(value, data_type)
    # A flat top-level column needs no null flag, because NULL leaves the hash of the seed unchanged.
    return terms if _is_nested(data_type) else terms[1:]


def _is_nested(data_type: DataType) -> bool:
    return data_type.typeName() in ("struct", "array", "map", "variant")


def _terms(value: Column, data_type: DataType, depth: int = 0) -> list[Column]:
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    is_null = value.isNull()
    if isinstance(data_type, StructType):
        if depth == _MOST_DEPTH:
            return _terms(F.array(value), ArrayType(data_type))[2:]
        fields = data_type.fields
        return [is_null, *(t for f in fields for t in _terms(value.getField(f.name), f.dataType, depth + 1))]
    if isinstance(data_type, MapType):
        entry = StructType([StructField("key", data_type.keyType), StructField("value", data_type.valueType)])
        return _terms(F.map_entries(value), ArrayType(entry))
    if isinstance(data_type, ArrayType):
        size = F.coalesce(F.size(value), F.lit(-1))
        return [is_null, size, F.transform(value, lambda x: F.xxhash64(*_terms(x, data_type.elementType)))]
    if data_type.typeName() == "variant":
        return [is_null, F.schema_of_variant(value), F.to_json(value)]
    return [is_null, value]


_NO_ROW_ID = 1 << 60
"""Above all row ids and sequence numbers. It is also too large for py4j to pass as a Java Integer."""


def fingerprint_files(bridge: Bridge, table: Table, files: Any) -> Fingerprint:
    """The fingerprint of data files (a Java list), read without deletes. The files may be uncommitted."""
    if files.isEmpty():
        return total(())
    tasks = bridge.list(_whole_file(bridge, table, f) for f in bridge.iterate(files))
    with staged(bridge, table.java, tasks) as group_id:
        frame = read_staged(bridge, table.java, table.name, group_id)
        frame = frame.select(*quoted_columns(table), *table.lineage)
        row = frame.agg(*measures(frame.schema, table.field_ids)).collect()[0]
    return fingerprint_of(row.asDict())


def has_deletes(group: FileGroup) -> bool:
    return any(f.delete_files for f in group.files)


def observed_measures(table: Table, schema: StructType, group: FileGroup, *, full: bool) -> list[Column]:
    """The aggregates that the rewrite's pass computes: the number of rows read and kept, and the fingerprint of
    the kept rows. Without deletes there are none at level `footer`, because the writer counts the rows.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    deletes_apply = has_deletes(group)
    if not (full or deletes_apply):
        return []
    kept = ~F.col("_deleted") if deletes_apply else None
    included = StructType([f for f in schema.fields if f.name in table.field_ids])
    rows = measures(included, table.field_ids, kept)
    return [F.count(F.lit(1)).alias("read_rows"), *(rows if full else rows[:1])]


def _whole_file(bridge: Bridge, table: Table, file: Any) -> Any:
    return scan_task(bridge, table.java, _as_committed(bridge, table, file) if table.lineage else file)


def _as_committed(bridge: Bridge, table: Table, file: Any) -> Any:
    """A copy of an uncommitted file from which Iceberg reads the stored lineage.

    Without a first row id and a sequence number Iceberg would read the stored lineage as NULL. The copy has
    values that no row has, so lineage that is not stored reads as these values.
    """
    # Not by way of JSON: Iceberg's parser cannot read a NaN or an infinity that it wrote.
    builder = bridge.iceberg.DataFiles.builder(table.java.specs()[file.specId()])
    copy = builder.copy(file).withFirstRowId(_NO_ROW_ID).build()
    copy.setDataSequenceNumber(_NO_ROW_ID)
    return copy


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
    return (
        difference and f"{difference}; `rewrite_data_files.proof: full` compares rows instead of statistics"
    )


def _file_json(functions: JavaFunctions, spec: Any) -> Any:
    """A function: the data file of a scan task as Iceberg's content-file JSON."""
    # Java: task -> ContentFileParser.toJson(task.file(), spec)
    parser = "org.apache.iceberg.ContentFileParser"
    to_json = functions.static_method(parser, "toJson", STRING, CONTENT_FILE, PARTITION_SPEC)
    to_json = functions.bind_arguments(to_json, 1, spec)
    file = functions.method("org.apache.iceberg.ContentScanTask", "file", CONTENT_FILE)
    return functions.function(functions.compose(file.asType(functions.type_of(CONTENT_FILE, TASK)), to_json))
