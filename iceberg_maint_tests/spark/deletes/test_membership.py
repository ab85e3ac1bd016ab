"""Membership against the rows that Iceberg's own generic reader drops."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.planning.batch_memory import Preflight
from iceberg_maint.engines.spark.deletes.membership import equality_deleted_rows
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.java_errors import JVM_ERRORS
from iceberg_maint.engines.spark.scan.scan import Table, load_table_info
from iceberg_maint_tests.support.spark.writers import Row, Writers

pytestmark = [pytest.mark.spark, pytest.mark.drawn(2)]

BROADCAST = Preflight(0, partitions=1, passes=1, broadcast=True, scratch_bytes=0)
SHUFFLED = Preflight(0, partitions=3, passes=1, broadcast=False, scratch_bytes=0)
FILTERED = Preflight(0, partitions=3, passes=1, broadcast=False, scratch_bytes=0, filtered=True)
KEYS = 30
"""As many keys as the Bloom filter is made for."""
FILTERED_IN_PASSES = Preflight(0, partitions=2, passes=3, broadcast=False, scratch_bytes=0, filtered=True)
IN_PASSES = Preflight(0, partitions=2, passes=3, broadcast=False, scratch_bytes=0)

_names = itertools.count()


class Lake:
    """One table whose rows are told apart by their column `n`, an int of its own in each row."""

    def __init__(
        self,
        spark: SparkSession,
        columns: str,
        *,
        version: int = 2,
        by: str = "",
        file_format: str = "parquet",
    ) -> None:
        self.spark = spark
        self.writers = Writers(Bridge(spark))
        self.name = f"lake.membership.t{next(_names)}"
        self.columns = columns
        self.properties = {"write.format.default": file_format}
        self.java = self.writers.create(
            self.name, columns, version=version, partitioned_by=by, properties=self.properties
        )
        self.places: dict[int, tuple[str, int]] = {}

    def reload(self) -> None:
        self.java = self.writers.load(self.name)

    def append(self, rows: Sequence[Row], spec: Any = None, partition: Sequence[Any] = ()) -> Any:
        file = self.writers.append(self.java, rows, spec, partition)
        self.places |= {row["n"]: (file.location(), i) for i, row in enumerate(rows)}
        return file

    def delete(self, *keys: Row, spec: Any = None, partition: Sequence[Any] = ()) -> Any:
        return self.writers.delete_where(self.java, keys, spec, partition)

    def insert(self, values: str) -> None:
        """Appends rows by Spark, of any type, in one file."""
        self.spark.sql(f"insert into {self.name} select /*+ coalesce(1) */ * from values {values}")
        self.reload()
        rows = self.spark.table(self.name).select("n", "_file", "_pos").collect()
        self.places |= {row[0]: (row[1], row[2]) for row in rows}

    def delete_rows(self, values: str, *key_ids: int, metrics_of: Any = None) -> None:
        """An equality delete file of any type: a data file of these rows under another name, with
        the metrics of another file or none."""
        other = f"{self.name}_keys"
        self.writers.sql(f"drop table if exists {other}")
        self.writers.create(other, self.columns, properties=self.properties)
        self.writers.sql(f"insert into {other} select /*+ coalesce(1) */ * from values {values}")
        [file] = self.writers.files(self.writers.load(other))
        bridge = self.writers.bridge
        delete = (
            bridge.iceberg.FileMetadata.deleteFileBuilder(self.java.spec())
            .ofEqualityDeletes(bridge.ints(key_ids))
            .withPath(file.location())
            .withFormat(file.format())
            .withFileSizeInBytes(file.fileSizeInBytes())
            .withRecordCount(file.recordCount())
        )
        if metrics_of is not None:
            source = self.java.io().newInputFile(metrics_of.location())
            everything = bridge.iceberg.MetricsConfig.getDefault()
            delete = delete.withMetrics(bridge.iceberg.parquet.ParquetUtil.fileMetrics(source, everything))
        self.java.newRowDelta().addDeletes(delete.build()).commit()

    def marked(self, preflight: Preflight = SHUFFLED) -> dict[int, bool]:
        """What is marked, by `n`, with whether it was deleted already."""
        bridge = self.writers.bridge
        self.reload()
        tasks, deletes = [], {}
        for task in self.writers.tasks(self.java):
            applied = list(bridge.iterate(task.deletes()))
            if equality := [d for d in applied if d.content().toString() == "EQUALITY_DELETES"]:
                tasks.append(task)
                deletes |= {d.location(): d for d in equality}
        table = table_info(bridge, self.java, self.name)
        files = list(deletes.values())
        with equality_deleted_rows(bridge, table, bridge.list(tasks), files, preflight, KEYS) as frame:
            assert frame.dtypes == [("_file", "string"), ("_pos", "bigint"), ("_already", "boolean")]
            found = [tuple(row) for row in frame.collect()]
        rows = {place: n for n, place in self.places.items()}
        marked = [(rows[path, position], already) for path, position, already in found]
        assert len(marked) == len(dict(marked))
        return dict(marked)

    def dropped(self) -> set[int]:
        """The rows, by `n`, that Iceberg's generic reader does not give."""
        index = [str(c.name()) for c in self.java.schema().columns()].index("n")
        return set(self.places) - {row[index] for row in self.writers.rows(self.name)}


