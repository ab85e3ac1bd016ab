"""The anti-join: writes the rows that equality deletes delete as deletion vectors, for the native rewrite.

The vectors replace the equality deletes in the scan tasks. No commit adds them to the table. Iceberg's reader
applies them row by row, in every format version of the table. Therefore no row is shuffled,
the rows keep their order, and the proof of the native rewrite holds here too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from iceberg_maint.core.model.ids import UNPARTITIONED_KEY
from iceberg_maint.core.planning.inputs import FileGroup, PositionDeleteFile
from iceberg_maint.spark.deletes.marked_rows import (
    DeleteWork,
    check_positions,
    find_already_deleted,
    find_deleted_rows,
    kept_deletes,
    task_paths,
    tasks_under_deletes,
)
from iceberg_maint.spark.jvm.bridge import JVM_ERRORS, Bridge
from iceberg_maint.spark.jvm.content_files import content_json
from iceberg_maint.spark.jvm.functions import JavaFunctions
from iceberg_maint.spark.scan import positions
from iceberg_maint.spark.scan.positions import Positions
from iceberg_maint.spark.scan.scan import scan_task
from iceberg_maint.spark.scan.staging import GroupTasks


@dataclass(frozen=True, slots=True)
class Marked:
    """The groups with tasks that have deletion vectors instead of equality deletes.

    `scratch` are the sizes of the vectors' files by location. No commit adds these files. `difference` is ""
    if the written vectors contain the computed positions. The vectors delete `marked_records` rows. `vectors` are
    the vectors as values, for a reader that is not Iceberg's. `positions` are marked rows that are in no vector.
    """

    planned: tuple[GroupTasks, ...]
    scratch: Mapping[str, int]
    marked_records: int
    difference: str
    vectors: tuple[PositionDeleteFile, ...] = ()
    positions: Positions = field(default_factory=dict)


def mark(bridge: Bridge, work: DeleteWork) -> Marked:
    """Finds the rows that the equality deletes of all groups delete, and writes them as deletion vectors."""
    java = work.table.java
    deleted_rows = find_deleted_rows(bridge, work)
    # A reader applies one deletion vector per data file and no other position delete.
    expected = positions.union((deleted_rows.new, find_already_deleted(bridge, work, deleted_rows)))
    files = positions.write_deletion_vectors(bridge, java, expected, deleted_rows.data_files)
    written = positions.read_back(bridge, java, files)
    vectors = {str(f.referencedDataFile()): f for f in files}
    return Marked(
        planned=tuple(_with_vectors(bridge, java, group_tasks, vectors) for group_tasks in work.planned),
        scratch={str(f.location()): int(f.fileSizeInBytes()) for f in files},
        marked_records=positions.count(written),
        difference=positions.difference(expected, written),
        vectors=tuple(_value(bridge, java, f) for f in files),
    )


def mark_in_memory(bridge: Bridge, work: DeleteWork) -> Marked:
    """Marks the rows of `work.positions` for the columnar engine, which needs no vectors. Raises ValueError if Iceberg's
    scan applies no equality delete to a file with such a row."""
    assert work.positions is not None, "rows are marked after they were found"
    check_positions(work.positions, task_paths(bridge, tasks_under_deletes(bridge, work)))
    marked = positions.count(work.positions)
    return Marked(tuple(work.planned), {}, marked, "", positions=work.positions)


def _value(bridge: Bridge, table: Any, vector: Any) -> PositionDeleteFile:
    content = json.loads(content_json(bridge, table, vector))
    return PositionDeleteFile(
        path=content["file-path"],
        spec_id=content["spec-id"],
        partition=UNPARTITIONED_KEY,
        data_sequence_number=0,
        record_count=content["record-count"],
        size_bytes=content["content-size-in-bytes"],
        referenced_data_file=content["referenced-data-file"],
        content_offset=content["content-offset"],
    )


def discard(work: DeleteWork, marked: Marked) -> None:
    """Deletes the vectors' files after the last task has read them.

    No intent and no metadata names these files, so no other process needs them. The orphan pass removes a file
    that cannot be deleted here.
    """
    # An error of a JVM that died must not replace the exception that ended the tasks, for example an interrupt.
    failures = (*JVM_ERRORS, OSError, EOFError)
    with suppress(*failures):
        io = work.table.java.io()
        for location in marked.scratch:
            with suppress(*failures):
                io.deleteFile(location)


def _with_vectors(
    bridge: Bridge, table: Any, group_tasks: GroupTasks, vectors: Mapping[str, Any]
) -> GroupTasks:
    """The group with the vectors instead of its equality deletes. Tasks without equality deletes do not change."""
    lambdas = bridge.once(JavaFunctions)
    has_equality_deletes = lambdas.has_equality_deletes
    tasks = lambdas.to_list(group_tasks.tasks.stream().filter(has_equality_deletes.negate()))
    for task in bridge.iterate(lambdas.to_list(group_tasks.tasks.stream().filter(has_equality_deletes))):
        path = str(task.file().location())
        deletes = [vectors[path]] if path in vectors else kept_deletes(bridge, task)
        tasks.add(scan_task(bridge, table, task.file(), deletes))
    return GroupTasks(_group_with_vectors(group_tasks.group, vectors), tasks)


def _group_with_vectors(group: FileGroup, vectors: Mapping[str, Any]) -> FileGroup:
    files = tuple(
        replace(f, delete_files=(str(vectors[f.path].location()),)) if f.path in vectors else f
        for f in group.files
    )
    return replace(group, files=files)
