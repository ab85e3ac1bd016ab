"""A partition whose path the store does not take, beside others of one batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.policy.data import RewriteStrategy
from iceberg_maint_tests.support.spark.housekeeping import KEEP_ONE, Keeper
from iceberg_maint_tests.support.spark.workshop import workshop_of

pytestmark = pytest.mark.spark


@pytest.mark.drawn(1)
@pytest.mark.parametrize("strategy", [RewriteStrategy.NATIVE, RewriteStrategy.COLUMNAR])
def test_partition_whose_path_is_too_long_is_unsupported_alone(
    spark: SparkSession, lake_dir: Path, strategy: RewriteStrategy
) -> None:
    spark.sql("create namespace if not exists lake.paths")
    workshop = workshop_of(spark, lake_dir)
    name, value = workshop.new_name("paths"), "x" * 2000
    # The writer leaves the partition out of its paths.
    flat = "'write.object-storage.enabled', 'write.object-storage.partitioned-paths'"
    setting = "'write.object-storage.enabled'='true', 'write.object-storage.partitioned-paths'='false'"
    workshop.sql(
        f"create table {name} (id int, p string) using iceberg partitioned by (p) tblproperties ({setting})"
    )
    for number in range(6):
        workshop.sql(f"insert into {name} select {number}, p from values ('a'), ('{value}'), ('z') as t (p)")
    workshop.sql(f"alter table {name} unset tblproperties ({flat})")
    query = f"select id, p from {name} order by id, p"
    before = workshop.sql(query).collect()

    rewrite = replace(KEEP_ONE.rewrite_data_files, strategy=strategy)
    outcome = Keeper(workshop, replace(KEEP_ONE, rewrite_data_files=rewrite)).run(
        name, Operation.REWRITE_DATA_FILES
    )

    assert {p[2:3]: (status, reason) for p, status, reason in outcome.partitions} == {
        "a": (OutcomeStatus.IMPROVED, Reason.SMALL_FILES),
        "x": (OutcomeStatus.UNSUPPORTED, Reason.REFUSED),
        "z": (OutcomeStatus.IMPROVED, Reason.SMALL_FILES),
    }
    (refused,) = (b.message for b in outcome.batches if b.outcome is OutcomeStatus.UNSUPPORTED)
    assert refused == (
        f"ICM-183 {name}: the store does not take the path of a new file of partition p={'x' * 98}… (2,002 characters): "
        "a file system takes names of at most 255 bytes. Fix: set write.object-storage.enabled=true and "
        "write.object-storage.partitioned-paths=false on the table, so that paths have no partition values, or write shorter "
        "values."
    )
    assert workshop.sql(query).collect() == before
    assert len(before) == 18
