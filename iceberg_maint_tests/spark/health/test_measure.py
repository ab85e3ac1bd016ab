"""Both implementations of health on real tables: no metric and no partition key may differ."""

from __future__ import annotations

import itertools
import math
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform
from pyiceberg.types import BinaryType, DecimalType, DoubleType, LongType, NestedField, StringType
from pyspark.sql import SparkSession

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.catalog.manifests.memo import ManifestMemo
from iceberg_maint.core.commits.change import MetadataReader
from iceberg_maint.core.health.metrics import Measured, PartitionHealth
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import LayoutOrder, SortColumn, TableState
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint.engines.spark.engine import SparkEngine
from iceberg_maint.engines.spark.health.measure import SparkHealthSource, check_measurable
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.errors import RefusedError, UnreadableTableError
from iceberg_maint_tests.support.catalog.table_files import DELETED, File, ManifestFile, TableFiles, spec
from iceberg_maint_tests.support.spark.versions import not_on_spark_3
from iceberg_maint_tests.support.spark.writers import Writers

pytestmark = pytest.mark.spark

POLICY = RewriteDataFilesPolicy(target_file_size_bytes=1200)
_names = itertools.count()


@pytest.fixture(scope="module")
def writers(spark: SparkSession) -> Writers:
    return Writers(Bridge(spark))


@pytest.fixture(scope="module")
def catalog(spark: SparkSession, lake_dir: Path) -> PyIcebergCatalog:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{lake_dir / 'catalog.db'}",
        "warehouse": lake_dir.as_uri(),
    }
    return PyIcebergCatalog("lake", properties)


@pytest.fixture(scope="module")
def with_memo(lake_dir: Path) -> PyIcebergCatalog:
    """The same catalog with a memo of every manifest."""
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{lake_dir / 'catalog.db'}",
        "warehouse": lake_dir.as_uri(),
    }
    return PyIcebergCatalog("lake", properties, ManifestMemo(lake_dir / "manifests.db", min_files=1))


@pytest.fixture(scope="module")
def measured(
    spark: SparkSession, catalog: PyIcebergCatalog, with_memo: PyIcebergCatalog
) -> Callable[[str], tuple[TableState, Measured]]:
    """State and health of a table, which both implementations agree on, without the memo and with it."""

    def both(name: str) -> tuple[TableState, Measured]:
        state = catalog.pin(TableId.parse(name))
        ours = catalog.measure(state, POLICY)
        assert SparkHealthSource(Bridge(spark)).measure(state, POLICY) == ours
        assert [with_memo.measure(state, POLICY) for _ in range(2)] == [ours, ours]
        for key in ours.partitions:
            assert with_memo.live_files(state, [key]) == catalog.live_files(state, [key])
        return state, ours

    return both


def new_name() -> str:
    return f"lake.health.t{next(_names)}"


def test_health_of_a_table_without_snapshot_is_empty(writers: Writers, measured: Callable) -> None:
    name = new_name()
    writers.create(name)
    state, ours = measured(name)
    assert (state.snapshot, ours.partitions) == (None, {})
    assert ours.table_health.metadata_bytes > 0


def test_health_of_every_partition_type_and_null_has_the_same_keys(
    writers: Writers, measured: Callable
) -> None:
    name = new_name()
    columns = "id int, n bigint, s string, b boolean, d date, ts timestamp, tn timestamp_ntz, m decimal(9,2), m2 decimal(9,2), x binary"
    by = "n, bucket(4, id), truncate(2, s), b, d, years(tn), hours(ts), m, m2, x"
    writers.create(name, columns, partitioned_by=by)
    writers.sql(
        f"insert into {name} values"
        " (1, 9000000000, 'a/b=c', true, date'1969-12-31', timestamp'2024-01-02 03:04:05.123456', timestamp_ntz'1960-01-01 00:00:00', 1.10, 2.20, X'00ff'),"
        " (2, null, 'grün', false, date'9999-12-31', timestamp'1969-12-31 23:59:59', timestamp_ntz'2024-01-01 00:00:00', -7.00, 2.20, X''),"
        " (null, null, null, null, null, null, null, null, null, null)"
    )
    _, ours = measured(name)
    # m and m2 share one Avro type, by name: PyIceberg's own reader fails on such a manifest.
    assert "n/id_bucket/s_trunc/b/d/tn_year/ts_hour/m/m2/x" in ours.partitions
    assert len(ours.partitions) == 3
    [first] = [key for key in ours.partitions if "n=9000000000" in key]
    assert first.endswith(
        "/s_trunc=a%2F/b=true/d=1969-12-31/tn_year=1960/ts_hour=2024-01-02-03/m=1.10/m2=2.20/x=00ff"
    )


