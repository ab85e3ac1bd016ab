"""What stock maintenance really writes into a table's history is told for what it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.other_writers import foreign_commits
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint_tests.support.spark.writers import Writers

pytestmark = pytest.mark.spark

OWN = "installation-1"


def test_stock_rewrites_are_foreign_and_regrouped_manifests_are_not(
    spark: SparkSession, lake_dir: Path
) -> None:
    writers = Writers(Bridge(spark))
    table = writers.create("lake.foreign.t", "id int")
    for number in range(3):
        writers.append(table, [{"id": number}])
    catalog = PyIcebergCatalog(
        "lake",
        {"type": "sql", "uri": f"sqlite:///{lake_dir / 'catalog.db'}", "warehouse": lake_dir.as_uri()},
    )
    writers.sql("call lake.system.rewrite_manifests(table => 'foreign.t')")
    state = catalog.pin(TableId.parse("lake.foreign.t"))
    assert state.snapshot is not None
    assert state.snapshot.operation == "replace"
    assert foreign_commits(state, OWN) == ()
    writers.sql(
        "call lake.system.rewrite_data_files(table => 'foreign.t', options => map('rewrite-all', 'true'))"
    )
    (found,) = foreign_commits(catalog.pin(TableId.parse("lake.foreign.t")), OWN)
    assert found.maintainer == "Apache Spark (application iceberg_maint_tests)"
    assert not found.deletes
