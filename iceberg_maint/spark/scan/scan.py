"""Scans whole files with every delete that applies to them by the spec.

Iceberg plans the scan. It omits an equality delete whose keys lie outside a file's column bounds. There it
orders UUIDs as Java does, by two signed numbers (`DeleteFileIndex`, `Comparators.forType`;
apache/iceberg#14216). Parquet, and therefore the bounds in metadata, order them by unsigned bytes. A file with UUIDs
on both sides of the sign then seems to have none of the keys. Iceberg's readers show its deleted rows; other
readers do not. If maintenance dropped such a delete, the rows would come back in every reader. Therefore the delete
applies here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from iceberg_maint.core.model.delete_rule import equality_delete_reaches
from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.jvm.functions import JavaFunctions


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
    return _with_uuid_deletes(bridge, table, snapshot_id, tasks)


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


@dataclass(frozen=True, slots=True)
class _Delete:
    """A Java DeleteFile whose keys contain a UUID."""

    file: Any
    location: str
    sequence_number: int


class _DeleteIndex:
    """The equality deletes by UUIDs of one snapshot, by the partition that they apply to (spec: "Scan Planning")."""

    def __init__(self, bridge: Bridge, table: Any) -> None:
        self._bridge, self._specs = bridge, table.specs()
        self._everywhere: list[_Delete] = []
        # By spec id, a Java map from a partition to its index in `_by_partition`.
        self._partition_numbers: dict[int, Any] = {}
        self._by_partition: list[list[_Delete]] = []

    def add(self, file: Any) -> None:
        """Adds a Java DeleteFile."""
        delete = _Delete(file, str(file.location()), int(file.dataSequenceNumber()))
        spec = self._specs.get(file.specId())
        if spec.isUnpartitioned():
            self._everywhere.append(delete)
            return
        numbers = self._partition_numbers.setdefault(
            int(file.specId()), self._bridge.iceberg.util.StructLikeMap.create(spec.partitionType())
        )
        number = numbers.get(file.partition())
        if number is None:
            number = len(self._by_partition)
            numbers.put(file.partition(), number)
            self._by_partition.append([])
        self._by_partition[number].append(delete)

    def find(self, file: Any) -> Iterator[_Delete]:
        """The deletes that apply to a Java DataFile."""
        numbers = self._partition_numbers.get(int(file.specId()))
        number = None if numbers is None else numbers.get(file.partition())
        sequence_number = int(file.dataSequenceNumber())
        for delete in (*self._everywhere, *(() if number is None else self._by_partition[number])):
            if equality_delete_reaches(delete.sequence_number, sequence_number):
                yield delete


def _with_uuid_deletes(bridge: Bridge, table: Any, snapshot_id: int, tasks: Any) -> Any:
    """The tasks, each with the deletes by UUIDs that Iceberg's scan omitted."""
    uuids = _uuid_ids(bridge, table)
    if not uuids:
        return tasks
    lambdas = bridge.once(JavaFunctions)
    deletes, count = _DeleteIndex(bridge, table), 0
    for manifest in bridge.iterate(table.snapshot(snapshot_id).deleteManifests(table.io())):
        with closing(
            bridge.iceberg.ManifestFiles.readDeleteManifest(manifest, table.io(), table.specs())
        ) as reader:
            files = lambdas.to_list(lambdas.stream(reader).filter(lambdas.is_equality_delete))
        for file in bridge.iterate(files):
            if uuids.intersection(map(int, bridge.iterate(file.equalityFieldIds()))):
                deletes.add(file)
                count += 1
    if not count:
        return tasks
    return bridge.list(_complete_task(bridge, table, task, deletes) for task in bridge.iterate(tasks))


def _complete_task(bridge: Bridge, table: Any, task: Any, deletes: _DeleteIndex) -> Any:
    applied = list(bridge.iterate(task.deletes()))
    locations = {str(d.location()) for d in applied}
    missing = [d.file for d in deletes.find(task.file()) if d.location not in locations]
    return scan_task(bridge, table, task.file(), [*applied, *missing]) if missing else task


def _uuid_ids(bridge: Bridge, table: Any) -> set[int]:
    """Field ids of the columns that are UUIDs in any schema of the table."""
    ids: set[int] = set()
    for schema in table.schemas().values():
        text = str(bridge.iceberg.SchemaParser.toJson(schema))
        if '"uuid"' in text:
            ids.update(_uuid_ids_of_struct(json.loads(text)))
    return ids


def _uuid_ids_of_struct(struct: dict[str, Any]) -> Iterator[int]:
    for field in struct["fields"]:
        if field["type"] == "uuid":
            yield int(field["id"])
        elif isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            yield from _uuid_ids_of_struct(field["type"])
