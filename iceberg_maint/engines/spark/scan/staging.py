"""Stages the planned scan tasks for Spark, which then reads these tasks and nothing else.

Iceberg's rewrites do the same (`SparkBinPackFileRewriteRunner`). They put scan tasks into `ScanTaskSetManager`
under an id. A relation with that id reads only these tasks, each with its deletes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from iceberg_maint.core.planning.equality_deletes import PlannedReach
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import (
    EqualityDeleteFile,
    FileGroup,
    InputFile,
    PositionDeleteFile,
    RewritePositionDeleteFiles,
)
from iceberg_maint.engines.spark.jvm.bridge import Bridge, java_frame, sql_name
from iceberg_maint.engines.spark.jvm.functions import LIST, SEPARATOR_WITHIN, JavaFunctions
from iceberg_maint.engines.spark.jvm.java_errors import JVM_ERRORS, cause_classes
from iceberg_maint.engines.spark.scan.iceberg_reader import DeleteFiles, delete_manifests, live_delete_files
from iceberg_maint.engines.spark.scan.scan import partitions_filter, scan
from iceberg_maint.errors import DELETE_AGAIN, RefusedError, StaleBatchError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class GroupTasks:
    """The scan tasks of one file group as a `java.util.List<FileScanTask>`.

    The list has one task per planned file. A task reads the whole file and has the deletes that apply to it.
    """

    group: FileGroup
    tasks: Any


def load_planned_table(bridge: Bridge, batch: Batch) -> Any:
    """Loads the batch's table. Raises StaleBatchError if it is another table, or has another schema, than in
    the plan, or if it has lost the plan's snapshot or a partition spec.
    """
    try:
        table = bridge.load_table(batch.table)
    except JVM_ERRORS as why:
        if any(name.endswith("NoSuchTableException") for name in cause_classes(why)):
            raise StaleBatchError(f"{batch.table} is no longer in its catalog") from why
        raise
    if str(table.uuid().toString()) != batch.table_uuid:
        raise StaleBatchError(f"{batch.table} was dropped and created again while the batch waited")
    if table.snapshot(batch.snapshot_id) is None:
        raise StaleBatchError(f"{batch.table}: snapshot {batch.snapshot_id} has been expired")
    if table.schema().schemaId() != batch.schema_id:
        raise StaleBatchError(
            f"{batch.table}: the schema is now {table.schema().schemaId()}, planned was {batch.schema_id}"
        )
    specs = table.specs()
    missing = {i for i in {g.output_spec_id for g in batch.groups} if not specs.containsKey(i)}
    if missing:
        raise StaleBatchError(f"{batch.table}: the table no longer has partition spec {min(missing)}")
    return table


def plan_tasks(
    bridge: Bridge, table: Any, batch: Batch, *, column_stats: bool = False
) -> tuple[GroupTasks, ...]:
    """Scan tasks for exactly the batch's files, at its pinned snapshot.

    Raises StaleBatchError if a planned file is not live in that snapshot. Raises RefusedError ICM-120
    if the snapshot references a file twice, ICM-119 if an equality delete applies to a file of a batch without
    equality deletes, ICM-101 if Iceberg applies other deletes to a file than the plan lists.
    """
    if not batch.groups:
        return ()
    lambdas = bridge.once(JavaFunctions)
    # The filter only skips manifests. It also drops a file whose column bounds contradict its
    # partition value, so a scan without the filter follows if a file is missing.
    batch_tasks = _scan(lambdas, table, batch, partitions_filter(bridge, table, batch), column_stats)
    if batch_tasks.size() < len(batch.paths()):
        batch_tasks = _scan(lambdas, table, batch, None, column_stats)
    locations = lambdas.texts(batch_tasks.stream().map(lambdas.task_location))
    numbers: dict[str, list[int]] = defaultdict(list)
    for number, location in enumerate(locations):
        numbers[location].append(number)
    members = []
    for group in batch.groups:
        paths = {f.path for f in group.files}
        members.append(sorted(n for path in paths for n in numbers.get(path, ())))
        _check_paths(batch, paths, [locations[n] for n in members[-1]])
    _check_deletes(lambdas, batch, batch_tasks)
    is_whole = len(members) == 1 and len(members[0]) == len(locations)
    lists = [batch_tasks] if is_whole else lambdas.picked(batch_tasks, members)
    return tuple(GroupTasks(group, tasks) for group, tasks in zip(batch.groups, lists, strict=True))


def _scan(lambdas: JavaFunctions, table: Any, batch: Batch, pruning: Any | None, column_stats: bool) -> Any:
    only = lambdas.task_location_in(batch.paths())
    return scan(
        lambdas.bridge, table, batch.snapshot_id, only=only, pruning=pruning, column_stats=column_stats
    )


def _check_paths(batch: Batch, planned: set[str], scanned: list[str]) -> None:
    duplicates: list[str] = []
    if len(scanned) != len(set(scanned)):
        duplicates = sorted({p for p in scanned if scanned.count(p) > 1})
    if duplicates:
        raise RefusedError(
            "ICM-120",
            f"{batch.table}: data file {duplicates[0]} is referenced twice by snapshot {batch.snapshot_id}",
            "remove the second reference; a rewrite would turn its rows into real duplicates.",
        )
    missing = planned - set(scanned)
    if missing:
        raise StaleBatchError(
            f"{batch.table}: {len(missing)} planned files are not in snapshot {batch.snapshot_id}, "
            f"one is {min(missing)}"
        )


def _check_deletes(lambdas: JavaFunctions, batch: Batch, tasks: Any) -> None:
    """Checks that the scan applies the planned deletes, no more and no fewer. A rewrite of position deletes
    applies no equality deletes."""
    planned: dict[str, InputFile] = {f.path: f for g in batch.groups for f in g.files if f.delete_files}
    if not planned and not batch.equality_deletes and tasks.stream().allMatch(lambdas.has_no_deletes):
        return
    tasks_with_deletes = lambdas.to_list(tasks.stream().filter(lambdas.has_no_deletes.negate()))
    if not isinstance(batch.work, RewritePositionDeleteFiles):
        _check_equality_deletes(batch, lambdas.equality_delete_paths(tasks_with_deletes))
        _check_equality_delete_counts(lambdas, batch, tasks)
    paths = lambdas.texts(tasks_with_deletes.stream().map(lambdas.task_location))
    texts = lambdas.texts(tasks_with_deletes.stream().map(lambdas.task_position_deletes))
    applied = {
        path: set(text.split(SEPARATOR_WITHIN)[1:]) - {""} for path, text in zip(paths, texts, strict=True)
    }
    for path in sorted(applied.keys() | planned.keys()):
        expected = set(planned[path].delete_files) if path in planned else set()
        if applied.get(path, set()) != expected:
            raise _disagreement(
                batch,
                f"Iceberg applies {len(applied.get(path, ()))} delete files to {path}, "
                f"planned were {len(expected)}",
            )


def _check_equality_deletes(batch: Batch, applied: set[str]) -> None:
    unplanned = applied - {d.path for d in batch.equality_deletes}
    if unplanned and not batch.equality_deletes:
        raise RefusedError(
            "ICM-119",
            f"{batch.table}: {min(unplanned)} deletes rows by equality; this rewrite does not apply that",
            "leave its data files to the rewrite that does.",
        )
    if unplanned:
        raise _disagreement(
            batch,
            f"Iceberg applies {len(unplanned)} equality delete files that were not planned, one is {min(unplanned)}",
        )


def _check_equality_delete_counts(lambdas: JavaFunctions, batch: Batch, tasks: Any) -> None:
    """Checks that every equality delete of the batch applies to each task that it reaches by scope and sequence
    number. A delete that a task lacks would be dropped unapplied, and its rows would come back."""
    if not batch.equality_deletes:
        return
    reach = PlannedReach(batch.equality_deletes)
    planned = {
        f.path: reach.count((group.spec_id, group.partition), f.data_sequence_number)
        for group in batch.groups
        for f in group.files
    }
    paths = lambdas.texts(tasks.stream().map(lambdas.task_location))
    counts = lambdas.texts(tasks.stream().map(lambdas.task_equality_delete_count))
    for path, count in sorted(zip(paths, map(int, counts), strict=True)):
        if count != planned[path]:
            raise _disagreement(
                batch,
                f"Iceberg applies {count} equality delete files to {path}, by scope and "
                f"sequence number {planned[path]} apply",
            )


def _disagreement(batch: Batch, what: str) -> RefusedError:
    fix = "report this: two readers of the same metadata disagree."
    return RefusedError("ICM-101", f"{batch.table}: {what}", fix)


def wrong_keys(table: str, problem: str) -> RefusedError:
    """The refusal of equality deletes whose file has keys that its metadata denies: outside its bounds, or NULL. `problem`
    names it. Iceberg's readers do not apply the file where its metadata shares no key with a data file, others do: the
    rows are neither deleted nor not."""
    return RefusedError("ICM-119", f"{table}: {problem}, so not every reader applies it", DELETE_AGAIN)


def planned_delete_files(
    bridge: Bridge,
    table: Any,
    batch: Batch,
    planned: Sequence[EqualityDeleteFile] | Sequence[PositionDeleteFile],
) -> DeleteFiles:
    """The equality deletes or the position deletes of a batch as Java DeleteFiles, in the order of the plan.

    They come from the pinned snapshot's manifests, because a scan returns only those that may match a data file.
    Raises StaleBatchError if one is not live in that snapshot.
    """
    identities = {d.identity for d in planned}
    if not identities:
        return DeleteFiles(bridge, bridge.list(()))
    lambdas = bridge.once(JavaFunctions)
    is_planned = lambdas.location_in({path for path, _ in identities})
    spec_ids = {d.spec_id for d in planned}
    first = min(d.data_sequence_number for d in planned)
    last = max(d.data_sequence_number for d in planned)
    manifests = delete_manifests(bridge, table, batch.snapshot_id, spec_ids, first, last)
    with live_delete_files(bridge, table, manifests) as files:
        live = DeleteFiles(bridge, lambdas.to_list(files.filter(is_planned)))
    missing = identities - live.keys()
    if missing:
        raise StaleBatchError(
            f"{batch.table}: {len(missing)} planned delete files are not in snapshot "
            f"{batch.snapshot_id}, one is {min(path for path, _ in missing)}"
        )
    return live.only(bridge, [d.identity for d in planned])


@contextmanager
def staged(bridge: Bridge, table: Any, tasks: Any) -> Iterator[str]:
    """Stages tasks (a non-empty Java list). Inside the block Spark reads them by the id that the block gets.

    The cache of tables has the Java table under the same id, so that reads and writes use one state.
    """
    cache = bridge.static("org.apache.iceberg.spark.SparkTableCache", "get")()
    manager = bridge.iceberg.spark.ScanTaskSetManager.get()
    coordinator = bridge.iceberg.spark.FileRewriteCoordinator.get()
    group_id = str(uuid4())
    cache.add(group_id, table)
    manager.stageTasks(table, group_id, tasks)
    try:
        yield group_id
    finally:
        coordinator.clearRewrite(table, group_id)
        manager.removeTasks(table, group_id)
        cache.remove(group_id)


def read_staged(
    bridge: Bridge, table: Any, identifier: str, group_id: str, options: Mapping[str, str] | None = None
) -> DataFrame:
    """The rows of the staged tasks. All of Iceberg's metadata columns can be selected by name.

    On Spark 3.5 the id is a read option of the catalog's table. Spark 4.1 silently ignores that option and
    reads the whole table. There the relation is built over `SparkRewriteTable`. For v3 that table
    has the lineage columns as data columns, which hides every other metadata column. Therefore this function
    removes them from the relation's output, and the caller selects them by name.

    Imported files may have timestamps in milliseconds. Iceberg's vectorized reader takes the values of a dictionary for
    microseconds, so timestamps of a table with a name mapping, or with files without split offsets or a sort order, which
    Iceberg's Java writers never omit, are read without it. PyIceberg's `add_files` gives split offsets and no sort order.
    """
    from pyspark.sql import DataFrame

    spark = bridge.spark
    options = dict(options or {})
    if "timestamp" in str(table.schema().asStruct().toString()) and (
        table.properties().get("schema.name-mapping.default")
        or _has_imported_files(
            bridge, bridge.iceberg.spark.ScanTaskSetManager.get().fetchTasks(table, group_id)
        )
    ):
        options["vectorization-enabled"] = "false"
    if bridge.is_spark_3:
        reader = spark.read.option("scan-task-set-id", group_id)
        for key, value in options.items():
            reader = reader.option(key, value)
        return reader.table(sql_name(identifier))
    jvm = bridge.jvm
    settings = jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(bridge.map(options.items()))
    nothing = jvm.scala.Option.empty()
    source = bridge.iceberg.spark.source.SparkRewriteTable(table, group_id)
    relations = jvm.org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
    relation = relations.create(source, nothing, nothing, settings, nothing)
    output = relation.output()
    columns = [output.apply(i) for i in range(output.size())]
    is_metadata = bridge.iceberg.MetadataColumns.isMetadataColumn
    data = bridge.list(c for c in columns if not is_metadata(c.name()))
    sequence = jvm.org.apache.spark.api.python.PythonUtils.toSeq(data)
    relation = relation.copy(source, sequence, nothing, nothing, settings, nothing)
    frame = jvm.org.apache.spark.sql.classic.Dataset.ofRows(bridge.session, relation)
    return DataFrame(frame, spark)


def _has_imported_files(bridge: Bridge, tasks: Any) -> bool:
    functions = bridge.once(JavaFunctions)
    return any(
        tasks.stream().anyMatch(functions.file_lacks(method, returns))
        for method, returns in (("splitOffsets", LIST), ("sortOrderId", "java.lang.Integer"))
    )


def check_reads_staged(table: str, source: DataFrame, group_id: str) -> None:
    """Checks that the optimized plan has one scan, the scan of the staged tasks. Raises RefusedError ICM-101.

    A check of every row, by file name, would cost as much as the read.
    """
    leaves = java_frame(source).queryExecution().optimizedPlan().collectLeaves()
    scans = [_scan_text(leaves.apply(i)) for i in range(leaves.size())]
    if len(scans) != 1 or "IcebergStagedScan" not in scans[0] or group_id not in scans[0]:
        raise RefusedError(
            "ICM-101",
            f"{table}: Spark would read {scans} instead of the planned files",
            "report this; nothing was written.",
        )


def _scan_text(leaf: Any) -> str:
    """The scan of a plan's leaf as text. Spark's text of a relation does not contain its scan."""
    is_scan = str(leaf.getClass().getSimpleName()) == "DataSourceV2ScanRelation"
    return str((leaf.scan() if is_scan else leaf).toString())