def table_info(bridge: Bridge, java: Any, name: str) -> Table:
    return load_table_info(bridge, java, name, int(java.currentSnapshot().snapshotId()))


def rows_of(ids: Iterable[Any], start: int, **more: Any) -> list[Row]:
    return [{"id": i, "n": start + number, **more} for number, i in enumerate(ids)]


@pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.variant)])
@pytest.mark.parametrize(
    "preflight",
    [
        pytest.param(BROADCAST, id="broadcast"),
        pytest.param(SHUFFLED, id="shuffled", marks=pytest.mark.variant),
        pytest.param(FILTERED, id="filtered", marks=pytest.mark.variant),
        pytest.param(IN_PASSES, id="passes", marks=pytest.mark.variant),
        pytest.param(FILTERED_IN_PASSES, id="filtered-passes"),
    ],
)
def test_keys_deleted_again_after_an_insert_are_marked_below_their_latest_delete(
    spark: SparkSession, version: int, preflight: Preflight
) -> None:
    lake = Lake(spark, "id int, n int", version=version)
    lake.append(rows_of(range(6), 0))
    lake.delete({"id": 1}, {"id": 2}, {"id": 2})
    lake.append(rows_of(range(4), 10))
    lake.delete({"id": 2}, {"id": 5})
    lake.append(rows_of([2, 5], 20))
    expected = {1: False, 2: False, 5: False, 12: False}
    assert lake.marked(preflight) == expected
    assert lake.dropped() == set(expected)


def test_deletes_of_the_commit_that_adds_the_rows_leave_them(spark: SparkSession) -> None:
    lake = Lake(spark, "id int not null, n int")
    lake.append(rows_of([1, 2], 0))
    rows = rows_of([1, 3], 10)
    file = lake.writers.data(lake.java, rows)
    keys = lake.writers.equality_deletes(lake.java, [{"id": 1}, {"id": 3}])
    lake.java.newRowDelta().addRows(file).addDeletes(keys).commit()
    lake.places |= {row["n"]: (file.location(), i) for i, row in enumerate(rows)}
    lake.delete({"id": 3})
    assert lake.marked() == {0: False, 11: False}
    assert lake.dropped() == {0, 11}


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    "preflight", [BROADCAST, SHUFFLED, FILTERED], ids=["broadcast", "shuffled", "filtered"]
)
def test_null_keys_equal_null_only(spark: SparkSession, preflight: Preflight) -> None:
    lake = Lake(spark, "id int, s string, n int")
    values = [(None, None), (None, ""), (0, None), (0, ""), (1, "x"), (1, None)]
    lake.append([{"id": i, "s": s, "n": n} for n, (i, s) in enumerate(values)])
    lake.delete({"id": None, "s": None}, {"id": 0, "s": ""}, {"id": 1, "s": None})
    assert lake.marked(preflight) == {0: False, 3: False, 5: False}
    assert lake.dropped() == {0, 3, 5}


def test_null_keys_that_metadata_denies_end_the_job(spark: SparkSession) -> None:
    lake = Lake(spark, "id int, n int")
    lake.append(rows_of([None, 1], 0))
    honest = lake.delete({"id": 1})
    lake.delete_rows("(null, 7)", 1, metrics_of=honest)
    with pytest.raises(JVM_ERRORS, match="its metadata says it has none"):
        lake.marked()


