"""Partition values that Iceberg's content-file JSON has as texts: NaN and the infinities of floats."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.outcomes.outcome import CommitStatus
from iceberg_maint.core.policy.data import RewriteStrategy
from iceberg_maint.engines.spark.engine import SparkEngine
from iceberg_maint_tests.spark.rewrite.test_columnar import COLUMNAR
from iceberg_maint_tests.support.spark.rewrites import NO_BACKOFF, READER
from iceberg_maint_tests.support.spark.unhealthy_tables import workshop
from iceberg_maint_tests.support.spark.workshop import FULL, Workshop

pytestmark = pytest.mark.spark

NOT_FINITE = ("NaN", "Infinity", "-Infinity")


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop(spark, lake_dir)


def table_of(shop: Workshop, kind: str, value: str, version: int = 3) -> str:
    """Two files of two rows in the partition of one value. The bounds of their ids overlap, so a delete may apply to both."""
    name = shop.new_name("native")
    shop.writers.create(name, f"id int, v {kind}", version=version, partitioned_by="v")
    for start in (0, 1):
        shop.sql(
            f"insert into {name} select /*+ coalesce(1) */ cast(id as int), cast('{value}' as {kind}) "
            f"from range({start}, {start + 4}, 2)"
        )
    return name


def rows_of(shop: Workshop, name: str) -> list[tuple[object, ...]]:
    return [tuple(r) for r in shop.sql(f"select id, cast(v as string) from {name} order by id").collect()]


@pytest.mark.drawn(1)
@pytest.mark.parametrize("value", NOT_FINITE)
@pytest.mark.parametrize("kind", ["float", "double", "string"])
def test_columnar_partition_by_a_value_that_is_not_finite_is_written_by_columnar(
    shop: Workshop, kind: str, value: str
) -> None:
    name = table_of(shop, kind, value)
    before = repr(shop.lineage(name))
    batch = shop.batch(name, strategy=RewriteStrategy.COLUMNAR)
    written = shop.engine.write(batch, COLUMNAR)
    assert (written.proof.equal, written.note) == (True, "")
    assert shop.commit(batch, written).status is CommitStatus.COMMITTED
    assert repr(shop.lineage(name)) == before
    partitions = shop.sql(f"select cast(partition.v as string) from {name}.files").collect()
    assert [tuple(p) for p in partitions] == [(value,)]


@pytest.mark.variant
@pytest.mark.drawn(1)
@pytest.mark.parametrize("value", NOT_FINITE)
def test_rewrite_of_a_partition_that_is_not_finite_is_committed_by_another_process(
    shop: Workshop, value: str
) -> None:
    name = table_of(shop, "double", value)
    batch = shop.batch(name)
    written = shop.engine.write(batch, FULL)
    other = SparkEngine(lambda: shop.spark, lambda _table: READER, NO_BACKOFF)
    assert shop.commit(batch, written, engine=other).status is CommitStatus.COMMITTED
    assert rows_of(shop, name) == [(n, value) for n in range(4)]


def test_convert_in_a_partition_that_is_not_finite_writes_its_position_deletes(shop: Workshop) -> None:
    name = table_of(shop, "double", "NaN", version=2)
    table = shop.writers.load(name)
    shop.writers.delete_where(table, [{"id": 1}], None, (float("nan"),))
    batch = shop.cleaning(name, Operation.CONVERT_EQUALITY_DELETES)
    written = shop.engine.write(batch, COLUMNAR)
    assert (written.proof.equal, len(written.files)) == (True, 1)
    result = shop.commit(batch, written)
    assert result.status is CommitStatus.COMMITTED, result.message
    assert rows_of(shop, name) == [(0, "NaN"), (2, "NaN"), (3, "NaN")]
