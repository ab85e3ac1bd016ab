"""Sorted and z-ordered rewrites on real tables: rows stay, depth and files planned fall as predicted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.decisions.decide import decide
from iceberg_maint.core.decisions.rules import Situation
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import CommitStatus
from iceberg_maint.core.planning.file_groups import PlanInputs
from iceberg_maint.core.planning.plan import Batch, Plan
from iceberg_maint.core.planning.rewrite_data_files import plan_rewrite
from iceberg_maint.core.planning.work import LayoutGain, layout_gain
from iceberg_maint.core.policy.data import LayoutPolicy, Policy, ProofLevel, RewriteDataFilesPolicy
from iceberg_maint.core.policy.runs import WindowsPolicy
from iceberg_maint.engines.spark.rewrite import bin_pack
from iceberg_maint.engines.spark.rewrite.sort import free_name
from iceberg_maint.loop.read_table import with_order
from iceberg_maint.ports.engine import Written
from iceberg_maint_tests.support.spark.workshop import FULL, Workshop, workshop_of

pytestmark = [pytest.mark.spark, pytest.mark.drawn(1)]

ROWS, DRIFTED = 2000, 10
WHOLE = LayoutPolicy(overlap_depth_warn=1.0)


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    made = workshop_of(spark, lake_dir)
    made.sql("create namespace if not exists lake.sorted")
    return made


def drifted_table(shop: Workshop, version: int, order: str = "id") -> str:
    """Ten files, each over the whole range and sorted by `order`; some rows deleted."""
    name = shop.new_name("sorted")
    shop.sql(
        f"create table {name} (id bigint, x int, word string) using iceberg tblproperties "
        f"('format-version'='{version}', 'write.delete.mode'='merge-on-read', 'write.distribution-mode'='none')"
    )
    table = shop.writers.load(name)
    first = shop.bridge.iceberg.NullOrder.NULLS_FIRST
    if order:
        table.replaceSortOrder().asc(shop.bridge.iceberg.expressions.Expressions.ref(order), first).commit()
    # A task writes a file: one commit in place of ten.
    shop.sql(
        f"insert into {name} select if(n % 100 = 7, null, n), cast(hash(n) % 1000 as int), 'w' || cast(n as string) "
        f"from (select id % {ROWS // DRIFTED} * {DRIFTED} + id div {ROWS // DRIFTED} as n "
        f"from range(0, {ROWS}, 1, {DRIFTED}))"
    )
    shop.sql(f"delete from {name} where id in (1, 2, 11)")
    return name


NO_BIN_PACK = {"min_input_files": 1000}


def target(shop: Workshop, name: str, files: int) -> dict[str, Any]:
    """Policy under which the table should become so many files, and nothing is due but its layout."""
    size = sum(f.fileSizeInBytes() for f in shop.writers.files(shop.writers.load(name)))
    return {**NO_BIN_PACK, "target_file_size_bytes": size // files}


def plan_of(
    shop: Workshop,
    name: str,
    layout: LayoutPolicy,
    windows: WindowsPolicy | None = None,
    **rewrite: Any,
) -> tuple[Measured, Plan]:
    """Health and plan, as the product's survey comes to them."""
    policy = Policy(
        rewrite_data_files=RewriteDataFilesPolicy(**rewrite),
        layout=layout,
        windows=windows or WindowsPolicy(),
    )
    state = with_order(shop.catalog.pin(TableId.parse(name)), policy)
    measured = shop.catalog.measure(state, policy.rewrite_data_files)
    decision = decide(Operation.REWRITE_DATA_FILES, Situation(measured, policy, {}, 0))
    live = shop.catalog.live_files(state, list(measured.partitions))
    return measured, plan_rewrite(PlanInputs(state, decision, live, policy, measured.target_file_size_bytes))


def run(
    shop: Workshop, batch: Batch, policy: Policy = FULL, *, second_reader: bool = True
) -> tuple[Written, LayoutGain]:
    """Writes and commits; the rows must stay, by two readers, those of v3 with their lineage. The
    second one's dates and times cannot be compared."""
    name = batch.table
    # As text, in which NaN is equal to itself.
    before = repr(shop.lineage(name) if batch.format_version > 2 else shop.rows(name))
    generic = shop.writers.rows(name) if second_reader else None
    written = shop.engine.write(batch, policy)
    assert written.proof.equal, written.proof.detail
    result = shop.commit(batch, written)
    assert result.status is CommitStatus.COMMITTED, result.message
    assert repr(shop.lineage(name) if batch.format_version > 2 else shop.rows(name)) == before
    assert not second_reader or shop.writers.rows(name) == generic
    assert batch.work.layout is not None
    return written, layout_gain(batch.work.layout, [(f.group, f.content) for f in written.files])


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
    sizes = target(shop, name, 5)
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


