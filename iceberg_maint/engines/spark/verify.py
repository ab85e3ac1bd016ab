"""Verifies a commit that claims to change no row: compares the rows that readers see before and after it.

`scan` plans both snapshots, with deletes by the spec. A scan task that both sides have (the same file with the
same deletes) gives the same rows. The other tasks are read on each side with their deletes applied, and
the visible rows are compared. They cover the removed files, the added files, and every other file to
which different deletes apply. Therefore equality of these tasks is equality of the two tables.

If both sides have the same data files, as after a conversion, only the deleted rows can differ. Then only their
positions are compared.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from iceberg_maint.core.decisions.applicability import column_list, row_types, unsupported_columns
from iceberg_maint.core.model.columns import uncommon_types
from iceberg_maint.core.model.ids import command_line
from iceberg_maint.core.outcomes.failures import is_damaged_file
from iceberg_maint.core.outcomes.verification import (
    FILES_ALGORITHM,
    Compared,
    Evidence,
    Fingerprint,
    MaintenanceCommit,
    Side,
    Verification,
    judge_commit,
    unprovable,
)
from iceberg_maint.engines.spark.deletes import deleted_rows
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.functions import LIST, OBJECT, STRING, TASK, JavaFunctions
from iceberg_maint.engines.spark.jvm.java_errors import JVM_ERRORS, causes, failed_by_environment, first_cause
from iceberg_maint.engines.spark.rewrite.columnar.file_io_settings import NotColumnarError
from iceberg_maint.engines.spark.rewrite.columnar.job import Workers
from iceberg_maint.engines.spark.rewrite.columnar.strategy import fingerprint_bytes
from iceberg_maint.engines.spark.scan import positions
from iceberg_maint.engines.spark.scan.scan import Table, load_table_info, scan
from iceberg_maint.errors import LOST_FILE_FIX, RefusedError
from iceberg_maint.ports.engine import EnvironmentFailedError, WrittenFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkVerifier:
    """`ports.Verifier` on the session that `session` returns. The first verification starts it."""

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._session = session

    def verify(self, commit: MaintenanceCommit) -> Verification:
        """Reads both sides and compares them.

        UNPROVABLE if Spark cannot read a column, or if a snapshot expires during the proof. Raises RefusedError ICM-129 if the
        table was replaced by another, ICM-124 if its equality deletes do not fit the memory, ICM-101 for a missing or
        damaged file, EnvironmentFailedError as `Engine.write` does. Raises what Spark raises for any other failure.
        """
        bridge = Bridge(self._session())
        table = bridge.load_table(commit.table)
        if str(table.uuid().toString()) != commit.table_uuid:
            raise RefusedError(
                "ICM-129",
                f"{commit.table} was dropped and created again while it was verified.",
                "verify again.",
            )
        if expired := _expired(table, commit):
            return expired
        task_lists: list[Any] = []
        try:
            return judge_commit(commit, _evidence(bridge, table, commit, task_lists))
        except RefusedError as why:
            if why.code not in ("ICM-119", "ICM-134"):
                raise
            return unprovable(commit, why.message)
        except JVM_ERRORS as why:
            if expired := _expired(bridge.load_table(commit.table), commit):
                return expired
            if failed_by_environment(why):
                raise EnvironmentFailedError(f"{commit.table}: {first_cause(why)}.") from why
            missing = _missing_file(bridge, table, commit, task_lists)
            text = f"{missing} does not exist" if missing else _cut_file(bridge, table, task_lists)
            if text is None and not is_damaged_file(causes(why)):
                raise
            raise RefusedError(
                "ICM-101", f"{commit.table}: {text or first_cause(why)}.", LOST_FILE_FIX
            ) from why


def _expired(table: Any, commit: MaintenanceCommit) -> Verification | None:
    """UNPROVABLE if one of the two snapshots is no longer in the table."""
    for snapshot_id in (commit.parent_id, commit.snapshot_id):
        if table.snapshot(snapshot_id) is None:
            return unprovable(commit, f"snapshot {snapshot_id} has been expired just now")
    return None


def _evidence(bridge: Bridge, table: Any, commit: MaintenanceCommit, task_lists: list[Any]) -> Evidence:
    """The rows or deleted positions of both sides. Appends the lists of Java tasks that it reads to `task_lists`, so
    that the caller can search for a missing file after a failure."""
    lambdas = bridge.once(JavaFunctions)
    before = _Tasks(bridge, table, commit.parent_id)
    after = _Tasks(bridge, table, commit.snapshot_id)
    common = before.keys & after.keys
    tasks_before, tasks_after = before.without(common), after.without(common)
    task_lists += [tasks_before, tasks_after]
    # Both sides use the columns of the parent: lineage is compared if the rows had it before the commit.
    table_info = load_table_info(bridge, table, commit.table, commit.parent_id)
    if _data_files(bridge, tasks_before) == _data_files(bridge, tasks_after):
        return _positions_evidence(bridge, table_info, commit, (tasks_before, tasks_after))
    _check_columns(bridge, table_info, commit)
    incomparable = None
    if not table.schema().sameSchema(bridge.iceberg.util.SnapshotUtil.schemaFor(table, commit.snapshot_id)):
        incomparable = "the schema has changed since"
    elif not tasks_after.stream().allMatch(lambdas.has_no_deletes):
        incomparable = "deletes apply to the files now compared"
    sides = (
        Side(
            int(tasks.size()),
            len(_deletes(bridge, tasks)),
            deleted_rows.visible_rows(bridge, table_info, tasks),
        )
        for tasks in (tasks_before, tasks_after)
    )
    before_side, after_side = next(sides), next(sides)
    added = _written_bytes(bridge, table, commit, before, tasks_after)
    difference = None
    if before_side.fingerprint != after_side.fingerprint:
        difference = deleted_rows.different_rows(bridge, table_info, tasks_before, tasks_after)
    return Evidence(
        before_side, after_side, None if added else incomparable, added=added, difference=difference
    )


def _check_columns(bridge: Bridge, table: Table, commit: MaintenanceCommit) -> None:
    """Raises RefusedError ICM-134 if Spark cannot read a column of the table."""
    if unread := _unread_columns(bridge, table):
        raise RefusedError(
            "ICM-134",
            f"Spark does not read {column_list(unread)}, so it cannot compare the rows again. The proof of the run: "
            + command_line("proof", str(commit.table)),
            "rely on the proof of the run.",
        )


def _unread_columns(bridge: Bridge, table: Table) -> Mapping[str, str]:
    types = uncommon_types(json.loads(table.schema_json))
    return unsupported_columns(types, row_types(bridge.spark_version))


def _written_bytes(
    bridge: Bridge, table: Any, commit: MaintenanceCommit, before: _Tasks, tasks_after: Any
) -> Fingerprint | None:
    """The fingerprint of the files that the commit added by their present bytes, if the commit stored such a one and
    the workers can read the files. A later delete or a changed schema changes no byte of them."""
    if commit.stored is None or commit.stored.algorithm != FILES_ALGORITHM:
        return None
    if bridge.once(Workers).problem():
        return None
    earlier = {path for path, _ in before.keys}
    files = {str(f.location()): f for f in (task.file() for task in bridge.iterate(tasks_after))}
    written = [
        WrittenFile(path, int(f.fileSizeInBytes()), int(f.recordCount()), int(f.specId()), 0, "")
        for path, f in sorted(files.items())
        if path not in earlier
    ]
    try:
        return fingerprint_bytes(bridge, table, written)
    except NotColumnarError:
        return None


def _positions_evidence(
    bridge: Bridge, table: Table, commit: MaintenanceCommit, sides: tuple[Any, Any]
) -> Evidence:
    before, after = sides
    deletes_before, deletes_after = _deletes(bridge, before), _deletes(bridge, after)
    positions_before = deleted_rows.deleted_positions(bridge, table, before)
    positions_after = deleted_rows.deleted_positions(bridge, table, after)
    added = None
    if commit.stored is not None:  # other programs store none, and may write one file for many data files
        written = [deletes_after[key] for key in deletes_after.keys() - deletes_before.keys()]
        added = positions.fingerprint(positions.read_back(bridge, table.java, written))
    paths = sorted(positions_before.keys() | positions_after.keys())
    where = next((p for p in paths if positions_before.get(p) != positions_after.get(p)), "")
    is_readable = not _unread_columns(bridge, table)
    return Evidence(
        Side(int(before.size()), len(deletes_before), positions.fingerprint(positions_before)),
        Side(int(after.size()), len(deletes_after), positions.fingerprint(positions_after)),
        compared=Compared.DELETED_POSITIONS,
        added=added,
        where=where,
        difference=deleted_rows.different_rows(bridge, table, before, after)
        if where and is_readable
        else None,
    )


class _Tasks:
    """All scan tasks of a snapshot. The key of a task contains its file's path and a digest of its deletes."""

    def __init__(self, bridge: Bridge, table: Any, snapshot_id: int) -> None:
        self._lambdas = lambdas = bridge.once(JavaFunctions)
        self._tasks = scan(bridge, table, snapshot_id)
        self._paths = lambdas.texts(self._tasks.stream().map(lambdas.task_location))
        deletes = lambdas.texts(self._tasks.stream().map(_deletes_digest(lambdas)))
        self._keys = list(zip(self._paths, deletes, strict=True))
        self.keys = Counter(self._keys)

    def without(self, common: Counter[tuple[str, str]]) -> Any:
        """The tasks that the other side does not have, as a Java list. `common` are the keys of both sides."""
        paths = {path for path, _ in self.keys - common}
        if not paths:
            return self._lambdas.to_list(self._tasks.stream().limit(0))
        return self._lambdas.to_list(self._tasks.stream().filter(self._lambdas.task_location_in(paths)))


