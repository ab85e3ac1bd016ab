"""The rows that deletes delete: the positions that a batch deletes, those deleted before, and the rows that readers see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from iceberg_maint.core.outcomes.verification import Difference, DifferentRow, Fingerprint
from iceberg_maint.core.planning.batch_memory import (
    DeclaredBytes,
    DoesNotFitError,
    MemoryNeed,
    Preflight,
    preflight,
)
from iceberg_maint.core.planning.equality_deletes import key_bytes
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.spark_memory import default_budget_bytes
from iceberg_maint.engines.spark.deletes.membership import equality_deleted_numbers, equality_deleted_rows
from iceberg_maint.engines.spark.deletes.position_delete_rows import check_named_files
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.conversion import quoted
from iceberg_maint.engines.spark.jvm.functions import JavaFunctions
from iceberg_maint.engines.spark.scan import positions, row_proof
from iceberg_maint.engines.spark.scan.iceberg_reader import DeleteFiles
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
from iceberg_maint.engines.spark.session.executors import executor_memory
from iceberg_maint.errors import RefusedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
    none may match. Raises what `equality_deleted_rows` raises."""
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
    keys = sum(d.record_count for d in work.batch.equality_deletes)
    membership = equality_deleted_numbers(bridge, work.table, tasks, applied, work.preflight, keys)
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
    ICM-101 if a vector does not have as many positions as metadata says, or if a position delete file names another
    data file than it says.
    """
    java = work.table.java
    is_vector = bridge.iceberg.util.ContentFileUtil.isDV
    vectors, named, tasks = [], [], {}
    for path, task in deleted_rows.tasks.items():
        deletes = kept_deletes(bridge, task)
        if any(is_vector(d) for d in deletes):
            vectors += deletes
        elif deletes:
            named += deletes
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
    check_named_files(bridge, work.table, named, work.batch.applied_deletes)
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
    return max(partitions, bridge.parallelism)


READER_EQUALITY_DELETES = 200_000
"""The most rows of equality deletes that Iceberg's reader applies. They take about 60 MB in its sets."""


def visible_rows(bridge: Bridge, table: Table, tasks: Any) -> Fingerprint:
    """The fingerprint of the rows that readers of the tasks (a Java list) see.

    Raises what `membership.equality_deleted_rows` raises, and RefusedError ICM-124 if the equality deletes
    do not fit half of Spark's memory in any number of passes.
    """
    from pyspark.sql import functions as F

    if tasks.isEmpty():
        return row_proof.total(())
    with _read(bridge, table, tasks) as (frame, equality_deleted):
        columns = [quoted(c) for c in (*table.columns, *table.lineage)]
        schema = frame.select(*columns).schema
        if equality_deleted is None:
            visible, measures = frame.select(*columns), row_proof.measures(schema, table.field_ids)
        else:
            # Spark shuffles the hashes of a row, not the row.
            names = [f"hash{lane}" for lane in range(row_proof.LANES)]
            hashes = [
                row_proof.row_hash(schema, table.field_ids, lane).alias(n) for lane, n in enumerate(names)
            ]
            place = [F.xxhash64("_file").alias("file"), F.col("_pos")]
            visible = frame.select(*place, *hashes).join(
                equality_deleted.select(*place), ["file", "_pos"], "left_anti"
            )
            measures = row_proof.sums([F.col(n) for n in names])
        # One sum per Spark partition, because a sum over all rows of a commit may not fit 64 bits.
        parts = visible.groupBy(F.spark_partition_id()).agg(*measures).collect()
    return row_proof.total([row_proof.fingerprint_of(row.asDict()) for row in parts])


SHOWN_ROWS = 10
"""The most rows that a difference names, of each side."""