@pytest.mark.variant
def test_health_of_position_deletes_and_equality_deletes(writers: Writers, measured: Callable) -> None:
    name = new_name()
    table = writers.create(name, partitioned_by="v")
    kept = writers.append(table, [{"id": n, "v": "a"} for n in range(200)], partition=["a"])
    writers.append(table, [{"id": 7, "v": "b"}], partition=["b"])
    writers.delete_at(table, {kept.location(): [0, 1, 2]}, partition=["a"])
    writers.delete_where(table, [{"id": 7}, {"id": 8}], partition=["b"])
    writers.append(table, [{"id": 9, "v": "b"}], partition=["b"])
    writers.delete_where(table, [{"id": 1}], partition=["c"])
    state, ours = measured(name)
    a, b, c = (ours.partitions[f"v={v}"] for v in "abc")
    assert (a.data_files, a.position_delete_files, a.position_delete_records, a.delete_ratio) == (
        1,
        1,
        3,
        0.015,
    )
    assert (a.small_files, a.large_files) == (0, int(a.data_bytes > 2160))
    assert (b.data_files, b.small_files, b.equality_delete_files, b.equality_delete_records) == (2, 2, 1, 2)
    assert (b.applicable_equality_delete_files, b.dangling_delete_files) == (1, 0)
    assert b.oldest_equality_delete_ms == state.snapshots[3].timestamp_ms
    assert (b.min_data_sequence_number, b.max_data_sequence_number) == (2, 5)
    assert b.last_change_ms == state.snapshots[4].timestamp_ms
    # Partition c has a delete and no data.
    assert (c.data_files, c.applicable_equality_delete_files, c.dangling_delete_files) == (0, 0, 1)
    assert c.dangling_equality_delete_files == 1
    assert c.oldest_dangling_equality_delete_ms is not None


def test_health_of_deletion_vectors_in_one_puffin_counts_each_by_its_own_size(
    writers: Writers, measured: Callable
) -> None:
    name = new_name()
    writers.create(
        name,
        version=3,
        partitioned_by="v",
        properties={"write.delete.mode": "merge-on-read", "write.delete.granularity": "file"},
    )
    writers.sql(
        f"insert into {name} select cast(id as int), if(id % 2 = 0, 'a', 'b') from range(0, 100, 1, 1)"
    )
    writers.sql(
        f"insert into {name} select cast(id as int), if(id % 2 = 0, 'a', 'b') from range(100, 200, 1, 1)"
    )
    writers.sql(f"delete from {name} where id in (2, 3, 4, 102)")
    state, ours = measured(name)
    a, b = ours.partitions["v=a"], ours.partitions["v=b"]
    assert (a.deletion_vectors, a.deletion_vector_records, b.deletion_vectors, b.deletion_vector_records) == (
        2,
        3,
        1,
        1,
    )
    assert (a.position_delete_files, a.dangling_delete_files) == (0, 0)
    # Iceberg's summary counts blobs too; the Puffin file's size would count once for each of its blobs.
    added_bytes = int(state.snapshot.summary["added-files-size"])
    assert 0 < a.deletion_vector_bytes + b.deletion_vector_bytes == added_bytes


