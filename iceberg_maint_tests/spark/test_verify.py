"""Commits proved again on real tables, and differences planted that must be found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

from iceberg_maint.core.outcomes.outcome import CommitStatus
from iceberg_maint.core.outcomes.verification import (
    MaintenanceCommit,
    StoredProof,
    Verification,
    VerificationStatus,
)
from iceberg_maint.engines.spark.rewrite import bin_pack
from iceberg_maint.errors import RefusedError
from iceberg_maint_tests.support.spark.maintained_tables import Lake, commit_dropping
from iceberg_maint_tests.support.spark.writers import Row

pytestmark = [pytest.mark.spark, pytest.mark.drawn(1)]

A, B, C, D = ({"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "c"}, {"id": 4, "v": "d"})


@pytest.fixture(scope="module")
def lake(spark: SparkSession, lake_dir: Path) -> Lake:
    return Lake(spark, lake_dir)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_verify_commit_of_the_engine_is_proved_with_its_stored_fingerprint(lake: Lake, version: int) -> None:
    name = lake.table([A, B], [C], [D], version=version)
    lake.rewrite(name, 2)
    found = lake.verify(name)
    assert (found.status, found.stored) == (VerificationStatus.ATTESTED, StoredProof.EQUAL), found.detail
    assert found.before is not None
    assert found.after is not None
    assert (found.before.data_files, found.after.data_files) == (2, 1)
    assert found.before.fingerprint == found.after.fingerprint
    assert found.after.fingerprint.rows == 3


@pytest.mark.variant
@pytest.mark.parametrize("version", [2, 3])
def test_verify_applies_the_deletes_of_the_parent(lake: Lake, version: int) -> None:
    name = lake.table([A, B], [C], version=version, properties={"write.delete.mode": "merge-on-read"})
    lake.writers.sql(f"delete from {name} where id = 2")
    lake.rewrite(name)
    found = lake.verify(name)
    assert (found.status, found.stored) == (VerificationStatus.ATTESTED, StoredProof.EQUAL), found.detail
    assert found.before is not None
    assert found.after is not None
    assert (found.before.delete_files, found.after.delete_files) == (1, 0)
    assert found.after.fingerprint.rows == 2


@pytest.mark.variant
def test_verify_of_deletes_newer_than_the_plan_is_proved_without_the_stored_fingerprint(lake: Lake) -> None:
    name = lake.table([A, B], [C])
    rewrite = lake.by_hand(name, [A, B, C])
    lake.writers.delete_where(lake.writers.load(name), [{"id": 2}])
    assert rewrite.commit().status is CommitStatus.COMMITTED
    found = lake.verify(name)
    assert (found.status, found.stored) == (VerificationStatus.ATTESTED, StoredProof.NOT_COMPARABLE)
    assert found.after is not None
    assert (found.after.delete_files, found.after.fingerprint.rows) == (1, 2)


@pytest.mark.parametrize(
    "rows",
    [[A, B, {"id": 3, "v": "x"}], [A, B], [A, B, {"id": 3, "v": None}], [A, A, C]],
    ids=["changed", "lost", "null", "doubled"],
)
def test_verify_of_other_rows_is_different(lake: Lake, rows: list[Row]) -> None:
    name = lake.table([A, B], [C], [D])
    assert lake.by_hand(name, rows, 2).commit().status is CommitStatus.COMMITTED
    found = lake.verify(name)
    assert found.status is VerificationStatus.RED
    assert found.before is not None
    assert found.after is not None
    assert (found.before.fingerprint.rows, found.after.fingerprint.rows) == (3, len(rows))
    assert found.before.fingerprint.text() in found.detail


@pytest.mark.parametrize("column", ["v", "_row_id", "_last_updated_sequence_number"])
def test_verify_of_one_value_changed_on_v3_is_different(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    """The engine with a fault in what it writes; nobody heeds its proof."""
    rows = bin_pack._rows
    fault = functions.expr(f"if(id = 3, {column} || '9', {column})")

    def spoiled(*given: Any) -> DataFrame:
        frame = rows(*given)
        return frame.withColumn(column, fault.cast(frame.schema[column].dataType))

    name = lake.table([A, B], [C], [D], version=3)
    monkeypatch.setattr(bin_pack, "_rows", spoiled)
    lake.rewrite(name, 2, proved=False)
    found = lake.verify(name)
    assert (found.status, found.stored) == (VerificationStatus.RED, StoredProof.DIFFERENT)
    assert found.before is not None
    assert found.after is not None
    assert (found.before.fingerprint.rows, found.after.fingerprint.rows) == (3, 3)


@pytest.mark.variant
def test_verify_of_rows_brought_back_is_different(lake: Lake) -> None:
    """A delete newer than the plan, dropped by the commit: the row it deleted is back."""
    name = lake.table([A, B], [C])
    rewrite = lake.by_hand(name, [A, B, C])
    delete = lake.writers.delete_where(lake.writers.load(name), [{"id": 2}])
    commit_dropping(lake, rewrite, delete)
    found = lake.verify(name)
    assert found.status is VerificationStatus.RED
    assert found.before is not None
    assert found.after is not None
    assert (found.before.fingerprint.rows, found.after.fingerprint.rows) == (2, 3)


def test_verify_of_a_delete_dropped_that_applies_to_a_file_left_alone_is_different(lake: Lake) -> None:
    name = lake.table([A], [B], [C])
    delete = lake.writers.delete_where(lake.writers.load(name), [{"id": 3}])
    rewrite = lake.by_hand(name, [A, B], 2)
    commit_dropping(lake, rewrite, delete)
    found = lake.verify(name)
    assert found.status is VerificationStatus.RED
    assert found.before is not None
    assert found.after is not None
    assert (found.before.data_files, found.after.data_files) == (3, 2)
    assert (found.before.fingerprint.rows, found.after.fingerprint.rows) == (2, 3)
    assert found.difference is not None
    assert (found.difference.lost, found.difference.gained) == (0, 1)


def test_verify_of_a_fingerprint_that_was_not_these_rows_is_different(lake: Lake) -> None:
    name = lake.table([A, B], [C])
    lake.rewrite(name)
    commit = lake.find(name)
    assert isinstance(commit, MaintenanceCommit)
    assert commit.stored is not None
    found = lake.verifier.verify(replace(commit, stored=commit.stored + commit.stored))
    assert (found.status, found.stored) == (VerificationStatus.RED, StoredProof.DIFFERENT)


@pytest.mark.variant
def test_verify_after_the_schema_changed_is_proved_without_the_stored_fingerprint(lake: Lake) -> None:
    name = lake.table([A, B], [C])
    lake.rewrite(name)
    lake.writers.sql(f"alter table {name} add column w int")
    found = lake.verify(name)
    assert (found.status, found.stored) == (VerificationStatus.ATTESTED, StoredProof.NOT_COMPARABLE)


@pytest.mark.parametrize("gone", ["source", "output", "delete", "manifest list"])
def test_verify_without_a_file_is_refused_and_names_it(lake: Lake, gone: str) -> None:
    name = lake.table([A, B], [C])
    delete = lake.writers.delete_at(
        lake.writers.load(name), {lake.writers.files(lake.writers.load(name))[0].location(): [1]}
    )
    source = lake.writers.files(lake.writers.load(name))[1].location()
    parent = lake.writers.load(name).currentSnapshot().manifestListLocation()
    lake.rewrite(name)
    output = lake.writers.files(lake.writers.load(name))[0].location()
    places = {"source": source, "output": output, "delete": delete.location(), "manifest list": parent}
    lake.writers.load(name).io().deleteFile(places[gone])
    with pytest.raises(RefusedError) as refused:
        lake.verify(name)
    assert (refused.value.code, refused.value.message) == (
        "ICM-101",
        f"{name}: {places[gone]} does not exist.",
    )


def test_verify_after_the_parent_expired_is_unprovable(lake: Lake) -> None:
    name = lake.table([A, B], [C])
    parent = lake.writers.load(name).currentSnapshot().snapshotId()
    lake.rewrite(name)
    commit = lake.find(name)
    assert isinstance(commit, MaintenanceCommit)
    lake.writers.load(name).expireSnapshots().expireSnapshotId(parent).commit()
    late, now = lake.verifier.verify(commit), lake.find(name)
    assert isinstance(now, Verification)
    assert late.status is now.status is VerificationStatus.UNPROVABLE
    assert now.detail == f"parent {parent} of snapshot {commit.snapshot_id} has been expired"


def test_verify_of_a_table_created_again_is_refused(lake: Lake) -> None:
    name = lake.table([A], [B])
    lake.rewrite(name)
    commit = lake.find(name)
    assert isinstance(commit, MaintenanceCommit)
    with pytest.raises(RefusedError, match="ICM-129"):
        lake.verifier.verify(replace(commit, table_uuid="another"))
