"""Merges position deletes: rewrites the positions of live data files into one delete file per data file.

The merge reads the contents of the delete files once, as Iceberg's `rewritePositionDeletes` does, and joins
them with the data files that the plan examined. It writes the positions of those data files as position delete
files of one data file each (v2) or as deletion vectors (v3). Other paths in the delete files have no live data file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyroaring import BitMap64

from iceberg_maint.core.commits.change import Identity
from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import FileGroup, InputFile, PositionDeleteFile
from iceberg_maint.core.policy.data import ProofLevel
from iceberg_maint.engines.spark.deletes import deleted_rows
from iceberg_maint.engines.spark.deletes.convert import Converted
from iceberg_maint.engines.spark.deletes.deleted_rows import kept_deletes
from iceberg_maint.engines.spark.deletes.position_delete_rows import check_named_files, position_delete_rows
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.conversion import local_frame
from iceberg_maint.engines.spark.scan import positions
from iceberg_maint.engines.spark.scan.positions import Positions
from iceberg_maint.engines.spark.scan.scan import Table, scan_task
from iceberg_maint.engines.spark.scan.staging import GroupTasks
from iceberg_maint.errors import RefusedError, wrong_count


def merge(
    bridge: Bridge,
    table: Table,
    batch: Batch,
    planned: Sequence[GroupTasks],
    deletes: Mapping[Identity, Any],
) -> Converted:
    """Writes the positions that the batch's position deletes (Java DeleteFiles) delete in the planned tasks' data
    files. Commits nothing.

    Raises RefusedError ICM-101 if the delete files do not have as many positions as metadata says, or delete rows of another
    data file than it says.
    """
    check_named_files(bridge, table, deletes.values(), batch.position_deletes)
    sources = {d.path for d in batch.position_deletes if not d.void}
    files = {f.path: f for g in batch.groups for f in g.files if not sources.isdisjoint(f.delete_files)}
    if not files:
        return Converted((), _proof(batch, {}, ""))
    tasks = {
        str(task.file().location()): task
        for group_tasks in planned
        for task in bridge.iterate(group_tasks.tasks)
    }
    data_files = {path: tasks[path].file() for path in files}
    source_files = [d for d in deletes.values() if str(d.location()) in sources]
    expected = _deleted_positions(bridge, table, batch, source_files, files)
    write = (
        positions.write_deletion_vectors if batch.format_version >= 3 else positions.write_position_deletes
    )
    written_files = write(bridge, table.java, expected, data_files)
    written = positions.read_back(bridge, table.java, written_files)
    detail = positions.difference(expected, written)
    if not detail:
        file_tasks = {path: tasks[path] for path in files}
        detail = _difference_for_readers(bridge, table, file_tasks, sources, written)
    return Converted(written_files, _proof(batch, written, detail))


def _deleted_positions(
    bridge: Bridge, table: Table, batch: Batch, deletes: Sequence[Any], files: Mapping[str, InputFile]
) -> dict[str, BitMap64]:
    """The positions that the delete files delete in these data files.

    A delete file applies to data that is not newer than it: to the file it is scoped to, or to every file it
    names in its own spec and partition.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    paths = list(files)
    scopes = {f.path: _scope(g) for g in batch.groups for f in g.files}
    data_facts = local_frame(
        bridge,
        "number long, file_path string, data_number long, data_scope string",
        ((n, path, files[path].data_sequence_number, scopes[path]) for n, path in enumerate(paths)),
    )
    delete_facts = local_frame(
        bridge,
        "delete_file_path string, delete_number long, delete_scope string, named string",
        (
            (d.path, d.data_sequence_number, _scope(d), d.referenced_data_file)
            for d in batch.position_deletes
            if not d.void
        ),
    )
    in_scope = F.coalesce(F.col("named") == F.col("file_path"), F.col("delete_scope") == F.col("data_scope"))
    stated = {str(d.location()): int(d.recordCount()) for d in deletes}
    with position_delete_rows(bridge, table.java, deletes) as rows:
        observation = Observation()
        applied = (
            rows.observe(observation, F.count(F.lit(1)).alias("rows"))
            .join(F.broadcast(delete_facts), "delete_file_path")
            .join(F.broadcast(data_facts), "file_path")
            .where((F.col("data_number") <= F.col("delete_number")) & in_scope)
            .select("number", F.col("pos").alias("_pos"))
        )
        partitions = bridge.parallelism
        deleted = positions.gather_numbered(applied, paths, partitions)
        if int(observation.get["rows"]) != sum(stated.values()):
            # An observation counts a retried stage twice. Count the rows before the batch is refused.
            _check_counts(batch, stated, dict(rows.groupBy("delete_file_path").count().collect()))
    return deleted


def _check_counts(batch: Batch, stated: Mapping[str, int], found: Mapping[str, int]) -> None:
    for path, rows in sorted(stated.items()):
        if found.get(path, 0) != rows:
            what = wrong_count(path, found.get(path, 0), rows)
            raise RefusedError("ICM-101", f"{batch.table}: {what}")


def _scope(source: FileGroup | PositionDeleteFile) -> str:
    return f"{source.spec_id} {source.partition}"


def _difference_for_readers(
    bridge: Bridge, table: Table, tasks: Mapping[str, Any], replaced: set[str], written: Positions
) -> str:
    """How the positions that are deleted for readers would change; "" if they would not.

    After the commit readers apply the written positions and the deletes that the commit does not replace.
    """
    current = {path: kept_deletes(bridge, task) for path, task in tasks.items()}
    remaining = {
        path: [d for d in deletes if str(d.location()) not in replaced] for path, deletes in current.items()
    }
    before = deleted_rows.deleted_positions(bridge, table, _tasks(bridge, table, tasks, current))
    unreplaced = deleted_rows.deleted_positions(bridge, table, _tasks(bridge, table, tasks, remaining))
    return positions.difference(before, positions.union((written, unreplaced)))


def _tasks(
    bridge: Bridge, table: Table, tasks: Mapping[str, Any], deletes: Mapping[str, Sequence[Any]]
) -> Any:
    """A Java list of scan tasks with these deletes only, for the data files that have any."""
    return bridge.list(
        scan_task(bridge, table.java, tasks[path].file(), files) for path, files in deletes.items() if files
    )


def _proof(batch: Batch, written: Positions, detail: str) -> Proof:
    return Proof(
        level=ProofLevel.FULL.value,
        equal=not detail,
        input_records=sum(d.record_count for d in batch.position_deletes if not d.void),
        output_records=positions.count(written),
        removed_records=0,
        fingerprint=positions.fingerprint(written).text(),
        detail=detail,
    )
