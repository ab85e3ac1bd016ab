"""What the second pair of Spark and Iceberg has not."""

from __future__ import annotations

from importlib.metadata import version

import pytest

IS_SPARK_3 = version("pyspark").startswith("3.")


def not_on_spark_3(why: str) -> pytest.MarkDecorator:
    """Leaves a test out where Spark 3.5 runs in place of 4.1."""
    return pytest.mark.skipif(IS_SPARK_3, reason=why)
