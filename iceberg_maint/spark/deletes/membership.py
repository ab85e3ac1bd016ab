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

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from iceberg_maint.core.planning.memory import Preflight
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.errors import RefusedError
from iceberg_maint.spark.deletes.key_files import DataFile, DeleteFile, KeyFiles
from iceberg_maint.spark.deletes.keys import Key, can_match, key_terms, keys_of
from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.jvm.local_frame import local_frame
from iceberg_maint.spark.scan.staging import check_reads_staged, read_staged, staged
from iceberg_maint.spark.scan.table import Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

POSITION_BITS = 40
"""A place is `file number << 41 | position << 1 | already deleted`."""

_FILE_SHIFT = POSITION_BITS + 1

_MOST_FILES = 1 << (63 - _FILE_SHIFT)
"""As many as their numbers have bits for in a place."""

_FALSE_POSITIVES = 0.03
"""Of rows without a matching key that are distributed all the same; seven bits per key."""


@dataclass(frozen=True, slots=True)
class _DeleteSet:
    """Delete files that one join applies: of the same key columns, and all everywhere or none."""

    equality_ids: tuple[int, ...]
    everywhere: bool
    files: tuple[DeleteFile, ...]

    @property
    def without_null(self) -> frozenset[int]:
        """The key columns in which none of the files has NULL."""
        return frozenset.intersection(*(f.without_null for f in self.files))


@dataclass(frozen=True, slots=True)
class _Pair:
    """Delete files and the data files they may apply to, each with its number and scope: numbers
    of data files as in places, of delete files the first place they do not apply to."""

    deletes: Sequence[tuple[DeleteFile, int, int]]
    data: Sequence[tuple[DataFile, int, int]]

    @property
    def has_scopes(self) -> bool:
        """Whether keys are only to be compared within a scope."""
        return len({scope for _, _, scope in self.data}) > 1


