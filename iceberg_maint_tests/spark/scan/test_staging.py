"""Staging: exactly the planned files at the pinned snapshot, or a refusal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import InputFile
from iceberg_maint.engines.spark.jvm.functions import SEPARATOR_WITHIN, JavaFunctions
from iceberg_maint.engines.spark.scan import scan as scan_module
from iceberg_maint.engines.spark.scan import staging
from iceberg_maint.engines.spark.scan.scan import partitions_filter
from iceberg_maint.engines.spark.scan.staging import load_planned_table, plan_tasks, read_staged, staged
from iceberg_maint.errors import IcebergMaintError, RefusedError, StaleBatchError
from iceberg_maint_tests.support.batches import with_work
from iceberg_maint_tests.support.spark.workshop import Workshop, workshop_of

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    made = workshop_of(spark, lake_dir)
    made.sql("create namespace if not exists lake.staging")
    return made


def with_file(batch: Batch, change: InputFile) -> Batch:
    """The batch with its first input file replaced."""
    group = batch.groups[0]
    return with_work(batch, groups=(replace(group, files=(change, *group.files[1:])), *batch.groups[1:]))


def two_files(shop: Workshop, version: int = 2) -> str:
    name = shop.new_name("staging")
    table = shop.writers.create(name, version=version)
    shop.writers.append(table, [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    shop.writers.append(table, [{"id": 3, "v": "c"}])
    return name


def plan(shop: Workshop, batch: Batch) -> tuple[staging.GroupTasks, ...]:
    return plan_tasks(shop.bridge, load_planned_table(shop.bridge, batch), batch)


@pytest.mark.parametrize("version", [2, 3])
def test_read_staged_offers_all_metadata_columns(shop: Workshop, version: int) -> None:
    name = two_files(shop, version)
    batch = shop.batch(name)
    table = load_planned_table(shop.bridge, batch)
    [group] = plan_tasks(shop.bridge, table, batch)
    lineage = ["_row_id", "_last_updated_sequence_number"] if version == 3 else []
    with staged(shop.bridge, table, group.tasks) as group_id:
        frame = read_staged(shop.bridge, table, name, group_id)
        found = frame.select("id", "_file", "_pos", "_spec_id", "_deleted", *lineage).collect()
        assert frame.columns == ["id", "v"]
    assert {r["_file"] for r in found} == batch.paths()
    assert sorted((r["id"], r["_pos"]) for r in found) == [(1, 0), (2, 1), (3, 0)]


def test_read_staged_sees_the_pinned_snapshot_not_the_current_one(shop: Workshop) -> None:
    name = two_files(shop)
    batch = shop.batch(name)
    table = shop.writers.load(name)
    shop.writers.delete_where(table, [{"id": 1}])
    shop.writers.append(shop.writers.load(name), [{"id": 4, "v": "d"}])
    fresh = load_planned_table(shop.bridge, batch)
    [group] = plan_tasks(shop.bridge, fresh, batch)
    with staged(shop.bridge, fresh, group.tasks) as group_id:
        found = read_staged(shop.bridge, fresh, name, group_id).collect()
    assert sorted(r["id"] for r in found) == [1, 2, 3]


def test_staged_leaves_nothing_behind(shop: Workshop) -> None:
    batch = shop.batch(two_files(shop))
    table = load_planned_table(shop.bridge, batch)
    [group] = plan_tasks(shop.bridge, table, batch)
    with pytest.raises(RuntimeError), staged(shop.bridge, table, group.tasks) as group_id:
        raise RuntimeError
    assert not shop.bridge.static("org.apache.iceberg.spark.SparkTableCache", "get")().contains(group_id)
    assert shop.bridge.iceberg.spark.ScanTaskSetManager.get().fetchTasks(table, group_id) is None


def test_plan_tasks_groups_of_several_partitions_have_their_own_files(shop: Workshop) -> None:
    name = shop.new_name("staging")
    shop.sql(f"create table {name} (id int, cat string) using iceberg partitioned by (cat)")
    for number in range(3):
        shop.sql(f"insert into {name} values ({number}, 'a'), ({number}, 'b'), ({number}, 'c')")
    batch = shop.batch(name)
    planned = plan(shop, batch)
    files = [[str(t.file().location()) for t in shop.bridge.iterate(p.tasks)] for p in planned]
    assert [p.group for p in planned] == list(batch.groups)
    assert [len(paths) for paths in files] == [3, 3, 3]
    assert [set(paths) for paths in files] == [{f.path for f in g.files} for g in batch.groups]


def test_plan_tasks_file_that_is_not_in_the_snapshot_is_stale(shop: Workshop) -> None:
    batch = shop.batch(two_files(shop))
    gone = replace(batch.groups[0].files[0], path="file:/nowhere/gone.parquet")
    with pytest.raises(StaleBatchError, match=r"gone\.parquet"):
        plan(shop, with_file(batch, gone))


def test_plan_tasks_equality_delete_at_the_snapshot_is_refused(shop: Workshop) -> None:
    name = two_files(shop)
    clean = shop.batch(name)
    table = shop.writers.load(name)
    shop.writers.delete_where(table, [{"id": 1}])
    snapshot = shop.writers.load(name).currentSnapshot()
    batch = replace(clean, snapshot_id=int(snapshot.snapshotId()))
    with pytest.raises(RefusedError) as refusal:
        plan(shop, batch)
    assert refusal.value.code == "ICM-119"


def test_plan_tasks_data_file_referenced_twice_is_refused(shop: Workshop) -> None:
    name = shop.new_name("staging")
    table = shop.writers.create(name)
    file = shop.writers.append(table, [{"id": 1, "v": "a"}])
    clean = shop.batch(name)
    shop.writers.load(name).newFastAppend().appendFile(file).commit()
    batch = replace(clean, snapshot_id=int(shop.writers.load(name).currentSnapshot().snapshotId()))
    with pytest.raises(RefusedError) as refusal:
        plan(shop, batch)
    assert refusal.value.code == "ICM-120"


@pytest.mark.parametrize("planned", [(), ("file:/nowhere/delete.parquet",)])
def test_plan_tasks_other_position_deletes_than_planned_is_refused(
    shop: Workshop, planned: tuple[str, ...]
) -> None:
    name = shop.new_name("staging")
    table = shop.writers.create(name)
    file = shop.writers.append(table, [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    shop.writers.delete_at(table, {file.location(): [0]})
    batch = shop.batch(name)
    plan(shop, batch)
    with pytest.raises(RefusedError) as refusal:
        plan(shop, with_file(batch, replace(batch.groups[0].files[0], delete_files=planned)))
    assert refusal.value.code == "ICM-101"


def test_position_deletes_of_a_task_are_those_that_are_no_equality_deletes(shop: Workshop) -> None:
    table = shop.writers.create(shop.new_name("staging"))
    marked, other = (
        str(shop.writers.append(table, [{"id": n, "v": "a"}, {"id": 3, "v": "b"}]).location()) for n in (1, 2)
    )
    deletes = [str(shop.writers.delete_at(table, {marked: [at]}).location()) for at in (0, 1)]
    shop.writers.delete_where(table, [{"id": 3}])
    functions, tasks = JavaFunctions(shop.bridge), shop.bridge.list(shop.writers.tasks(table))
    paths = functions.texts(tasks.stream().map(functions.task_location))
    texts = functions.texts(tasks.stream().map(functions.task_position_deletes))
    found = {path: sorted(text.split(SEPARATOR_WITHIN)) for path, text in zip(paths, texts, strict=True)}
    assert found == {marked: ["", *sorted(deletes)], other: ["", ""]}


def test_plan_tasks_task_without_an_equality_delete_that_reaches_it_is_refused(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = shop.new_name("staging")
    shop.writers.append(shop.writers.create(name), [{"id": 1, "v": "a"}])
    shop.writers.delete_where(shop.writers.load(name), [{"id": 1}])
    shop.writers.delete_where(shop.writers.load(name), [{"id": 9}])
    batch = shop.cleaning(name, Operation.CONVERT_EQUALITY_DELETES)
    [group] = plan(shop, batch)
    assert group.tasks[0].deletes().size() == 2
    monkeypatch.setattr(scan_module, "with_all_equality_deletes", lambda _bridge, _table, _id, tasks: tasks)
    with pytest.raises(RefusedError, match=r"applies 1 equality .* by scope and .* 2 apply") as refusal:
        plan(shop, batch)
    assert refusal.value.code == "ICM-101"


def test_load_planned_table_recreated_under_the_same_name_is_stale(shop: Workshop) -> None:
    name = two_files(shop)
    batch = shop.batch(name)
    shop.sql(f"drop table {name}")
    with pytest.raises(StaleBatchError, match="is no longer in its catalog"):
        load_planned_table(shop.bridge, batch)
    shop.writers.create(name)
    with pytest.raises(StaleBatchError, match="created again"):
        load_planned_table(shop.bridge, batch)


def test_load_planned_table_expired_snapshot_is_stale(shop: Workshop) -> None:
    name = two_files(shop)
    batch = shop.batch(name)
    table = shop.writers.load(name)
    shop.writers.append(table, [{"id": 9, "v": "z"}])
    table.expireSnapshots().expireSnapshotId(batch.snapshot_id).commit()
    with pytest.raises(StaleBatchError, match="expired"):
        load_planned_table(shop.bridge, batch)


TRANSFORMS = "cat, bucket(4, id), truncate(2, name), days(ts), months(other), hours(third), flag, day, price, big, ratio"


def test_partitions_filter_finds_every_file_of_its_partition_for_every_transform(shop: Workshop) -> None:
    name = shop.new_name("staging")
    shop.sql(
        f"create table {name} (id int, cat string, name string, ts timestamp, other date, third timestamp, "
        "flag boolean, day date, price decimal(9,2), big bigint, ratio double) using iceberg "
        f"partitioned by ({TRANSFORMS})"
    )
    shop.sql(
        f"insert into {name} values "
        "(1, 'x\"; drop', 'abc', timestamp'1969-12-31 23:59:59', date'1969-11-02', timestamp'2024-02-29 13:00:00', "
        "true, date'2024-01-01', 1.50, 5000000000, 0.5), "
        "(-7, null, null, null, null, null, null, null, null, null, null), "
        "(3, '', 'z', timestamp'2024-01-01 00:00:00', date'2024-12-31', timestamp'1960-01-01 00:00:00', "
        "false, date'1950-06-01', -2.25, -1, double('NaN'))"
    )
    for batch in (shop.batch(name, partitions=[key]) for key in shop.batch(name).partitions):
        table = load_planned_table(shop.bridge, batch)
        pruning = partitions_filter(shop.bridge, table, batch)
        files = table.newScan().filter(pruning).planFiles()
        assert [str(t.file().location()) for t in shop.bridge.iterate(files)] == sorted(batch.paths())
        [group] = plan_tasks(shop.bridge, table, batch)
        assert group.tasks.size() == 1


@pytest.mark.parametrize(
    ("kind", "values", "transform"),
    [
        ("string", ("'a'", "'b'"), "bucket(4, p)"),
        ("string", ("'a'", "'b'"), "truncate(1, p)"),
        ("bigint", ("0", "7"), "bucket(4, p)"),
        ("binary", ("X'00'", "X'03'"), "bucket(4, p)"),
        ("timestamp", ("timestamp'2024-01-01 00:00:00'", "timestamp'1969-12-31 23:00:00'"), "hours(p)"),
        ("date", ("date'2024-01-01'", "date'1969-12-31'"), "years(p)"),
    ],
)
def test_partitions_filter_of_a_transform_after_the_identity_of_its_column_selects_the_files_of_its_partition(
    shop: Workshop, kind: str, values: tuple[str, str], transform: str
) -> None:
    name = shop.new_name("staging")
    shop.sql(f"create table {name} (id int, p {kind}) using iceberg partitioned by (p)")
    rows = f"insert into {name} values (1, {values[0]}), (2, {values[1]})"
    shop.sql(rows)
    shop.sql(f"alter table {name} replace partition field p with {transform}")
    shop.sql(rows)
    partitions = shop.batch(name).partitions
    assert len(partitions) == 4
    for batch in (shop.batch(name, partitions=[key]) for key in partitions):
        table = load_planned_table(shop.bridge, batch)
        [group] = plan_tasks(shop.bridge, table, batch)
        assert [str(t.file().location()) for t in shop.bridge.iterate(group.tasks)] == sorted(batch.paths())


def test_plan_tasks_filter_that_drops_a_planned_file_is_not_trusted(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = shop.batch(two_files(shop))
    never = shop.bridge.iceberg.expressions.Expressions.alwaysFalse()
    monkeypatch.setattr(staging, "partitions_filter", lambda *_: never)
    [group] = plan(shop, batch)
    assert group.tasks.size() == 2


def test_plan_tasks_errors_are_the_products_own(shop: Workshop) -> None:
    batch = shop.batch(two_files(shop))
    with pytest.raises(IcebergMaintError):
        plan(shop, replace(batch, snapshot_id=1))
