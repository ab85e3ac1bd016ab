"""Converts equality deletes to position deletes. The data files do not change.

The conversion reads only the key columns to find the rows that the equality deletes delete. It writes their
positions as position delete files (v2) or deletion vectors (v3), reads them back and compares. Flink's
`ConvertEqualityDeletes` does the same for Flink's own streams. Iceberg has no Spark action for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from iceberg_maint.core.outcomes.proof import Proof
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import ProofLevel
from iceberg_maint.spark.deletes.marked_rows import DeleteWork, find_already_deleted, find_deleted_rows
from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.scan import positions
from iceberg_maint.spark.scan.positions import Positions


@dataclass(frozen=True, slots=True)
class Converted:
    """Java DeleteFiles, one per data file, and the proof that they contain the computed positions."""

    files: Sequence[Any]
    proof: Proof


def convert(bridge: Bridge, work: DeleteWork) -> Converted:
    """Writes the positions of the rows that the batch's equality deletes delete. Commits nothing.

    It writes no file for a data file of which they delete no row. A deletion vector also contains the positions
    that were deleted before, because it replaces all older position deletes of its data file (spec: Deletion
    Vectors).
    """
    java = work.table.java
    deleted_rows = find_deleted_rows(bridge, work)
    old: Positions = {}
    if work.batch.format_version >= 3:
        old = find_already_deleted(bridge, work, deleted_rows)
        expected = positions.union((deleted_rows.new, old))
        files = positions.write_deletion_vectors(bridge, java, expected, deleted_rows.data_files)
    else:
        expected = dict(deleted_rows.new)
        files = positions.write_position_deletes(bridge, java, expected, deleted_rows.data_files)
    written = positions.read_back(bridge, java, files)
    return Converted(files, _proof(work.batch, deleted_rows.new, old, expected, written))


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
