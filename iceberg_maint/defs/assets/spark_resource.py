"""The resource that Dagster knows as the Spark of a run."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from iceberg_maint.loop.context import Context

SPARK_RESOURCE = "pyspark"


class LazySpark:
    """The resource of this project. Maintenance uses the engine of its context, which starts Spark when work needs it."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @cached_property
    def spark_session(self) -> Any:
        """The process's Spark session, for other ops. The first access fixes Spark's static settings."""
        # It imports PySpark, which most processes of Dagster never use.
        from dagster_pyspark import LazyPySparkResource

        return LazyPySparkResource(spark_config=dict(self._context.engine.spark.conf())).spark_session


def on_resource(context: Context, resource: Any) -> Context:
    """The context with the engine on the session of a resource that a project has put in the place of this project's."""
    return context if isinstance(resource, LazySpark) else context.on_session(lambda: resource.spark_session)
