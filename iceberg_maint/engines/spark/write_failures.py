"""Converts an exception of Spark during the write of a batch to the error of the batch: a file that cannot be read, memory,
the environment, or an unknown fault.

Spark's exceptions do not name the file. The log of an executor does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from iceberg_maint.core.outcomes.failures import is_damaged_file, long_path
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.engines.spark.deletes.keys import NULL_KEYS
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.conversion import LINEAGE, content_jsons
from iceberg_maint.engines.spark.jvm.functions import JavaFunctions
from iceberg_maint.engines.spark.jvm.java_errors import JVM_ERRORS, causes, failed_by_environment, first_cause
from iceberg_maint.engines.spark.scan.iceberg_reader import IcebergReader
from iceberg_maint.engines.spark.scan.scan import Table, scan_task
from iceberg_maint.engines.spark.scan.staging import plan_tasks, read_staged, staged, wrong_keys
from iceberg_maint.engines.spark.session.executors import ran_out
from iceberg_maint.errors import DELETE_AGAIN, LOST_FILE_FIX, IcebergMaintError, RefusedError, wrong_vector
from iceberg_maint.ports.engine import EngineFailedError, EnvironmentFailedError

_WRONG_CHECKSUM = "CRC checksum verification failed"
_WRONG_CARDINALITY = re.compile(r"Invalid cardinality: (\d+), expected (\d+)")
"""What Iceberg raises for a deletion vector with another number of positions than its manifest states."""
_NOT_UTF8 = "Failed to decode value as UTF-8"
"""What Iceberg raises if it decodes such bounds of a string in a manifest. It then plans no scan."""
_PATH_FIELD_ID = 2147483546
"""The field id of `file_path` in position delete files."""
_WRONG_TYPE = "correct the property schema.name-mapping.default of the table: it gives a column of the file to one of another type."
_REWRITE = "rewrite the files with an engine that reads them."
_RENAME = "rename the column that the message names."
_UNRESOLVED_NAMES = {
    **{f"with name `{column}` cannot be resolved": _RENAME for column in LINEAGE},
    "[AMBIGUOUS_REFERENCE]": _RENAME,
    "names reserved for Iceberg metadata columns": _RENAME,
}
"""A part of what Spark raises if it cannot distinguish the columns of a table, and the fix."""
_BOUNDS_FIX = f"for a delete file, {DELETE_AGAIN} For a data file, {_REWRITE}"
_LACKS_COLUMN = "is not in the store"
_UNREADABLE = {
    "UnsupportedOperationException: ORC cannot read default value": _REWRITE,
    "UnsupportedOperationException: Unsupported type: ": _WRONG_TYPE,
    "ClassCastException: ": _WRONG_TYPE,
    "UUID require 16 bytes": _REWRITE,
    _LACKS_COLUMN: _REWRITE,
    "Unsupported logical type: ": _REWRITE,
    **{
        f"IllegalArgumentException: Not a {kind} type: ": _WRONG_TYPE
        for kind in ("primitive", "list", "map", "struct")
    },
    "IllegalArgumentException: Invalid UUID string: ": _WRONG_TYPE,
}
"""A part of what Iceberg's readers raise for a data file that they cannot read as it is, and the fix. A retry would fail
too."""
_RULE_OF_FORMAT = {
    _LACKS_COLUMN: "; each row group of a Parquet file must have every column of the file's schema"
}


def write_failure(
    batch: Batch,
    why: Exception,
    search: Callable[[], str],
    search_bounds: Callable[[], str],
    search_vector: Callable[[], str],
) -> Exception:
    """Returns the error of a batch whose write raised `why`. `search` returns a data file of the batch that Spark cannot read,
    `search_bounds` a file whose bounds Iceberg cannot read, `search_vector` the place of a deletion vector that it cannot read.
    They return "" if they find none. They are called if the error is that of a file and does not name it."""
    if ran_out(why):
        return IcebergMaintError(
            "ICM-124",
            f"{batch.table}: Spark ran out of memory: its heap was full, or its JVM has died.",
            "raise spark.driver.memory under spark.conf, on a cluster also spark.executor.memory; a row with large values "
            "takes several times their bytes. Or lower windows.max_bytes_per_batch.",
        )
    if (cause := first_cause(why)).endswith(_WRONG_CHECKSUM):
        place = f"of {file}" if (file := search()) else "of a file that Spark's log names"
        message = f"{batch.table}: a page {place} has another checksum than its header states."
        return RefusedError("ICM-101", message, LOST_FILE_FIX)
    if failed_by_environment(why):
        return EnvironmentFailedError(f"{batch.table}: {cause}.")
    if fix := next((fix for text, fix in _UNRESOLVED_NAMES.items() if text in cause), None):
        message = f"{batch.table}: Spark cannot read the columns of the table by their names: {cause}."
        return RefusedError("ICM-135", message, fix)
    if any(_NOT_UTF8 in text for _, text in causes(why)):
        place = search_bounds() or "a file"
        message = f"{batch.table}: the bounds of {place} in its manifest are not UTF-8, so Iceberg cannot plan the scan."
        return RefusedError("ICM-101", message, _BOUNDS_FIX)
    if text := next((t for t in _UNREADABLE if t in cause), None):
        file = search() or "a data file"
        message = (
            f"{batch.table}: Iceberg's reader cannot read {file}: {cause}{_RULE_OF_FORMAT.get(text, '')}."
        )
        return RefusedError("ICM-135", message, _UNREADABLE[text])
    if counts := _WRONG_CARDINALITY.search(cause):
        place = f"The deletion vector in {place}" if (place := search_vector()) else "A deletion vector"
        return RefusedError("ICM-101", f"{batch.table}: {wrong_vector(place, *map(int, counts.groups()))}")
    if NULL_KEYS in cause:
        files = sorted({d.path for d in batch.equality_deletes})
        more = f" or {len(files) - 1} others" if files[1:] else ""
        return wrong_keys(batch.table, f"{NULL_KEYS}: {next(iter(files), '')}{more}")
    if too_long := long_path(batch.partitions, causes(why)):
        return RefusedError(
            "ICM-183",
            f"{batch.table}: {too_long}",
            "set write.object-storage.enabled=true and write.object-storage.partitioned-paths=false on the table, so "
            "that paths have no partition values, or write shorter values.",
        )
    if is_damaged_file(causes(why)):
        place = f"{file}: " if "/" not in cause and (file := search()) else ""
        return RefusedError("ICM-101", f"{batch.table}: {place}{cause}.", LOST_FILE_FIX)
    return EngineFailedError(cause)


def unreadable_file(bridge: Bridge, table: Table, batch: Batch) -> str:
    """The path of a data file of the plan that Spark cannot read, "" if there is none. The function halves the files
    until one remains. It reads each file once at most, and the last one again. Deletes are not applied.
    A failure of the machine says nothing of a file, so it is raised."""
    planned = plan_tasks(bridge, table.java, batch)
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
        except JVM_ERRORS as why:
            if ran_out(why) or failed_by_environment(why):
                raise
            return False
    return True


def unreadable_vector(bridge: Bridge, table: Table, batch: Batch) -> str:
    """The file and the offset of a deletion vector of the plan that Iceberg cannot read, "" if it finds none."""
    reader = IcebergReader(bridge, table.java, ())
    is_vector = bridge.iceberg.util.ContentFileUtil.isDV
    for group_tasks in plan_tasks(bridge, table.java, batch):
        for task in bridge.iterate(group_tasks.tasks):
            for delete in filter(is_vector, bridge.iterate(task.deletes())):
                try:
                    reader.deleted_positions(bridge.list((delete,)), task.file().location())
                except JVM_ERRORS as why:
                    if failed_by_environment(why):
                        raise
                    return f"{delete.location()} at {delete.contentOffset()}"
    return ""


def file_with_unreadable_bounds(bridge: Bridge, table: Table, batch: Batch) -> str:
    """The path of a delete file of the batch's snapshot, or of a data file of the batch, with bounds of a string that are not
    UTF-8, "" if there is none. The function reads the manifests itself, because Iceberg cannot plan the scan."""
    string_ids = {i for i, kind in table.types.items() if kind == "string"} | {_PATH_FIELD_ID}
    java, snapshot = table.java, table.java.snapshot(batch.snapshot_id)
    is_planned = bridge.once(JavaFunctions).location_in(batch.paths())
    read = bridge.iceberg.ManifestFiles
    for manifests, reader, chosen in (
        (snapshot.deleteManifests(java.io()), read.readDeleteManifest, None),
        (snapshot.dataManifests(java.io()), read.read, is_planned),
    ):
        for manifest in bridge.iterate(manifests):
            with closing(reader(manifest, java.io(), java.specs())) as files:
                stream = bridge.once(JavaFunctions).stream(files)
                live = list(bridge.iterate((stream.filter(chosen) if chosen else stream).toList()))
            for content in map(json.loads, content_jsons(bridge, java, live)):
                if not all(map(_is_utf8, _bounds(content, string_ids))):
                    return str(content["file-path"])
    return ""


def _bounds(content: Mapping[str, Any], field_ids: set[int]) -> Iterator[bytes]:
    for bounds in (content.get("lower-bounds"), content.get("upper-bounds")):
        for field_id, value in zip(bounds["keys"], bounds["values"], strict=True) if bounds else ():
            if field_id in field_ids:
                yield bytes.fromhex(value)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
