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

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from iceberg_maint.core.outcomes.verification import Fingerprint
from iceberg_maint.core.planning.work import FileGroup
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.conversion import quoted
from iceberg_maint.engines.spark.scan.scan import Table, quoted_columns, scan_task
from iceberg_maint.engines.spark.scan.staging import read_staged, staged

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType
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
