"""Converts equality deletes to position deletes. The data files do not change.

The conversion reads only the key columns to find the rows that the equality deletes delete. It writes their
positions as position delete files (v2) or deletion vectors (v3), reads them back and compares. Either has the older
positions of its data file as well, so that readers of a table under upserts merge one file and not one per conversion.
Flink's `ConvertEqualityDeletes` does the same for Flink's own streams. Iceberg has no Spark action for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyroaring import BitMap64

from iceberg_maint.core.outcomes.proof import Proof
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import ProofLevel
from iceberg_maint.spark.deletes.marked_rows import (
    DeletedRows,
    DeleteWork,
    find_already_deleted,
    find_deleted_rows,
    kept_deletes,
)
from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.scan import positions
from iceberg_maint.spark.scan.positions import Positions


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

    Such a file marks one data file and has as many positions of it as metadata says. A file with fewer marks a second
    data file, or has a position twice: it stays.
    """
    listed = {
        (d.referenced_data_file, d.path): d.record_count
        for d in work.batch.applied_deletes
        if d.content_offset is None and d.referenced_data_file in deleted_rows.new
    }
    marked = {path for path, _ in listed}
    older = [
        (path, str(delete.location()), delete)
        for path, task in deleted_rows.tasks.items()
        if path in marked
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
