"""Real tables and partitions with hostile names: each is maintained alone, by Spark, and its neighbours stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
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
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.engines.spark.engine import SparkEngine
from iceberg_maint.loop.maintain import Request, maintain
from iceberg_maint.wiring.adapters import SystemClock
from iceberg_maint_tests.support.context import context_with
from iceberg_maint_tests.support.fakes.ledger import memory_ledger
from iceberg_maint_tests.support.spark.rewrites import NO_BACKOFF, READER

pytestmark = [pytest.mark.seconds, pytest.mark.spark]

NAMESPACE = "evil' ns"
NAMES = (
    "t'; DROP TABLE x; --",
    "t` OR 1=1 --",
    't"x) => map(1,2)',
    "$(touch pwned) ${env} é 日本",
    "snapshots",
)
VALUES = ("x' OR '1'='1", "`a`\\b\n", "day=1/p=2", "__HIVE_DEFAULT_PARTITION__", None, "plain")
COMMITS = 5


@pytest.fixture
def catalog(lake_dir: Path) -> Iterator[SqlCatalog]:
    catalog = SqlCatalog(
        "lake", uri=f"sqlite:///{lake_dir}/catalog.db", warehouse=(lake_dir / "warehouse").as_uri()
    )
    catalog.create_namespace_if_not_exists((NAMESPACE,))
    yield catalog
    for name in catalog.list_tables((NAMESPACE,)):
        catalog.drop_table(name)
    catalog.drop_namespace((NAMESPACE,))
    catalog.close()


def make(catalog: SqlCatalog, name: str, folder: Path) -> Table:
    """Every value in a file of its own per commit. The name stays out of paths, as in most catalogs' layouts."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "v"))
    table = catalog.create_table((NAMESPACE, name), schema, location=folder.as_uri(), partition_spec=spec)
    rows = {"id": list(range(len(VALUES))), "v": list(VALUES)}
    for _ in range(COMMITS):
        table.append(pa.table(rows, schema=table.schema().as_arrow()))
    return table


def rows(table: Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(r.values()) for r in table.refresh().scan().to_arrow().to_pylist())


def test_each_is_maintained_by_its_very_name_and_value(
    spark: SparkSession, catalog: SqlCatalog, lake_dir: Path, tmp_path: Path
) -> None:
    tables = {name: make(catalog, name, tmp_path / str(n)) for n, name in enumerate(NAMES)}
    before = {name: rows(table) for name, table in tables.items()}
    untouched = {name: table.metadata_location for name, table in tables.items()}
    ours = PyIcebergCatalog("lake", dict(catalog.properties) | {"type": "sql"})
    engine = SparkEngine(lambda: spark, lambda _table: READER, NO_BACKOFF)
    context = context_with(
        {"lake": ours},
        memory_ledger(),
        SystemClock(),
        lambda _table, _properties: Policy(),
        lambda: engine,
    )
    for n, name in enumerate(NAMES):
        table = TableId("lake", (NAMESPACE,), name)
        assert table in ours.tables()
        keys = sorted(ours.measure(ours.pin(table), Policy().rewrite_data_files).partitions)
        assert len(keys) == len(VALUES)
        key = keys[n]
        request = Request(f"run-{n}", partitions=frozenset({key}), operations=(Operation.REWRITE_DATA_FILES,))
        (outcome,) = maintain(table, request, context)
        assert outcome.outcome is OutcomeStatus.IMPROVED, [b.message for b in outcome.batches]
        del untouched[name]
        after = ours.live_files(ours.pin(table), keys)
        assert Counter(f.partition for f in after) == {k: 1 if k == key else COMMITS for k in keys}
        assert {o: tables[o].refresh().metadata_location for o in untouched} == untouched
    assert {name: rows(table) for name, table in tables.items()} == before
    assert not list(tmp_path.rglob("pwned*"))
