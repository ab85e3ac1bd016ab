"""One keeper for all programs of a process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from iceberg_maint_tests.qualification.program.maintainer import Keeper


@pytest.fixture(scope="session")
def keeper(spark: SparkSession, lake_dir: Path) -> Keeper:
    from iceberg_maint_tests.qualification.program.maintainer import Keeper

    return Keeper(spark, lake_dir)
