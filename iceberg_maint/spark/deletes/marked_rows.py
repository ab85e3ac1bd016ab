"""Marks: the positions that a batch's equality deletes delete, next to what is deleted already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iceberg_maint.core.planning.memory import Preflight
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.errors import RefusedError
from iceberg_maint.spark.deletes.membership import marked_numbers
from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.jvm.functions import JavaFunctions
from iceberg_maint.spark.scan.positions import Positions, count, gather, gather_numbered, read_back, union
from iceberg_maint.spark.scan.scan import scan_task
from iceberg_maint.spark.scan.staging import GroupTasks, read_staged, staged
from iceberg_maint.spark.scan.table import Table


@dataclass(frozen=True, slots=True)
class DeleteWork:
    """A batch whose equality deletes are applied: its planned tasks, the Java DeleteFiles by path,
    and how to do it within memory (None where there is nothing to apply)."""

    table: Table
    batch: Batch
    planned: Sequence[GroupTasks]
    deletes: Mapping[str, Any]
    preflight: Preflight | None


@dataclass(frozen=True, slots=True)
class Marks:
    """Positions that equality deletes delete and nothing else does (`new`), by data file, and the
    Java scan tasks of these data files.
    """

    new: Positions = field(default_factory=dict)
    tasks: Mapping[str, Any] = field(default_factory=dict)

    @property
    def data_files(self) -> dict[str, Any]:
        """The Java DataFiles, by path."""
        return {path: task.file() for path, task in self.tasks.items()}


def find_marks(bridge: Bridge, work: DeleteWork) -> Marks:
    """Holds the key columns of the planned tasks against the equality deletes that may match
    them; reads nothing where none may. Raises what `marked_rows` raises."""
    lambdas = bridge.once(JavaFunctions)
    tasks = bridge.list(())
    for group_tasks in work.planned:
        tasks.addAll(lambdas.to_list(group_tasks.tasks.stream().filter(lambdas.has_equality_deletes)))
    if tasks.isEmpty():
        return Marks()
    # Not to apply a delete that Iceberg applies would bring rows back.
    assert work.preflight is not None, "files under equality deletes without a preflight"
    applied = [work.deletes[path] for path in sorted(lambdas.equality_delete_paths(tasks))]
    paths = lambdas.texts(tasks.stream().map(lambdas.task_location))
    found = marked_numbers(bridge, work.table, work.batch, tasks, applied, work.preflight)
    with found as (rows, numbered_paths):
        partitions = _partitions(bridge, work)
        new = gather_numbered(rows.where("not _already"), numbered_paths, partitions)
    return Marks(new, {path: tasks.get(i) for i, path in enumerate(paths) if path in new})


def find_already_deleted(bridge: Bridge, work: DeleteWork, marks: Marks) -> Positions:
    """What position deletes and deletion vectors delete of the marked data files: vectors are
    read as they are, position deletes are left to Spark's reader to apply. Raises RefusedError
    ICM-101 when a vector does not hold as many as metadata says."""
    java = work.table.java
    is_vector = bridge.iceberg.util.ContentFileUtil.isDV
    vectors, tasks = [], {}
    for path, task in marks.tasks.items():
        deletes = kept_deletes(bridge, task)
        if any(is_vector(d) for d in deletes):
            vectors += deletes
        elif deletes:
            tasks[path] = scan_task(bridge, java, task.file(), deletes)
    known = read_back(bridge, java, vectors)
    held = sum(int(v.recordCount()) for v in vectors)
    if count(known) != held:
        raise RefusedError(
            "ICM-101",
            f"{work.batch.table}: {len(vectors)} deletion vectors hold {held} positions, {count(known)} were read",
            "report this; nothing was committed.",
        )
    if not tasks:
        return known
    with staged(bridge, java, bridge.list(tasks.values())) as group_id:
        frame = read_staged(bridge, java, work.table.name, group_id)
        deleted = frame.select("_file", "_pos", "_deleted").where("_deleted")
        return union((known, gather(bridge, deleted, list(tasks), _partitions(bridge, work))))


def kept_deletes(bridge: Bridge, task: Any) -> list[Any]:
    """The position deletes and deletion vectors of a task."""
    equality = bridge.iceberg.FileContent.EQUALITY_DELETES
    return [d for d in bridge.iterate(task.deletes()) if d.content() != equality]


def _partitions(bridge: Bridge, work: DeleteWork) -> int:
    wanted = work.preflight.partitions if work.preflight else 1
    return max(wanted, int(bridge.spark.sparkContext.defaultParallelism))
