"""A Flink job that stands still while a table is cleaned: its manifests by Iceberg's own writer, restored by its reader."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.outcomes.outcome import OperationOutcome, OutcomeStatus
from iceberg_maint.core.removal.orphans import TRASH
from iceberg_maint.spark.scan.positions import write_deletion_vectors
from iceberg_maint_tests.support.spark.housekeeping import Keeper
from iceberg_maint_tests.support.spark.workshop import Workshop, workshop_of

pytestmark = pytest.mark.spark
CLEAN = Operation.REMOVE_ORPHAN_FILES
JOB, OPERATOR = "fd72014d4c864993a2e5a9287b4a9c5d", "cbc357ccb763df2852fee8c4fc7d55f2"


@pytest.fixture(scope="module")
def workshop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop_of(spark, lake_dir)


@dataclass
class FlinkJob:
    """Writes and commits as Iceberg's Flink sink does (`FlinkManifestUtil`, `IcebergFilesCommitter`)."""

    workshop: Workshop
    name: str
    table: Any
    version: int
    count: int = 0

    def checkpoint(self, data: list[Any], deletes: list[Any]) -> list[Any]:
        """Writes a manifest of the data files and one of the delete files, as the sink does before a
        checkpoint is complete; what the checkpoint holds of them."""
        files = self.workshop.writers.iceberg.ManifestFiles
        written = [self._write(files.write, data)]
        if deletes:
            written.append(self._write(files.writeDeleteManifest, deletes))
        return written

    def restore(self, checkpoint: list[Any]) -> None:
        """Commits the files that the manifests of the checkpoint name."""
        files = self.workshop.writers.iceberg.ManifestFiles
        io, specs = self.table.io(), self.table.specs()
        operation = self.table.newRowDelta() if len(checkpoint) > 1 else self.table.newAppend()
        for file in self.workshop.bridge.iterate(files.read(checkpoint[0], io, specs)):
            add = operation.addRows if len(checkpoint) > 1 else operation.appendFile
            add(file.copy())
        for manifest in checkpoint[1:]:
            for file in self.workshop.bridge.iterate(files.readDeleteManifest(manifest, io, specs)):
                operation.addDeletes(file.copy())
        operation.set("flink.job-id", JOB)
        operation.set("flink.operator-id", OPERATOR)
        operation.set("flink.max-committed-checkpoint-id", "17")
        operation.commit()

    def _write(self, write: Any, files: list[Any]) -> Any:
        self.count += 1
        name = f"{JOB}-{OPERATOR}-00000-0-17-{self.count:05d}.avro"
        out = self.table.io().newOutputFile(self.table.operations().metadataFileLocation(name))
        writer = write(self.version, self.table.spec(), out, 0)
        for file in files:
            writer.add(file)
        writer.close()
        return writer.toManifestFile()


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
