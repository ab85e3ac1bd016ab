"""The row group size of a rewrite's files: small enough for parallel reads.

Readers split Parquet files between row groups only. One task reads each of many small files. If the
rewritten file had one row group, one task would read all of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from iceberg_maint.core.health.thresholds import size_limits
from iceberg_maint.core.model.table_state import LayoutOrder
from iceberg_maint.core.outcomes.verification import Fingerprint
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import FileGroup, RewriteDataFiles
from iceberg_maint.core.policy.data import ProofLevel, RewriteDataFilesPolicy
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.conversion import LINEAGE
from iceberg_maint.engines.spark.jvm.jobs import PROOF
from iceberg_maint.engines.spark.rewrite.sort import sorted_rows
from iceberg_maint.engines.spark.scan import row_proof
from iceberg_maint.engines.spark.scan.footer_proof import footer_difference
from iceberg_maint.engines.spark.scan.row_proof import (
    fingerprint_files,
    has_deletes,
    observed_measures,
)
from iceberg_maint.engines.spark.scan.scan import Table, quoted_columns
from iceberg_maint.engines.spark.scan.staging import GroupTasks, check_reads_staged, read_staged, staged
from iceberg_maint.errors import WRONG_COUNT_FIX, RefusedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter

ROW_GROUP_PROPERTY = "write.parquet.row-group-size-bytes"
_DEFAULT_BYTES = 128 * 1024 * 1024
LEAST_BYTES = 8 * 1024 * 1024
"""Two row groups of this size and the cost of opening a file exceed Iceberg's smallest split
(`TableScanUtil.MIN_SPLIT_SIZE`, 16 MiB). Iceberg would combine smaller row groups into one split."""


def row_group_bytes(input_bytes: int, parallelism: int, table_bytes: int) -> int:
    """The row group size for a rewrite of `input_bytes`: the table's size, or less if one scan would have more
    tasks than row groups."""
    share = -(-input_bytes // max(1, parallelism))
    return min(table_bytes, max(LEAST_BYTES, share))


def with_row_groups(bridge: Bridge, table: Any, input_bytes: int) -> Any:
    """The Java table with the row group size for a write of `input_bytes`. The change is not committed.

    A table with encrypted files does not change, because the copy would not have the keys.
    """
    is_plaintext = "PlaintextEncryptionManager" in str(table.encryption().getClass().getSimpleName())
    table_bytes = int(table.properties().getOrDefault(ROW_GROUP_PROPERTY, str(_DEFAULT_BYTES)))
    parallelism = bridge.parallelism
    size_bytes = row_group_bytes(input_bytes, parallelism, table_bytes)
    if not is_plaintext or size_bytes >= table_bytes or input_bytes <= LEAST_BYTES:
        return table
    metadata = table.operations().current()
    builder = bridge.iceberg.TableMetadata.buildFrom(metadata)
    properties = bridge.map([(ROW_GROUP_PROPERTY, str(size_bytes))])
    location = metadata.metadataFileLocation()
    copy = builder.setProperties(properties).discardChanges().withMetadataLocation(location).build()
    operations = bridge.iceberg.StaticTableOperations(copy, table.io(), table.locationProvider())
    return bridge.iceberg.BaseTable(operations, table.name())


_SPLIT_OVERHEAD_BYTES = 5 * 1024
"""Iceberg's `SizeBasedFileRewritePlanner.SPLIT_OVERHEAD`. Without it a rounding error could add a split."""


@dataclass(frozen=True, slots=True)
class GroupResult:
    """The files that one group wrote, as Java DataFiles in a `java.util.List`, and the values of its proof.

    `read_records` = `kept_records` + rows removed by deletes. `difference` is None if the proof
    holds. `before` is None at proof level `footer`.
    """

    files: Any
    read_records: int
    kept_records: int
    before: Fingerprint | None
    difference: str | None


def rewrite_group(
    bridge: Bridge,
    table: Table,
    batch: Batch,
    group_tasks: GroupTasks,
    policy: RewriteDataFilesPolicy,
    codec: str,
) -> GroupResult:
    """Writes the replacement of one group and proves it. Commits nothing. `codec` is that of Parquet files, "" of others.

    Raises RefusedError ICM-101 if Spark read other files or rows than the plan lists, ICM-108
    if a row would lose its lineage. The result may be empty, because deletes may have removed every row.
    """
    group = group_tasks.group
    full = policy.proof is ProofLevel.FULL
    planned = sum(f.record_count for f in group.files)
    values: dict[str, Any] = {"read_rows": planned, "rows": planned}
    write_table = with_row_groups(bridge, table.java, group.input_bytes)
    with staged(bridge, write_table, group_tasks.tasks) as group_id:
        from pyspark.sql import Observation

        source = _source(bridge, table, group, group_id, _read_options(batch, group, policy))
        check_reads_staged(batch.table, source, group_id)
        measures = observed_measures(table, source.schema, group, full=full)
        observation = Observation()
        rows = _rows(table, source.observe(observation, *measures) if measures else source, group)
        if (order := _order(batch)) is not None:
            unobserved = _rows(table, source, group)
            rows = sorted_rows(rows, unobserved, order, group.expected_output_files, planned)
        _check_lineage(batch, table, rows)
        if batch.format_version >= 3:
            rows = _with_lineage(rows)
        writer = rows.write.format("iceberg").mode("append")
        if codec:
            writer = writer.option("compression-codec", codec)
        _write(bridge, writer, batch, group, group_id, policy)
        files = _new_files(bridge, table.java, group_id)
        bridge.spark.sparkContext.setJobDescription(f"{batch.table} {PROOF} (batch {batch.batch_id})")
        after = fingerprint_files(bridge, table, files) if full else None
        if measures:
            values = observation.get
            if values["read_rows"] != planned or (full and row_proof.fingerprint_of(values) != after):
                # An observation counts a retried stage twice. Measure again before the group is refused.
                values = source.agg(*measures).collect()[0].asDict()
        if values["read_rows"] != planned:
            _check_counts(bridge, table, batch, group_tasks, group_id)
            what = f"{batch.table}: Spark read other rows than those of the {len(group.files)} planned files."
            raise RefusedError("ICM-101", what, "report this; nothing was committed.")
        before = row_proof.fingerprint_of(values) if full else None
        kept_records = int(values["rows"])
        if full:
            difference = None if before == after else f"rows in {before} are not the rows out {after}"
        elif difference := footer_difference(bridge, table, group_tasks, files, kept_records):
            _check_counts(bridge, table, batch, group_tasks, group_id)
    return GroupResult(files, planned, kept_records, before, difference)


