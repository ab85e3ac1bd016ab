"""The anti-join: writes the rows that equality deletes delete as deletion vectors, for the native rewrite.

The vectors replace the equality deletes in the scan tasks. No commit adds them to the table. Iceberg's reader
applies them row by row, in every format version of the table. Therefore no row is shuffled,
the rows keep their order, and the proof of the native rewrite holds here too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyroaring import BitMap64

from iceberg_maint.core.model.ids import UNPARTITIONED_KEY
from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import FileGroup, PositionDeleteFile
from iceberg_maint.core.policy.data import ProofLevel
from iceberg_maint.engines.spark.deletes.deleted_rows import (
    DeletedRows,
    DeleteWork,
    check_positions,
    find_already_deleted,
    find_deleted_rows,
    kept_deletes,
    task_paths,
    tasks_under_deletes,
)
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.conversion import content_json
from iceberg_maint.engines.spark.jvm.functions import JavaFunctions
from iceberg_maint.engines.spark.scan import positions
from iceberg_maint.engines.spark.scan.positions import Positions
from iceberg_maint.engines.spark.scan.scan import scan_task
from iceberg_maint.engines.spark.scan.staging import GroupTasks


@dataclass(frozen=True, slots=True)
class AppliedPositions:
    """The groups with tasks that have deletion vectors instead of equality deletes.

    `scratch` are the sizes of the vectors' files by location. No commit adds these files. `difference` is ""
    if the written vectors contain the computed positions. The vectors delete `deleted_records` rows. `vectors` are
    the vectors as values, for a reader that is not Iceberg's. `positions` are deleted rows that are in no vector.
    """

    planned: tuple[GroupTasks, ...]
    scratch: Mapping[str, int]
    deleted_records: int
    difference: str
    vectors: tuple[PositionDeleteFile, ...] = ()
    positions: Positions = field(default_factory=dict)


def apply_by_vectors(bridge: Bridge, work: DeleteWork) -> AppliedPositions:
    """Finds the rows that the equality deletes of all groups delete, and writes them as deletion vectors."""
    java = work.table.java
    deleted_rows = find_deleted_rows(bridge, work)
    # A reader applies one deletion vector per data file and no other position delete.
    expected = positions.union((deleted_rows.new, find_already_deleted(bridge, work, deleted_rows)))
    files = positions.write_deletion_vectors(bridge, java, expected, deleted_rows.data_files)
    written = positions.read_back(bridge, java, files)
    vectors = {str(f.referencedDataFile()): f for f in files}
    return AppliedPositions(
        planned=tuple(_with_vectors(bridge, java, group_tasks, vectors) for group_tasks in work.planned),
        scratch={str(f.location()): int(f.fileSizeInBytes()) for f in files},
        deleted_records=positions.count(written),
        difference=positions.difference(expected, written),
        vectors=tuple(_value(bridge, java, f) for f in files),
    )


def apply_in_memory(bridge: Bridge, work: DeleteWork) -> AppliedPositions:
    """Applies `work.positions` in the columnar engine, which needs no vectors. Raises ValueError if Iceberg's
    scan applies no equality delete to a file with such a row."""
    assert work.positions is not None, "positions are applied after they were found"
    check_positions(work.positions, task_paths(bridge, tasks_under_deletes(bridge, work)))
    deleted = positions.count(work.positions)
    return AppliedPositions(tuple(work.planned), {}, deleted, "", positions=work.positions)


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


@dataclass(frozen=True, slots=True)
class Converted:
    """Java DeleteFiles, one per data file, and the proof that they contain the computed positions. `replaced` are, by
    data file, the paths of older position delete files whose positions are among them."""

    files: Sequence[Any]
    proof: Proof
    replaced: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def convert(bridge: Bridge, work: DeleteWork) -> Converted:
    """Writes the positions of the rows that the batch's equality deletes delete. Commits nothing.

    It writes no file for a data file of which they delete no row. A deletion vector also contains the positions
    that were deleted before, because it replaces all older position deletes of its data file (spec: Deletion
    Vectors). A position delete file contains those of the older files that the commit can remove.
    """
    java = work.table.java
    deleted_rows = find_deleted_rows(bridge, work)
    is_vector = work.batch.format_version >= 3
    replaced: Mapping[str, tuple[str, ...]] = {}
    old: Positions
    if is_vector:
        old = find_already_deleted(bridge, work, deleted_rows)
    else:
        old, replaced = _older_files(bridge, work, deleted_rows)
    expected = positions.union((deleted_rows.new, old))
    write = positions.write_deletion_vectors if is_vector else positions.write_position_deletes
    files = write(bridge, java, expected, deleted_rows.data_files)
    written = positions.read_back(bridge, java, files)
    return Converted(files, _proof(work.batch, deleted_rows.new, old, expected, written), replaced)


def _older_files(
    bridge: Bridge, work: DeleteWork, deleted_rows: DeletedRows
) -> tuple[Positions, dict[str, tuple[str, ...]]]:
    """The positions and the paths of older position delete files, by data file, that a new one can replace.

    Such a file names one data file and has as many positions of it as metadata says. A file with fewer names a second
    data file, or has a position twice: it stays.
    """
    listed = {
        (d.referenced_data_file, d.path): d.record_count
        for d in work.batch.applied_deletes
        if d.content_offset is None and d.referenced_data_file in deleted_rows.new
    }
    data_files = {path for path, _ in listed}
    older = [
        (path, str(delete.location()), delete)
        for path, task in deleted_rows.tasks.items()
        if path in data_files
        for delete in kept_deletes(bridge, task)
    ]
    older = [entry for entry in older if entry[:2] in listed]
    old: dict[str, BitMap64] = {}
    replaced: dict[str, tuple[str, ...]] = {}
    found = positions.read_each(bridge, work.table.java, [delete for _, _, delete in older])
    for (path, location, _), (named, read) in zip(older, found, strict=True):
        if named == path and len(read) == listed[path, location]:
            old[path] = old.get(path, BitMap64()) | read
            replaced[path] = (*replaced.get(path, ()), location)
    return old, replaced


def _proof(batch: Batch, new: Positions, old: Positions, expected: Positions, written: Positions) -> Proof:
    new_count, old_count, count = map(positions.count, (new, old, written))
    detail = positions.difference(expected, written)
    if not detail and new_count + old_count != count:
        detail = f"{new_count} positions are new, {old_count} were deleted before, {count} are written"
    return Proof(
        level=ProofLevel.FULL.value,
        equal=not detail,
        input_records=sum(f.record_count for g in batch.groups for f in g.files),
        output_records=count,
        removed_records=new_count,
        fingerprint=positions.fingerprint(written).text(),
        detail=detail,
    )
