"""Manifest entries that state other values than their files have: no row is lost, none comes back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import Policy, RewriteStrategy
from iceberg_maint.engines.spark.scan.scan import load_table_info
from iceberg_maint.engines.spark.write_failures import file_with_unreadable_bounds
from iceberg_maint.errors import DELETE_AGAIN, VECTOR_AGAIN, WRONG_COUNT_FIX, RefusedError
from iceberg_maint_tests.support.spark.entries import stating
from iceberg_maint_tests.support.spark.equality_deletes import rows_of
from iceberg_maint_tests.support.spark.position_deletes import mark, paths, planned, table
from iceberg_maint_tests.support.spark.workshop import FOOTER, FULL, Workshop, workshop_of

pytestmark = [pytest.mark.spark, pytest.mark.drawn(1)]
STRATEGIES = [RewriteStrategy.COLUMNAR, RewriteStrategy.NATIVE]
LOW, HIGH = ({"keys": [1], "values": [value]} for value in ("03000000", "04000000"))
LIES: dict[str, dict[str, Any]] = {
    "narrow": {"lower_bounds": LOW, "upper_bounds": HIGH},
    "inverted": {"lower_bounds": HIGH, "upper_bounds": LOW},
    "of another type": {
        "lower_bounds": {"keys": [1], "values": ["01"]},
        "upper_bounds": {"keys": [1], "values": [""]},
    },
    "without an upper bound": {"lower_bounds": LOW, "upper_bounds": {"keys": [], "values": []}},
    "nulls only": {"null_value_counts": {"keys": [1, 2], "values": [10, 10]}},
    "no values": {"value_counts": {"keys": [1, 2], "values": [0, 0]}},
    "another sort order": {"sort_order_id": 1},
}


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop_of(spark, lake_dir)


def table_with(shop: Workshop, **stated: Any) -> tuple[str, str]:
    """A table of three files of ten rows, the second of which has an entry with these values. Returns its name and that
    file's path."""
    name = shop.new_name("lying")
    java = shop.writers.create(name)
    files = [shop.writers.data(java, rows_of(range(start, start + 10))) for start in (0, 10, 20)]
    files[1] = stating(shop.bridge, java, files[1], **stated)
    append = java.newAppend()
    for file in files:
        append.appendFile(file)
    append.commit()
    return name, str(files[1].location())


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("lie", LIES)
def test_rewrite_keeps_every_row_whatever_the_entry_states(
    shop: Workshop, lie: str, strategy: RewriteStrategy
) -> None:
    name, _ = table_with(shop, **LIES[lie])
    before = shop.rows(name)
    policy = replace(FULL, rewrite_data_files=replace(FULL.rewrite_data_files, strategy=strategy))
    batch = shop.batch(name, strategy=strategy)
    written = shop.engine.write(batch, policy)
    assert (written.proof.equal, written.proof.output_records) == (True, 30)
    shop.commit(batch, written)
    assert len(shop.writers.files(shop.writers.load(name))) == 1
    assert shop.rows(name) == before
    assert shop.sql(f"select count(*) from {name} where id = 15").first()[0] == 1


@pytest.mark.parametrize("stated", [0, 7, 17])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_data_file_with_another_number_of_rows_is_named(
    shop: Workshop, strategy: RewriteStrategy, stated: int
) -> None:
    name, path = table_with(shop, record_count=stated)
    policy = replace(FULL, rewrite_data_files=replace(FULL.rewrite_data_files, strategy=strategy))
    with pytest.raises(RefusedError) as refused:
        shop.engine.write(shop.batch(name, strategy=strategy), policy)
    what = f"{path} has 10 rows" if strategy is RewriteStrategy.COLUMNAR else f"Spark reads 10 rows of {path}"
    assert (
        str(refused.value) == f"ICM-101 {name}: {what}; its manifest states {stated}. Fix: {WRONG_COUNT_FIX}"
    )
    # What the fix says.
    shop.sql(f"update {name} set id = id")
    written = shop.engine.write(shop.batch(name, strategy=strategy), policy)
    assert (written.proof.equal, written.proof.output_records) == (True, 30)


def test_data_file_with_another_number_of_rows_is_named_beside_one_with_deleted_rows(shop: Workshop) -> None:
    name, path = table_with(shop, record_count=7)
    shop.sql(f"alter table {name} set tblproperties ('write.delete.mode' = 'merge-on-read')")
    shop.sql(f"delete from {name} where id = 3")
    with pytest.raises(RefusedError, match=f"Spark reads 10 rows of {path}; its manifest states 7"):
        shop.engine.write(shop.batch(name, strategy=RewriteStrategy.NATIVE), FULL)