def _check_counts(bridge: Bridge, table: Table, batch: Batch, group_tasks: GroupTasks, group_id: str) -> None:
    """Raises RefusedError ICM-101 for the first staged file that has more or fewer rows than the plan states. Rows that
    deletes remove are rows of the file: they are read only where `_deleted` is selected."""
    frame = read_staged(bridge, table.java, table.name, group_id)
    rows: Counter[str] = Counter()
    for path, _, count in frame.groupBy("_file", "_deleted").count().collect():
        rows[path] += count
    for file in group_tasks.group.files:
        if rows[file.path] != file.record_count:
            what = f"{batch.table}: Spark reads {rows[file.path]} rows of {file.path}; its manifest states {file.record_count}."
            raise RefusedError("ICM-101", what, WRONG_COUNT_FIX)


def _order(batch: Batch) -> LayoutOrder | None:
    """The order in which the batch writes rows; None if it keeps their present order."""
    work = batch.work
    return work.layout.order if isinstance(work, RewriteDataFiles) and work.layout is not None else None


def _read_options(batch: Batch, group: FileGroup, policy: RewriteDataFilesPolicy) -> dict[str, str]:
    """The options for splits that become one output file each. A sort reads the default splits."""
    if _order(batch) is not None:
        return {}
    return {"split-size": str(split_bytes(batch, group, policy)), "file-open-cost": "0"}


def split_bytes(batch: Batch, group: FileGroup, policy: RewriteDataFilesPolicy) -> int:
    """Input bytes per output file (Iceberg's `inputSplitSize`)."""
    target = batch.target_file_size_bytes
    share = group.input_bytes // max(1, group.expected_output_files) + _SPLIT_OVERHEAD_BYTES
    return min(max(share, target), size_limits(policy, target).large_above_bytes)


def max_output_bytes(batch: Batch, policy: RewriteDataFilesPolicy) -> int:
    """The size at which the writer starts a new file: half-way from the target to a large file. A smaller size
    would leave a tiny last file (Iceberg's `writeMaxFileSize`)."""
    target = batch.target_file_size_bytes
    return (target + size_limits(policy, target).large_above_bytes) // 2


def _source(
    bridge: Bridge, table: Table, group: FileGroup, group_id: str, options: Mapping[str, str]
) -> DataFrame:
    """The staged rows. If deletes apply, they include the deleted rows and the column `_deleted`, so that
    kept + removed = read can be checked.
    """
    frame = read_staged(bridge, table.java, table.name, group_id, options)
    deleted = ("_deleted",) if has_deletes(group) else ()
    return frame.select(*quoted_columns(table), *table.lineage, *deleted)


def _rows(table: Table, source: DataFrame, group: FileGroup) -> DataFrame:
    if not has_deletes(group):
        return source
    return source.where("not _deleted").select(*quoted_columns(table), *table.lineage)


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
    writer: DataFrameWriter,
    batch: Batch,
    group: FileGroup,
    group_id: str,
    policy: RewriteDataFilesPolicy,
) -> None:
    writer = writer.option("target-file-size-bytes", str(max_output_bytes(batch, policy)))
    writer = writer.option("output-spec-id", str(group.output_spec_id))
    if group.output_spec_id == group.spec_id:
        # The rows stay in their partition, so the write needs no shuffle and no sort.
        writer = writer.option("distribution-mode", "none")
        writer = writer.option("use-table-distribution-and-ordering", "false")
    else:
        writer = writer.option("distribution-mode", "hash")
    order = _order(batch)
    if order is not None and order.sort_order_id:
        writer = writer.option("output-sort-order-id", str(order.sort_order_id))
    if bridge.is_spark_3:
        writer = writer.option("rewritten-file-scan-task-set-id", group_id)
    writer.save(group_id)


def _with_lineage(rows: DataFrame) -> DataFrame:
    """The rows with lineage columns, which Spark 3.5 requires in every v3 table and Spark 4.1 adds itself. They are NULL
    if a table that became v3 has no row ids yet, which has the same effect as no columns."""
    from pyspark.sql import functions as F

    missing = (n for n in LINEAGE if n not in rows.columns)
    return rows.select("*", *(F.lit(None).cast("long").alias(n) for n in missing))


def _new_files(bridge: Bridge, java_table: Any, group_id: str) -> Any:
    files = bridge.iceberg.spark.FileRewriteCoordinator.get().fetchNewFiles(java_table, group_id)
    return bridge.list(()) if files is None else bridge.jvm.java.util.ArrayList(files)
