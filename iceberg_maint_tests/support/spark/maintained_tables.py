"""Tables maintained by the real engine or by hand, rightly or wrongly, and what verify says of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyroaring import BitMap64
from pyspark.sql import SparkSession

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.core.model.codec import dumps
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.other_writers import is_maintenance
from iceberg_maint.core.model.table_state import PROOF_PROPERTY, TOKEN_PROPERTY
from iceberg_maint.core.outcomes.outcome import CommitStatus
from iceberg_maint.core.outcomes.verification import MaintenanceCommit, Proof, Verification, find_commit
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.engines.spark.engine import SparkEngine
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.scan import positions
from iceberg_maint.engines.spark.verify import SparkVerifier
from iceberg_maint_tests.support.batches import with_work
from iceberg_maint_tests.support.context import commit_context
from iceberg_maint_tests.support.spark.rewrites import NO_BACKOFF, READER, Output, Rewrite, prepare
from iceberg_maint_tests.support.spark.writers import Row, Writers

_names = itertools.count()


class Lake:
    """Tables of this module, maintained by the real engine or by hand, and verified."""

    def __init__(self, spark: SparkSession, lake_dir: Path) -> None:
        self.writers = Writers(Bridge(spark))
        uri = f"sqlite:///{lake_dir / 'catalog.db'}"
        warehouse = (lake_dir / "warehouse").as_uri()
        self.catalog = PyIcebergCatalog("lake", {"type": "sql", "uri": uri, "warehouse": warehouse})
        self.engine = SparkEngine(lambda: spark, lambda _: READER, NO_BACKOFF)
        self.verifier = SparkVerifier(lambda: spark)

    def table(self, *files: Sequence[Row], **more: Any) -> str:
        """A table with these files, one commit each."""
        name = f"lake.verify.t{next(_names)}"
        table = self.writers.create(name, **more)
        for rows in files:
            self.writers.append(table, rows)
        return name

    def rewrite(self, name: str, files: int | None = None, *, proved: bool = True) -> None:
        """Rewrites the first so many files as one, by the engine."""
        chosen = self.writers.files(self.writers.load(name))[:files]
        batch = prepare(self.writers, name, Output(chosen, ())).batch
        by_path = {t.file().location(): t for t in self.writers.tasks(self.writers.load(name))}
        (group,) = batch.groups
        planned = tuple(
            replace(f, delete_files=tuple(d.location() for d in by_path[f.path].deletes()))
            for f in group.files
        )
        batch = with_work(batch, groups=(replace(group, files=planned, partition="__all__"),))
        written = self.engine.write(batch, Policy())
        assert written.proof.equal is proved, written.proof.detail
        context = commit_context(max_tries=1)
        assert self.engine.commit(batch, written, context).status is CommitStatus.COMMITTED

    def find(self, name: str, snapshot_id: int | None = None) -> MaintenanceCommit | Verification:
        state = self.catalog.pin(TableId.parse(name))
        if snapshot_id is None:
            snapshot_id = next(s.snapshot_id for s in state.ancestors() if is_maintenance(s))
        return find_commit(state, snapshot_id)

    def by_hand(self, name: str, rows: Sequence[Row], files: int | None = None) -> Rewrite:
        """A rewrite of the first so many files that writes these rows, whatever was in the files."""
        return prepare(self.writers, name, Output(self.writers.files(self.writers.load(name))[:files], rows))

    def convert(
        self,
        name: str,
        marks: Mapping[str, Iterable[int]],
        dropped: Iterable[Any],
        *,
        stored: Mapping[str, Iterable[int]] | None = None,
    ) -> None:
        """A conversion that writes these positions and drops these deletes, whatever is right; in
        its summary the proof of the positions written, or of those given. On v3 the vectors are all
        their data files have afterwards.
        """
        table, bridge = self.writers.load(name), self.writers.bridge
        tasks = {str(t.file().location()): t for t in self.writers.tasks(table)}
        files = {path: task.file() for path, task in tasks.items()}
        row_delta = table.newRowDelta().validateFromSnapshot(table.currentSnapshot().snapshotId())
        if table.operations().current().formatVersion() == 2:
            written = positions.write_position_deletes(bridge, table, _bitmaps(marks), files)
        else:
            written = positions.write_deletion_vectors(bridge, table, _bitmaps(marks), files)
            for delete in {d for path in marks for d in tasks[path].deletes()}:
                if str(delete.format().toString()) == "PUFFIN":
                    row_delta.removeDeletes(delete)
        for file in written:
            row_delta.addDeletes(file)
        for delete in dropped:
            row_delta.removeDeletes(delete)
        proof = Proof("full", equal=True, input_records=0, output_records=0, removed_records=0)
        taken = positions.fingerprint(_bitmaps(marks if stored is None else stored))
        row_delta.set(TOKEN_PROPERTY, "token-1")
        row_delta.set(PROOF_PROPERTY, dumps(replace(proof, fingerprint=taken.text())))
        row_delta.commit()

    def verify(self, name: str) -> Verification:
        found = self.find(name)
        assert isinstance(found, MaintenanceCommit)
        return self.verifier.verify(found)


def _bitmaps(marks: Mapping[str, Iterable[int]]) -> dict[str, BitMap64]:
    return {path: BitMap64(found) for path, found in marks.items()}


def commit_dropping(lake: Lake, rewrite: Rewrite, delete: Any) -> None:
    """The rewrite with the gate open, taking a delete with it that it must leave."""
    table = lake.writers.load(rewrite.batch.table)
    operation = table.newRewrite().validateFromSnapshot(table.currentSnapshot().snapshotId())
    for file in (*rewrite.sources, delete):
        operation.deleteFile(file)
    for file in rewrite.outputs:
        operation.addFile(file)
    operation.set(TOKEN_PROPERTY, "token-1")
    operation.commit()
