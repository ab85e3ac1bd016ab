"""Sorted and z-ordered rewrites on real tables: rows stay, depth and files planned fall as predicted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.decide import decide
from iceberg_maint.core.health import Measured
from iceberg_maint.core.history import TableHistory
from iceberg_maint.core.ids import Operation, TableId
from iceberg_maint.core.layout_gain import LayoutGain, layout_gain
from iceberg_maint.core.outcome import CommitStatus
from iceberg_maint.core.plan import Batch, Plan
from iceberg_maint.core.planner import plan_rewrite
from iceberg_maint.core.policy import LayoutPolicy, Policy, RewriteDataFilesPolicy
from iceberg_maint.core.reasons import Reason
from iceberg_maint.ports import Written
from iceberg_maint.survey import with_order
from iceberg_maint_tests.spark.workshop import FULL, Workshop, workshop_of

pytestmark = pytest.mark.spark

ROWS, DRIFTED = 4000, 10
WHOLE = LayoutPolicy(overlap_depth_warn=1.0)


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    made = workshop_of(spark, lake_dir)
    made.sql("create namespace if not exists lake.sorted")
    return made


def drifted_table(shop: Workshop, version: int, order: str = "id") -> str:
    """Sorted by `order`, then appended to ten times over the whole range; some rows deleted."""
    name = shop.new_name("sorted")
    shop.sql(
        f"create table {name} (id bigint, x int, word string) using iceberg tblproperties "
        f"('format-version'='{version}', 'write.delete.mode'='merge-on-read', 'write.distribution-mode'='none')"
    )
    table = shop.writers.load(name)
    first = shop.bridge.iceberg.NullOrder.NULLS_FIRST
    if order:
        table.replaceSortOrder().asc(shop.bridge.iceberg.expressions.Expressions.ref(order), first).commit()
    for part in range(DRIFTED):
        shop.sql(
            f"insert into {name} select /*+ coalesce(1) */ if(id % 100 = 7, null, id), "
            f"cast(hash(id) % 1000 as int), 'w' || cast(id as string) from range({ROWS}) where id % {DRIFTED} = {part}"
        )
    shop.sql(f"delete from {name} where id in (1, 2, 11)")
    return name


def plan_of(shop: Workshop, name: str, layout: LayoutPolicy, **rewrite: Any) -> tuple[Measured, Plan]:
    """Health and plan, as the product's survey comes to them."""
    policy = Policy(rewrite_data_files=RewriteDataFilesPolicy(**rewrite), layout=layout)
    state = with_order(shop.catalog.pin(TableId.parse(name)), policy)
    measured = shop.catalog.measure(state, policy.rewrite_data_files)
    decision = decide(Operation.REWRITE_DATA_FILES, measured, state.format_version, policy, TableHistory(), 0)
    live = shop.catalog.live_files(state, list(measured.partitions))
    return measured, plan_rewrite(state, decision, live, policy, measured.target_file_size_bytes)


def run(shop: Workshop, batch: Batch, policy: Policy = FULL) -> tuple[Written, LayoutGain]:
    """Writes and commits; the rows must stay, by two readers, those of v3 with their lineage."""
    name = batch.table
    before = shop.lineage(name) if batch.format_version > 2 else shop.rows(name)
    generic = shop.writers.rows(name)
    written = shop.engine.write(batch, policy)
    assert written.proof.equal, written.proof.detail
    result = shop.commit(batch, written)
    assert result.status is CommitStatus.COMMITTED, result.message
    assert (shop.lineage(name) if batch.format_version > 2 else shop.rows(name)) == before
    assert shop.writers.rows(name) == generic
    assert batch.layout is not None
    return written, layout_gain(batch.layout, [(f.group, f.content) for f in written.files])


def files_read(shop: Workshop, name: str, first: int, last: int, column: str = "id") -> int:
    """Data files that a query for a range of a column plans to read."""
    expressions = shop.bridge.iceberg.expressions.Expressions
    within = getattr(expressions, "and")(
        expressions.greaterThanOrEqual(column, first), expressions.lessThanOrEqual(column, last)
    )
    tasks = shop.writers.load(name).newScan().filter(within).planFiles()
    return sum(1 for _ in shop.bridge.iterate(tasks))


@pytest.mark.parametrize("version", [2, 3])
def test_drifted_table_is_sorted_as_predicted_and_then_healthy(shop: Workshop, version: int) -> None:
    name = drifted_table(shop, version)
    size = sum(f.fileSizeInBytes() for f in shop.writers.files(shop.writers.load(name)))
    sizes = {
        "target_file_size_bytes": size // 5,
        "min_input_files": 1000,
        "min_excess_files": 1000,
        "min_gain_ratio": 1.0,
    }
    measured, plan = plan_of(shop, name, WHOLE, **sizes)
    health = measured.partitions["__all__"]
    # Every file is sorted, and all overlap: the first starts alone, the last among all.
    assert (health.overlap_depth, health.max_overlap_depth, health.unsorted_files) == (5.5, DRIFTED, 0)
    [batch] = plan.batches
    assert (batch.strategy, batch.reasons, batch.input_files) == ("sorted", (Reason.LAYOUT,), DRIFTED)
    ranges = [(at, at + ROWS // 20) for at in range(50, ROWS - ROWS // 20, ROWS // 7)]
    assert {files_read(shop, name, *r) for r in ranges} == {DRIFTED}
    written, gain = run(shop, batch)
    assert (gain.depth_before, gain.depth_predicted) == (5.5, 1)
    assert gain.depth_measured == 1
    read = [files_read(shop, name, *r) for r in ranges]
    # A range of a twentieth lies in one file or over one of the cuts.
    assert set(read) <= {1, 2}
    after, then = plan_of(shop, name, WHOLE, **sizes)
    assert (after.partitions["__all__"].overlap_depth, after.partitions["__all__"].unsorted_files) == (1, 0)
    assert then.batches == ()
    assert len(written.files) == batch.expected_output_files
