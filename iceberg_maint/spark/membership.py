"""Membership: which rows, by data file and position, a set of equality deletes deletes.

Only key columns are read. Delete files are read as data, deduplicated to key → latest delete, and
held against the data by a hash join whose build side is that key set, evenly hashed over as many
partitions as the pre-flight asks for; the data side carries the key and one long.

An equality delete applies to data of a strictly lower sequence number, in its own spec and
partition or, of an unpartitioned spec, everywhere (spec: Scan Planning; Iceberg's
`DeleteFileIndex`). Data files are numbered in order of their sequence number, so that "strictly
lower" is "numbered below a limit", and a row's place is that number and its position in one long.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from iceberg_maint.core.memory import Preflight
from iceberg_maint.core.plan import Batch
from iceberg_maint.errors import RefusedError
from iceberg_maint.spark.bridge import Bridge
from iceberg_maint.spark.keys import key_terms, keys_of
from iceberg_maint.spark.lambdas import SEPARATOR
from iceberg_maint.spark.native import Table
from iceberg_maint.spark.staging import read_staged, staged

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

POSITION_BITS = 40
"""A place is `file number << 41 | position << 1 | already deleted`."""

_FILE_SHIFT = POSITION_BITS + 1


@dataclass(frozen=True, slots=True)
class _File:
    """What decides which deletes apply to a file, or a delete file to which files. `scope` is
    its spec and partition, `deletes` whether the reader already deletes rows of it."""

    path: str
    sequence_number: int
    scope: str
    java: Any
    deletes: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class _DeleteSet:
    """Delete files that one join applies: of the same key columns, and all everywhere or none."""

    equality_ids: tuple[int, ...]
    everywhere: bool
    files: tuple[_File, ...]


@contextmanager
def marked_rows(
    bridge: Bridge,
    table: Table,
    batch: Batch,
    tasks: Any,
    deletes: Sequence[Any],
    preflight: Preflight,
) -> Iterator[DataFrame]:
    """The rows that equality deletes delete, as columns `_file` (string), `_pos` (long) and
    `_already` (boolean: position deletes or a deletion vector delete the row as well), each once.

    `tasks` is the `java.util.List` of the scan tasks, as Iceberg plans them at the batch's
    snapshot, `deletes` the equality DeleteFiles. The frame can be used inside the block; what it
    reads is staged for that long. Raises RefusedError ICM-119 for a key column the schema does not
    have.
    """
    data = sorted(_data_files(bridge, table, tasks), key=lambda f: (f.sequence_number, f.path))
    with ExitStack() as stack:
        frames = [
            frame
            for number in range(preflight.passes)
            for one in _delete_sets(bridge, table, deletes)
            for frame in _hits(bridge, table, batch, data, one, preflight, number, stack)
        ]
        yield _located(bridge, _union(bridge, frames, preflight), data)


def _hits(
    bridge: Bridge,
    table: Table,
    batch: Batch,
    data: Sequence[_File],
    deletes: _DeleteSet,
    preflight: Preflight,
    number: int,
    stack: ExitStack,
) -> Iterator[DataFrame]:
    """Places of the rows that one set of deletes deletes, `number` counting the passes; nothing
    where it applies to no file."""
    from pyspark.sql import functions as F

    sequence_numbers = [f.sequence_number for f in data]
    limits = {f.path: bisect_left(sequence_numbers, f.sequence_number) for f in deletes.files}
    scopes = _scopes(deletes)
    applying = [f for f in deletes.files if limits[f.path]]
    reach: dict[int, int] = {}
    for file in applying:
        scope = scopes[_scope(deletes, file)]
        reach[scope] = max(reach.get(scope, 0), limits[file.path])
    facing = [
        (index, file)
        for index, file in enumerate(data)
        if index < reach.get(scopes.get(_scope(deletes, file), -1), 0)
    ]
    if not facing:
        return
    terms = [*_terms(batch, table, bridge, deletes), *([F.col("scope")] if len(scopes) > 1 else [])]
    keys = _read(
        bridge,
        table,
        (_as_data(bridge, table, f.java) for f in applying),
        ((f.path, limits[f.path] << _FILE_SHIFT, scopes[_scope(deletes, f)]) for f in applying),
        terms,
        F.col("number").alias("limit"),
        stack,
    )
    already = F.lit(0)
    if any(f.deletes for _, f in facing):
        already = F.when(F.col("_deleted"), F.lit(1)).otherwise(F.lit(0))
    place = F.col("number") + F.shiftleft(F.col("_pos"), 1) + already
    rows = _read(
        bridge,
        table,
        (_without_equality_deletes(bridge, table, f) for _, f in facing),
        ((f.path, index << _FILE_SHIFT, scopes[_scope(deletes, f)]) for index, f in facing),
        terms,
        place.alias("place"),
        stack,
    )
    names = [c for c in keys.columns if c != "limit"]
    if preflight.passes > 1:
        chosen = F.pmod(F.xxhash64(*names), F.lit(preflight.passes)) == number
        keys, rows = keys.where(chosen), rows.where(chosen)
    if not preflight.broadcast:
        keys = keys.repartition(preflight.partitions, *names)
        rows = rows.repartition(preflight.partitions, *names)
    keys = keys.groupBy(*names).agg(F.max("limit").alias("limit"))
    keys = keys.hint("broadcast" if preflight.broadcast else "shuffle_hash")
    matches = reduce(lambda a, b: a & b, (rows[n] == keys[n] for n in names))
    yield rows.join(keys, matches & (rows["place"] < keys["limit"]), "left_semi").select("place")


def _union(bridge: Bridge, frames: Sequence[DataFrame], preflight: Preflight) -> DataFrame:
    if not frames:
        return bridge.spark.range(0).selectExpr("id as place")
    whole = reduce(lambda a, b: a.unionByName(b), frames)
    if len(frames) == preflight.passes:
        return whole
    # Two sets of deletes may delete the same row.
    return whole.repartition(preflight.partitions, "place").dropDuplicates(["place"])


def _located(bridge: Bridge, places: DataFrame, data: Sequence[_File]) -> DataFrame:
    from pyspark.sql import functions as F

    files = _local(bridge, "number long, _file string", ((i, f.path) for i, f in enumerate(data)))
    position = F.shiftright("place", 1).bitwiseAND((1 << POSITION_BITS) - 1)
    found = places.select(
        F.shiftright("place", _FILE_SHIFT).alias("number"),
        position.alias("_pos"),
        (F.col("place").bitwiseAND(1) == 1).alias("_already"),
    )
    return found.join(F.broadcast(files), "number").select("_file", "_pos", "_already")


# reading


def _read(
    bridge: Bridge,
    table: Table,
    tasks: Iterable[Any],
    files: Iterable[tuple[str, int, int]],
    terms: Sequence[Column],
    value: Column,
    stack: ExitStack,
) -> DataFrame:
    """Key terms and one value of the staged tasks' rows. `files` are (path, number, scope)."""
    from pyspark.sql import functions as F

    group_id = stack.enter_context(staged(bridge, table.java, bridge.list(tasks)))
    frame = read_staged(bridge, table.java, table.name, group_id)
    facts = _local(bridge, "path string, number long, scope int", files)
    facts = facts.select(F.xxhash64("path").alias("file"), "number", "scope")
    _check_distinct(facts)
    joined = frame.join(F.broadcast(facts), F.xxhash64(F.col("_file")) == facts["file"])
    return joined.select(*terms, value)