@pytest.mark.variant
def test_health_after_upgrades_and_spec_changes(writers: Writers, measured: Callable) -> None:
    name = new_name()
    writers.create(name, version=1, partitioned_by="v")
    writers.sql(f"insert into {name} values (1, 'a'), (2, 'b')")
    state, ours = measured(name)
    assert (state.format_version, ours.partitions["v=a"].max_data_sequence_number) == (1, 0)
    assert ours.partitions["v=a"].last_change_ms == state.snapshot.timestamp_ms
    writers.sql(f"alter table {name} drop partition field v")
    writers.sql(f"insert into {name} values (3, 'c')")
    state, ours = measured(name)
    # Format v1 keeps a dropped field as void: the spec counts as unpartitioned.
    assert state.specs[state.current_spec_id].fields[0].is_void
    assert set(ours.partitions) == {"v=a", "v=b", "__all__"}
    writers.sql(f"alter table {name} set tblproperties ('format-version'='2')")
    writers.sql(f"alter table {name} add partition field bucket(2, id)")
    writers.sql(f"insert into {name} values (4, 'd')")
    table = writers.load(name)
    everywhere = writers.spec(table, state.current_spec_id)
    writers.add_deletes(table, writers.equality_deletes(table, [{"id": 1}], everywhere, [None]))
    writers.sql(f"alter table {name} set tblproperties ('format-version'='3')")
    writers.sql(f"insert into {name} values (4, null)")
    state, ours = measured(name)
    [bucketed] = [key for key in ours.partitions if key.startswith("spec=")]
    assert "id_bucket" in bucketed
    first = ours.partitions["v=a"]
    assert (first.min_data_sequence_number, first.applicable_equality_delete_files) == (0, 1)
    assert ours.partitions["__all__"].equality_delete_files == 1
    assert (state.format_version, ours.table_health.live_specs) == (3, 3)


@pytest.mark.variant
def test_health_after_removal_and_manifest_rewrite_and_expiry(writers: Writers, measured: Callable) -> None:
    name = new_name()
    writers.create(name, partitioned_by="v")
    for n in range(4):
        writers.sql(f"insert into {name} values ({n}, 'a'), ({n}, 'b')")
    writers.sql(f"delete from {name} where v = 'b'")
    writers.sql(f"call lake.system.rewrite_manifests(table => '{name}')")
    before, ours = measured(name)
    assert set(ours.partitions) == {"v=a"}
    assert ours.partitions["v=a"].last_change_ms == before.snapshots[3].timestamp_ms
    writers.sql(
        f"call lake.system.expire_snapshots(table => '{name}', older_than => timestamp'2100-01-01 00:00:00', retain_last => 1)"
    )
    state, ours = measured(name)
    assert len(state.snapshots) == 1
    a = ours.partitions["v=a"]
    assert (a.data_files, a.max_data_sequence_number, a.last_change_ms) == (4, 4, None)
    assert ours.table_health.oldest_snapshot_ms == state.snapshot.timestamp_ms


@pytest.mark.variant
@not_on_spark_3("its metadata tables show the newest snapshot only")
def test_health_oracle_sees_a_difference(
    spark: SparkSession, writers: Writers, catalog: PyIcebergCatalog
) -> None:
    name = new_name()
    table = writers.create(name)
    writers.append(table, [{"id": 1, "v": "a"}])
    older = catalog.pin(TableId.parse(name))
    writers.append(table, [{"id": 2, "v": "a"}])
    newer = catalog.pin(TableId.parse(name))
    source = SparkHealthSource(Bridge(spark))
    # Both measure the pinned snapshot, not the newest.
    assert source.measure(older, POLICY) == catalog.measure(older, POLICY)
    assert source.measure(older, POLICY) != catalog.measure(
        replace(newer, metadata_location=older.metadata_location), POLICY
    )
    assert source.measure(older, POLICY).partitions["__all__"].data_files == 1
    assert isinstance(source.measure(newer, POLICY).partitions["__all__"], PartitionHealth)


