"""Scans of whole files with every delete that applies to them by the spec.

Iceberg plans them, and leaves out an equality delete whose keys lie outside a file's column bounds. UUIDs it
orders there as Java does, by two signed numbers (`DeleteFileIndex`, `Comparators.forType`;
apache/iceberg#14216), while Parquet and so the bounds in metadata order them by unsigned bytes. A file whose UUIDs
lie on both sides of the sign then seems to hold none of the keys, and its deleted rows are shown, to readers
of Iceberg's alone. To drop such a delete would bring its rows back everywhere; so here it applies.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
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

    `only` is a Java predicate of the tasks wanted, `pruning` an expression true for all their rows.
    """
    # Without ignoreResiduals the filter would also pick deletes by the bounds of columns that are no keys
    # (DeleteFileIndex), and leave out some that apply.
    planned = table.newScan().useSnapshot(snapshot_id).ignoreResiduals()
    if column_stats:
        planned = planned.includeColumnStats()
    if pruning is not None:
        planned = planned.filter(pruning)
    lambdas = bridge.once(JavaFunctions)
    with closing(planned.planFiles()) as files:
        tasks = lambdas.stream(files)
        found = lambdas.to_list(tasks if only is None else tasks.filter(only))
    return _completed(bridge, table, snapshot_id, found)


def scan_task(bridge: Bridge, table: Any, file: Any, deletes: Iterable[Any] = ()) -> Any:
    """A scan task that reads a Java DataFile whole, with these Java DeleteFiles only."""
    iceberg = bridge.iceberg
    everything = iceberg.expressions.ResidualEvaluator.unpartitioned(
        iceberg.expressions.Expressions.alwaysTrue()
    )
    return iceberg.BaseFileScanTask(
        file,
        bridge.array(iceberg.DeleteFile, deletes),
        iceberg.SchemaParser.toJson(table.schema()),
        iceberg.PartitionSpecParser.toJson(table.specs()[file.specId()]),
        everything,
    )


@dataclass(frozen=True, slots=True)
class _Delete:
    """A Java DeleteFile by UUIDs."""

    file: Any
    location: str
    sequence_number: int


class _Deletes:
    """Equality deletes by UUIDs of one snapshot, by what they apply to (spec: "Scan Planning")."""

    def __init__(self, bridge: Bridge, table: Any) -> None:
        self._bridge, self._specs = bridge, table.specs()
        self._everywhere: list[_Delete] = []
        self._places: dict[int, Any] = {}
        self._of_place: list[list[_Delete]] = []

    def add(self, file: Any) -> None:
        """One more."""
        delete = _Delete(file, str(file.location()), int(file.dataSequenceNumber()))
        spec = self._specs.get(file.specId())
        if spec.isUnpartitioned():
            self._everywhere.append(delete)
            return
        kind = spec.partitionType()
        places = self._places.setdefault(
            int(file.specId()), self._bridge.iceberg.util.StructLikeMap.create(kind)
        )
        number = places.get(file.partition())
        if number is None:
            number = len(self._of_place)
            places.put(file.partition(), number)
            self._of_place.append([])
        self._of_place[number].append(delete)

    def of(self, file: Any) -> Iterator[_Delete]:
        """Those that apply to a Java DataFile."""
        places = self._places.get(int(file.specId()))
        number = None if places is None else places.get(file.partition())
        sequence_number = int(file.dataSequenceNumber())
        for delete in (*self._everywhere, *(() if number is None else self._of_place[number])):
            if equality_delete_reaches(delete.sequence_number, sequence_number):
                yield delete


def _completed(bridge: Bridge, table: Any, snapshot_id: int, tasks: Any) -> Any:
    """The tasks with the deletes by UUIDs that the scan has left out."""
    uuids = _uuid_ids(bridge, table)
    if not uuids:
        return tasks
    lambdas = bridge.once(JavaFunctions)
    deletes, found = _Deletes(bridge, table), 0
    for manifest in bridge.iterate(table.snapshot(snapshot_id).deleteManifests(table.io())):
        with closing(
            bridge.iceberg.ManifestFiles.readDeleteManifest(manifest, table.io(), table.specs())
        ) as reader:
            files = lambdas.to_list(lambdas.stream(reader).filter(lambdas.is_equality_delete))
        for file in bridge.iterate(files):
            if uuids.intersection(map(int, bridge.iterate(file.equalityFieldIds()))):
                deletes.add(file)
                found += 1
    if not found:
        return tasks
    return bridge.list(_with(bridge, table, task, deletes.of) for task in bridge.iterate(tasks))


def _with(bridge: Bridge, table: Any, task: Any, of: Callable[[Any], Iterator[_Delete]]) -> Any:
    applied = list(bridge.iterate(task.deletes()))
    known = {str(d.location()) for d in applied}
    missing = [d.file for d in of(task.file()) if d.location not in known]
    return scan_task(bridge, table, task.file(), [*applied, *missing]) if missing else task


def _uuid_ids(bridge: Bridge, table: Any) -> set[int]:
    """Field ids of all columns that are or were UUIDs."""
    found: set[int] = set()
    for schema in table.schemas().values():
        text = str(bridge.iceberg.SchemaParser.toJson(schema))
        if '"uuid"' in text:
            found.update(_ids_in(json.loads(text)))
    return found


def _ids_in(struct: dict[str, Any]) -> Iterator[int]:
    for field in struct["fields"]:
        if field["type"] == "uuid":
            yield int(field["id"])
        elif isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            yield from _ids_in(field["type"])