@pytest.mark.parametrize("policy", [FULL, FOOTER])
def test_split_offsets_behind_the_first_row_are_no_reason_to_lose_rows(
    shop: Workshop, policy: Policy
) -> None:
    """Iceberg's readers do not read what is before the first offset."""
    name, path = table_with(shop, split_offsets=[300])
    with pytest.raises(RefusedError) as refused:
        shop.engine.write(shop.batch(name, strategy=RewriteStrategy.NATIVE), policy)
    assert str(refused.value) == (
        f"ICM-101 {name}: Spark reads 0 rows of {path}; its manifest states 10. Fix: {WRONG_COUNT_FIX}"
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("operation", [Operation.CONVERT_EQUALITY_DELETES, Operation.REWRITE_DATA_FILES])
def test_keys_before_the_first_split_offset_are_applied(
    shop: Workshop, operation: Operation, strategy: RewriteStrategy
) -> None:
    name = shop.new_name("lying")
    java = shop.writers.create(name)
    shop.writers.append(java, rows_of(range(10)))
    delete = shop.writers.equality_deletes(java, [{"id": 3}, {"id": 5}])
    shop.writers.add_deletes(java, stating(shop.bridge, java, delete, split_offsets=[200]))
    before = shop.rows(name)
    assert len(before) == 8
    policy = replace(FULL, rewrite_data_files=replace(FULL.rewrite_data_files, strategy=strategy))
    batch = shop.cleaning(name, operation)
    written = shop.engine.write(batch, policy)
    assert written.proof.equal
    shop.commit(batch, written)
    assert shop.rows(name) == before


def test_statistics_of_an_entry_that_are_wrong_name_the_proof_that_compares_rows(shop: Workshop) -> None:
    name, path = table_with(shop, value_counts={"keys": [1, 2], "values": [9, 10]})
    batch = shop.batch(name, strategy=RewriteStrategy.NATIVE)
    assert shop.engine.write(batch, FOOTER).proof.detail == (
        f"value-counts of field 1: 29 in, 30 out, the manifest entry of {path} states other metrics than its footer; "
        "`rewrite_data_files.proof: full` compares rows instead of statistics"
    )
    assert shop.engine.write(batch, FULL).proof.equal


def no_utf8(*field_ids: int) -> dict[str, Any]:
    bounds = {"keys": list(field_ids), "values": ["2F66FF"] * len(field_ids)}
    return {"lower_bounds": bounds, "upper_bounds": bounds}


def bounds_refusal(shop: Workshop, batch: Batch, strategy: RewriteStrategy) -> str:
    policy = replace(FULL, rewrite_data_files=replace(FULL.rewrite_data_files, strategy=strategy))
    with pytest.raises(RefusedError) as refused:
        shop.engine.write(batch, policy)
    return str(refused.value)


def no_text(name: str, path: str) -> str:
    return (
        f"ICM-101 {name}: the bounds of {path} in its manifest are not UTF-8, so Iceberg cannot plan the scan. Fix: for a "
        f"delete file, {DELETE_AGAIN} For a data file, rewrite the files with an engine that reads them."
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_position_delete_file_whose_bounds_are_no_text_is_named(
    shop: Workshop, strategy: RewriteStrategy
) -> None:
    name = table(shop, range(10), range(10, 20))
    first, _ = paths(shop, name)
    mark(shop, name, {first: [2]})
    java = shop.writers.load(name)
    delete = stating(
        shop.bridge, java, shop.writers.position_deletes(java, {first: [1]}), **no_utf8(2147483546)
    )
    shop.writers.add_deletes(java, delete)
    expected = no_text(name, str(delete.location()))
    assert bounds_refusal(shop, shop.batch(name, strategy=strategy), strategy) == expected
    assert bounds_refusal(shop, planned(shop, name), strategy) == expected


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_data_file_of_a_text_partition_whose_bounds_are_no_text_is_named(
    shop: Workshop, strategy: RewriteStrategy
) -> None:
    name = shop.new_name("lying")
    shop.sql("create namespace if not exists lake.lying")
    shop.sql(f"create table {name} (id int, v string) using iceberg partitioned by (v)")
    shop.sql(f"insert into {name} values (1, 'a')")
    shop.sql(f"insert into {name} values (2, 'a')")
    java = shop.writers.load(name)
    good = next(iter(shop.bridge.iterate(java.currentSnapshot().addedDataFiles(java.io()))))
    bad = stating(shop.bridge, java, good, **no_utf8(2))
    java.newRewrite().deleteFile(good).addFile(bad).commit()
    batch = shop.batch(name, strategy=strategy)
    assert bounds_refusal(shop, batch, strategy) == no_text(name, str(bad.location()))


def test_bounds_of_a_number_are_not_taken_for_text(shop: Workshop) -> None:
    """The bytes of 200 are not UTF-8."""
    name = shop.new_name("lying")
    java = shop.writers.create(name)
    for start in (200, 210):
        shop.writers.append(java, rows_of(range(start, start + 10)))
    batch = shop.batch(name)
    info = load_table_info(shop.bridge, java, name, batch.snapshot_id)
    assert file_with_unreadable_bounds(shop.bridge, info, batch) == ""


@pytest.mark.parametrize("operation", [Operation.CONVERT_EQUALITY_DELETES, Operation.REWRITE_DATA_FILES])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_deletion_vector_with_another_number_of_positions_is_named_with_a_fix_of_its_entry(
    shop: Workshop, strategy: RewriteStrategy, operation: Operation
) -> None:
    name = shop.new_name("lying")
    java = shop.writers.create(name, version=3)
    for start in (0, 10):
        shop.writers.append(java, rows_of(range(start, start + 10)))
    shop.sql(f"alter table {name} set tblproperties ('write.delete.mode' = 'merge-on-read')")
    shop.sql(f"delete from {name} where id = 1")
    java = shop.writers.load(name)
    [vector] = shop.bridge.iterate(java.currentSnapshot().addedDeleteFiles(java.io()))
    lying = stating(shop.bridge, java, vector, record_count=2)
    delta = java.newRowDelta().validateFromSnapshot(java.currentSnapshot().snapshotId())
    delta.removeDeletes(vector).addDeletes(lying).commit()
    java = shop.writers.load(name)
    shop.writers.add_deletes(java, shop.writers.equality_deletes(java, [{"id": 3}]))
    policy = replace(FULL, rewrite_data_files=replace(FULL.rewrite_data_files, strategy=strategy))
    batch = shop.cleaning(name, operation)
    with pytest.raises(RefusedError) as refused:
        shop.engine.write(batch, policy)
    assert str(refused.value) == (
        f"ICM-101 {name}: The deletion vector in {vector.location()} at {vector.contentOffset()} has 1 positions; its "
        f"manifest states 2. Fix: {VECTOR_AGAIN}"
    )
