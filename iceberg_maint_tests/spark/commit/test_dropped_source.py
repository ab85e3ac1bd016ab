"""A spec whose source column was dropped: Iceberg copies its entries into another partition."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.outcomes.outcome import CommitStatus, Rejection
from iceberg_maint_tests.support.spark.workshop import FULL, Workshop, workshop_of

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop_of(spark, lake_dir)


def table_without_its_source(shop: Workshop, version: int, by: str) -> str:
    """Rows 1 and 2 in each of the partitions a and b of the first spec, row 1 of a deleted; then the field
    and its column go, and two rows come."""
    name = shop.new_name("dropped")
    shop.writers.create(name, "id int, cat string, v string", version=version, partitioned_by=by)

    def append(rows: list[dict[str, object]], *partition: str) -> None:
        # As a fast append leaves manifests: merged by nobody yet.
        table = shop.writers.load(name)
        table.newFastAppend().appendFile(shop.writers.data(table, rows, None, partition)).commit()

    for cat, v in (("a", "x"), ("b", "y")):
        append([{"id": n, "cat": cat, "v": f"{v}{n}"} for n in (1, 2)], cat)
    shop.writers.delete_where(shop.writers.load(name), [{"id": 1}], None, ("a",))
    shop.sql(f"alter table {name} drop partition field {by}")
    shop.sql(f"alter table {name} drop column cat")
    for n in (5, 6):
        append([{"id": n, "v": "new"}])
    return name


@pytest.mark.parametrize(
    ("version", "by"),
    [
        (2, "cat"),
        pytest.param(3, "cat", marks=pytest.mark.variant),
        pytest.param(2, "truncate(1, cat)", marks=pytest.mark.variant),
    ],
)
def test_commit_that_would_move_kept_files_into_another_partition_is_refused(
    shop: Workshop, version: int, by: str
) -> None:
    name = table_without_its_source(shop, version, by)
    rows = [(1, "y1"), (2, "x2"), (2, "y2"), (5, "new"), (6, "new")]
    assert shop.rows(name) == rows
    state = shop.catalog.pin(TableId.parse(name))
    assert state.specs_losing_values() == (0,)
    batch = shop.batch(name, partitions=("__all__",))
    result = shop.commit(batch, shop.engine.write(batch, FULL))
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.REFUSED)
    assert "is kept as" in result.message
    assert shop.rows(name) == rows


def test_source_that_was_dropped_leaves_buckets_as_they_are(shop: Workshop) -> None:
    name = shop.new_name("dropped")
    table = shop.writers.create(name, "id int, cat string", version=2, partitioned_by="bucket(4, cat)")
    shop.writers.append(table, [{"id": 1, "cat": "a"}], None, (1,))
    shop.sql(f"alter table {name} drop partition field bucket(4, cat)")
    shop.sql(f"alter table {name} drop column cat")
    assert shop.catalog.pin(TableId.parse(name)).specs_losing_values() == ()
