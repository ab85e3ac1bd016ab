"""A commit of which only the table metadata file does not fit on its disk."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint_tests.support.spark.housekeeping import Keeper
from iceberg_maint_tests.support.spark.workshop import workshop_of

pytestmark = pytest.mark.spark
_BYTES = 8 * 1024 * 1024


@pytest.fixture
def disk(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB, for the tables of the namespace `lake.disks`."""
    spark.sql("create namespace if not exists lake.disks")
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.getuid() or not shutil.which("mount"):
        pytest.skip("only root mounts a file system")
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={_BYTES}", "none", folder], check=False
    ).returncode:
        pytest.skip("this machine mounts no tmpfs")
    yield folder
    # A table without its metadata would stop the orphan scans of the lake that all tests share.
    for table in spark.sql("show tables in lake.disks").collect():
        spark.sql(f"drop table lake.disks.{table.tableName}")
    subprocess.run(["umount", "-l", folder], check=True)


def test_metadata_file_that_does_not_fit_is_a_failure_of_the_environment_and_not_unknown(
    spark: SparkSession, lake_dir: Path, disk: Path
) -> None:
    workshop = workshop_of(spark, lake_dir)
    name, filler = workshop.new_name("disks"), disk / "filler"
    workshop.sql(
        f"create table {name} (id int) using iceberg tblproperties ('write.metadata.path'='file:{disk}')"
    )
    for number in range(6):
        workshop.sql(f"insert into {name} values ({number})")
    workshop.sql(f"alter table {name} set tblproperties ('n'='{'x' * 500_000}')")

    def fill(_batch: Batch) -> None:
        # Manifests of a few KiB fit, metadata of 500 KB do not.
        filler.write_bytes(bytes(shutil.disk_usage(disk).free - 300_000))

    keeper = Keeper(workshop, before_commit=fill)
    (failed,) = keeper.run(name, Operation.REWRITE_DATA_FILES).batches
    assert (failed.outcome, failed.reason) == (OutcomeStatus.FAILED, Reason.ENVIRONMENT), failed.message
    assert failed.message.startswith("ICM-176 ")
    assert "No space left on device" in failed.message
    filler.unlink()
    assert (
        Keeper(workshop, ledger=keeper.ledger).run(name, Operation.REWRITE_DATA_FILES).outcome
        is OutcomeStatus.IMPROVED
    )
    assert sorted(r.id for r in workshop.sql(f"select id from {name}").collect()) == list(range(6))
