"""Whether the catalog of a table takes the requirements of our commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iceberg_maint.spark.commit.rest_requirements import refusal
from iceberg_maint.spark.jvm.bridge import Bridge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def weak_requirements(spark: SparkSession, table: str) -> str | None:
    """Returns why the table's catalog does not take the requirements of our commits. None if it takes them or compares
    the base of a commit itself. Nothing is changed. Raises what the catalog raises."""
    bridge = Bridge(spark)
    bridge.activate()
    return refusal(bridge, bridge.load_table(table).operations())
