"""Staging: hand Spark exactly the scan tasks we planned, and read nothing else.

Iceberg's own rewrites work this way (`SparkBinPackFileRewriteRunner`): scan tasks are put under an
id into `ScanTaskSetManager`, and a relation with that id reads only them, each with its deletes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from iceberg_maint.core.commits.change import Identity
from iceberg_maint.core.planning.inputs import EqualityDeleteFile, FileGroup, InputFile, PositionDeleteFile
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import RewritePositionDeleteFiles
from iceberg_maint.errors import RefusedError, StaleBatchError
from iceberg_maint.spark.jvm.bridge import JVM_ERRORS, Bridge, cause_classes, sql_name
from iceberg_maint.spark.jvm.functions import SEPARATOR_WITHIN, JavaFunctions
from iceberg_maint.spark.scan.pruning import partitions_filter
from iceberg_maint.spark.scan.scan import scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class GroupTasks:
    """The scan tasks of one file group: a `java.util.List<FileScanTask>`, one whole-file task per
    planned file, with the deletes that apply to it.
    """

    group: FileGroup
    tasks: Any


def load_planned_table(bridge: Bridge, batch: Batch) -> Any:
    """The batch's table, fresh. Raises StaleBatchError when it is not the table, schema or
    history that was planned on.
    """
    try:
        table = bridge.load_table(batch.table)
    except JVM_ERRORS as why:
        if any(name.endswith("NoSuchTableException") for name in cause_classes(why)):
            raise StaleBatchError(f"{batch.table} is gone") from why
        raise
    if str(table.uuid().toString()) != batch.table_uuid:
        raise StaleBatchError(f"{batch.table} was dropped and created again while the batch waited")
    if table.snapshot(batch.snapshot_id) is None:
        raise StaleBatchError(f"{batch.table}: snapshot {batch.snapshot_id} has been expired")
    if table.schema().schemaId() != batch.schema_id:
        raise StaleBatchError(
            f"{batch.table}: the schema is now {table.schema().schemaId()}, planned was {batch.schema_id}"
        )
    missing = {g.output_spec_id for g in batch.groups} - {int(i) for i in table.specs()}
    if missing:
        raise StaleBatchError(f"{batch.table}: partition spec {min(missing)} is gone")
    return table


def plan_tasks(
    bridge: Bridge, table: Any, batch: Batch, *, column_stats: bool = False
) -> tuple[GroupTasks, ...]:
    """Scan tasks for exactly the batch's files, at its pinned snapshot.

    Raises StaleBatchError when a planned file is not live in that snapshot, RefusedError ICM-120
    when one is referenced twice, ICM-119 when an equality delete applies to one in a batch that
    has none, ICM-101 when Iceberg applies other deletes to it than were planned.
    """
    if not batch.groups:
        return ()
    lambdas = bridge.once(JavaFunctions)
    wanted = batch.paths()
    # The filter only spares manifests. A file whose column bounds contradict its own partition
    # value would be filtered out, so what is not found is looked for without it.
    found = _scan(lambdas, table, batch, partitions_filter(bridge, table, batch), column_stats)
    if found.size() < len(wanted):
        found = _scan(lambdas, table, batch, None, column_stats)
    result = []
    for group in batch.groups:
        paths = [f.path for f in group.files]
        tasks = lambdas.to_list(found.stream().filter(lambdas.task_location_in(paths)))
        _check_paths(batch, paths, lambdas.texts(tasks.stream().map(lambdas.task_location)))
        _check_deletes(lambdas, batch, group, tasks)
        result.append(GroupTasks(group, tasks))
    return tuple(result)


def _scan(lambdas: JavaFunctions, table: Any, batch: Batch, pruning: Any | None, column_stats: bool) -> Any:
    only = lambdas.task_location_in(batch.paths())
    return scan(
        lambdas.bridge, table, batch.snapshot_id, only=only, pruning=pruning, column_stats=column_stats
    )


def _check_paths(batch: Batch, planned: list[str], found: list[str]) -> None:
    twice = sorted({p for p in found if found.count(p) > 1}) if len(found) != len(set(found)) else []
    if twice:
        raise RefusedError(
            "ICM-120",
            f"{batch.table}: data file {twice[0]} is referenced twice by snapshot {batch.snapshot_id}",
            "remove the second reference; a rewrite would turn its rows into real duplicates.",
        )
    missing = set(planned) - set(found)
    if missing:
        raise StaleBatchError(
            f"{batch.table}: {len(missing)} planned files are not in snapshot {batch.snapshot_id}, "
            f"one is {min(missing)}"
        )


def _check_deletes(lambdas: JavaFunctions, batch: Batch, group: FileGroup, tasks: Any) -> None:
    """Equality deletes may be fewer than planned: the scan leaves out those whose keys lie outside
    a file's bounds. Position deletes are those of the plan."""
    deleted = lambdas.to_list(tasks.stream().filter(lambdas.has_no_deletes.negate()))
    if not isinstance(batch.work, RewritePositionDeleteFiles):
        _check_equality_deletes(batch, lambdas.equality_delete_paths(deleted))
    planned: dict[str, InputFile] = {f.path: f for f in group.files if f.delete_files}
    paths = lambdas.texts(deleted.stream().map(lambdas.task_location))
    texts = lambdas.texts(deleted.stream().map(lambdas.task_position_deletes))
    seen = {
        path: set(text.split(SEPARATOR_WITHIN)[1:]) - {""} for path, text in zip(paths, texts, strict=True)
    }
    for path in sorted(seen.keys() | planned.keys()):
        expected = set(planned[path].delete_files) if path in planned else set()
        if seen.get(path, set()) != expected:
            raise RefusedError(
                "ICM-101",
                f"{batch.table}: Iceberg applies {len(seen.get(path, ()))} delete files to {path}, "
                f"planned were {len(expected)}",
                "report this: two readers of the same metadata disagree.",
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
        raise RefusedError(
            "ICM-101",
            f"{batch.table}: Iceberg applies {len(unplanned)} equality delete files that were not "
            f"planned, one is {min(unplanned)}",
            "report this: two readers of the same metadata disagree.",
        )


def equality_delete_files(bridge: Bridge, table: Any, batch: Batch) -> dict[str, Any]:
    """The batch's equality deletes as Java DeleteFiles, by path. Raises what `_delete_files` does."""
    found = _delete_files(bridge, table, batch, batch.equality_deletes)
    return {path: file for (path, _), file in found.items()}


def position_delete_files(bridge: Bridge, table: Any, batch: Batch) -> dict[Identity, Any]:
    """The batch's position deletes and deletion vectors as Java DeleteFiles, by path and offset.
    Raises what `_delete_files` does."""
    found = _delete_files(bridge, table, batch, batch.position_deletes)
    return {d.identity: found[d.identity] for d in batch.position_deletes}


def _delete_files(
    bridge: Bridge,
    table: Any,
    batch: Batch,
    planned: Sequence[EqualityDeleteFile] | Sequence[PositionDeleteFile],
) -> dict[Identity, Any]:
    """Java DeleteFiles of these paths, by path and offset, out of the pinned snapshot's manifests:
    a scan shows only those that may match a data file.

    Raises StaleBatchError when one is not live in that snapshot.
    """
    wanted = {d.identity for d in planned}
    if not wanted:
        return {}
    lambdas = bridge.once(JavaFunctions)
    among = lambdas.location_in({path for path, _ in wanted})
    spec_ids = {d.spec_id for d in planned}
    first = min(d.data_sequence_number for d in planned)
    last = max(d.data_sequence_number for d in planned)
    found: dict[Identity, Any] = {}
    for manifest in bridge.iterate(table.snapshot(batch.snapshot_id).deleteManifests(table.io())):
        other_spec = int(manifest.partitionSpecId()) not in spec_ids
        if other_spec or manifest.sequenceNumber() < first or manifest.minSequenceNumber() > last:
            continue
        reader = bridge.iceberg.ManifestFiles.readDeleteManifest(manifest, table.io(), table.specs())
        with closing(reader):
            files = lambdas.to_list(lambdas.stream(reader).filter(among))
        for file in bridge.iterate(files):
            offset = file.contentOffset()
            found[str(file.location()), None if offset is None else int(offset)] = file
    missing = wanted - found.keys()
    if missing:
        raise StaleBatchError(
            f"{batch.table}: {len(missing)} planned delete files are not in snapshot "
            f"{batch.snapshot_id}, one is {min(path for path, _ in missing)}"
        )
    return found


@contextmanager
def staged(bridge: Bridge, table: Any, tasks: Any) -> Iterator[str]:
    """The id under which Spark reads these tasks (a non-empty Java list) inside the block.

    The Java table object is cached under the same id, so that reads and writes see one state.
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
    """Rows of the staged tasks; all of Iceberg's metadata columns can be selected by name.

    On Spark 3.5 the id is a read option of the catalog's table. On 4.1 that option is ignored in
    silence and the whole table read, so the relation is built over `SparkRewriteTable`; on v3
    that one offers the lineage columns as data, which hides every other metadata column, so they
    are left out of its output and selected by name like the rest.
    """
    from pyspark.sql import DataFrame

    spark = bridge.spark
    if bridge.is_spark_3:
        reader = spark.read.option("scan-task-set-id", group_id)
        for key, value in (options or {}).items():
            reader = reader.option(key, value)
        return reader.table(sql_name(identifier))
    jvm = bridge.jvm
    settings = jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(bridge.map((options or {}).items()))
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


def check_reads_staged(batch: Batch, source: DataFrame, group_id: str) -> None:
    """Holds the optimized plan to one scan, that of the staged tasks. A check per row, by file
    name, would cost as much as reading them.
    """
    leaves = source._jdf.queryExecution().optimizedPlan().collectLeaves()
    scans = [_scan_text(leaves.apply(i)) for i in range(leaves.size())]
    if len(scans) != 1 or "IcebergStagedScan" not in scans[0] or group_id not in scans[0]:
        raise RefusedError(
            "ICM-101",
            f"{batch.table}: Spark would read {scans} in place of the planned files",
            "report this; nothing was written.",
        )


def _scan_text(leaf: Any) -> str:
    """What a leaf of a plan reads; Spark's own text of a relation leaves its scan out."""
    is_scan = str(leaf.getClass().getSimpleName()) == "DataSourceV2ScanRelation"
    return str((leaf.scan() if is_scan else leaf).toString())