@pytest.mark.parametrize("preflight", [SHUFFLED, IN_PASSES], ids=["shuffled", "passes"])
def test_rows_under_deletes_of_several_schemas_are_marked_once(
    spark: SparkSession, preflight: Preflight
) -> None:
    lake = Lake(spark, "id int, s string, n int")
    lake.append([{"id": i, "s": f"s{i}", "n": i} for i in range(8)])
    lake.delete(*({"id": i} for i in range(6)))
    lake.delete(*({"s": f"s{i}"} for i in range(5)))
    lake.delete({"id": 6, "s": "s6"}, {"id": 7, "s": "s6"})
    assert lake.marked(preflight) == dict.fromkeys(range(7), False)
    assert lake.dropped() == set(range(7))


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    "preflight", [BROADCAST, SHUFFLED, FILTERED], ids=["broadcast", "shuffled", "filtered"]
)
def test_deletes_apply_to_their_own_partition(spark: SparkSession, preflight: Preflight) -> None:
    lake = Lake(spark, "id int, p string, n int", by="p")
    for start, p in ((0, "a"), (10, "b"), (20, None), (30, "null")):
        lake.append(rows_of([1, 2, 3], start, p=p), partition=[p])
    lake.delete({"id": 1}, partition=["a"])
    lake.delete({"id": 2}, partition=["b"])
    lake.delete({"id": 3}, partition=[None])
    assert lake.marked(preflight) == {0: False, 11: False, 22: False}
    assert lake.dropped() == {0, 11, 22}


@pytest.mark.variant
def test_keys_contradicting_their_partition_delete_nothing(spark: SparkSession) -> None:
    lake = Lake(spark, "id int, p string, n int", by="p")
    for start, p in ((0, "a"), (10, "b")):
        lake.append(rows_of([1, 2], start, p=p), partition=[p])
    # A bare writer does not look; a reader that took `p` from the partition would delete row 0.
    lake.delete({"id": 1, "p": "b"}, {"id": 2, "p": "a"}, partition=["a"])
    assert lake.marked() == {1: False}
    assert lake.dropped() == {1}


@pytest.mark.drawn(1)
@pytest.mark.parametrize("version", [2, 3])
def test_deletes_of_an_unpartitioned_spec_apply_everywhere_once_the_spec_evolved(
    spark: SparkSession, version: int
) -> None:
    lake = Lake(spark, "id int, p string, n int", version=version)
    lake.append(rows_of([1, 2, 3], 0, p="a"))
    lake.writers.sql(f"alter table {lake.name} add partition field p")
    lake.reload()
    lake.append(rows_of([1, 2, 3], 10, p="a"), partition=["a"])
    lake.append(rows_of([1, 2, 3], 20, p="b"), partition=["b"])
    lake.delete({"id": 1}, spec=lake.writers.spec(lake.java, 0))
    lake.delete({"id": 2}, partition=["a"])
    expected = dict.fromkeys((0, 10, 11, 20), False)
    assert lake.marked() == expected
    assert lake.dropped() == set(expected)


def test_keys_renamed_promoted_and_added_match_by_field(spark: SparkSession) -> None:
    lake = Lake(spark, "id int, n int")
    lake.append(rows_of([1, 2, 3], 0))
    lake.delete({"id": 1})
    for change in ("rename column id to number", "alter column number type bigint", "add column place int"):
        lake.writers.sql(f"alter table {lake.name} {change}")
    lake.reload()
    lake.insert(f"({2**40}, 10, 7), (2, 11, cast(null as int)), (1, 12, 7)")
    lake.columns = "number bigint, n int, place int"
    lake.delete({"place": 7})
    lake.append([{"n": 20, "place": 7}])
    # Of the first file all rows have NULL in the column that was added after it.
    lake.delete({"place": None})
    expected = dict.fromkeys((0, 1, 2, 10, 11, 12), False)
    assert lake.marked() == expected
    assert lake.dropped() == set(expected)


@pytest.mark.drawn(1)
@pytest.mark.parametrize(("before", "after"), [(2, 2), (3, 3), (2, 3)], ids=["v2", "v3", "upgraded"])
def test_rows_also_deleted_by_position_are_marked_as_deleted_already(
    spark: SparkSession, before: int, after: int
) -> None:
    lake = Lake(spark, "id int, n int", version=before)
    first = lake.append(rows_of([1, 2, 3, 4], 0))
    lake.append(rows_of([1, 2], 10))
    if before == 2:
        lake.writers.delete_at(lake.java, {first.location(): [1, 3]})
    else:
        lake.writers.sql(f"alter table {lake.name} set tblproperties ('write.delete.mode'='merge-on-read')")
        lake.writers.sql(f"delete from {lake.name} where n in (1, 3)")
    if after != before:
        lake.writers.sql(f"alter table {lake.name} set tblproperties ('format-version'='{after}')")
    lake.reload()
    lake.delete({"id": 1}, {"id": 2})
    assert lake.marked() == {0: False, 1: True, 10: False, 11: False}
    assert lake.dropped() == {0, 1, 3, 10, 11}


