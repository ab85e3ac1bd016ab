"""Finds the data file that Spark cannot read. Its exceptions do not name the file; the log of an executor does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from iceberg_maint.engines.spark.jvm.bridge import JVM_ERRORS, Bridge
from iceberg_maint.engines.spark.jvm.functions import JavaFunctions
from iceberg_maint.engines.spark.scan.scan import Table, scan_task
from iceberg_maint.engines.spark.scan.staging import GroupTasks, read_staged, staged


def unreadable_file(bridge: Bridge, table: Table, planned: Sequence[GroupTasks]) -> str:
    """The path of a data file of the plan that Spark cannot read, "" if it finds none. It halves the files
    until one is left, so it reads the files of the plan once at most, and the last one again. Deletes are not applied."""
    functions = bridge.once(JavaFunctions)
    files = [
        file
        for group_tasks in planned
        for file in bridge.iterate(functions.to_list(group_tasks.tasks.stream().map(functions.task_file)))
    ]
    while len(files) > 1:
        half = files[: len(files) // 2]
        files = files[len(half) :] if _is_read(bridge, table, half) else half
    return "" if _is_read(bridge, table, files) else str(files[0].location())


def _is_read(bridge: Bridge, table: Table, files: Sequence[Any]) -> bool:
    if not files:
        return True
    tasks = bridge.list(scan_task(bridge, table.java, f) for f in files)
    with staged(bridge, table.java, tasks) as group_id:
        try:
            frame = read_staged(bridge, table.java, table.name, group_id)
            frame.write.format("noop").mode("overwrite").save()
        except JVM_ERRORS:
            return False
    return True
