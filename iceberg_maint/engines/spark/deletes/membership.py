"""Membership: finds the rows, by data file and position, that a set of equality deletes deletes.

Only key columns are read. Delete files are read as data and reduced to key → latest delete. A hash join
compares them with the data. Its build side is that key set, hashed evenly over the number of partitions that the
pre-flight requires. Its data side has the key and one long.

An equality delete applies to data of a strictly lower sequence number, in its own spec and
partition, or everywhere if its spec is unpartitioned (spec: Scan Planning; Iceberg's
`DeleteFileIndex`). Data files are numbered in order of their sequence number, so "strictly
lower" means "a number below a limit". The place of a row is the number of its file and its position in one long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from functools import reduce
from itertools import product
from typing import TYPE_CHECKING, Any

from iceberg_maint.core.model.columns import has_one_order, is_outside
from iceberg_maint.core.planning.batch_memory import Preflight
from iceberg_maint.engines.spark.deletes.key_files import (
    FILE_SHIFT,
    POSITION_BITS,
    DataFile,
    DeleteFile,
    DeleteSet,
    KeyFiles,
    Pair,
    delete_sets,
    pair_of,
)
from iceberg_maint.engines.spark.deletes.keys import Key, can_match, key_terms, keys_of
from iceberg_maint.engines.spark.jvm.bridge import Bridge, java_column, java_frame
from iceberg_maint.engines.spark.jvm.conversion import local_frame
from iceberg_maint.engines.spark.scan.scan import Table
from iceberg_maint.engines.spark.scan.staging import check_reads_staged, read_staged, staged, wrong_keys
from iceberg_maint.errors import RefusedError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_MOST_FILES = 1 << (63 - FILE_SHIFT)
"""The number of data files that a place has bits for."""

_FALSE_POSITIVES = 0.03
"""The share of rows without a matching key that the Bloom filter keeps, at seven bits per key."""


class _Membership:
    """The files, tasks and frames of one call of `equality_deleted_numbers`."""

    def __init__(
        self,
        bridge: Bridge,
        table: Table,
        tasks: Any,
        deletes: Sequence[Any],
        preflight: Preflight,
        keys: int,
    ) -> None:
        self.bridge = bridge
        self.table = table
        self.tasks = tasks
        self.preflight = preflight
        self.keys = keys
        self.stack = ExitStack()
        self.files = KeyFiles(bridge, table)
        self.data = sorted(self.files.data_files(tasks), key=lambda f: (f.sequence_number, f.path))
        if len(self.data) >= _MOST_FILES:
            raise RefusedError(
                "ICM-119",
                f"{table.name}: {len(self.data)} data files are under equality deletes at once",
                f"take on fewer than {_MOST_FILES} per batch (windows.max_files_per_batch).",
            )
        self.sets = delete_sets(self.files.delete_files(deletes))

    def check_bounds(self) -> None:
        """Raises RefusedError ICM-119 for a delete file with keys outside its bounds."""
        from pyspark.sql import functions as F

        for delete_set in self.sets:
            files = {f.path: f for f in delete_set.files}
            keys = dict(zip(delete_set.equality_ids, self._keys(delete_set), strict=True))
            types = {i: t for i in keys if has_one_order(t := self.table.types[i])}
            if not types or not any(types.keys() & f.bounds.keys() for f in files.values()):
                continue
            ends = [
                end(_comparable(keys[i])).alias(f"{end.__name__}{i}") for i in types for end in (F.min, F.max)
            ]
            with staged(self.bridge, self.table.java, self.files.delete_tasks(files.values())) as group_id:
                frame = read_staged(self.bridge, self.table.java, self.table.name, group_id)
                by_file = frame.groupBy("_file").agg(*ends)
                rows = by_file.collect()
                self._remove_shuffles(by_file)
            for row, (i, kind) in product(rows, types.items()):
                bounds = files[row["_file"]].bounds.get(i, (None, None))
                values = (_bound(row[f"{end.__name__}{i}"]) for end in (F.min, F.max))
                if any(v is not None and is_outside(kind, v, bounds) for v in values):
                    column = ".".join(keys[i].path)
                    problem = f"{row['_file']} has keys outside its bounds of column {column}"
                    raise wrong_keys(self.table.name, problem)

    def places(self) -> DataFrame:
        """The places of all deleted rows, each once."""
        pairs = [(s, pair) for s in self.sets if (pair := pair_of(s, self.data)) is not None]
        if not pairs:
            return self.bridge.spark.range(0).selectExpr("id as place")
        passes = []
        for number in range(self.preflight.passes):
            frames = (self._matches(delete_set, pair, number) for delete_set, pair in pairs)
            places = reduce(lambda a, b: a.unionByName(b), frames)
            passes.append(places if self.preflight.passes == 1 else self._checkpoint(places))
        places = reduce(lambda a, b: a.unionByName(b), passes)
        if len(pairs) == 1:
            return places
        # Two sets of deletes may delete the same row, also in different passes.
        return places.repartition(self.preflight.partitions, "place").dropDuplicates(["place"])

    def _checkpoint(self, places: DataFrame) -> DataFrame:
        """Computes the places of one pass and stores them on disk. Then removes its shuffle files, before the
        next pass writes more."""
        from pyspark import StorageLevel

        level = {} if self.bridge.is_spark_3 else {"storageLevel": StorageLevel.DISK_ONLY}
        checkpoint = places.localCheckpoint(eager=True, **level)
        blocks = java_frame(checkpoint).queryExecution().logical().rdd()
        self.stack.callback(blocks.unpersist, False)
        self._remove_shuffles(places)
        return checkpoint

    def _remove_shuffles(self, frame: DataFrame) -> None:
        """Removes the shuffle files of a frame that was computed."""
        cleaner = self.bridge.scala_context.cleaner().get()
        for shuffle in _shuffles(java_frame(frame).queryExecution().executedPlan()):
            cleaner.doCleanupShuffle(shuffle, True)

    def rows(self) -> DataFrame:
        """The rows of all places: number of the data file, position, and whether the row was deleted before."""
        from pyspark.sql import functions as F

        return self.places().select(
            F.shiftright("place", FILE_SHIFT).alias("number"),
            F.shiftright("place", 1).bitwiseAND((1 << POSITION_BITS) - 1).alias("_pos"),
            (F.col("place").bitwiseAND(1) == 1).alias("_already"),
        )

    def _matches(self, delete_set: DeleteSet, pair: Pair, number: int) -> DataFrame:
        """The places of the rows that one set of deletes deletes, in one of the passes."""
        from pyspark.sql import functions as F

        columns = self._keys(delete_set)
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
            in_pass = F.pmod(F.xxhash64(*names), F.lit(self.preflight.passes)) == number
            keys, rows = keys.where(in_pass), rows.where(in_pass)
        count = self.keys // self.preflight.passes
        if self.preflight.filtered and count and not self.bridge.is_spark_3:
            rows = rows.where(_may_contain(self.bridge, keys, names, count))
        return _join(rows, keys, names, self.preflight)

    def _read(
        self,
        tasks: Any,
        files: Sequence[tuple[DataFile | DeleteFile, int, int]],
        condition: Column,
        columns: Sequence[Column],
    ) -> DataFrame:
        """These columns of the rows that meet the condition, and the `number` and `scope` of each row's file.
        The tasks read these files."""
        from pyspark.sql import functions as F

        group_id = self.stack.enter_context(staged(self.bridge, self.table.java, tasks))
        frame = read_staged(self.bridge, self.table.java, self.table.name, group_id).where(condition)
        # The frame has no column of the table's names from here on.
        frame = frame.select(*columns, F.xxhash64("_file").alias("file"))
        check_reads_staged(self.table.name, frame, group_id)
        file_rows = ((file.path, number, scope) for file, number, scope in files)
        facts = local_frame(self.bridge, "path string, number long, scope int", file_rows)
        facts = facts.select(F.xxhash64("path").alias("file"), "number", "scope")
        if len({row[0] for row in facts.select("file").collect()}) != len(files):
            raise RefusedError(
                "ICM-119",
                f"{self.table.name}: of {len(files)} files two have paths with the same 64-bit hash",
                "take on fewer files per batch.",
            )
        # The job fails on a row of a file that is not among these. If it dropped the row silently, the row
        # would come back when its delete is dropped.
        frame = frame.join(F.broadcast(facts), "file", "left")
        failure = F.raise_error(F.lit("a row was read of a file that was not planned"))
        file_columns = (
            F.coalesce(name, failure.cast(type_name)).alias(name)
            for name, type_name in (("number", "long"), ("scope", "int"))
        )
        return frame.select(*(c for c in frame.columns if c not in ("number", "scope")), *file_columns)

    def _keys(self, delete_set: DeleteSet) -> list[Key]:
        schema, convert = self.table.java.schema(), self.bridge.iceberg.spark.SparkSchemaUtil.convert
        places = keys_of(self.table.schema_json)
        keys = []
        for field_id in delete_set.equality_ids:
            if field_id not in places:
                raise RefusedError(
                    "ICM-119",
                    f"{self.table.name}: {delete_set.files[0].path} deletes rows by column number {field_id}, "
                    "which the table's schema does not have",
                    "have the deletes applied by the engine that wrote them.",
                )
            path, optional = places[field_id]
            type_name = str(convert(schema.findType(field_id)).simpleString())
            # The NULL count of a nested column includes the NULLs of the enclosing structs.
            never_null = field_id in delete_set.without_null and len(path) == 1
            keys.append(Key(path, optional, type_name, never_null))
        return keys


@contextmanager
def equality_deleted_numbers(
    bridge: Bridge,
    table: Table,
    tasks: Any,
    deletes: Sequence[Any],
    preflight: Preflight,
    keys: int = 0,
) -> Iterator[tuple[DataFrame, tuple[str, ...]]]:
    """As `equality_deleted_rows`, with `number` (long) instead of `_file`. It is an index of the paths, the second value."""
    membership = _Membership(bridge, table, tasks, deletes, preflight, keys)
    with membership.stack:
        membership.check_bounds()
        yield membership.rows(), tuple(f.path for f in membership.data)


@contextmanager
def equality_deleted_rows(
    bridge: Bridge,
    table: Table,
    tasks: Any,
    deletes: Sequence[Any],
    preflight: Preflight,
    keys: int = 0,
) -> Iterator[DataFrame]:
    """The rows that equality deletes delete, each once.

    The columns are `_file` (string), `_pos` (long) and `_already` (boolean: position deletes or a deletion vector
    delete the row too). `tasks` is the `java.util.List` of the scan tasks, as Iceberg plans them at the batch's
    snapshot. `deletes` are the equality DeleteFiles; `keys` is at least the number of their rows, 0 if it is not known. The frame is valid inside the block, while the tasks
    that it reads are staged. Raises RefusedError ICM-119 for a key column that the schema does not have.
    """
    from pyspark.sql import functions as F

    with equality_deleted_numbers(bridge, table, tasks, deletes, preflight, keys) as (rows, paths):
        files = local_frame(bridge, "number long, _file string", enumerate(paths))
        yield rows.join(F.broadcast(files), "number").select("_file", "_pos", "_already")


def _join(rows: DataFrame, keys: DataFrame, names: Sequence[str], preflight: Preflight) -> DataFrame:
    """The places of the rows whose key is deleted by a delete that applies to their file.

    Keys are unique, so an inner join returns no row twice. Spark's optimizer would move a semi-join
    below the distribution, which would change the number of partitions.
    """
    from pyspark.sql import functions as F

    if not preflight.broadcast:
        keys = keys.repartition(preflight.partitions, *names)
        rows = rows.repartition(preflight.partitions, *names)
    keys = keys.groupBy(*names).agg(F.max("limit").alias("limit"))
    keys = keys.hint("broadcast" if preflight.broadcast else "shuffle_hash")
    matches = reduce(lambda a, b: a & b, (rows[n] == keys[n] for n in names))
    return rows.join(keys, matches & (rows["place"] < keys["limit"])).select("place")


def _may_contain(bridge: Bridge, keys: DataFrame, names: Sequence[str], count: int) -> Column:
    """Whether a key may be one of these, by a Bloom filter: false is always right. There are at most `count` keys.

    It is Spark's runtime filter. Spark's optimizer does not add one to a join of this form.
    """
    from pyspark.sql import Column
    from pyspark.sql import functions as F

    jvm = bridge.jvm
    hashed = keys.select(F.xxhash64(*names).alias("hash"))
    if not hashed.take(1):
        return F.lit(False)
    bloom_filter = java_frame(hashed).stat().bloomFilter("hash", count, _FALSE_POSITIVES)
    stream = jvm.java.io.ByteArrayOutputStream()
    bloom_filter.writeTo(stream)
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    might_contain = jvm.org.apache.spark.sql.catalyst.expressions.BloomFilterMightContain
    parts = (F.lit(bytearray(stream.toByteArray())), F.xxhash64(*names))
    return Column(expressions.column(might_contain(*(expressions.expression(java_column(c)) for c in parts))))


def _comparable(key: Key) -> Column:
    """The value of a key as its bounds have it."""
    from pyspark.sql import functions as F

    match key.kind:
        case "boolean":
            return key.column().cast("int")
        case "date":
            return F.unix_date(key.column())
        case "timestamp" | "timestamp_ntz":
            return F.unix_micros(key.column().cast("timestamp"))
        case "string":
            return key.column().cast("binary")
    return key.column()


def _bound(value: Any) -> int | bytes | None:
    if isinstance(value, Decimal):
        return int(value.scaleb(-int(value.as_tuple().exponent)))
    return bytes(value) if isinstance(value, bytearray) else value


def _shuffles(plan: Any) -> Iterator[int]:
    """Ids of the shuffles in an executed physical plan."""
    if str(plan.getClass().getSimpleName()) == "ShuffleExchangeExec":
        yield int(plan.shuffleDependency().shuffleId())
    children = plan.children()
    for number in range(children.size()):
        yield from _shuffles(children.apply(number))
