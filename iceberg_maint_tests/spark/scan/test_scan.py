"""Scan tasks: the deletes that apply to a file, whatever else its delete files tell."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.spark.scan.scan import scan
from iceberg_maint_tests.support.spark.workshop import Workshop, workshop_of

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def workshop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop_of(spark, lake_dir)


def test_delete_that_tells_of_other_columns_than_its_keys_applies_in_a_pruned_scan(
    workshop: Workshop,
) -> None:
    """As a CDC writer leaves them: whole rows, of which one column is the key."""
    name, writers, iceberg = workshop.new_name("scan"), workshop.writers, workshop.bridge.iceberg
    table = writers.create(name, "id int, p string")
    writers.append(table, [{"id": 1, "p": "new"}])
    writers.add_deletes(table, writers.equality_deletes(table, [{"id": 1, "p": "old"}], by=["id"]))
    snapshot_id = int(table.currentSnapshot().snapshotId())
    pruning = iceberg.expressions.Expressions.equal("p", "new")
    [task] = workshop.bridge.iterate(scan(workshop.bridge, table, snapshot_id, pruning=pruning))
    assert [int(i) for d in workshop.bridge.iterate(task.deletes()) for i in d.equalityFieldIds()] == [1]
