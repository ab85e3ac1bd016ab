"""The native strategy: Iceberg's Spark reader and writer, one job per file group.

As Iceberg's `SparkBinPackFileRewriteRunner`: staged tasks are split at the size that gives the
expected number of outputs, each split becomes one file. Deletes are applied by the reader. What
is added to it is the proof: the rows are counted and fingerprinted in the pass that rewrites
them, and the files written are read back before anything is committed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from iceberg_maint.core.judge import size_limits
from iceberg_maint.core.plan import Batch, FileGroup
from iceberg_maint.core.policy import ProofLevel, RewriteDataFilesPolicy
from iceberg_maint.core.proof import Fingerprint
from iceberg_maint.errors import RefusedError
from iceberg_maint.spark import fingerprint, footer
from iceberg_maint.spark.bridge import Bridge
from iceberg_maint.spark.content import content_json, json_spec, revive
from iceberg_maint.spark.lambdas import Lambdas
from iceberg_maint.spark.row_groups import with_row_groups
from iceberg_maint.spark.scan import scan_task
from iceberg_maint.spark.sorted import sorted_rows
from iceberg_maint.spark.staging import GroupTasks, read_staged, staged

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_SPLIT_OVERHEAD_BYTES = 5 * 1024
"""Iceberg's `SizeBasedFileRewritePlanner.SPLIT_OVERHEAD`: keeps a rounding error from making one
split more."""

_NO_ROW_ID = 1 << 60
"""Far above all row ids and sequence numbers; also above what py4j would hand over as an Integer."""


@dataclass(frozen=True, slots=True)
class GroupResult:
    """What one group wrote: Java DataFiles in a `java.util.List`, and what was seen doing so.

    `read_records` = `kept_records` + rows removed by deletes. `difference` is None when the proof
    holds; `before` and `after` are None at proof level `footer`.
    """

    files: Any
    read_records: int
    kept_records: int
    before: Fingerprint | None
    after: Fingerprint | None
    difference: str | None


@dataclass(frozen=True, slots=True)
class Table:
    """A Java table with what a rewrite of it needs to know."""

    java: Any
    name: str
    schema_json: str
    columns: tuple[str, ...]
    field_ids: Mapping[str, int]
    types: Mapping[int, str]

    @property
    def lineage(self) -> tuple[str, ...]:
        """The lineage columns a write must carry: those of `field_ids` that are not the table's."""
        return tuple(n for n in fingerprint.LINEAGE if n in self.field_ids)


def describe(bridge: Bridge, java: Any, name: str, snapshot_id: int) -> Table:
    """The values of a Java table that all groups of a batch share.

    Rows have lineage at this snapshot when it has a first row id: not before v3, nor yet in a
    table that became v3 since.
    """
    fields = list(bridge.iterate(java.schema().columns()))
    ids = {str(f.name()): int(f.fieldId()) for f in fields}
    if java.snapshot(snapshot_id).firstRowId() is not None:
        ids |= fingerprint.LINEAGE
    by_id = bridge.iceberg.types.TypeUtil.indexById(java.schema().asStruct())
    return Table(
        java=java,
        name=name,
        schema_json=str(bridge.iceberg.SchemaParser.toJson(java.schema())),
        columns=tuple(str(f.name()) for f in fields),
        field_ids=ids,
        types={int(i): str(by_id[i].type().toString()) for i in by_id},
    )