def test_z_order_lets_either_column_skip_files(shop: Workshop) -> None:
    name = drifted_table(shop, 3, order="")
    layout = LayoutPolicy(z_order_by=("id", "x"), overlap_depth_warn=1.0, overlap_depth_act=1.5)
    measured, plan = plan_of(shop, name, layout, **target(shop, name, 16))
    assert measured.partitions["__all__"].sort_ranges == 2 * DRIFTED
    [batch] = plan.batches
    assert batch.expected_output_files == 16
    written, gain = run(shop, batch)
    assert 12 <= len(written.files) <= 20
    # Sixteen files, four by four: a value of one column lies in four of them.
    assert gain.depth_predicted == 4 < gain.depth_before
    assert gain.depth_measured == pytest.approx(gain.depth_predicted, rel=0.4)
    for column, first, last in (("id", 1000, 1100), ("x", 100, 130)):
        assert files_read(shop, name, first, last, column) <= len(written.files) / 2
    assert {f.sortOrderId() for f in shop.writers.files(shop.writers.load(name))} == {0}


@pytest.mark.variant  # loop/test_layout.py
def test_windows_sort_one_batch_after_the_other_and_come_to_an_end(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By several columns of policy, descending and with NULLs, within partitions, proved by footers;
    in as many row groups as tasks can read."""
    monkeypatch.setattr(bin_pack, "LEAST_BYTES", 1000)
    name = shop.new_name("sorted")
    shop.sql(
        f"create table {name} (p string, m decimal(9,2), at timestamp, d date, v double) using iceberg "
        "partitioned by (p) tblproperties ('format-version'='2', 'write.distribution-mode'='none')"
    )
    for part in range(6):
        shop.sql(
            f"insert into {name} select /*+ coalesce(1) */ if(id % 2 = 0, 'a', 'b'), "
            f"if(id % 50 = {part}, null, cast(id / 7 as decimal(9,2))), timestamp_seconds(id * 977), "
            f"date_add(date'1970-01-01', cast(id as int) - 500), if(id % 9 = 0, double('nan'), id / 3) "
            f"from range(1200) where pmod(hash(id), 6) = {part}"
        )
    layout = LayoutPolicy(
        sort_by=("p", "m desc", "at", "d", "v"), overlap_depth_warn=1.0, overlap_depth_act=1.5
    )
    sizes = {**NO_BIN_PACK, "target_file_size_bytes": 1 << 20, "proof": ProofLevel.FOOTER}
    policy = Policy(rewrite_data_files=RewriteDataFilesPolicy(**sizes), layout=layout)  # type: ignore[arg-type]
    _, plan = plan_of(shop, name, layout, WindowsPolicy(max_partitions_per_batch=1), **sizes)
    assert [b.partitions for b in plan.batches] == [("p=a",), ("p=b",)]
    first, second = plan.batches
    _, gain = run(shop, first, policy, second_reader=False)
    assert gain.depth_measured == gain.depth_predicted == 1 < gain.depth_before
    # What was planned with it still holds: the next run would plan just that.
    measured, rest = plan_of(shop, name, layout, WindowsPolicy(max_partitions_per_batch=1), **sizes)
    assert [b.paths() for b in rest.batches] == [second.paths()]
    assert measured.partitions["p=a"].overlap_depth == 1
    run(shop, second, policy, second_reader=False)
    _, nothing = plan_of(shop, name, layout, **sizes)
    assert nothing.batches == ()
    [file] = [f for f in shop.writers.files(shop.writers.load(name)) if "p=a" in str(f.location())]
    assert file.splitOffsets().size() > 1
    rows = shop.spark.read.parquet(str(file.location())).collect()
    keys = [r["m"] for r in rows]
    known = [k for k in keys if k is not None]
    assert keys == sorted(known, reverse=True) + [None] * (len(keys) - len(known))
    assert len(known) < len(keys)


def test_place_in_z_order_takes_no_name_that_the_table_has() -> None:
    assert free_name(["id", "x"]) == "iceberg_maint_z"
    assert free_name(["Iceberg_Maint_Z", "x", "iceberg_maint_z1"]) == "iceberg_maint_z2"
