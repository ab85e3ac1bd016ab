"""A damaged page that can be decoded: no rewrite makes its values those of the table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.policy.data import RewriteStrategy
from iceberg_maint_tests.support.columnar.damage import checksums, with_another_value
from iceberg_maint_tests.support.spark.housekeeping import Keeper
from iceberg_maint_tests.support.spark.unhealthy_tables import workshop
from iceberg_maint_tests.support.spark.workshop import FULL, Workshop

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop(spark, lake_dir)


def table_of(shop: Workshop, vectorized: bool) -> tuple[str, list[Path]]:
    """A table of three uncompressed files. Returns its name and the paths of the files."""
    name = shop.new_name("native")
    shop.sql(
        f"create table {name} (id bigint) using iceberg tblproperties "
        f"('write.parquet.compression-codec'='uncompressed', 'read.parquet.vectorization.enabled'='{vectorized}')"
    )
    for start in (0, 100, 200):
        shop.sql(f"insert into {name} select id from range({start}, {start + 100}, 1, 1)")
    return name, paths_of(shop, name)


def paths_of(shop: Workshop, name: str) -> list[Path]:
    rows = shop.spark.table(f"{name}.files").select("file_path").collect()
    return sorted(Path(path.removeprefix("file:")) for (path,) in rows)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("vectorized", [False, True])
@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (
            RewriteStrategy.NATIVE,
            ": a page of file:{} has another checksum than its header states. Fix: ",
        ),
        (RewriteStrategy.COLUMNAR, "cannot be read as Parquet: could not verify page integrity"),
    ],
)
def test_rewrite_of_a_page_with_another_checksum_fails(
    shop: Workshop, strategy: RewriteStrategy, words: str, vectorized: bool
) -> None:
    name, paths = table_of(shop, vectorized)
    # Hadoop's local file system keeps a checksum of its own beside the file.
    (paths[1].parent / f".{paths[1].name}.crc").unlink()
    with_another_value(str(paths[1]), 0)
    policy = replace(FULL, rewrite_data_files=replace(FULL.rewrite_data_files, strategy=strategy))
    outcome = Keeper(shop, policy).run(name, Operation.REWRITE_DATA_FILES, force=True)
    assert outcome.outcome is OutcomeStatus.FAILED
    message = outcome.batches[0].message
    assert message.startswith(f"ICM-101 {name}: ")
    assert words.format(paths[1]) in message
    assert paths_of(shop, name) == paths


@pytest.mark.drawn(1)
@pytest.mark.parametrize("strategy", [RewriteStrategy.NATIVE, RewriteStrategy.COLUMNAR])
def test_rewritten_pages_state_their_checksum_as_those_of_icebergs_writer_do(
    shop: Workshop, strategy: RewriteStrategy
) -> None:
    name, paths = table_of(shop, vectorized=True)
    assert set(checksums(str(paths[0]))) == {True}
    policy = replace(FULL, rewrite_data_files=replace(FULL.rewrite_data_files, strategy=strategy))
    outcome = Keeper(shop, policy).run(name, Operation.REWRITE_DATA_FILES, force=True)
    assert outcome.outcome is OutcomeStatus.IMPROVED
    [path] = paths_of(shop, name)
    assert set(checksums(str(path))) == {True}