def test_health_of_entries_made_by_hand(lake_dir: Path, measured: Callable) -> None:
    """What no engine here writes: equal decimal types twice, deletes that dangle, times long expired."""
    schema = Schema(
        NestedField(1, "u", DecimalType(9, 2), required=False),
        NestedField(2, "w", DecimalType(9, 2), required=False),
        NestedField(3, "f", BinaryType(), required=False),
        NestedField(4, "d", DoubleType(), required=False),
    )
    by = spec(0, *((n, 999 + n, IdentityTransform(), name) for n, name in enumerate("uwfd", 1)))
    everywhere = spec(1)
    one, two = Decimal("1.00"), Decimal("-2.50")
    here, there = (one, two, b"ab", 0.1), (one, None, b"\x00\xff", -2.5)
    table = TableFiles(lake_dir / "warehouse" / "by_hand", schema, [by, everywhere], format_version=3)
    data = ManifestFile(
        (
            File("file:/h1", here, sequence_number=3, snapshot_id=3),
            File("file:/h2", here, size_bytes=5000),
            File("file:/t1", there, sequence_number=4, snapshot_id=4),
            File("file:/gone", here, status=DELETED, sequence_number=2, snapshot_id=9),
        ),
        by,
        9,
        9,
    )
    vector = {"content": 1, "file_format": "PUFFIN", "content_bytes": 7, "content_offset": 4}
    deletes = ManifestFile(
        (
            File("file:/old-position", here, content=1, sequence_number=2, snapshot_id=2),
            File("file:/position", here, content=1, sequence_number=3, snapshot_id=3),
            File("file:/of-gone", here, content=1, referenced_data_file="file:/gone"),
            File("file:/v", here, **vector, referenced_data_file="file:/h1"),
            File("file:/v", there, **vector, referenced_data_file="file:/gone"),
            File("file:/equality", there, content=2, equality_ids=(4,), sequence_number=4, snapshot_id=4),
        ),
        by,
        9,
        9,
        is_deletes=True,
        version=3,
    )
    global_deletes = ManifestFile(
        (
            File("file:/global-3", content=2, equality_ids=(4,), sequence_number=3, snapshot_id=3),
            File("file:/global-4", content=2, equality_ids=(4,), sequence_number=4, snapshot_id=4),
        ),
        everywhere,
        9,
        9,
        is_deletes=True,
        version=3,
    )
    table.commit([], snapshot_id=8, sequence_number=8, timestamp_ms=8000)
    table.commit([data, deletes, global_deletes], snapshot_id=9, sequence_number=9, timestamp_ms=9000)
    name = new_name()
    table.register(lake_dir / "catalog.db", name.removeprefix("lake."))
    _, ours = measured(name)
    first = ours.partitions[f"u={one}/w={two}/f=6162/d=0.1"]
    second = ours.partitions[f"u={one}/w/f=00ff/d=-2.5"]
    assert (first.position_delete_files, first.deletion_vectors, first.dangling_delete_files) == (3, 1, 2)
    assert (first.applicable_equality_delete_files, first.oldest_equality_delete_ms) == (1, 8000)
    assert (second.deletion_vectors, second.equality_delete_files, second.dangling_delete_files) == (1, 1, 2)
    assert (second.applicable_equality_delete_files, second.oldest_equality_delete_ms) == (0, None)
    # Of the global deletes one is as old as the oldest data: it reaches nothing.
    assert ours.partitions["__all__"].dangling_delete_files == 1
    assert (first.last_change_ms, second.min_data_sequence_number) == (9000, 4)