def rewrite_group(
    bridge: Bridge, table: Table, batch: Batch, group_tasks: GroupTasks, policy: RewriteDataFilesPolicy
) -> GroupResult:
    """Writes the replacement of one group and proves it; commits nothing.

    Raises RefusedError ICM-101 when Spark read other files or rows than those planned, ICM-108
    when a row would lose its lineage. An empty result is legal: deletes may have removed every row.
    """
    group = group_tasks.group
    full = policy.proof is ProofLevel.FULL
    planned = sum(f.record_count for f in group.files)
    found: dict[str, Any] = {"read_rows": planned, "rows": planned}
    written_as = with_row_groups(bridge, table.java, group.input_bytes)
    with staged(bridge, written_as, group_tasks.tasks) as group_id:
        from pyspark.sql import Observation

        source = _source(bridge, table, group, group_id, _read_options(batch, group, policy))
        check_reads_staged(batch, source, group_id)
        measures = _measures(table, source.schema, group, full=full)
        seen = Observation()
        rows = _rows(table, source.observe(seen, *measures) if measures else source, group)
        if batch.layout is not None:
            unobserved = _rows(table, source, group)
            rows = sorted_rows(rows, unobserved, batch.layout.order, group.expected_output_files, planned)
        _check_lineage(batch, table, rows)
        _write(bridge, rows, batch, group, group_id, policy)
        files = _new_files(bridge, table.java, group_id)
        after = fingerprint_files(bridge, table, files) if full else None
        if measures:
            found = seen.get
            if found["read_rows"] != planned or (full and fingerprint.fingerprint_of(found) != after):
                # A retried stage is counted twice by an observation: look again before judging.
                found = source.agg(*measures).collect()[0].asDict()
    if found["read_rows"] != planned:
        raise RefusedError(
            "ICM-101",
            f"{batch.table}: Spark read {found['read_rows']} rows of {len(group.files)} planned files "
            f"with {planned}",
            "report this; nothing was committed.",
        )
    before = fingerprint.fingerprint_of(found) if full else None
    kept = int(found["rows"])
    if full:
        unequal = None if before == after else f"rows in {before} are not the rows out {after}"
    else:
        unequal = _footer_difference(bridge, table, group_tasks, files, kept)
    return GroupResult(files, planned, kept, before, after, unequal)


def fingerprint_files(bridge: Bridge, table: Table, files: Any) -> Fingerprint:
    """The fingerprint of data files (a Java list) that need not be committed, read without deletes."""
    if files.isEmpty():
        return fingerprint.total(())
    tasks = bridge.list(_whole_file(bridge, table, f) for f in bridge.iterate(files))
    with staged(bridge, table.java, tasks) as group_id:
        frame = read_staged(bridge, table.java, table.name, group_id)
        frame = frame.select(*_columns(table), *table.lineage)
        row = frame.agg(*fingerprint.measures(frame.schema, table.field_ids)).collect()[0]
    return fingerprint.fingerprint_of(row.asDict())


# reading


def _read_options(batch: Batch, group: FileGroup, policy: RewriteDataFilesPolicy) -> dict[str, str]:
    """Splits that become one output file each; rows that are sorted are read in any."""
    if batch.layout is not None:
        return {}
    return {"split-size": str(split_bytes(batch, group, policy)), "file-open-cost": "0"}


def split_bytes(batch: Batch, group: FileGroup, policy: RewriteDataFilesPolicy) -> int:
    """Input bytes per output file (Iceberg's `inputSplitSize`)."""
    target = batch.target_file_size_bytes
    wanted = group.input_bytes // max(1, group.expected_output_files) + _SPLIT_OVERHEAD_BYTES
    return min(max(wanted, target), size_limits(policy, target).large_above_bytes)


def max_output_bytes(batch: Batch, policy: RewriteDataFilesPolicy) -> int:
    """Where the writer rolls to a new file: half-way from the target to a large file, so that no
    tiny remainder is cut off (Iceberg's `writeMaxFileSize`)."""
    target = batch.target_file_size_bytes
    return (target + size_limits(policy, target).large_above_bytes) // 2


def _source(
    bridge: Bridge, table: Table, group: FileGroup, group_id: str, options: Mapping[str, str]
) -> DataFrame:
    """The staged rows; where deletes apply the deleted ones too, marked, so that kept + removed =
    read can be counted.
    """
    frame = read_staged(bridge, table.java, table.name, group_id, options)
    marks = ("_deleted",) if _has_deletes(group) else ()
    return frame.select(*_columns(table), *table.lineage, *marks)


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


def _columns(table: Table) -> list[str]:
    return [fingerprint.quoted(c) for c in table.columns]


def _rows(table: Table, source: DataFrame, group: FileGroup) -> DataFrame:
    if not _has_deletes(group):
        return source
    return source.where("not _deleted").select(*_columns(table), *table.lineage)


def _has_deletes(group: FileGroup) -> bool:
    return any(f.delete_files for f in group.files)


