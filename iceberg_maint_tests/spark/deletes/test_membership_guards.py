"""What must end a join of keys: a row or a path that would be taken for another's."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.engines.spark.deletes import membership
from iceberg_maint.engines.spark.deletes.key_files import KeyFiles
from iceberg_maint.engines.spark.jvm.java_errors import JVM_ERRORS
from iceberg_maint.errors import RefusedError
from iceberg_maint_tests.spark.deletes.test_membership import BROADCAST, Lake, rows_of

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(spark: SparkSession) -> Lake:
    """Two files; of the deletes by `s` only the first is old enough, though both hold such a key."""
    made = Lake(spark, "id int, s string, n int")
    made.append(rows_of([1, 2], 0, s="b"))
    made.delete({"s": "b"})
    made.append(rows_of([1, 2], 10, s="b"))
    made.delete({"id": 1})
    return made


def test_row_of_a_file_that_was_not_asked_for_ends_the_job(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left out in silence it would come back once its delete is dropped."""
    real = KeyFiles.data_tasks
    every = [path for path, _ in lake.places.values()]
    monkeypatch.setattr(KeyFiles, "data_tasks", lambda self, tasks, _paths: real(self, tasks, every))
    with pytest.raises(JVM_ERRORS, match="a row was read of a file that was not planned"):
        lake.marked(BROADCAST)


def test_two_paths_of_one_hash_are_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two paths of one 64-bit hash cannot be had; one path told of twice is as good."""
    real = membership.local_frame
    monkeypatch.setattr(
        membership,
        "local_frame",
        lambda bridge, columns, rows: real(bridge, columns, [("x", *row[1:]) for row in rows]),
    )
    with pytest.raises(RefusedError, match="have paths with the same 64-bit hash") as refusal:
        lake.marked(BROADCAST)
    assert refusal.value.code == "ICM-119"


def test_null_count_of_a_structs_field_says_nothing_of_the_struct(spark: SparkSession) -> None:
    """Whether a row without the struct counts as NULL of its field is each writer's own."""
    columns = "n int, a struct<b: int>"
    other, lake = Lake(spark, columns), Lake(spark, columns)
    other.insert("(0, named_struct('b', 1))")
    [without_null] = lake.writers.files(lake.writers.load(other.name))
    lake.insert("(0, named_struct('b', 1)), (1, named_struct('b', 2)), (2, null)")
    b = int(lake.java.schema().findField("a.b").fieldId())
    lake.delete_rows("(7, null)", b, metrics_of=without_null)
    assert lake.marked(BROADCAST) == {2: False}
    assert lake.dropped() == {2}
