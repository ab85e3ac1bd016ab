"""Conversions proved again on real tables, and wrong ones that must be found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.outcomes.outcome import CommitStatus
from iceberg_maint.core.outcomes.verification import Compared, StoredProof, Verification, VerificationStatus
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.engines.spark.deletes import deleted_rows
from iceberg_maint.errors import RefusedError
from iceberg_maint_tests.support.spark.maintained_tables import Lake, commit_dropping
from iceberg_maint_tests.support.spark.versions import IS_SPARK_3
from iceberg_maint_tests.support.spark.workshop import Workshop
from iceberg_maint_tests.support.spark.writers import Row

pytestmark = [pytest.mark.spark, pytest.mark.drawn(1)]

A, B, C, D = ({"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "c"}, {"id": 4, "v": "d"})


@pytest.fixture(scope="module")
def lake(spark: SparkSession, lake_dir: Path) -> Lake:
    return Lake(spark, lake_dir)


class Sick:
    """Files of A, B and of C, D, and an equality delete of B and C."""

    def __init__(self, lake: Lake, version: int) -> None:
        self.lake = lake
        merge = {"write.delete.mode": "merge-on-read"}
        self.name = lake.table([A, B], [C, D], version=version, properties=merge)
        self.first, self.second = (str(f.location()) for f in lake.writers.files(self.load()))
        self.delete = lake.writers.delete_where(self.load(), [{"id": 2}, {"id": 3}])

    def load(self) -> Any:
        return self.lake.writers.load(self.name)

    @property
    def right(self) -> dict[str, list[int]]:
        return {self.first: [1], self.second: [0]}

    def convert(self, marks: Mapping[str, list[int]], **more: Any) -> Verification:
        self.lake.convert(self.name, marks, (self.delete,), **more)
        return self.lake.verify(self.name)


@pytest.fixture(params=[2, 3])
def sick(request: pytest.FixtureRequest, lake: Lake) -> Sick:
    return Sick(lake, request.param)


@pytest.mark.variant
def test_verify_of_a_right_conversion_is_proved_by_the_positions_it_stored(sick: Sick) -> None:
    before = sick.lake.writers.rows(sick.name)
    found = sick.convert(sick.right)
    assert (found.status, found.stored) == (VerificationStatus.ATTESTED, StoredProof.EQUAL), found.detail
    assert found.compared is Compared.DELETED_POSITIONS
    assert found.before is not None
    assert found.after is not None
    assert (found.before.data_files, found.before.delete_files) == (2, 1)
    assert (found.after.data_files, found.after.delete_files) == (2, 2)
    assert found.before.fingerprint == found.after.fingerprint
    assert found.after.fingerprint.rows == 2
    assert sick.lake.writers.rows(sick.name) == before == [(1, "a"), (4, "d")]


def test_verify_of_a_lost_position_is_different_and_names_the_file(lake: Lake) -> None:
    sick = Sick(lake, 3)
    found = sick.convert({sick.first: [1]})
    assert (found.status, found.stored) == (VerificationStatus.RED, StoredProof.EQUAL)
    assert f"first in {sick.second}" in found.detail
    assert found.difference is not None
    assert (found.difference.lost, found.difference.gained) == (0, 1)
    assert sick.lake.writers.rows(sick.name) == [(1, "a"), (3, "c"), (4, "d")]


@pytest.mark.variant
def test_verify_of_an_extra_position_is_different(lake: Lake) -> None:
    sick = Sick(lake, 2)
    found = sick.convert({sick.first: [0, 1], sick.second: [0]})
    assert found.status is VerificationStatus.RED
    assert f"first in {sick.first}" in found.detail


@pytest.mark.variant
def test_verify_of_as_many_but_other_positions_is_different(lake: Lake) -> None:
    sick = Sick(lake, 3)
    assert sick.convert({sick.first: [0], sick.second: [0]}).status is VerificationStatus.RED


@pytest.mark.variant
def test_verify_of_positions_that_were_not_the_proved_ones_is_different(lake: Lake) -> None:
    sick = Sick(lake, 2)
    found = sick.convert(sick.right, stored={sick.first: [1], sick.second: [1]})
    assert (found.status, found.stored) == (VerificationStatus.RED, StoredProof.DIFFERENT)


@pytest.mark.variant
def test_verify_applies_the_position_deletes_of_both_sides(sick: Sick) -> None:
    """D is deleted by position already: a vector holds both, position delete files add up."""
    if sick.load().operations().current().formatVersion() == 2:
        sick.lake.writers.delete_at(sick.load(), {sick.second: [1]})
        found = sick.convert(sick.right)
    else:
        sick.lake.writers.sql(f"delete from {sick.name} where id = 4")
        found = sick.convert({sick.first: [1], sick.second: [0, 1]})
    assert (found.status, found.stored) == (VerificationStatus.ATTESTED, StoredProof.EQUAL), found.detail
    assert found.after is not None
    assert found.after.fingerprint.rows == 3


@pytest.mark.variant
def test_verify_of_a_vector_that_forgets_older_positions_is_different(lake: Lake) -> None:
    sick = Sick(lake, 3)
    lake.writers.sql(f"delete from {sick.name} where id = 4")
    assert sick.convert(sick.right).status is VerificationStatus.RED


@pytest.mark.variant
def test_verify_of_a_delete_dropped_that_applies_to_a_file_left_alone_is_different(lake: Lake) -> None:
    """As if it had been taken for a delete of one partition only."""
    name = lake.table(partitioned_by="v", columns="id int, v string")
    writers = lake.writers
    for row in (B, C):
        writers.append(writers.load(name), [row], partition=(row["v"],))
    spec = writers.load(name).spec()
    delete = writers.delete_where(writers.load(name), [{"id": 2}], spec, ("b",))
    other = writers.delete_where(writers.load(name), [{"id": 3}], spec, ("c",))
    first = str(writers.files(writers.load(name))[0].location())
    lake.convert(name, {first: [0]}, (delete, other))
    found = lake.verify(name)
    assert found.status is VerificationStatus.RED


def test_verify_of_dangling_deletes_dropped_is_proved(lake: Lake) -> None:
    name = lake.table([A])
    table = lake.writers.load(name)
    delete = lake.writers.delete_where(table, [{"id": 1}])
    lake.writers.sql(f"delete from {name} where true")
    lake.writers.append(lake.writers.load(name), [A, B])
    lake.convert(name, {}, (delete,))
    found = lake.verify(name)
    assert (found.status, found.stored) == (VerificationStatus.ATTESTED, StoredProof.EQUAL), found.detail
    assert "readers of both snapshots read the same data files with the same deletes" in found.detail


@pytest.mark.variant
def test_verify_of_a_conversion_that_found_nothing_is_proved(lake: Lake) -> None:
    name = lake.table([A], [C])
    delete = lake.writers.delete_where(lake.writers.load(name), [{"id": 2}])
    lake.convert(name, {}, (delete,))
    found = lake.verify(name)
    assert (found.status, found.stored) == (VerificationStatus.ATTESTED, StoredProof.EQUAL), found.detail


@pytest.mark.variant
def test_verify_of_a_conversion_after_the_schema_changed_is_proved(lake: Lake) -> None:
    sick = Sick(lake, 3)
    sick.lake.convert(sick.name, sick.right, (sick.delete,))
    sick.lake.writers.sql(f"alter table {sick.name} rename column id to key")
    found = sick.lake.verify(sick.name)
    assert (found.status, found.stored) == (VerificationStatus.ATTESTED, StoredProof.EQUAL), found.detail


@pytest.mark.parametrize(("gone", "version"), [("equality delete", 2), ("position delete", 3)])
def test_verify_of_a_conversion_without_a_delete_file_is_refused(lake: Lake, gone: str, version: int) -> None:
    sick = Sick(lake, version)
    sick.lake.convert(sick.name, sick.right, (sick.delete,))
    (task, *_) = sick.lake.writers.tasks(sick.load())
    (written,) = task.deletes()
    place = str((sick.delete if gone == "equality delete" else written).location())
    sick.load().io().deleteFile(place)
    with pytest.raises(RefusedError, match=re.escape(f"ICM-101 {sick.name}: {place} does not exist.")):
        sick.lake.verify(sick.name)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("operation", [Operation.CONVERT_EQUALITY_DELETES, Operation.REWRITE_DATA_FILES])
def test_verify_of_the_engines_own_cleaning_is_proved_by_what_it_stored(
    lake: Lake, spark: SparkSession, operation: Operation, version: int
) -> None:
    sick = Sick(lake, version)
    shop = Workshop(spark, lake.catalog)
    batch = shop.cleaning(sick.name, operation)
    assert shop.commit(batch, shop.engine.write(batch, Policy())).status is CommitStatus.COMMITTED
    found = lake.verify(sick.name)
    assert (found.status, found.stored) == (VerificationStatus.ATTESTED, StoredProof.EQUAL), found.detail
    positions = operation is Operation.CONVERT_EQUALITY_DELETES
    assert found.compared is (Compared.DELETED_POSITIONS if positions else Compared.ROWS)


@pytest.fixture
def too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any equality delete is more than Iceberg's reader is given."""
    monkeypatch.setattr(deleted_rows, "READER_EQUALITY_DELETES", 0)


