"""Verify: prove a maintenance commit again, from what readers see before and after it.

Both snapshots are planned by `scan`, deletes by the spec. Scan tasks that are the same on both
sides, the same file with the same deletes, give the same rows; the others are read on each side, deletes applied, and
what readers see of them compared. That covers the files removed and added, and any other file to
which different deletes apply, so equality here is equality of the two tables.

Where both sides have the same data files, as after a conversion, their rows are the same but for
the deleted ones: only the positions of these are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from iceberg_maint.core.outcomes.verification import (
    Compared,
    Evidence,
    MaintenanceCommit,
    Side,
    Verification,
    judge_commit,
    unprovable,
)
from iceberg_maint.errors import RefusedError
from iceberg_maint.spark.deletes import visible_rows
from iceberg_maint.spark.jvm.bridge import JVM_ERRORS, Bridge
from iceberg_maint.spark.jvm.functions import JavaFunctions
from iceberg_maint.spark.scan import positions
from iceberg_maint.spark.scan.scan import scan
from iceberg_maint.spark.scan.table import Table, load_table_info

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkVerifier:
    """`ports.Verifier` on the session that `session` gives, which starts when it is first needed."""

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._session = session

    def verify(self, commit: MaintenanceCommit) -> Verification:
        """Reads both sides and judges them. Raises RefusedError ICM-102 when the table is another
        one by now, ICM-124 when its equality deletes do not fit the memory, and what Spark raises for
        any failure but a missing file.
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
        except RefusedError as why:
            if why.code != "ICM-119":
                raise
            return unprovable(commit, why.message)
        except JVM_ERRORS:
            missing = _missing(bridge, table, commit, looked_at)
            if missing is None:
                raise
            return unprovable(commit, f"file {missing} is gone")


def _evidence(bridge: Bridge, table: Any, commit: MaintenanceCommit, looked_at: list[Any]) -> Evidence:
    """`looked_at` receives the Java tasks that are read, for who must tell why reading failed."""
    lambdas = bridge.once(JavaFunctions)
    before = _Tasks(bridge, table, commit.parent_id)
    after = _Tasks(bridge, table, commit.snapshot_id)
    same = before.keys & after.keys
    of_before, of_after = before.beyond(same), after.beyond(same)
    looked_at += [of_before, of_after]
    # One list of columns for both sides: lineage is compared where the rows had it before.
    described = load_table_info(bridge, table, commit.table, commit.parent_id)
    if _data_files(bridge, of_before) == _data_files(bridge, of_after):
        return _positions_evidence(bridge, described, of_before, of_after)
    incomparable = None
    if not table.schema().sameSchema(bridge.iceberg.util.SnapshotUtil.schemaFor(table, commit.snapshot_id)):
        incomparable = "the schema has changed since"
    elif not of_after.stream().allMatch(lambdas.has_no_deletes):
        incomparable = "deletes apply to the files now compared"
    sides = (
        Side(int(tasks.size()), len(_deletes(bridge, tasks)), visible_rows.rows(bridge, described, tasks))
        for tasks in (of_before, of_after)
    )
    return Evidence(next(sides), next(sides), incomparable)


def _positions_evidence(bridge: Bridge, table: Table, before: Any, after: Any) -> Evidence:
    deletes_before, deletes_after = _deletes(bridge, before), _deletes(bridge, after)
    gone = visible_rows.deleted_positions(bridge, table, before)
    gone_after = visible_rows.deleted_positions(bridge, table, after)
    written = [deletes_after[key] for key in deletes_after.keys() - deletes_before.keys()]
    added = positions.read_back(bridge, table.java, written)
    return Evidence(
        Side(int(before.size()), len(deletes_before), positions.fingerprint(gone)),
        Side(int(after.size()), len(deletes_after), positions.fingerprint(gone_after)),
        compared=Compared.DELETED_POSITIONS,
        added=positions.fingerprint(added),
        where=next(
            (p for p in sorted(gone.keys() | gone_after.keys()) if gone.get(p) != gone_after.get(p)), ""
        ),
    )


class _Tasks:
    """All scan tasks of a snapshot, each with a key that names its file and its deletes."""

    def __init__(self, bridge: Bridge, table: Any, snapshot_id: int) -> None:
        self._lambdas = lambdas = bridge.once(JavaFunctions)
        self._tasks = scan(bridge, table, snapshot_id)
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


def _data_files(bridge: Bridge, tasks: Any) -> list[str]:
    """All that Iceberg says of the tasks' data files, lineage and sequence numbers included."""
    return sorted(str(task.file().toString()) for task in bridge.iterate(tasks))


def _deletes(bridge: Bridge, tasks: Any) -> dict[tuple[str, Any], Any]:
    """The Java DeleteFiles that apply to the tasks, by location and, of deletion vectors, offset."""
    lambdas = bridge.once(JavaFunctions)
    # Tasks of one scan share the objects.
    found = lambdas.to_list(tasks.stream().flatMap(lambdas.task_deletes).distinct())
    return {(str(d.location()), d.contentOffset()): d for d in bridge.iterate(found)}


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
