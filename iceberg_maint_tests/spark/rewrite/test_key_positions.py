"""The share of a Spark task that finding deleted rows takes."""

from __future__ import annotations

from iceberg_maint.columnar.task import DeletedPositionsTask, EqualityDelete, InputFile
from iceberg_maint.engines.spark.rewrite.columnar.key_positions import _work_bytes


def test_work_is_eight_bytes_for_each_row_and_key() -> None:
    task = DeletedPositionsTask(
        inputs=(InputFile("a", 1000, 5, 1), InputFile("b", 1000, 7, 1)),
        deletes=(EqualityDelete("c", 1000, 3, 2, (1,)),),
        schema="{}",
    )
    assert _work_bytes(task) == 120