class _Membership:
    """What one call works on."""

    def __init__(
        self,
        bridge: Bridge,
        table: Table,
        batch: Batch,
        tasks: Any,
        deletes: Sequence[Any],
        preflight: Preflight,
        stack: ExitStack,
    ) -> None:
        self.bridge = bridge
        self.table = table
        self.batch = batch
        self.tasks = tasks
        self.preflight = preflight
        self.stack = stack
        self.files = KeyFiles(bridge, table)
        self.data = sorted(self.files.data_files(tasks), key=lambda f: (f.sequence_number, f.path))
        if len(self.data) >= _MOST_FILES:
            raise RefusedError(
                "ICM-119",
                f"{batch.table}: {len(self.data)} data files are under equality deletes at once",
                f"take on fewer than {_MOST_FILES} per batch (windows.max_files_per_batch).",
            )
        self.sets = _delete_sets(self.files.delete_files(deletes))

    def places(self) -> DataFrame:
        """Places of all rows that are deleted, each once."""
        pairs = [(one, pair) for one in self.sets if (pair := _pair(one, self.data)) is not None]
        if not pairs:
            return self.bridge.spark.range(0).selectExpr("id as place")
        passes = []
        for number in range(self.preflight.passes):
            hits = (self._hits(one, pair, number) for one, pair in pairs)
            whole = reduce(lambda a, b: a.unionByName(b), hits)
            passes.append(whole if self.preflight.passes == 1 else self._done(whole))
        whole = reduce(lambda a, b: a.unionByName(b), passes)
        if len(pairs) == 1:
            return whole
        # Two sets of deletes may delete the same row, also in different passes.
        return whole.repartition(self.preflight.partitions, "place").dropDuplicates(["place"])

    def _done(self, places: DataFrame) -> DataFrame:
        """The places of one pass, found now and kept on disk, so that its shuffle files can go
        before the next pass writes its own."""
        from pyspark import StorageLevel

        kept = {} if self.bridge.is_spark_3 else {"storageLevel": StorageLevel.DISK_ONLY}
        done = places.localCheckpoint(eager=True, **kept)
        blocks = done._jdf.queryExecution().logical().rdd()
        self.stack.callback(blocks.unpersist, False)
        cleaner = self.bridge.spark.sparkContext._jsc.sc().cleaner().get()
        for shuffle in _shuffles(places._jdf.queryExecution().executedPlan()):
            cleaner.doCleanupShuffle(shuffle, True)
        return done

    def rows(self) -> DataFrame:
        """Number of the data file, position and whether the row was deleted before, of all places."""
        from pyspark.sql import functions as F

        return self.places().select(
            F.shiftright("place", _FILE_SHIFT).alias("number"),
            F.shiftright("place", 1).bitwiseAND((1 << POSITION_BITS) - 1).alias("_pos"),
            (F.col("place").bitwiseAND(1) == 1).alias("_already"),
        )

    def _hits(self, one: _DeleteSet, pair: _Pair, number: int) -> DataFrame:
        """Places of the rows that one set of deletes deletes, in one of the passes."""
        from pyspark.sql import functions as F

        columns = self._keys(one)
        row = F.shiftleft("_pos", 1)
        if any(f.has_deletes for f, _, _ in pair.data):
            row += F.when(F.col("_deleted"), F.lit(1)).otherwise(F.lit(0))
        data_tasks = self.files.data_tasks(self.tasks, [f.path for f, _, _ in pair.data])
        rows = self._read(data_tasks, pair.data, can_match(columns), (*key_terms(columns), row.alias("row")))
        delete_tasks = self.files.delete_tasks(f for f, _, _ in pair.deletes)
        keys = self._read(delete_tasks, pair.deletes, F.lit(True), key_terms(columns, checked=True))
        names = [c for c in keys.columns if c not in ("file", "number", "scope")]
        if pair.has_scopes:
            names.append("scope")
        rows = rows.select(*names, (F.col("number") + F.col("row")).alias("place"))
        keys = keys.select(*names, F.col("number").alias("limit"))
        if self.preflight.passes > 1:
            chosen = F.pmod(F.xxhash64(*names), F.lit(self.preflight.passes)) == number
            keys, rows = keys.where(chosen), rows.where(chosen)
        count = sum(d.record_count for d in self.batch.equality_deletes) // self.preflight.passes
        if self.preflight.filtered and count and not self.bridge.is_spark_3:
            rows = rows.where(_may_hold(self.bridge, keys, names, count))
        return _join(rows, keys, names, self.preflight)

    def _read(
        self,
        tasks: Any,
        files: Sequence[tuple[DataFile | DeleteFile, int, int]],
        wanted: Column,
        columns: Sequence[Column],
    ) -> DataFrame:
        """Columns of the wanted rows of these tasks, which read these files, and of each row's
        file the `number` and `scope`."""
        from pyspark.sql import functions as F

        group_id = self.stack.enter_context(staged(self.bridge, self.table.java, tasks))
        frame = read_staged(self.bridge, self.table.java, self.table.name, group_id).where(wanted)
        # From here on all names are ours.
        frame = frame.select(*columns, F.xxhash64("_file").alias("file"))
        check_reads_staged(self.batch, frame, group_id)
        listed = ((file.path, number, scope) for file, number, scope in files)
        facts = local_frame(self.bridge, "path string, number long, scope int", listed)
        facts = facts.select(F.xxhash64("path").alias("file"), "number", "scope")
        if len({row[0] for row in facts.select("file").collect()}) != len(files):
            raise RefusedError(
                "ICM-119",
                f"{self.batch.table}: of {len(files)} files two have paths with the same 64-bit hash",
                "take on fewer files per batch.",
            )
        # A row of a file that was not asked for, left out in silence, would come back once its
        # delete is dropped.
        frame = frame.join(F.broadcast(facts), "file", "left")
        lost = F.raise_error(F.lit("a row was read of a file that was not planned"))
        known = (F.coalesce(c, lost.cast(k)).alias(c) for c, k in (("number", "long"), ("scope", "int")))
        return frame.select(*(c for c in frame.columns if c not in ("number", "scope")), *known)

    def _keys(self, one: _DeleteSet) -> list[Key]:
        schema, convert = self.table.java.schema(), self.bridge.iceberg.spark.SparkSchemaUtil.convert
        found = keys_of(self.table.schema_json)
        keys = []
        for field_id in one.equality_ids:
            if field_id not in found:
                raise RefusedError(
                    "ICM-119",
                    f"{self.batch.table}: {one.files[0].path} deletes rows by column number {field_id}, which "
                    "the table's schema does not have",
                    "have the deletes applied by the engine that wrote them.",
                )
            path, optional = found[field_id]
            kind = str(convert(schema.findType(field_id)).simpleString())
            # Of a nested column the count does not say which NULL it is.
            never_null = field_id in one.without_null and len(path) == 1
            keys.append(Key(path, optional, kind, never_null))
        return keys


