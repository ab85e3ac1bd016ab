"""One maintainer for all tests of equality deletes, and the four ways each semantic is tested."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.outcome import OutcomeStatus
from iceberg_maint.core.policy import Policy, Route
from iceberg_maint_tests.spark.equality.maintainer import Maintainer, policy_of
from iceberg_maint_tests.spark.equality.twin import Twin


@pytest.fixture(scope="session")
def maintainer(spark: SparkSession, lake_dir: Path) -> Maintainer:
    return Maintainer(spark, lake_dir)


@dataclass(frozen=True)
class Way:
    """A format version and a route, on which a test's table is made and cleaned."""

    maintainer: Maintainer
    version: int
    route: Route

    @property
    def policy(self) -> Policy:
        return policy_of(self.route)

    def create(
        self,
        columns: str = "tag int, k int, s string",
        *,
        partitioned_by: str = "",
        version: int | None = None,
        **properties: str,
    ) -> Twin:
        return self.maintainer.create(
            columns, version=version or self.version, partitioned_by=partitioned_by, **properties
        )

    def clean(self, twin: Twin) -> None:
        """Cleans by the route: the rows stay and no equality delete is left to apply. A conversion
        leaves the data files as they are."""
        before = twin.data_files()
        outcomes = self.maintainer.heal(twin, self.policy)
        assert twin.applied_equality_deletes() == set()
        assert [o.outcome for o in outcomes].count(OutcomeStatus.IMPROVED) == 1
        if self.route is Route.CONVERT:
            assert twin.data_files() == before


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def version(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(params=[Route.CONVERT, Route.REWRITE], ids=["convert", "rewrite"])
def way(request: pytest.FixtureRequest, maintainer: Maintainer, version: int) -> Way:
    return Way(maintainer, version, request.param)
