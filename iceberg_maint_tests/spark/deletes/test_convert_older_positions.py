"""Conversions of v2 tables that have position deletes: which of them the new files replace, and which stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.commits.change import Rule
from iceberg_maint.core.outcomes.outcome import CommitResult, CommitStatus, Rejection
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.ports.engine import Written
from iceberg_maint_tests.support.spark.equality_deletes import (
    CONVERT,
    clean,
    equality_deletes,
    keys,
    other_engine,
    rows_of,
)
from iceberg_maint_tests.support.spark.position_deletes import mark, paths, table
from iceberg_maint_tests.support.spark.workshop import FULL, Workshop, workshop_of

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    made = workshop_of(spark, lake_dir)
    made.sql("create namespace if not exists lake.merge")
    return made


def live_deletes(shop: Workshop, name: str) -> set[str]:
    """Paths of the live position delete files, applied or not."""
    rows = shop.spark.table(f"{name}.delete_files").where("content = 1").select("file_path").collect()
    return {str(row[0]) for row in rows}


def location(file: Any) -> str:
    return str(file.location())


def two_files(shop: Workshop) -> tuple[str, str, str]:
    """Files of the rows [0, 10) and [10, 20)."""
    name = table(shop, range(10), range(10, 20))
    a, b = paths(shop, name)
    return name, a, b


def replaced_by(written: Written) -> dict[str | None, set[str]]:
    return {f.referenced_data_file: set(f.replaces or ()) for f in written.files}


def test_older_files_of_one_data_file_are_merged_and_those_of_an_unmarked_file_stay(shop: Workshop) -> None:
    name, a, b = two_files(shop)
    first, second, other = (location(mark(shop, name, at)) for at in ({a: [0]}, {a: [1, 2]}, {b: [0]}))
    shop.writers.delete_where(shop.writers.load(name), keys(0, 5, 25))
    _, written = clean(shop, name, CONVERT)
    assert replaced_by(written) == {a: {first, second}}
    assert live_deletes(shop, name) == {other, *(f.path for f in written.files)}
    assert (written.proof.removed_records, written.proof.output_records) == (1, 4)


@pytest.mark.variant
def test_cycles_of_upserts_leave_one_delete_file_for_each_data_file(shop: Workshop) -> None:
    name, a, b = two_files(shop)
    for cycle in range(3):
        shop.writers.delete_where(shop.writers.load(name), keys(cycle, 10 + cycle))
        _, written = clean(shop, name, CONVERT, committer=other_engine(shop) if cycle == 2 else None)
        assert {f.referenced_data_file for f in written.files} == {a, b}
        assert [f.record_count for f in written.files] == [cycle + 1, cycle + 1]
        assert live_deletes(shop, name) == {f.path for f in written.files}


@pytest.mark.variant
def test_file_that_marks_several_data_files_stays(shop: Workshop) -> None:
    name, a, b = two_files(shop)
    shared = location(mark(shop, name, {a: [0], b: [0]}))
    own = location(mark(shop, name, {a: [1]}))
    shop.writers.delete_where(shop.writers.load(name), keys(2, 12))
    _, written = clean(shop, name, CONVERT)
    assert replaced_by(written) == {a: {own}, b: set()}
    assert live_deletes(shop, name) == {shared, *(f.path for f in written.files)}


def test_file_that_says_one_data_file_and_marks_another_too_stays(shop: Workshop) -> None:
    """Its metadata is wrong: readers differ in what they make of it."""
    name, a, b = two_files(shop)
    java = shop.writers.load(name)
    shared = shop.writers.position_deletes(java, {a: [0], b: [0]})
    builder = shop.bridge.iceberg.FileMetadata.deleteFileBuilder(java.spec()).copy(shared)
    shop.writers.add_deletes(java, builder.withReferencedDataFile(a).build())
    shop.writers.delete_where(shop.writers.load(name), keys(2, 25))
    _, written = clean(shop, name, CONVERT)
    assert replaced_by(written) == {a: set()}
    assert location(shared) in live_deletes(shop, name)


@pytest.mark.variant
def test_file_that_has_a_position_twice_stays(shop: Workshop) -> None:
    name, a, _ = two_files(shop)
    twice = location(mark(shop, name, {a: [1, 1]}))
    shop.writers.delete_where(shop.writers.load(name), keys(2, 25))
    _, written = clean(shop, name, CONVERT)
    assert replaced_by(written) == {a: set()}
    assert live_deletes(shop, name) == {twice, *(f.path for f in written.files)}


@pytest.mark.variant
def test_files_of_an_older_spec_are_merged_in_that_spec(shop: Workshop) -> None:
    """Iceberg refuses to read a position delete file of another spec than its data file."""
    name, a, b = two_files(shop)
    own = location(mark(shop, name, {a: [1]}))
    shop.sql(f"alter table {name} add partition field v")
    java = shop.writers.load(name)
    shop.writers.append(java, rows_of(range(20, 30)), java.spec(), ["a"])
    [c] = set(paths(shop, name)) - {a, b}
    other = location(mark(shop, name, {c: [1]}, spec=java.spec(), partition=["a"]))
    java = shop.writers.load(name)
    shop.writers.delete_where(java, keys(2, 25), shop.writers.spec(java, 0))
    _, written = clean(shop, name, CONVERT)
    assert replaced_by(written) == {a: {own}, c: {other}}
    assert {f.referenced_data_file: f.spec_id for f in written.files} == {a: 0, c: 1}


# races


def raced(
    shop: Workshop, then: Callable[[str, str, Any], None]
) -> tuple[str, Batch, Written, CommitResult, str]:
    """A conversion that replaces an older file while `then` is done, which gets table, data file and older file. The rows
    are those before the commit. Returns the older file last."""
    name, a, _ = two_files(shop)
    older = mark(shop, name, {a: [0]})
    shop.writers.delete_where(shop.writers.load(name), keys(3, 25))
    batch = shop.cleaning(name, CONVERT)
    written = shop.engine.write(batch, FULL)
    assert replaced_by(written) == {a: {location(older)}}
    then(name, a, older)
    before = shop.writers.rows(name)
    result = shop.commit(batch, written)
    assert shop.writers.rows(name) == before
    return name, batch, written, result, location(older)


@pytest.mark.variant
def test_position_deletes_of_the_data_file_since_the_plan_are_kept(shop: Workshop) -> None:
    since: list[str] = []

    def then(name: str, a: str, _older: Any) -> None:
        since.append(location(mark(shop, name, {a: [7]})))

    name, _, written, result, _ = raced(shop, then)
    assert result.status is CommitStatus.COMMITTED, result.message
    assert live_deletes(shop, name) == {*since, *(f.path for f in written.files)}
    assert equality_deletes(shop, name) == 0


@pytest.mark.variant
def test_older_file_that_another_writer_has_replaced_is_stale(shop: Workshop) -> None:
    def then(name: str, a: str, older: Any) -> None:
        java = shop.writers.load(name)
        merged = shop.writers.position_deletes(java, {a: [0]})
        snapshot_id = java.currentSnapshot().snapshotId()
        java.newRewrite().validateFromSnapshot(snapshot_id).deleteFile(older).addFile(merged, 3).commit()

    _, _, _, result, _ = raced(shop, then)
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.STALE)


@pytest.mark.variant
def test_older_file_that_was_registered_again_is_stale(shop: Workshop) -> None:
    def then(name: str, _a: str, older: Any) -> None:
        java = shop.writers.load(name)
        java.newRowDelta().removeDeletes(older).commit()
        java.newRowDelta().addDeletes(older).commit()

    _, _, _, result, _ = raced(shop, then)
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.STALE)
    assert Rule.IDENTITY in result.message


@pytest.mark.variant
def test_older_file_that_another_writer_took_back_is_stale(shop: Workshop) -> None:
    """Its row is back. The new file would delete it again."""

    def then(name: str, _a: str, older: Any) -> None:
        shop.writers.load(name).newRowDelta().removeDeletes(older).commit()

    _, _, _, result, _ = raced(shop, then)
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.STALE)