def _check_distinct(facts: DataFrame) -> None:
    hashes = [row[0] for row in facts.select("file").collect()]
    if len(set(hashes)) != len(hashes):
        raise RefusedError(
            "ICM-119",
            "two files of the batch have names with the same 64-bit hash",
            "take on fewer files per batch.",
        )


def _local(bridge: Bridge, schema: str, rows: Iterable[Sequence[Any]]) -> DataFrame:
    """A frame of the driver's own values; no job runs to make or to collect it."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    names = [column.split()[0] for column in schema.split(", ")]
    lines = (json.dumps(dict(zip(names, row, strict=True))) for row in rows)
    pattern = bridge.jvm.java.util.regex.Pattern.compile(SEPARATOR)
    collector = bridge.jvm.java.util.stream.Collectors.toList()
    texts = pattern.splitAsStream(SEPARATOR.join(lines)).collect(collector)
    strings = bridge.jvm.org.apache.spark.sql.Encoders.STRING()
    frame = DataFrame(bridge.session.createDataset(texts, strings).toDF(), bridge.spark)
    return frame.select(F.from_json("value", schema).alias("row")).select("row.*")


# files


def _scopes(deletes: _DeleteSet) -> dict[str, int]:
    return {text: number for number, text in enumerate(sorted({_scope(deletes, f) for f in deletes.files}))}


def _scope(deletes: _DeleteSet, file: _File) -> str:
    return "" if deletes.everywhere else file.scope


def _terms(batch: Batch, table: Table, bridge: Bridge, deletes: _DeleteSet) -> list[Column]:
    try:
        keys = keys_of(table.schema_json, deletes.equality_ids)
    except KeyError as why:
        raise RefusedError(
            "ICM-119",
            f"{batch.table}: {deletes.files[0].path} deletes by field {why.args[0]}, which is no "
            "column of the table's schema",
            "rewrite the partition with the schema it was written with.",
        ) from why
    schema = table.java.schema()
    spark_types = bridge.iceberg.spark.SparkSchemaUtil
    types = [str(spark_types.convert(schema.findType(i)).simpleString()) for i in deletes.equality_ids]
    return key_terms(keys, types)


def _delete_sets(bridge: Bridge, table: Table, deletes: Sequence[Any]) -> list[_DeleteSet]:
    found: dict[tuple[tuple[int, ...], bool], list[_File]] = {}
    for delete in deletes:
        ids = tuple(sorted(int(i) for i in bridge.iterate(delete.equalityFieldIds())))
        spec = table.java.specs()[delete.specId()]
        found.setdefault((ids, bool(spec.isUnpartitioned())), []).append(_file(bridge, table, delete))
    return [_DeleteSet(ids, everywhere, tuple(files)) for (ids, everywhere), files in found.items()]


def _data_files(bridge: Bridge, table: Table, tasks: Any) -> Iterator[_File]:
    for task in bridge.iterate(tasks):
        kept = [d for d in bridge.iterate(task.deletes()) if not _is_equality(d)]
        yield _file(bridge, table, task.file(), kept)


def _file(bridge: Bridge, table: Table, file: Any, deletes: Iterable[Any] = ()) -> _File:
    spec = table.java.specs()[file.specId()]
    partition = bridge.iceberg.SingleValueParser.toJson(spec.partitionType(), file.partition())
    return _File(
        str(file.location()),
        int(file.dataSequenceNumber()),
        f"{spec.specId()}:{partition}",
        file,
        tuple(deletes),
    )


def _is_equality(delete: Any) -> bool:
    return str(delete.content().toString()) == "EQUALITY_DELETES"


def _without_equality_deletes(bridge: Bridge, table: Table, file: _File) -> Any:
    return _task(bridge, table, file.java, file.deletes, table.java.specs()[file.java.specId()])


def _as_data(bridge: Bridge, table: Table, delete: Any) -> Any:
    """A scan task that reads a delete file's rows. Without a partition: what Iceberg would take
    from that for the file's own values is not what the file deletes.
    """
    iceberg = bridge.iceberg
    spec = iceberg.PartitionSpec.unpartitioned()
    content = json.loads(iceberg.ContentFileParser.toJson(delete, table.java.specs()[delete.specId()]))
    kept = ("file-path", "file-format", "file-size-in-bytes", "record-count", "key-metadata", "split-offsets")
    plain: Mapping[str, Any] = {
        "spec-id": int(spec.specId()),
        "content": "data",
        "partition": [],
        **{k: content[k] for k in kept if k in content},
    }
    node = iceberg.util.JsonUtil.mapper().readTree(json.dumps(plain))
    return _task(bridge, table, iceberg.ContentFileParser.fromJson(node, spec), (), spec)


def _task(bridge: Bridge, table: Table, file: Any, deletes: Iterable[Any], spec: Any) -> Any:
    iceberg = bridge.iceberg
    everything = iceberg.expressions.ResidualEvaluator.unpartitioned(
        iceberg.expressions.Expressions.alwaysTrue()
    )
    return iceberg.BaseFileScanTask(
        file,
        bridge.array(iceberg.DeleteFile, deletes),
        table.schema_json,
        iceberg.PartitionSpecParser.toJson(spec),
        everything,
    )
