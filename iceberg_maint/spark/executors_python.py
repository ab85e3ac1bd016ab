"""Whether the Python of a session's executors can rewrite files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.rewrite.columnar.workers import Workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def executors_problem(spark: SparkSession) -> str:
    """Returns why the executors' Python workers cannot run the strategy columnar, "" if they can. Runs a job on a cluster."""
    bridge = Bridge(spark)
    bridge.activate()
    return Workers(bridge).problem()
