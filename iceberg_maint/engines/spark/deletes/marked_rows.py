"""The positions that a batch's equality deletes delete, and the positions that other deletes delete already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iceberg_maint.core.planning.batch_memory import Preflight
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.engines.spark.deletes.membership import marked_numbers
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.functions import JavaFunctions
from iceberg_maint.engines.spark.scan.delete_files import DeleteFiles
from iceberg_maint.engines.spark.scan.positions import (
    Positions,
    count,
    gather,
    gather_numbered,
    read_back,
    union,
)
from iceberg_maint.engines.spark.scan.scan import Table, scan_task
from iceberg_maint.engines.spark.scan.staging import GroupTasks, read_staged, staged
from iceberg_maint.errors import RefusedError


@dataclass(frozen=True, slots=True)
class DeleteWork:
    """A batch whose equality deletes are applied.

    `planned` are its scan tasks, `deletes` its equality deletes. `preflight` says how to apply the deletes
    within memory; it is None if there is nothing to apply. `positions` are the rows that the deletes delete and no other
    delete does, if they were found without the join.
    """

    table: Table
    batch: Batch
    planned: Sequence[GroupTasks]
    deletes: DeleteFiles
    preflight: Preflight | None
    positions: Positions | None = None


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """The positions that equality deletes delete and no other delete does (`new`), by data file, and the
    Java scan tasks of these data files.
    """

    new: Positions = field(default_factory=dict)
    tasks: Mapping[str, Any] = field(default_factory=dict)

    @property
    def data_files(self) -> dict[str, Any]:
        """The Java DataFiles by path."""
        return {path: task.file() for path, task in self.tasks.items()}


def find_deleted_rows(bridge: Bridge, work: DeleteWork) -> DeletedRows:
    """Joins the key columns of the planned tasks with the equality deletes that may match them. Reads nothing if
    none may match. Raises what `marked_rows` raises."""
    lambdas = bridge.once(JavaFunctions)
    tasks = tasks_under_deletes(bridge, work)
    if tasks.isEmpty():
        return DeletedRows()
    paths = task_paths(bridge, tasks)
    if work.positions is not None:
        check_positions(work.positions, paths)
        return DeletedRows(
            work.positions, {path: tasks.get(i) for i, path in enumerate(paths) if path in work.positions}
        )
    # If Iceberg applies a delete and this code does not, rows would come back.
    assert work.preflight is not None, "files under equality deletes without a preflight"
    applied = work.deletes.picked([(path, None) for path in sorted(lambdas.equality_delete_paths(tasks))])
    membership = marked_numbers(bridge, work.table, work.batch, tasks, applied, work.preflight)
    with membership as (rows, numbered_paths):
        partitions = _partitions(bridge, work)
        new = gather_numbered(rows.where("not _already"), numbered_paths, partitions)
    return DeletedRows(new, {path: tasks.get(i) for i, path in enumerate(paths) if path in new})


def tasks_under_deletes(bridge: Bridge, work: DeleteWork) -> Any:
    """The scan tasks to which Iceberg applies an equality delete, as a `java.util.List`."""
    lambdas = bridge.once(JavaFunctions)
    tasks = bridge.list(())
    for group_tasks in work.planned:
        tasks.addAll(lambdas.to_list(group_tasks.tasks.stream().filter(lambdas.has_equality_deletes)))
    return tasks


def task_paths(bridge: Bridge, tasks: Any) -> list[str]:
    """The data files of Java scan tasks, in their order."""
    lambdas = bridge.once(JavaFunctions)
    return list(lambdas.texts(tasks.stream().map(lambdas.task_location)))


def check_positions(positions: Positions, under: Iterable[str]) -> None:
    """Raises ValueError for positions of a data file that is not among these, to which equality deletes apply."""
    if strays := positions.keys() - frozenset(under):
        raise ValueError(f"no equality delete applies to {min(strays)}, of which positions were found")


def find_already_deleted(bridge: Bridge, work: DeleteWork, deleted_rows: DeletedRows) -> Positions:
    """The positions that position deletes and deletion vectors delete in the data files of `deleted_rows`.

    The function reads deletion vectors directly. Spark's reader applies position deletes. Raises RefusedError
    ICM-101 if a vector does not have as many positions as metadata says.
    """
    java = work.table.java
    is_vector = bridge.iceberg.util.ContentFileUtil.isDV
    vectors, tasks = [], {}
    for path, task in deleted_rows.tasks.items():
        deletes = kept_deletes(bridge, task)
        if any(is_vector(d) for d in deletes):
            vectors += deletes
        elif deletes:
            tasks[path] = scan_task(bridge, java, task.file(), deletes)
    vector_positions = read_back(bridge, java, vectors)
    listed = sum(int(v.recordCount()) for v in vectors)
    if count(vector_positions) != listed:
        raise RefusedError(
            "ICM-101",
            f"{work.batch.table}: {len(vectors)} deletion vectors hold {listed} positions, "
            f"{count(vector_positions)} were read",
            "report this; nothing was committed.",
        )
    if not tasks:
        return vector_positions
    with staged(bridge, java, bridge.list(tasks.values())) as group_id:
        frame = read_staged(bridge, java, work.table.name, group_id)
        deleted = frame.select("_file", "_pos", "_deleted").where("_deleted")
        return union((vector_positions, gather(bridge, deleted, list(tasks), _partitions(bridge, work))))


def kept_deletes(bridge: Bridge, task: Any) -> list[Any]:
    """The position deletes and deletion vectors of a task."""
    functions = bridge.once(JavaFunctions)
    kept = functions.to_list(
        bridge.list(task.deletes()).stream().filter(functions.is_equality_delete.negate())
    )
    return [kept.get(i) for i in range(kept.size())]


def _partitions(bridge: Bridge, work: DeleteWork) -> int:
    partitions = work.preflight.partitions if work.preflight else 1
    return max(partitions, int(bridge.spark.sparkContext.defaultParallelism))
