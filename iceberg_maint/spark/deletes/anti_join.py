"""The anti-join: rows that equality deletes delete are marked first, then the native rewrite runs.

Deletion vectors that nobody commits stand in for the equality deletes of a task: Iceberg's reader
applies them row by row in place, whatever the table's format version, so that no row is shuffled,
the order of rows is kept, and all that the native rewrite proves is proved here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from iceberg_maint.core.planning.inputs import FileGroup
from iceberg_maint.spark.deletes.marked_rows import DeleteWork, find_already_deleted, find_marks, kept_deletes
from iceberg_maint.spark.jvm.bridge import JVM_ERRORS, Bridge
from iceberg_maint.spark.jvm.functions import JavaFunctions
from iceberg_maint.spark.scan import positions
from iceberg_maint.spark.scan.scan import scan_task
from iceberg_maint.spark.scan.staging import GroupTasks


@dataclass(frozen=True, slots=True)
class Marked:
    """The groups with tasks that carry marks in place of equality deletes. `difference` is ""
    when the marks written are those found; they are the files `scratch`, of so many bytes by
    location, and of no commit. `marked_records` rows are deleted by them.
    """

    planned: tuple[GroupTasks, ...]
    scratch: Mapping[str, int]
    marked_records: int
    difference: str


def mark(bridge: Bridge, work: DeleteWork) -> Marked:
    """Finds and writes the marks of all groups."""
    java = work.table.java
    marks = find_marks(bridge, work)
    # A reader takes one deletion vector and nothing beside it.
    wanted = positions.union((marks.new, find_already_deleted(bridge, work, marks)))
    files = positions.write_deletion_vectors(bridge, java, wanted, marks.data_files)
    written = positions.read_back(bridge, java, files)
    vectors = {str(f.referencedDataFile()): f for f in files}
    return Marked(
        planned=tuple(_with_marks(bridge, java, group_tasks, vectors) for group_tasks in work.planned),
        scratch={str(f.location()): int(f.fileSizeInBytes()) for f in files},
        marked_records=positions.count(written),
        difference=positions.difference(wanted, written),
    )


def discard(work: DeleteWork, marked: Marked) -> None:
    """Deletes the marks once no task reads them any more. No intent and no metadata ever named them, so
    nobody else can. What cannot be deleted is left to the orphan pass."""
    # Whatever ended the tasks, an interrupt perhaps, must not give way to a JVM that died with them.
    failures = (*JVM_ERRORS, OSError, EOFError)
    with suppress(*failures):
        io = work.table.java.io()
        for location in marked.scratch:
            with suppress(*failures):
                io.deleteFile(location)


def _with_marks(
    bridge: Bridge, table: Any, group_tasks: GroupTasks, vectors: Mapping[str, Any]
) -> GroupTasks:
    """The group with its equality deletes out and the vectors in. Tasks without equality deletes
    stay as they are."""
    lambdas = bridge.once(JavaFunctions)
    with_equality = lambdas.has_equality_deletes
    tasks = lambdas.to_list(group_tasks.tasks.stream().filter(with_equality.negate()))
    for task in bridge.iterate(lambdas.to_list(group_tasks.tasks.stream().filter(with_equality))):
        path = str(task.file().location())
        deletes = [vectors[path]] if path in vectors else kept_deletes(bridge, task)
        tasks.add(scan_task(bridge, table, task.file(), deletes))
    return GroupTasks(_group_with_marks(group_tasks.group, vectors), tasks)


def _group_with_marks(group: FileGroup, vectors: Mapping[str, Any]) -> FileGroup:
    files = tuple(
        replace(f, delete_files=(str(vectors[f.path].location()),)) if f.path in vectors else f
        for f in group.files
    )
    return replace(group, files=files)
