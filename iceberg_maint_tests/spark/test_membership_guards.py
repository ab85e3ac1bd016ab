"""What must end a join of keys: a row or a path that would be taken for another's."""

from __future__ import annotations

import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import SparkSession

from iceberg_maint.errors import RefusedError
from iceberg_maint.spark import membership
from iceberg_maint.spark.key_files import KeyFiles
from iceberg_maint_tests.spark.test_membership import BROADCAST, Lake, rows_of

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(spark: SparkSession) -> Lake:
    """Two files under a delete and one that only the older delete reaches."""
    made = Lake(spark, "id int, s string, n int")
    made.append(rows_of([1, 2], 0, s="a"))
    made.delete({"s": "b"})
    made.append(rows_of([1, 2], 10, s="a"))
    made.delete({"id": 1})
    return made


def test_row_of_a_file_that_was_not_asked_for_ends_the_job(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left out in silence it would come back once its delete is dropped."""
    real = KeyFiles.data_tasks
    every = [path for path, _ in lake.places.values()]
    monkeypatch.setattr(KeyFiles, "data_tasks", lambda self, tasks, _paths: real(self, tasks, every))
    with pytest.raises(SparkRuntimeException, match="a row was read of a file that was not planned"):
        lake.marked(BROADCAST)


def test_two_paths_of_one_hash_are_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two paths of one 64-bit hash cannot be had; one path told of twice is as good."""
    real = membership.local_frame
    monkeypatch.setattr(
        membership,
        "local_frame",
        lambda bridge, columns, rows: real(bridge, columns, [(("x"), *row[1:]) for row in rows]),
    )
    with pytest.raises(RefusedError, match="have paths with the same 64-bit hash") as refusal:
        lake.marked(BROADCAST)
    assert refusal.value.code == "ICM-119"