@pytest.mark.variant
def test_health_of_overlapping_ranges_is_what_a_sweep_in_sql_finds(
    spark: SparkSession, catalog: PyIcebergCatalog, lake_dir: Path
) -> None:
    """Of numbers, text and floats: bounds that are missing, NaN, turned round or cut short."""
    schema = Schema(
        NestedField(1, "n", LongType(), required=False),
        NestedField(2, "s", StringType(), required=False),
        NestedField(3, "d", DoubleType(), required=False),
        NestedField(4, "p", StringType(), required=False),
    )
    by, everywhere, nowhere = spec(0, (4, 1000, IdentityTransform(), "p")), spec(1), spec(2)
    rng = random.Random(5)
    texts = ["", "a", "b" * 16, "b" * 15 + "c", "b" * 17, "ü" * 15 + "y", "ü" * 15 + "z", "zz"]

    def bounds(n: int) -> tuple[dict[int, bytes], dict[int, bytes]]:
        low, width = rng.randrange(20), rng.randrange(10)
        low_text, high_text = sorted(rng.choices(texts, k=2), key=str.encode)
        first = math.nan if n % 7 == 0 else low / 4
        lower = {1: struct.pack("<q", low), 2: low_text.encode(), 3: struct.pack("<d", first)}
        last = math.nan if n % 11 == 0 else (low - 1 if n % 5 == 0 else low + width) / 4
        upper = {1: struct.pack("<q", low + width), 2: high_text.encode(), 3: struct.pack("<d", last)}
        if n % 6 == 0:
            del upper[1], lower[2]
        return lower, upper

    def files(place: str, count: int, partition: tuple[str | None, ...]) -> list[File]:
        made = [(n, *bounds(n)) for n in range(count)]
        return [
            File(f"{place}{n}", partition, lower_bounds=low, upper_bounds=high, sort_order_id=n % 3 or None)
            for n, low, high in made
        ]

    table = TableFiles(lake_dir / "overlap", schema, [by, everywhere, nowhere])
    manifests = [
        ManifestFile((*files("a", 40, ("a",)), *files("b", 5, (None,))), by, 1, 1),
        ManifestFile(tuple(files("c", 20, ())), everywhere, 1, 1),
        ManifestFile(tuple(files("d", 20, ())), nowhere, 1, 1),
    ]
    table.commit(manifests, snapshot_id=1, sequence_number=1, timestamp_ms=1_700_000_000_000)
    table.register(lake_dir / "catalog.db", "health.overlap")
    pinned = catalog.pin(TableId.parse("lake.health.overlap"))
    numbers, text, floats = (
        SortColumn(name, field_id, kind)
        for field_id, (name, kind) in enumerate([("n", "long"), ("s", "string"), ("d", "double")], 1)
    )
    by_all = (numbers, text, floats)
    state = replace(pinned, order=LayoutOrder(by_all, by_all, z_order=True, sort_order_id=2))
    ours = catalog.measure(state, POLICY)
    assert SparkHealthSource(Bridge(spark)).measure(state, POLICY) == ours
    assert set(ours.partitions) == {"p=a", "p", "__all__"}
    a = ours.partitions["p=a"]
    assert 10 < a.unbounded_files < 30
    assert a.sort_ranges == (40 - a.unbounded_files) * 3
    assert 2 < a.overlap_depth < a.max_overlap_depth
    assert a.unsorted_files == 27


@pytest.mark.variant
@pytest.mark.parametrize(
    ("version", "seed"),
    [pytest.param(1, 0, marks=pytest.mark.variant), (2, 0), pytest.param(3, 1, marks=pytest.mark.variant)],
)
def test_health_of_drawn_tables_is_the_same_from_both_sources(
    version: int, seed: int, lake_dir: Path, measured: Callable
) -> None:
    """Specs that evolve, dropped fields, existing entries, and deletes of every kind that dangle or not."""
    name = new_name()
    drawn_table(random.Random(f"{version}-{seed}"), version, lake_dir, name)
    state, ours = measured(name)
    assert state.format_version == version
    assert sum(p.data_files for p in ours.partitions.values()) > 20


