"""What a session and a catalog can do for our commits and rewrites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iceberg_maint.engines.spark.commit.table_operations import refusal
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.rewrite.columnar.job import Workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def weak_requirements(spark: SparkSession, table: str) -> str | None:
    """Returns why the table's catalog does not take the requirements of our commits. None if it takes them or compares
    the base of a commit itself. Nothing is changed. Raises what the catalog raises."""
    bridge = Bridge(spark)
    bridge.activate()
    return refusal(bridge, bridge.load_table(table).operations())


def executors_problem(spark: SparkSession) -> str:
    """Returns why the executors' Python workers cannot run the strategy columnar, "" if they can. Runs a job on a cluster."""
    bridge = Bridge(spark)
    bridge.activate()
    return Workers(bridge).problem()
