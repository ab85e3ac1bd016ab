"""Verify: prove a maintenance commit again, from what readers see before and after it.

Both snapshots are planned by Iceberg. Scan tasks that are the same on both sides, the same file
with the same deletes, give the same rows; the others are read on each side, deletes applied by
Iceberg's reader, and their rows compared. That covers the files removed and added, and any other
file to which different deletes apply, so equal rows here are equal rows of the two tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from iceberg_maint.core.proof import Fingerprint
from iceberg_maint.core.verification import (
    Evidence,
    MaintenanceCommit,
    Side,
    Verification,
    judge_commit,
    unprovable,
)
from iceberg_maint.errors import RefusedError
from iceberg_maint.spark import fingerprint, native
from iceberg_maint.spark.bridge import JVM_ERRORS, Bridge
from iceberg_maint.spark.lambdas import Lambdas
from iceberg_maint.spark.staging import read_staged, staged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkVerifier:
    """`ports.Verifier` on the session that `session` gives, which starts when it is first needed."""

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._session = session

    def verify(self, commit: MaintenanceCommit) -> Verification:
        """Reads both sides and judges them. Raises RefusedError ICM-102 when the table is another
        one by now, and what Spark raises for any failure but a missing file.
        """
        bridge = Bridge(self._session())
        table = bridge.load_table(commit.table)
        if str(table.uuid().toString()) != commit.table_uuid:
            raise RefusedError(
                "ICM-102",
                f"{commit.table} was dropped and created again while it was verified.",
                "verify again.",
            )
        for snapshot_id in (commit.parent_id, commit.snapshot_id):
            if table.snapshot(snapshot_id) is None:
                return unprovable(commit, f"snapshot {snapshot_id} has been expired just now")
        looked_at: list[Any] = []
        try:
            return judge_commit(commit, _evidence(bridge, table, commit, looked_at))
        except JVM_ERRORS:
            missing = _missing(bridge, table, commit, looked_at)
            if missing is None:
                raise
            return unprovable(commit, f"file {missing} is gone")


def _evidence(bridge: Bridge, table: Any, commit: MaintenanceCommit, looked_at: list[Any]) -> Evidence:
    """`looked_at` receives the Java tasks that are read, for who must tell why reading failed."""
    lambdas = Lambdas(bridge)
    before = _Tasks(lambdas, table, commit.parent_id)
    after = _Tasks(lambdas, table, commit.snapshot_id)
    same = before.keys & after.keys
    of_before, of_after = before.beyond(same), after.beyond(same)
    looked_at += [of_before, of_after]
    # One list of columns for both sides: lineage is compared where the rows had it before.
    described = native.describe(bridge, table, commit.table, commit.parent_id)
    incomparable = None
    if not table.schema().sameSchema(bridge.iceberg.util.SnapshotUtil.schemaFor(table, commit.snapshot_id)):
        incomparable = "the schema has changed since"
    elif not of_after.stream().allMatch(lambdas.has_no_deletes):
        incomparable = "deletes apply to the files now compared"
    return Evidence(_side(bridge, described, of_before), _side(bridge, described, of_after), incomparable)


class _Tasks:
    """All scan tasks of a snapshot, each with a key that names its file and its deletes."""

    def __init__(self, lambdas: Lambdas, table: Any, snapshot_id: int) -> None:
        self._lambdas = lambdas
        files = table.newScan().useSnapshot(snapshot_id).ignoreResiduals().planFiles()
        try:
            self._tasks = lambdas.to_list(lambdas.stream(files))
        finally:
            files.close()
        self._paths = lambdas.texts(self._tasks.stream().map(lambdas.task_location))
        deletes = lambdas.texts(self._tasks.stream().map(lambdas.task_deletes_digest))
        self._keys = list(zip(self._paths, deletes, strict=True))
        self.keys = Counter(self._keys)

    def beyond(self, same: Counter[tuple[str, str]]) -> Any:
        """The tasks that have no equal on the other side, as a Java list."""
        paths = {path for path, _ in self.keys - same}
        if not paths:
            return self._lambdas.to_list(self._tasks.stream().limit(0))
        return self._lambdas.to_list(self._tasks.stream().filter(self._lambdas.task_location_in(paths)))


def _side(bridge: Bridge, table: native.Table, tasks: Any) -> Side:
    deletes = {
        (str(d.location()), d.contentOffset())
        for task in bridge.iterate(tasks)
        for d in bridge.iterate(task.deletes())
    }
    return Side(int(tasks.size()), len(deletes), _rows(bridge, table, tasks))


def _rows(bridge: Bridge, table: native.Table, tasks: Any) -> Fingerprint:
    """The fingerprint of what readers see. One sum per Spark partition: a sum over all rows of a
    commit may not fit 64 bits."""
    from pyspark.sql import functions as F

    if tasks.isEmpty():
        return fingerprint.total(())
    columns = [fingerprint.quoted(c) for c in (*table.columns, *table.lineage)]
    with staged(bridge, table.java, tasks) as group_id:
        frame = read_staged(bridge, table.java, table.name, group_id).select(*columns)
        measures = fingerprint.measures(frame.schema, table.field_ids)
        parts = frame.groupBy(F.spark_partition_id()).agg(*measures).collect()
    return fingerprint.total([fingerprint.fingerprint_of(row.asDict()) for row in parts])


def _missing(bridge: Bridge, table: Any, commit: MaintenanceCommit, looked_at: Sequence[Any]) -> str | None:
    """The first file of those needed that is not there: metadata first, then data and deletes."""
    io = table.io()

    def gone(location: str) -> bool:
        return not io.newInputFile(location).exists()

    for snapshot_id in (commit.parent_id, commit.snapshot_id):
        snapshot = table.snapshot(snapshot_id)
        manifest_list = str(snapshot.manifestListLocation())
        if gone(manifest_list):
            return manifest_list
        for manifest in bridge.iterate(snapshot.allManifests(io)):
            if gone(manifest.path()):
                return str(manifest.path())
    for tasks in looked_at:
        for task in bridge.iterate(tasks):
            for file in (task.file(), *bridge.iterate(task.deletes())):
                if gone(file.location()):
                    return str(file.location())
    return None
