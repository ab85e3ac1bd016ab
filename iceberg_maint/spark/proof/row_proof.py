"""The proof of a rewrite: fingerprints rows of files before their commit, or compares the files' footers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from iceberg_maint.core.outcomes.proof import Fingerprint
from iceberg_maint.core.planning.inputs import FileGroup
from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.jvm.content_files import content_json, json_spec
from iceberg_maint.spark.jvm.functions import JavaFunctions
from iceberg_maint.spark.proof import fingerprint, footer
from iceberg_maint.spark.scan.scan import scan_task
from iceberg_maint.spark.scan.staging import GroupTasks, read_staged, staged
from iceberg_maint.spark.scan.table import Table, quoted_columns

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

_NO_ROW_ID = 1 << 60
"""Above all row ids and sequence numbers. It is also too large for py4j to pass as a Java Integer."""


def fingerprint_files(bridge: Bridge, table: Table, files: Any) -> Fingerprint:
    """The fingerprint of data files (a Java list), read without deletes. The files may be uncommitted."""
    if files.isEmpty():
        return fingerprint.total(())
    tasks = bridge.list(_whole_file(bridge, table, f) for f in bridge.iterate(files))
    with staged(bridge, table.java, tasks) as group_id:
        frame = read_staged(bridge, table.java, table.name, group_id)
        frame = frame.select(*quoted_columns(table), *table.lineage)
        row = frame.agg(*fingerprint.measures(frame.schema, table.field_ids)).collect()[0]
    return fingerprint.fingerprint_of(row.asDict())


def has_deletes(group: FileGroup) -> bool:
    return any(f.delete_files for f in group.files)


def observed_measures(table: Table, schema: StructType, group: FileGroup, *, full: bool) -> list[Column]:
    """The aggregates that the rewrite's pass computes: the number of rows read and kept, and the fingerprint of
    the kept rows. Without deletes there are none at level `footer`, because the writer counts the rows.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    deletes_apply = has_deletes(group)
    if not (full or deletes_apply):
        return []
    kept = ~F.col("_deleted") if deletes_apply else None
    included = StructType([f for f in schema.fields if f.name in table.field_ids])
    rows = fingerprint.measures(included, table.field_ids, kept)
    return [F.count(F.lit(1)).alias("read_rows"), *(rows if full else rows[:1])]


def _whole_file(bridge: Bridge, table: Table, file: Any) -> Any:
    return scan_task(bridge, table.java, _as_committed(bridge, table, file) if table.lineage else file)


def _as_committed(bridge: Bridge, table: Table, file: Any) -> Any:
    """A copy of an uncommitted file from which Iceberg reads the stored lineage.

    Without a first row id and a sequence number Iceberg would read the stored lineage as NULL. The copy has
    values that no row has, so lineage that is not stored reads as these values.
    """
    # Not by way of JSON: Iceberg's parser cannot read a NaN or an infinity that it wrote.
    builder = bridge.iceberg.DataFiles.builder(table.java.specs()[file.specId()])
    copy = builder.copy(file).withFirstRowId(_NO_ROW_ID).build()
    copy.setDataSequenceNumber(_NO_ROW_ID)
    return copy


def footer_difference(
    bridge: Bridge, table: Table, group_tasks: GroupTasks, files: Any, kept_records: int
) -> str | None:
    """The first difference between the group's input files and the written files, by footers; None if there is
    none. If deletes apply, only the number of rows is compared."""
    written = [json.loads(content_json(bridge, table.java, f)) for f in bridge.iterate(files)]
    written_records = sum(int(f["record-count"]) for f in written)
    if written_records != kept_records:
        return f"{kept_records} rows were read to be kept, {written_records} were written"

    if has_deletes(group_tasks.group):
        return None
    lambdas = bridge.once(JavaFunctions)
    spec = table.java.specs()[group_tasks.group.spec_id]
    texts = lambdas.texts(group_tasks.tasks.stream().map(lambdas.task_file_json(json_spec(bridge, spec))))
    return footer.difference([json.loads(t) for t in texts], written, table.types)