@pytest.mark.variant
@pytest.mark.usefixtures("too_many")
def test_verify_of_a_conversion_of_many_deletes_returns_the_same(sick: Sick) -> None:
    sick.lake.writers.append(sick.load(), [B])
    found = sick.convert(sick.right)
    assert (found.status, found.stored) == (VerificationStatus.ATTESTED, StoredProof.EQUAL), found.detail
    assert found.before is not None
    assert (found.before.data_files, found.before.delete_files, found.before.fingerprint.rows) == (2, 1, 2)


@pytest.mark.variant
@pytest.mark.usefixtures("too_many")
def test_verify_of_a_lost_position_of_many_deletes_is_different(lake: Lake) -> None:
    sick = Sick(lake, 2)
    lake.writers.delete_at(sick.load(), {sick.second: [1]})
    found = sick.convert({sick.first: [1]})
    assert found.status is VerificationStatus.RED
    assert f"first in {sick.second}" in found.detail


@pytest.mark.parametrize("limit", [deleted_rows.READER_EQUALITY_DELETES, 0])
def test_verify_after_a_key_column_was_dropped(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """Iceberg's reader looks the column up in older schemas, on Spark 4.1."""
    monkeypatch.setattr(deleted_rows, "READER_EQUALITY_DELETES", limit)
    sick = Sick(lake, 2)
    lake.convert(sick.name, sick.right, (sick.delete,))
    lake.writers.sql(f"alter table {sick.name} drop column id")
    found = lake.verify(sick.name)
    by_reader = limit and not IS_SPARK_3
    expected = VerificationStatus.ATTESTED if by_reader else VerificationStatus.UNPROVABLE
    assert found.status is expected, found.detail


@pytest.mark.variant
@pytest.mark.usefixtures("too_many")
@pytest.mark.parametrize(("rows", "status"), [([A, D], "ATTESTED"), ([A, C, D], "RED"), ([A, B], "RED")])
def test_verify_of_a_rewrite_under_many_deletes(lake: Lake, rows: list[Row], status: str) -> None:
    sick = Sick(lake, 2)
    commit_dropping(lake, lake.by_hand(sick.name, rows), sick.delete)
    found = lake.verify(sick.name)
    assert found.status == status, found.detail
    assert found.compared is Compared.ROWS
    assert found.before is not None
    assert found.before.fingerprint.rows == 2
