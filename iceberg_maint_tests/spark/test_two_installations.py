"""Two installations, each with its own ledger, over one table: they tell their commits apart and do no work twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import INSTALLATION_PROPERTY, TOKEN_PROPERTY
from iceberg_maint.core.outcomes.outcome import OperationOutcome, OutcomeStatus
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.policy.runs import ForeignMaintainersPolicy, ForeignMode
from iceberg_maint.engines.spark.engine import SparkEngine
from iceberg_maint.loop.maintain import Request, maintain
from iceberg_maint.loop.settle import reconcile
from iceberg_maint.wiring.adapters import SystemClock
from iceberg_maint_tests.support.context import context_with
from iceberg_maint_tests.support.fakes.ledger import memory_ledger
from iceberg_maint_tests.support.spark.rewrites import NO_BACKOFF, READER

pytestmark = pytest.mark.spark

TABLE = TableId("lake", ("two",), "t")
COMMITS = 6
BESIDE = ForeignMaintainersPolicy(mode=ForeignMode.IGNORE)


class Installation:
    """One installation: a ledger and an engine. `after_write` runs once between the write of a batch and its commit."""

    def __init__(self, spark: SparkSession, catalog: PyIcebergCatalog) -> None:
        self.ledger, self.runs = memory_ledger(), 0
        self.foreign = ForeignMaintainersPolicy()
        self.after_write: Callable[[], None] | None = None
        self._engine = SparkEngine(lambda: spark, lambda _table: READER, NO_BACKOFF)
        self.context = context_with(
            {"lake": catalog},
            self.ledger,
            SystemClock(),
            lambda _table, _properties: replace(Policy(), foreign_maintainers=self.foreign),
            lambda: self,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def write(self, *arguments: Any, **more: Any) -> Any:
        written = self._engine.write(*arguments, **more)
        if self.after_write is not None:
            after, self.after_write = self.after_write, None
            after()
        return written

    def run(self) -> OperationOutcome:
        self.runs += 1
        request = Request(f"run-{self.runs}", operations=(Operation.REWRITE_DATA_FILES,))
        (outcome,) = maintain(TABLE, request, self.context)
        return outcome


@pytest.fixture
def table(spark: SparkSession, lake_dir: Path) -> Iterator[Table]:
    catalog = SqlCatalog(
        "lake", uri=f"sqlite:///{lake_dir}/catalog.db", warehouse=(lake_dir / "warehouse").as_uri()
    )
    catalog.create_namespace_if_not_exists(TABLE.namespace)
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "v"))
    table = catalog.create_table((*TABLE.namespace, TABLE.name), schema, partition_spec=spec)
    append(table, "a", "b")
    yield table
    catalog.drop_table((*TABLE.namespace, TABLE.name))
    catalog.drop_namespace(TABLE.namespace)
    catalog.close()


def append(table: Table, *values: str) -> None:
    """Small files in these partitions, one per commit."""
    rows = {"id": list(range(len(values))), "v": list(values)}
    for _ in range(COMMITS):
        table.refresh().append(pa.table(rows, schema=table.schema().as_arrow()))


def rows(table: Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(r.values()) for r in table.refresh().scan().to_arrow().to_pylist())


def makers(table: Table) -> list[str | None]:
    """The installation of each maintenance commit, oldest first."""
    summaries = [s.summary.additional_properties for s in table.refresh().snapshots() if s.summary]
    return [s.get(INSTALLATION_PROPERTY) for s in summaries if TOKEN_PROPERTY in s]


@pytest.mark.variant
def test_two_installations_neither_repeat_nor_adopt_each_others_work(
    spark: SparkSession, table: Table, lake_dir: Path
) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{lake_dir}/catalog.db", "warehouse": lake_dir.as_uri()}
    catalog = PyIcebergCatalog("lake", properties)
    one, other = Installation(spark, catalog), Installation(spark, catalog)
    first, second = one.ledger.registry.installation(), other.ledger.registry.installation()
    assert first != second
    before = rows(table)

    # One after the other: nothing is left for the second one, which then leaves new work to the first.
    assert one.run().outcome is OutcomeStatus.IMPROVED
    assert (makers(table), rows(table)) == ([first], before)
    assert other.run().outcome is OutcomeStatus.NO_OP
    append(table, "a")
    before = rows(table)
    refused = other.run()
    assert (refused.outcome, refused.reason) == (OutcomeStatus.UNSUPPORTED, Reason.FOREIGN_MAINTAINER)
    (commit,) = other.ledger.health.get(TABLE).foreign
    assert commit.maintainer == f"iceberg_maint (installation {first})"
    assert one.run().outcome is OutcomeStatus.IMPROVED
    assert (makers(table), rows(table)) == ([first, first], before)

    # Both at once, by a policy that permits it: the first commit wins, and the other batch commits nothing.
    other.foreign = BESIDE
    append(table, "b")
    before = rows(table)
    during: list[OperationOutcome] = []
    other.after_write = lambda: during.append(one.run())
    late = other.run()
    assert [o.outcome for o in during] == [OutcomeStatus.IMPROVED]
    assert late.outcome is not OutcomeStatus.IMPROVED
    assert (makers(table), rows(table)) == ([first] * 3, before)
    assert reconcile(TABLE, other.context, "settle") == ()
    assert other.run().outcome is OutcomeStatus.NO_OP
    assert one.run().outcome is OutcomeStatus.NO_OP

    # The other one alone: its commit is not the first one's.
    append(table, "c")
    before = rows(table)
    assert other.run().outcome is OutcomeStatus.IMPROVED
    assert (makers(table), rows(table)) == ([first] * 3 + [second], before)
    assert one.run().outcome is OutcomeStatus.NO_OP
