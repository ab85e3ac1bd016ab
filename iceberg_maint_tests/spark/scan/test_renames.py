"""Renamed columns: a filter and a rewrite bind to the field, whatever its name was in the pinned snapshot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.outcomes.outcome import CommitStatus
from iceberg_maint.core.policy.data import RewriteStrategy
from iceberg_maint.engines.spark.scan.scan import partitions_filter
from iceberg_maint.engines.spark.scan.staging import load_planned_table
from iceberg_maint_tests.support.spark.unhealthy_tables import rewrite
from iceberg_maint_tests.support.spark.workshop import FULL, Workshop, workshop_of

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    made = workshop_of(spark, lake_dir)
    made.sql("create namespace if not exists lake.renames")
    return made


def partitioned(shop: Workshop, by: str, version: int = 2) -> str:
    """Makes a table of twelve rows. Each of its two partitions has three files."""
    name = shop.new_name("renames")
    shop.sql(
        f"create table {name} (id int, p string, ts timestamp, t2 timestamp, q string) using iceberg partitioned by ({by}) "
        f"tblproperties ('format-version'='{version}', 'write.delete.mode'='merge-on-read', "
        "'write.metadata.metrics.column.ts'='full', 'write.metadata.metrics.column.t2'='none')"
    )
    shop.sql(f"alter table {name} write ordered by ts")
    for start in (0, 4, 8):
        shop.sql(
            f"insert into {name} select cast(id as int), concat('p', id % 2), "
            "timestamp'2024-01-01' + make_interval(0, 0, 0, id % 2), "
            f"timestamp'2025-01-01' + make_interval(0, 0, 0, id % 2), concat('q', id) from range({start}, {start + 4})"
        )
    return name


def rename(shop: Workshop, name: str, *pairs: str) -> None:
    for pair in pairs:
        old, new = pair.split(" ")
        shop.sql(f"alter table {name} rename column {old} to {new}")


RENAMES = {
    "identity": ("p", ("p p_old",)),
    "bucket": ("bucket(4, p)", ("p p_old",)),
    "day": ("days(ts)", ("ts ts_old",)),
    "names_swapped": ("days(ts), days(t2)", ("ts x", "t2 ts", "x t2")),
    "name_reused": ("days(ts)", ("ts ts_old", "t2 ts")),
    "name_reused_by_another_type": ("bucket(4, p)", ("p p_old", "id p")),
}


@pytest.mark.drawn(3)
@pytest.mark.parametrize("committed_since", [False, True])
@pytest.mark.parametrize(("by", "pairs"), RENAMES.values(), ids=RENAMES)
def test_partitions_filter_after_a_rename_selects_the_files_of_its_partition(
    shop: Workshop, by: str, pairs: tuple[str, ...], committed_since: bool
) -> None:
    name = partitioned(shop, by)
    rename(shop, name, *pairs)
    partitions = shop.batch(name).partitions
    batch = shop.batch(name, partitions=partitions[:1])
    if committed_since:
        shop.sql(f"insert into {name} select * from {name} limit 1")
    table = load_planned_table(shop.bridge, batch)
    scan = table.newScan().useSnapshot(batch.snapshot_id).ignoreResiduals()
    tasks = scan.filter(partitions_filter(shop.bridge, table, batch)).planFiles()
    assert (len(partitions), len(batch.paths())) == (2, 3)
    assert sorted(str(t.file().location()) for t in shop.bridge.iterate(tasks)) == sorted(batch.paths())


@pytest.mark.drawn(1)
@pytest.mark.parametrize("strategy", [RewriteStrategy.NATIVE, RewriteStrategy.COLUMNAR])
@pytest.mark.parametrize("version", [1, 2])
def test_rewrite_after_swapped_names_an_evolved_spec_and_an_upgrade_keeps_the_rows(
    shop: Workshop, version: int, strategy: RewriteStrategy
) -> None:
    name = partitioned(shop, "days(ts)", version)
    shop.sql(f"alter table {name} add partition field truncate(1, p)")
    shop.sql(f"insert into {name} select * from {name}")
    if version > 1:
        shop.sql(f"delete from {name} where id in (1, 6)")
    rename(shop, name, "ts x", "t2 ts", "x t2", "p p_old")
    shop.sql(f"alter table {name} set tblproperties ('format-version'='{version + 1}')")
    policy = replace(FULL, rewrite_data_files=replace(FULL.rewrite_data_files, strategy=strategy))
    written = rewrite(shop, name, policy, strategy=strategy)
    assert sum(f.record_count for f in written.files) == (24 if version == 1 else 20)
    ranges = shop.sql(
        f"select readable_metrics.t2.lower_bound, readable_metrics.ts.lower_bound from {name}.files"
    )
    assert {(low.year, other) for low, other in ranges.collect()} == {(2024, None)}


@pytest.mark.variant
def test_convert_equality_deletes_by_swapped_names_deletes_the_same_rows(shop: Workshop) -> None:
    name = partitioned(shop, "bucket(1, p)")
    keys = [{"p": "p0", "q": "q0"}, {"p": "p1", "q": "q9"}]
    shop.writers.delete_where(shop.writers.load(name), keys, partition=(0,))
    rename(shop, name, "p x", "q p", "x q")
    before = shop.rows(name)
    batch = shop.cleaning(name, Operation.CONVERT_EQUALITY_DELETES)
    written = shop.engine.write(batch, FULL)
    assert (written.proof.equal, len(before)) == (True, 10)
    assert shop.commit(batch, written).status is CommitStatus.COMMITTED
    assert shop.rows(name) == before
    assert shop.sql(f"select * from {name}.delete_files where content = 2").count() == 0