def _data_files(bridge: Bridge, tasks: Any) -> list[str]:
    """Iceberg's text of each of the tasks' data files, which includes lineage and sequence numbers."""
    return sorted(str(task.file().toString()) for task in bridge.iterate(tasks))


def _deletes(bridge: Bridge, tasks: Any) -> dict[tuple[str, Any], Any]:
    """The Java DeleteFiles that apply to the tasks, by location and content offset (None unless a deletion vector)."""
    lambdas = bridge.once(JavaFunctions)
    # Tasks of one scan share the DeleteFile objects.
    deletes = lambdas.to_list(tasks.stream().flatMap(lambdas.task_deletes).distinct())
    return {(str(d.location()), d.contentOffset()): d for d in bridge.iterate(deletes)}


def _missing_file(
    bridge: Bridge, table: Any, commit: MaintenanceCommit, task_lists: Sequence[Any]
) -> str | None:
    """The first missing file of those that the verification reads: metadata first, then data and deletes."""
    io = table.io()

    def is_missing(location: str) -> bool:
        return not io.newInputFile(location).exists()

    for snapshot_id in (commit.parent_id, commit.snapshot_id):
        snapshot = table.snapshot(snapshot_id)
        manifest_list = str(snapshot.manifestListLocation())
        if is_missing(manifest_list):
            return manifest_list
        for manifest in bridge.iterate(snapshot.allManifests(io)):
            if is_missing(manifest.path()):
                return str(manifest.path())
    locations = (str(file.location()) for file in _files(bridge, task_lists))
    return next((location for location in locations if is_missing(location)), None)


