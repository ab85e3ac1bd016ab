"""The conversion: equality deletes become positions, and the data files stay as they are.

From the key columns alone it is found which rows the equality deletes delete; their positions are
written as position delete files (v2) or deletion vectors (v3), read back and compared. Flink's
`ConvertEqualityDeletes` does the same for its own streams; Iceberg's Spark actions have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from iceberg_maint.core.outcomes.proof import Proof
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import ProofLevel
from iceberg_maint.spark.deletes.marked_rows import DeleteWork, find_already_deleted, find_marks
from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.scan import positions
from iceberg_maint.spark.scan.positions import Positions


@dataclass(frozen=True, slots=True)
class Converted:
    """Java DeleteFiles, one per data file, and the proof that they hold what was found."""

    files: Sequence[Any]
    proof: Proof


def convert(bridge: Bridge, work: DeleteWork) -> Converted:
    """Writes what the batch's equality deletes delete; commits nothing.

    No file is written where they delete nothing. A deletion vector also holds what was deleted of
    its data file before: it takes the place of all older position deletes (spec: Deletion Vectors).
    """
    java = work.table.java
    marks = find_marks(bridge, work)
    old: Positions = {}
    if work.batch.format_version >= 3:
        old = find_already_deleted(bridge, work, marks)
        wanted = positions.union((marks.new, old))
        files = positions.write_deletion_vectors(bridge, java, wanted, marks.data_files)
    else:
        wanted = dict(marks.new)
        files = positions.write_position_deletes(bridge, java, wanted, marks.data_files)
    written = positions.read_back(bridge, java, files)
    return Converted(files, _proof(work.batch, marks.new, old, wanted, written))


def _proof(batch: Batch, new: Positions, old: Positions, wanted: Positions, written: Positions) -> Proof:
    new_count, old_count, count = map(positions.count, (new, old, written))
    detail = positions.difference(wanted, written)
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
