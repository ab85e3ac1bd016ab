"""A Flink job by hand: manifests of its checkpoints by Iceberg's own writer, committed by Iceberg's reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from iceberg_maint_tests.support.spark.workshop import Workshop

JOB, OPERATOR = "fd72014d4c864993a2e5a9287b4a9c5d", "cbc357ccb763df2852fee8c4fc7d55f2"


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
