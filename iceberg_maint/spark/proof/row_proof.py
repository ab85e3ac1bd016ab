"""The proof of a rewrite: rows of files that need not be committed, fingerprinted or compared by footers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from iceberg_maint.core.outcomes.proof import Fingerprint
from iceberg_maint.core.planning.inputs import FileGroup
from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.jvm.content_files import content_file_from_json, content_json, json_spec
from iceberg_maint.spark.jvm.functions import JavaFunctions
from iceberg_maint.spark.proof import fingerprint, footer
from iceberg_maint.spark.scan.scan import scan_task
from iceberg_maint.spark.scan.staging import GroupTasks, read_staged, staged
from iceberg_maint.spark.scan.table import Table, quoted_columns

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

_NO_ROW_ID = 1 << 60
"""Far above all row ids and sequence numbers; also above what py4j would hand over as an Integer."""


def fingerprint_files(bridge: Bridge, table: Table, files: Any) -> Fingerprint:
    """The fingerprint of data files (a Java list) that need not be committed, read without deletes."""
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
    """What is observed of the rows in passing: how many are read and kept, and the fingerprint of
    the kept ones. Nothing at level `footer` where no row is deleted: the writer counts those.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    deletes_apply = has_deletes(group)
    if not (full or deletes_apply):
        return []
    kept = ~F.col("_deleted") if deletes_apply else None
    taking_part = StructType([f for f in schema.fields if f.name in table.field_ids])
    rows = fingerprint.measures(taking_part, table.field_ids, kept)
    return [F.count(F.lit(1)).alias("read_rows"), *(rows if full else rows[:1])]


def _whole_file(bridge: Bridge, table: Table, file: Any) -> Any:
    return scan_task(bridge, table.java, _as_committed(bridge, table, file) if table.lineage else file)


def _as_committed(bridge: Bridge, table: Table, file: Any) -> Any:
    """A copy that Iceberg reads lineage from: without a first row id and a sequence number it
    takes what is stored for NULL. What is not stored would read as these, which no row has.
    """
    content = json.loads(content_json(bridge, table.java, file))
    content["first-row-id"] = _NO_ROW_ID
    copy = content_file_from_json(bridge, table.java, json.dumps(content))
    copy.setDataSequenceNumber(_NO_ROW_ID)
    return copy


def footer_difference(
    bridge: Bridge, table: Table, group_tasks: GroupTasks, files: Any, kept_records: int
) -> str | None:
    written = [json.loads(content_json(bridge, table.java, f)) for f in bridge.iterate(files)]
    out = sum(int(f["record-count"]) for f in written)
    if out != kept_records:
        return f"{kept_records} rows were read to be kept, {out} were written"
    if has_deletes(group_tasks.group):
        return None
    lambdas = bridge.once(JavaFunctions)
    spec = table.java.specs()[group_tasks.group.spec_id]
    texts = lambdas.texts(group_tasks.tasks.stream().map(lambdas.task_file_json(json_spec(bridge, spec))))
    return footer.difference([json.loads(t) for t in texts], written, table.types)