@contextmanager
def marked_numbers(
    bridge: Bridge,
    table: Table,
    batch: Batch,
    tasks: Any,
    deletes: Sequence[Any],
    preflight: Preflight,
) -> Iterator[tuple[DataFrame, tuple[str, ...]]]:
    """As `marked_rows`, with `number` (long) in place of `_file`: an index of the paths that come
    with the frame."""
    with ExitStack() as stack:
        membership = _Membership(bridge, table, batch, tasks, deletes, preflight, stack)
        yield membership.rows(), tuple(f.path for f in membership.data)


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
    from pyspark.sql import functions as F

    with marked_numbers(bridge, table, batch, tasks, deletes, preflight) as (rows, paths):
        files = local_frame(bridge, "number long, _file string", enumerate(paths))
        yield rows.join(F.broadcast(files), "number").select("_file", "_pos", "_already")


def _join(rows: DataFrame, keys: DataFrame, names: Sequence[str], preflight: Preflight) -> DataFrame:
    """Places of the rows with a key that a delete deletes which applies to their file.

    Keys are made unique, so that an inner join gives no row twice; a semi-join would be moved
    below the distribution by Spark's optimizer, and with it the number of partitions be lost.
    """
    from pyspark.sql import functions as F

    if not preflight.broadcast:
        keys = keys.repartition(preflight.partitions, *names)
        rows = rows.repartition(preflight.partitions, *names)
    keys = keys.groupBy(*names).agg(F.max("limit").alias("limit"))
    keys = keys.hint("broadcast" if preflight.broadcast else "shuffle_hash")
    matches = reduce(lambda a, b: a & b, (rows[n] == keys[n] for n in names))
    return rows.join(keys, matches & (rows["place"] < keys["limit"])).select("place")


def _may_hold(bridge: Bridge, keys: DataFrame, names: Sequence[str], count: int) -> Column:
    """Whether a key is among these, which are at most `count`, by a Bloom filter: never wrong in
    saying no. It is Spark's own runtime filter, which its optimizer makes for no join like ours."""
    from pyspark.sql import Column
    from pyspark.sql import functions as F

    jvm = bridge.jvm
    hashed = keys.select(F.xxhash64(*names).alias("hash"))
    if not hashed.take(1):
        return F.lit(False)
    held = hashed._jdf.stat().bloomFilter("hash", count, _FALSE_POSITIVES)
    stream = jvm.java.io.ByteArrayOutputStream()
    held.writeTo(stream)
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    holds = jvm.org.apache.spark.sql.catalyst.expressions.BloomFilterMightContain
    parts = (F.lit(bytearray(stream.toByteArray())), F.xxhash64(*names))
    return Column(expressions.column(holds(*(expressions.expression(c._jc) for c in parts))))


def _shuffles(plan: Any) -> Iterator[int]:
    """Ids of the shuffles in an executed physical plan."""
    if str(plan.getClass().getSimpleName()) == "ShuffleExchangeExec":
        yield int(plan.shuffleDependency().shuffleId())
    children = plan.children()
    for number in range(children.size()):
        yield from _shuffles(children.apply(number))


def _delete_sets(deletes: Sequence[DeleteFile]) -> list[_DeleteSet]:
    found: dict[tuple[tuple[int, ...], bool], list[DeleteFile]] = {}
    for delete in deletes:
        found.setdefault((delete.equality_ids, delete.scope is None), []).append(delete)
    return [_DeleteSet(ids, everywhere, tuple(files)) for (ids, everywhere), files in found.items()]


def _pair(one: _DeleteSet, data: Sequence[DataFile]) -> _Pair | None:
    """What the deletes may apply to by scope and sequence number; None where that is nothing. Restates
    `equality_delete_reaches` of `core.model.delete_rule` as a limit in the order of sequence numbers."""
    sequence_numbers = [f.sequence_number for f in data]
    scopes = {f.scope: number for number, f in enumerate(one.files)}
    limits: dict[int, int] = {}
    deletes = []
    for file in one.files:
        limit, scope = bisect_left(sequence_numbers, file.sequence_number), scopes[file.scope]
        limits[scope] = max(limits.get(scope, 0), limit)
        deletes.append((file, limit << _FILE_SHIFT, scope))
    facing = []
    for number, data_file in enumerate(data):
        at = scopes.get(None if one.everywhere else data_file.scope)
        if at is not None and number < limits[at]:
            facing.append((data_file, number << _FILE_SHIFT, at))
    reached = {at for _, _, at in facing}
    applying = [d for d in deletes if d[2] in reached and d[1]]
    return _Pair(applying, facing) if facing else None