def _cut_file(bridge: Bridge, table: Any, task_lists: Sequence[Any]) -> str | None:
    """The first data or delete file that has another size than its manifest states."""
    io = table.io()
    for file in _files(bridge, task_lists):
        size = int(io.newInputFile(file.location()).getLength())
        if size != int(file.fileSizeInBytes()):
            return f"{file.location()} has {size} bytes; its manifest states {file.fileSizeInBytes()}"
    return None


def _files(bridge: Bridge, task_lists: Sequence[Any]) -> Iterator[Any]:
    """The Java data files of the tasks, each with the deletes that apply to it."""
    for tasks in task_lists:
        for task in bridge.iterate(tasks):
            yield task.file()
            yield from bridge.iterate(task.deletes())


def _deletes_digest(functions: JavaFunctions) -> Any:
    """A function: the digest (MD5, as a UUID's text) of the deletes of a scan task."""
    # Java: task -> UUID.nameUUIDFromBytes(task.deletes().toString().getBytes()).toString()
    uuid = "java.util.UUID"
    to_string = functions.method(OBJECT, "toString", STRING)
    steps = (
        functions.method(TASK, "deletes", LIST),
        to_string.asType(functions.type_of(STRING, LIST)),
        functions.method(STRING, "getBytes", "[B"),
        functions.static_method(uuid, "nameUUIDFromBytes", uuid, "[B"),
        to_string.asType(functions.type_of(STRING, uuid)),
    )
    return functions.function(reduce(functions.compose, steps))
