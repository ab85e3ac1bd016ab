"""A Flink job that stands still while a table is cleaned: its manifests by Iceberg's own writer, restored by its reader."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.outcomes.outcome import OperationOutcome, OutcomeStatus
from iceberg_maint.core.removal.orphan_rules import TRASH
from iceberg_maint.engines.spark.scan.positions import write_deletion_vectors
from iceberg_maint_tests.support.spark.flink_job import FlinkJob
from iceberg_maint_tests.support.spark.housekeeping import Keeper
from iceberg_maint_tests.support.spark.workshop import Workshop, workshop_of

pytestmark = [pytest.mark.spark, pytest.mark.drawn(2)]
CLEAN = Operation.REMOVE_ORPHAN_FILES


@pytest.fixture(scope="module")
def workshop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop_of(spark, lake_dir)


def place(location: str) -> Path:
    return Path(str(location).removeprefix("file:"))


def clean(keeper: Keeper, name: str, days: float) -> OperationOutcome:
    return keeper.run(name, CLEAN, days=days)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("partitioned_by", ["", "v"])
def test_restored_job_finds_the_files_of_its_manifests_after_mark_and_sweep(
    version: int, partitioned_by: str, workshop: Workshop, tmp_path: Path
) -> None:
    writers, name = workshop.writers, workshop.new_name("pending")
    table = writers.create(name, version=version, partitioned_by=partitioned_by)
    at = ("x",) if partitioned_by else ()
    live = writers.append(table, [{"id": 1, "v": "x"}, {"id": 2, "v": "x"}], partition=at)
    job = FlinkJob(workshop, name, table, version)
    data = [writers.data(table, [{"id": n, "v": "x"}], partition=at) for n in (3, 4)]
    deletes = []
    if version > 1:
        deletes.append(writers.equality_deletes(table, [{"id": 1, "v": "x"}], partition=at))
    if version == 2:
        deletes.append(writers.position_deletes(table, {live.location(): [1]}, partition=at))
    if version == 3:
        marked = {live.location(): BitMap64([1])}
        deletes += write_deletion_vectors(workshop.bridge, table, marked, {live.location(): live})
    checkpoint = job.checkpoint(data, deletes)
    orphan = place(writers.data(table, [{"id": 9, "v": "x"}], partition=at).location())

    keeper = Keeper(workshop, scratch=tmp_path)
    marked, swept = clean(keeper, name, 8), clean(keeper, name, 12)
    pending = [place(f.location()) for f in (*data, *deletes)] + [place(m.path()) for m in checkpoint]
    assert [p for p in pending if not p.exists()] == []
    assert not orphan.exists()
    assert not list(place(table.location()).glob(f"{TRASH}/files/**/*.parquet"))
    assert (marked.outcome, swept.outcome) == (OutcomeStatus.IMPROVED, OutcomeStatus.IMPROVED)

    job.restore(checkpoint)
    expected = [1, 2, 3, 4] if version == 1 else [3, 4]
    workshop.sql(f"refresh table {name}")
    assert sorted(row.id for row in workshop.sql(f"select id from {name}").collect()) == expected


def test_file_in_the_trash_comes_back_for_a_manifest_of_iceberg(workshop: Workshop, tmp_path: Path) -> None:
    writers, name = workshop.writers, workshop.new_name("pending")
    table = writers.create(name)
    writers.append(table, [{"id": 1, "v": "x"}])
    late = writers.data(table, [{"id": 2, "v": "x"}])
    keeper = Keeper(workshop, scratch=tmp_path)
    clean(keeper, name, 8)
    assert not place(late.location()).exists()
    job = FlinkJob(workshop, name, table, 2)
    checkpoint = job.checkpoint([late], [])
    clean(keeper, name, 12)
    assert place(late.location()).exists()
    job.restore(checkpoint)
    workshop.sql(f"refresh table {name}")
    assert sorted(row.id for row in workshop.sql(f"select id from {name}").collect()) == [1, 2]


def test_truncated_manifest_of_iceberg_holds_the_pass(workshop: Workshop, tmp_path: Path) -> None:
    writers, name = workshop.writers, workshop.new_name("pending")
    table = writers.create(name)
    writers.append(table, [{"id": 1, "v": "x"}])
    file = writers.data(table, [{"id": 2, "v": "x"}])
    [manifest] = FlinkJob(workshop, name, table, 2).checkpoint([file], [])
    damaged = place(manifest.path())
    damaged.write_bytes(damaged.read_bytes()[:-30])
    held = clean(Keeper(workshop, scratch=tmp_path), name, 8)
    assert place(file.location()).exists()
    assert "ICM-101 pending manifest" in str(held)
