"""Scans whole files with every delete that applies to them by the spec.

Iceberg plans the scan. It omits an equality delete if the column statistics of the two files share no key, and
some of its rules for that are wrong. Iceberg's readers then show deleted rows; other readers do not. If maintenance
dropped such a delete, the rows would come back in every reader. Therefore statistics omit no delete here
(`spark.scan.delete_index`).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Any

from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.jvm.functions import JavaFunctions
from iceberg_maint.spark.scan.delete_index import with_all_equality_deletes


def scan(
    bridge: Bridge,
    table: Any,
    snapshot_id: int,
    *,
    only: Any | None = None,
    pruning: Any | None = None,
    column_stats: bool = False,
) -> Any:
    """The scan tasks of a snapshot of a Java table, one for each data file, as a `java.util.List`.

    `only` is a Java predicate that selects tasks. `pruning` is an expression that is true for all their rows.
    """
    # Without ignoreResiduals the filter would also select deletes by the bounds of columns that are not keys
    # (DeleteFileIndex), and omit deletes that apply.
    table_scan = table.newScan().useSnapshot(snapshot_id).ignoreResiduals()
    if column_stats:
        table_scan = table_scan.includeColumnStats()
    if pruning is not None:
        table_scan = table_scan.filter(pruning)
    lambdas = bridge.once(JavaFunctions)
    with closing(table_scan.planFiles()) as files:
        stream = lambdas.stream(files)
        tasks = lambdas.to_list(stream if only is None else stream.filter(only))
    return with_all_equality_deletes(bridge, table, snapshot_id, tasks)


def scan_task(bridge: Bridge, table: Any, file: Any, deletes: Iterable[Any] = ()) -> Any:
    """A scan task that reads a whole Java DataFile and applies these Java DeleteFiles only."""
    iceberg = bridge.iceberg
    all_rows = iceberg.expressions.ResidualEvaluator.unpartitioned(
        iceberg.expressions.Expressions.alwaysTrue()
    )
    return iceberg.BaseFileScanTask(
        file,
        bridge.array(iceberg.DeleteFile, deletes),
        iceberg.SchemaParser.toJson(table.schema()),
        iceberg.PartitionSpecParser.toJson(table.specs()[file.specId()]),
        all_rows,
    )