def _measures(table: Table, schema: StructType, group: FileGroup, *, full: bool) -> list[Column]:
    """What is observed of the rows in passing: how many are read and kept, and the fingerprint of
    the kept ones. Nothing at level `footer` where no row is deleted: the writer counts those.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    has_deletes = _has_deletes(group)
    if not (full or has_deletes):
        return []
    kept = ~F.col("_deleted") if has_deletes else None
    taking_part = StructType([f for f in schema.fields if f.name in table.field_ids])
    rows = fingerprint.measures(taking_part, table.field_ids, kept)
    return [F.count(F.lit(1)).alias("read_rows"), *(rows if full else rows[:1])]


# writing


def _check_lineage(batch: Batch, table: Table, rows: DataFrame) -> None:
    missing = [name for name in table.lineage if name not in rows.columns]
    if missing:
        raise RefusedError(
            "ICM-108",
            f"{batch.table}: the rows of a v3 table would be written without {', '.join(missing)}",
            "report this; nothing was written.",
        )


def _write(
    bridge: Bridge,
    rows: DataFrame,
    batch: Batch,
    group: FileGroup,
    group_id: str,
    policy: RewriteDataFilesPolicy,
) -> None:
    if bridge.is_spark_3 and batch.format_version >= 3:
        rows = _with_lineage(rows)
    writer = (
        rows.write.format("iceberg")
        .mode("append")
        .option("target-file-size-bytes", str(max_output_bytes(batch, policy)))
        .option("output-spec-id", str(group.output_spec_id))
    )
    if group.output_spec_id == group.spec_id:
        # One partition stays one partition: nothing to shuffle and nothing to sort.
        writer = writer.option("distribution-mode", "none")
        writer = writer.option("use-table-distribution-and-ordering", "false")
    else:
        writer = writer.option("distribution-mode", "hash")
    if batch.layout is not None and batch.layout.order.sort_order_id:
        writer = writer.option("output-sort-order-id", str(batch.layout.order.sort_order_id))
    if bridge.is_spark_3:
        writer = writer.option("rewritten-file-scan-task-set-id", group_id)
    writer.save(group_id)


def _with_lineage(rows: DataFrame) -> DataFrame:
    """The rows with lineage columns, which Spark 3.5 asks for in every v3 table: NULL where a table that
    became v3 has none yet, as if they were not there."""
    from pyspark.sql import functions as F

    missing = (n for n in fingerprint.LINEAGE if n not in rows.columns)
    return rows.select("*", *(F.lit(None).cast("long").alias(n) for n in missing))


def _new_files(bridge: Bridge, java_table: Any, group_id: str) -> Any:
    files = bridge.iceberg.spark.FileRewriteCoordinator.get().fetchNewFiles(java_table, group_id)
    return bridge.list(()) if files is None else bridge.jvm.java.util.ArrayList(files)


# proving


def _whole_file(bridge: Bridge, table: Table, file: Any) -> Any:
    return scan_task(bridge, table.java, _as_committed(bridge, table, file) if table.lineage else file)


def _as_committed(bridge: Bridge, table: Table, file: Any) -> Any:
    """A copy that Iceberg reads lineage from: without a first row id and a sequence number it
    takes what is stored for NULL. What is not stored would read as these, which no row has.
    """
    content = json.loads(content_json(bridge, table.java, file))
    content["first-row-id"] = _NO_ROW_ID
    copy = revive(bridge, table.java, json.dumps(content))
    copy.setDataSequenceNumber(_NO_ROW_ID)
    return copy


def _footer_difference(
    bridge: Bridge, table: Table, group_tasks: GroupTasks, files: Any, kept_records: int
) -> str | None:
    written = [json.loads(content_json(bridge, table.java, f)) for f in bridge.iterate(files)]
    out = sum(int(f["record-count"]) for f in written)
    if out != kept_records:
        return f"{kept_records} rows were read to be kept, {out} were written"
    if _has_deletes(group_tasks.group):
        return None
    lambdas = bridge.once(Lambdas)
    spec = table.java.specs()[group_tasks.group.spec_id]
    texts = lambdas.texts(group_tasks.tasks.stream().map(lambdas.task_file_json(json_spec(bridge, spec))))
    return footer.difference([json.loads(t) for t in texts], written, table.types)