def different_rows(bridge: Bridge, table: Table, before: Any, after: Any) -> Difference:
    """The rows that readers of one list of tasks see more often than readers of the other, by the hashes of the
    fingerprint. Raises what `visible_rows` raises."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    names = [f"hash{lane}" for lane in range(row_proof.LANES)]
    with ExitStack() as stack:
        frames = []
        for tasks, side in ((before, 1), (after, -1)):
            if tasks.isEmpty():
                continue
            frame, marked = stack.enter_context(_read(bridge, table, tasks))
            columns = [quoted(c) for c in (*table.columns, *table.lineage)]
            schema = frame.select(*columns).schema
            hashes = [
                row_proof.row_hash(schema, table.field_ids, lane).alias(n) for lane, n in enumerate(names)
            ]
            row = F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).alias("row")
            frame = frame.select(*hashes, row, F.lit(side).alias("side"), "_file", "_pos")
            if marked is not None:
                frame = frame.join(marked.select("_file", "_pos"), ["_file", "_pos"], "left_anti")
            frames.append(frame.select(*names, "row", "side", F.col("_file").alias("file")))
        if not frames:
            return Difference(0, 0)
        groups = reduce(DataFrame.unionByName, frames).groupBy(*names)
        counts = groups.agg(
            F.sum("side").alias("n"),
            F.max("row").alias("row"),
            F.max(F.when(F.col("side") == 1, F.col("file"))).alias("before"),
            F.max(F.when(F.col("side") == -1, F.col("file"))).alias("after"),
        )
        different = counts.where("n != 0").persist()
        try:
            sums = [F.sum(F.greatest(F.col("n") * sign, F.lit(0))).alias(f"s{sign}") for sign in (1, -1)]
            lost, gained = different.agg(*sums).collect()[0]
            sample = tuple(
                DifferentRow(r["row"], r["before"] if r["n"] > 0 else r["after"], abs(r["n"]), r["n"] > 0)
                for of_side in ("n > 0", "n < 0")
                for r in different.where(of_side).orderBy("row", "n").limit(SHOWN_ROWS).collect()
            )
        finally:
            different.unpersist()
    return Difference(lost or 0, gained or 0, sample)


def deleted_positions(bridge: Bridge, table: Table, tasks: Any) -> Positions:
    """The positions of the rows that are deleted for readers of the tasks (a Java list). Raises what
    `rows` raises."""
    if tasks.isEmpty():
        return {}
    lambdas = bridge.once(JavaFunctions)
    paths = lambdas.texts(tasks.stream().map(lambdas.task_location))
    partitions = int(bridge.spark.conf.get("spark.sql.shuffle.partitions") or 1)
    with _read(bridge, table, tasks) as (frame, equality_deleted):
        deleted = frame.where("_deleted").select("_file", "_pos")
        frames = [deleted] if equality_deleted is None else [deleted, equality_deleted]
        return positions.union([positions.gather(bridge, f, paths, partitions) for f in frames])


@contextmanager
def _read(bridge: Bridge, table: Table, tasks: Any) -> Iterator[tuple[DataFrame, DataFrame | None]]:
    """The tasks' rows by Iceberg's reader, and the rows that only equality deletes delete, as `_file` and `_pos`.

    The second frame is None if Iceberg's reader applies the equality deletes itself.
    """
    lambdas = bridge.once(JavaFunctions)
    applied = tasks.stream().flatMap(lambdas.task_deletes).filter(lambdas.is_equality_delete)
    by_path = {str(d.location()): d for d in bridge.iterate(lambdas.to_list(applied.distinct()))}
    deletes = list(by_path.values())
    few = sum(int(d.recordCount()) for d in deletes) <= READER_EQUALITY_DELETES
    # The reader of Spark 3.5 fails for a key column that was dropped. `equality_deleted_rows` raises ICM-119 for it.
    if few and not (bridge.is_spark_3 and _by_dropped_column(bridge, table, deletes)):
        with staged(bridge, table.java, tasks) as group_id:
            yield read_staged(bridge, table.java, table.name, group_id), None
        return
    under_deletes = lambdas.to_list(tasks.stream().filter(lambdas.has_equality_deletes))
    without_equality = lambdas.to_list(tasks.stream().filter(lambdas.has_equality_deletes.negate()))
    for task in bridge.iterate(under_deletes):
        without_equality.add(scan_task(bridge, table.java, task.file(), kept_deletes(bridge, task)))
    estimate = _preflight(bridge, table, under_deletes, deletes)
    with (
        staged(bridge, table.java, without_equality) as group_id,
        equality_deleted_rows(bridge, table, under_deletes, deletes, estimate) as equality_deleted,
    ):
        frame = read_staged(bridge, table.java, table.name, group_id)
        yield frame, equality_deleted.where("not _already").select("_file", "_pos")


def _by_dropped_column(bridge: Bridge, table: Table, deletes: list[Any]) -> bool:
    return any(int(i) not in table.types for d in deletes for i in bridge.iterate(d.equalityFieldIds()))


def _preflight(bridge: Bridge, table: Table, tasks: Any, deletes: list[Any]) -> Preflight:
    keys = {tuple(int(i) for i in bridge.iterate(d.equalityFieldIds())) for d in deletes}
    need = MemoryNeed(
        keys=sum(int(d.recordCount()) for d in deletes),
        key_bytes=max(key_bytes(table.types.get(i, "string") for i in ids) for ids in keys),
        rows=sum(int(task.file().recordCount()) for task in bridge.iterate(tasks)),
    )
    executor = executor_memory(bridge)
    memory_bytes = default_budget_bytes(executor)
    try:
        return preflight(
            need,
            DeclaredBytes(
                memory_bytes=memory_bytes,
                scratch_bytes=None,
                slots=executor.slots,
                page_bytes=executor.page_bytes,
            ),
        )
    except DoesNotFitError as why:
        raise RefusedError(
            "ICM-124",
            f"{table.name}: applying {len(deletes)} equality delete files needs {why.needed_bytes} bytes "
            f"of {why.resource}, {why.declared_bytes} are available",
            "give Spark more memory.",
        ) from why
