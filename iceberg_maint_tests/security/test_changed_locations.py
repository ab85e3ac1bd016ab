"""A table whose properties send files elsewhere after its plan: nothing is written there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyspark.sql import SparkSession

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.catalog.approved_io import guarded_properties
from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.model.location import ApprovedLocations
from iceberg_maint.core.outcomes.outcome import CommitResult, OutcomeStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.engines.spark.engine import SparkEngine
from iceberg_maint.loop.maintain import Request, maintain
from iceberg_maint.ports.engine import CommitContext, Written
from iceberg_maint.wiring.adapters import SystemClock
from iceberg_maint_tests.support.context import context_with
from iceberg_maint_tests.support.fakes.ledger import memory_ledger
from iceberg_maint_tests.support.spark.rewrites import NO_BACKOFF, READER

pytestmark = [pytest.mark.seconds, pytest.mark.spark]
TABLE = TableId("lake", ("moved",), "t")


@pytest.mark.parametrize("moved", ["write", "commit"])
def test_write_path_that_changes_after_the_plan_is_refused(
    spark: SparkSession, lake_dir: Path, tmp_path: Path, moved: str
) -> None:
    """A changed `write.data.path` sends data files elsewhere, a changed `write.metadata.path` the manifests. Another engine of
    the process, of a configuration without limits, starts meanwhile."""
    uri, warehouse = f"sqlite:///{lake_dir}/catalog.db", (lake_dir / "warehouse").as_uri()
    catalog = SqlCatalog("lake", uri=uri, warehouse=warehouse)
    catalog.create_namespace_if_not_exists(TABLE.namespace)
    table = catalog.create_table(TABLE.in_catalog, Schema(NestedField(1, "id", LongType())))
    for n in range(6):
        table.append(pa.table({"id": [n]}))
    foreign = tmp_path / "foreign"
    limits = ApprovedLocations((lake_dir.as_uri(),))
    ours = PyIcebergCatalog("lake", guarded_properties({"type": "sql", "uri": uri}, limits))

    def move(name: str) -> None:
        SparkEngine(lambda: spark, lambda _table: READER).start()
        with table.refresh().transaction() as change:
            change.set_properties({name: foreign.as_uri()})

    class Moved(SparkEngine):
        """The table changes after its plan, or after its files were written."""

        def write(self, batch: Batch, policy: Policy) -> Written:
            if moved == "write":
                move("write.data.path")
            return super().write(batch, policy)

        def commit(self, batch: Batch, written: Written, context: CommitContext) -> CommitResult:
            if moved == "commit":
                move("write.metadata.path")
            return super().commit(batch, written, context)

    engine = Moved(
        lambda: spark,
        lambda _table: READER,
        NO_BACKOFF,
        check_writes=lambda name, *where: ours.check_writes(TableId.parse(name), *where),
    )
    loop_context = context_with(
        {"lake": ours},
        memory_ledger(),
        SystemClock(),
        lambda _table, _properties: Policy(),
        lambda: engine,
    )
    (outcome,) = maintain(TABLE, Request("run", operations=(Operation.REWRITE_DATA_FILES,)), loop_context)
    assert outcome.outcome is not OutcomeStatus.IMPROVED
    assert "ICM-155" in outcome.batches[0].message
    # The writer's own change of `write.metadata.path` is in the first metadata file there.
    written = [p.name.partition(".")[2] for p in foreign.rglob("*") if p.is_file()]
    assert written == ["metadata.json"] * (moved == "commit")
    catalog.drop_table(TABLE.in_catalog)
    catalog.drop_namespace(TABLE.namespace)
    catalog.close()
