"""One maintainer for all tests of equality deletes, and the ways each semantic is tested."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.policy.data import Policy, RewriteStrategy, Route
from iceberg_maint_tests.support.spark.equality.maintainer import Maintainer, policy_of
from iceberg_maint_tests.support.spark.equality.reference import Twin


@pytest.fixture(scope="session")
def maintainer(spark: SparkSession, lake_dir: Path) -> Maintainer:
    return Maintainer(spark, lake_dir)


@dataclass(frozen=True)
class Way:
    """A format version and a route, on which a test's table is made and cleaned, and who finds the deleted rows: Spark's
    join (`native`) or Arrow (`columnar`)."""

    maintainer: Maintainer
    version: int
    route: Route
    strategy: RewriteStrategy

    @property
    def policy(self) -> Policy:
        return policy_of(self.route, strategy=self.strategy)

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

    def clean(self, twin: Twin, *, are_all_parquet: bool = True) -> None:
        """Cleans by the route: the rows stay and no equality delete is left to apply. A conversion
        leaves the data files as they are. `columnar` joins only files of other formats than Parquet."""
        before = twin.data_files()
        outcomes = self.maintainer.heal(twin, self.policy)
        assert twin.applied_equality_deletes() == set()
        assert [o.outcome for o in outcomes].count(OutcomeStatus.IMPROVED) == 1
        if self.strategy is RewriteStrategy.COLUMNAR:
            # Only the join measures its memory.
            assert any(b.memory for o in outcomes for b in o.batches) is not are_all_parquet
        if self.route is Route.CONVERT:
            assert twin.data_files() == before


EVERY_WAY = [
    (version, route, strategy)
    for version in (2, 3)
    for route in (Route.CONVERT, Route.REWRITE)
    for strategy in (RewriteStrategy.NATIVE, RewriteStrategy.COLUMNAR)
]
# Each version, route and strategy once is what the variants have time for; `make qualify SUITE=program` goes every way.
TWO_WAYS = [(3, Route.CONVERT, RewriteStrategy.COLUMNAR), (2, Route.REWRITE, RewriteStrategy.NATIVE)]
WAYS = EVERY_WAY if "ICEBERG_MAINT_TEST_STEPS" in os.environ else TWO_WAYS


def name_of(way: tuple[int, Route, RewriteStrategy]) -> str:
    """As a test's id shows it."""
    version, route, strategy = way
    return f"v{version}-{route}" + ("" if strategy is RewriteStrategy.COLUMNAR else f"-{strategy}")


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def version(request: pytest.FixtureRequest) -> int:
    return request.param


# Spark's join takes the longest, and `test_membership.py` compares what it finds.
NATIVE_IS_A_VARIANT = [
    pytest.param(
        way, id=name_of(way), marks=[pytest.mark.variant] if way[2] is RewriteStrategy.NATIVE else []
    )
    for way in WAYS
]


@pytest.fixture(params=NATIVE_IS_A_VARIANT)
def way(request: pytest.FixtureRequest, maintainer: Maintainer) -> Way:
    return Way(maintainer, *request.param)