@pytest.mark.drawn(1)
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_keys_of_every_type_and_format_are_compared(spark: SparkSession, file_format: str) -> None:
    columns = (
        "n int, b boolean, l bigint, d date, t timestamp, tn timestamp_ntz, s string, x binary, "
        "e decimal(9,2), w decimal(30,4)"
    )
    lake = Lake(spark, columns, file_format=file_format)
    full = (
        "({n}, true, 9000000000, date'2024-02-29', timestamp'2024-02-29 12:00:00.123456', "
        "timestamp_ntz'1969-12-31 23:59:59.999999', 'é{s}', X'00ff', cast(-1.25 as decimal(9,2)), "
        "cast(12345678901234567890.1234 as decimal(30,4)))"
    )
    empty = "({n}" + ", null" * 9 + ")"
    zero = (
        "({n}, false, 0, date'1970-01-01', timestamp'1970-01-01 00:00:00', "
        "timestamp_ntz'1970-01-01 00:00:00', '', X'', cast(0 as decimal(9,2)), cast(0 as decimal(30,4)))"
    )
    lake.insert(
        ", ".join((full.format(n=0, s=""), full.format(n=1, s="x"), empty.format(n=2), zero.format(n=3)))
    )
    lake.delete_rows(", ".join((full.format(n=7, s=""), empty.format(n=8))), *range(2, 11))
    assert lake.marked() == {0: False, 2: False}
    assert lake.dropped() == {0, 2}


def test_nested_keys_tell_null_structs_from_structs_of_null(spark: SparkSession) -> None:
    lake = Lake(spark, "n int, a struct<b: int, c: int>")
    one = "(0, named_struct('b', 1, 'c', 1)), (1, named_struct('b', 2, 'c', 1))"
    lake.insert(f"{one}, (2, named_struct('b', null, 'c', 1)), (3, null)")
    b = int(lake.java.schema().findField("a.b").fieldId())
    lake.delete_rows("(7, named_struct('b', 1, 'c', 9)), (8, named_struct('b', null, 'c', 9))", b)
    assert lake.marked() == {0: False, 2: False}
    assert lake.dropped() == {0, 2}


def test_deletes_that_apply_to_no_data_mark_nothing(spark: SparkSession) -> None:
    lake = Lake(spark, "id int, n int")
    lake.append(rows_of([1], 0))
    delete = lake.delete({"id": 2})
    bridge = lake.writers.bridge
    table = table_info(bridge, lake.java, lake.name)
    live = [
        d for m in bridge.iterate(lake.java.currentSnapshot().addedDeleteFiles(lake.java.io())) for d in [m]
    ]
    assert [d.location() for d in live] == [delete.location()]
    with equality_deleted_rows(bridge, table, bridge.list(()), live, SHUFFLED) as frame:
        assert frame.collect() == []


@pytest.fixture
def many_shuffle_partitions(spark: SparkSession) -> Iterator[int]:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "50")
    yield 50
    spark.conf.set("spark.sql.shuffle.partitions", before)


def test_partitions_are_those_of_the_preflight_whatever_the_session_says(
    spark: SparkSession, many_shuffle_partitions: int
) -> None:
    lake = Lake(spark, "id bigint, n int")
    lake.insert("(1L, 0), (2L, 1)")
    lake.delete_rows("(1L, 7)", 1)
    bridge = lake.writers.bridge
    lake.reload()
    [task] = lake.writers.tasks(lake.java)
    table = table_info(bridge, lake.java, lake.name)
    with equality_deleted_rows(bridge, table, bridge.list([task]), list(task.deletes()), SHUFFLED) as frame:
        plan = str(frame._jdf.queryExecution().executedPlan().toString())
    assert plan.count("Exchange hashpartitioning(") == 2
    assert plan.count(", 3), REPARTITION_BY_NUM") == 2
    assert plan.count("ShuffledHashJoin") == 1


@pytest.mark.variant
def test_passes_leave_no_shuffle_files(spark: SparkSession, lake_dir: Path) -> None:
    lake = Lake(spark, "id int, n int")
    lake.append(rows_of(range(20), 0))
    lake.delete({"id": 3}, {"id": 11})
    before = set((lake_dir / "spark").rglob("shuffle_*.data"))
    assert lake.marked(IN_PASSES) == {3: False, 11: False}
    assert set((lake_dir / "spark").rglob("shuffle_*.data")) <= before
