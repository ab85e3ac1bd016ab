"""The resource that Dagster knows as the Spark of a run."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any

from iceberg_maint.loop.context import Context

SPARK_RESOURCE = "pyspark"


class LazySpark:
    """The resource of this project. A run without work starts nothing, and needs no jars of this machine."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._driver: Any = None

    @property
    def driver(self) -> Any:
        """The process's JVM, in which Spark starts when work needs it."""
        with self._lock:
            if self._driver is None:
                self._driver = self._context.engine.spark.driver()
            return self._driver

    @cached_property
    def spark_session(self) -> Any:
        """The process's Spark session, for other ops. The first access fixes Spark's static settings."""
        # It imports PySpark, which most processes of Dagster never use.
        from dagster_pyspark import LazyPySparkResource

        return LazyPySparkResource(spark_config=dict(self._context.engine.spark.conf())).spark_session


def driver_of(resource: Any) -> Any:
    """The JVM of this project's resource; the session of one that a project has put in its place."""
    return resource.driver if isinstance(resource, LazySpark) else resource.spark_session