def drawn_table(rng: random.Random, version: int, lake_dir: Path, name: str) -> None:
    schema = Schema(
        NestedField(1, "a", LongType(), required=False), NestedField(2, "b", StringType(), required=False)
    )
    identity = IdentityTransform()
    specs = [
        spec(0, (1, 1000, identity, "a")),
        spec(1, (1, 1000, identity, "a"), (2, 1001, BucketTransform(3), "b_bucket")),
        spec(2),
        spec(3, (1, 1000, VoidTransform(), "a")),
    ]
    table = TableFiles(lake_dir / "drawn" / name, schema, specs, format_version=version)
    paths: list[str] = []

    def partition(of: int) -> tuple[int | None, ...]:
        a = rng.choice([None, 1, 2, -(2**40)])
        return ((a,), (a, rng.choice([None, 0, 2])), (), (None,))[of]

    def entry(number: int, of: int, content: int) -> File:
        files: dict[str, object] = {"snapshot_id": number} if version == 1 else {}
        if content == 1 and version > 1:
            is_vector = version == 3 and rng.random() < 0.5
            referenced = rng.choice([*paths, "file:/gone"])
            if is_vector:
                files = {"file_format": "PUFFIN", "content_bytes": rng.randrange(9, 99), "content_offset": 4}
                files["referenced_data_file"] = referenced
            elif rng.random() < 0.5:
                bound = {2147483546: referenced.encode()}
                files = {"lower_bounds": bound, "upper_bounds": bound}
        if content == 2:
            files = {"equality_ids": (1,)}
        if version > 1 and rng.random() < 0.5:
            files |= {"sequence_number": (older := rng.randrange(1, number + 1)), "snapshot_id": older}
        path = f"file:/{name}/{number}-{rng.getrandbits(64):x}"
        if content == 0:
            paths.append(path)
        return File(
            path,
            partition(of),
            records=rng.randrange(1, 1000),
            content=content,
            size_bytes=rng.randrange(1, 5000),
            **files,  # type: ignore[arg-type]
        )

    manifests = []
    for number in range(1, 7):
        for of in rng.sample(range(4), 2):
            files = tuple(entry(number, of, 0) for _ in range(rng.randrange(2, 6)))
            manifests.append(ManifestFile(files, specs[of], number, number, version=version))
            if version > 1:
                deletes = tuple(entry(number, of, rng.choice([1, 2])) for _ in range(rng.randrange(1, 5)))
                manifests.append(
                    ManifestFile(deletes, specs[of], number, number, is_deletes=True, version=version)
                )
        is_last = number == 6
        if number > 2 or is_last:  # The first snapshots have expired.
            table.commit(
                manifests if is_last else [],
                snapshot_id=number,
                sequence_number=number if version > 1 else 0,
                timestamp_ms=1_700_000_000_000 + number,
            )
    table.register(lake_dir / "catalog.db", name.removeprefix("lake."))


def test_entries_that_contradict_the_manifest_list_are_refused(
    spark: SparkSession, catalog: PyIcebergCatalog, lake_dir: Path
) -> None:
    name = new_name()
    table = TableFiles(lake_dir / "contradiction", Schema(), [spec(0)])
    files = (File("file:/a", records=3), File("file:/b", records=4))
    table.commit(
        [ManifestFile(files, spec(0), 1, 1)], snapshot_id=1, sequence_number=1, timestamp_ms=1_700_000_000_000
    )
    table.register(lake_dir / "catalog.db", name.removeprefix("lake."))
    state = catalog.pin(TableId.parse(name))
    source = SparkHealthSource(Bridge(spark))
    [listed] = state.manifests
    for wrong, why in (
        (
            replace(listed, added_files=3),
            "reads 2 live files of data manifests, but the manifest list counts 3",
        ),
        (
            replace(listed, added_rows=8),
            "reads 7 live records of data manifests, but the manifest list counts 8",
        ),
        (
            replace(listed, min_sequence_number=2),
            "has sequence number 1, but the manifest list says that the lowest is 2",
        ),
    ):
        with pytest.raises(UnreadableTableError, match=why):
            source.measure(replace(state, manifests=(wrong,)), POLICY)
    assert source.measure(state, POLICY) == catalog.measure(state, POLICY)


@not_on_spark_3("its metadata tables show the newest snapshot only")
def test_table_with_partitions_that_spark_confuses_is_refused(
    spark: SparkSession, writers: Writers, catalog: PyIcebergCatalog
) -> None:
    name = new_name()
    writers.create(name, "id int, d double", partitioned_by="d")
    with pytest.raises(RefusedError, match=r"ICM-178 .* values of partition field d"):
        check_measurable(Bridge(spark), catalog.pin(TableId.parse(name)))


@not_on_spark_3("its metadata tables show the newest snapshot only")
def test_engine_measures_what_the_manifests_hold_and_names_a_table_that_spark_cannot_load(
    spark: SparkSession, writers: Writers, catalog: PyIcebergCatalog
) -> None:
    name = new_name()
    writers.append(writers.create(name), [{"id": 1, "v": "a"}])
    state = catalog.pin(TableId.parse(name))
    engine = SparkEngine(lambda: spark, unused_reader)
    assert engine.measure(state, POLICY) == catalog.measure(state, POLICY)
    gone = replace(state, table=TableId.parse("lake.health.gone"))
    with pytest.raises(RefusedError, match=r"ICM-178 lake\.health\.gone: Spark cannot measure it"):
        engine.measure(gone, POLICY)


def unused_reader(_table: str) -> MetadataReader:
    raise AssertionError("a measurement does not pass the gate")
