"""A Java table, the values that its reads and rewrites share, and the tasks of a scan with all equality deletes.

Iceberg omits an equality delete from a task if its column statistics and those of the data file share no key
(`DeleteFileIndex.canContainEqDeletesForFile`). Several of its rules are wrong (docs/design/decisions/deletes-scope.md): UUIDs compare as
two signed numbers, a required field of an optional struct counts as a field without NULL, and column bounds
can contradict a partition value. This module asks the same index without the statistics of equality deletes.
Then only scope and sequence number decide.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from iceberg_maint.core.model.partition_key import (
    FIRST_SPEC_ID,
    PartitionField,
    PartitionSpec,
    PartitionValue,
    decode_partition,
)
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.conversion import LINEAGE, quoted
from iceberg_maint.engines.spark.jvm.functions import (
    CONTENT_FILE,
    DATA_FILE,
    DELETE_FILES,
    LIST,
    OBJECT,
    STRING,
    TASK,
    JavaFunctions,
)
from iceberg_maint.engines.spark.jvm.java_errors import DEAD_JVM_ERRORS
from iceberg_maint.engines.spark.scan.iceberg_reader import live_delete_files

_INDEX = "org.apache.iceberg.DeleteFileIndex"
_BUILDER = "org.apache.iceberg.DeleteFileIndex$Builder"


def with_all_equality_deletes(bridge: Bridge, table: Any, snapshot_id: int, tasks: Any) -> Any:
    """The tasks of a snapshot (a Java list), each with every equality delete that applies to it by scope and
    sequence number. The result has another order if a task changes."""
    functions = bridge.once(_IndexFunctions)
    equality_deletes = functions.equality_deletes(table, snapshot_id)
    if equality_deletes.isEmpty() or tasks.isEmpty():
        return tasks
    others = tasks.stream().flatMap(functions.task_deletes).filter(functions.is_equality_delete.negate())
    equality_deletes.addAll(functions.to_list(others.distinct()))
    deletes_of = functions.deletes_of_task(table, equality_deletes)
    counts = functions.texts(tasks.stream().map(functions.task_delete_count))
    all_counts = functions.texts(tasks.stream().map(functions.length_of(deletes_of)))
    if counts == all_counts:
        return tasks
    locations = functions.texts(tasks.stream().map(functions.task_location))
    triples = zip(locations, counts, all_counts, strict=True)
    is_incomplete = functions.task_location_in({path for path, count, every in triples if count != every})
    completed = functions.to_list(tasks.stream().filter(is_incomplete.negate()))
    incomplete = functions.to_list(tasks.stream().filter(is_incomplete))
    schema_json = str(bridge.iceberg.SchemaParser.toJson(table.schema()))
    for spec_id in table.specs():
        spec_tasks = incomplete.stream().filter(functions.task_has_spec(int(spec_id)))
        new_task = functions.task_with(schema_json, table.specs()[spec_id], deletes_of)
        completed.addAll(functions.to_list(spec_tasks.map(new_task)))
    return completed


class _IndexFunctions(JavaFunctions):
    """Functions of Iceberg's index of delete files. The index is not public, so its methods are made accessible
    by reflection."""

    def __init__(self, bridge: Bridge) -> None:
        super().__init__(bridge)
        # Java: file -> file.copyWithoutStats()
        self._without_stats = self.function(self.method(CONTENT_FILE, "copyWithoutStats", OBJECT))
        # Java: task -> Integer.toString(task.deletes().size())
        size = self.compose(self._deletes, self.method(LIST, "size", "int"))
        self._int_text = self.static_method("java.lang.Integer", "toString", STRING, "int")
        self.task_delete_count = self.function(self.compose(size, self._int_text))

    def equality_deletes(self, table: Any, snapshot_id: int) -> Any:
        """The live equality deletes of a snapshot without column statistics, as a Java list."""
        manifests = self.bridge.list(table.snapshot(snapshot_id).deleteManifests(table.io()))
        with live_delete_files(self.bridge, table, manifests) as files:
            return self.to_list(files.filter(self.is_equality_delete).map(self._without_stats))

    def deletes_of_task(self, table: Any, delete_files: Any) -> Any:
        """A handle: the delete files among these that apply to a task's data file, as an array."""
        # Java: index = DeleteFileIndex.builderFor(deleteFiles).specsById(specs).schemasById(schemas).build()
        builder = self._method(_INDEX, "builderFor", "java.lang.Iterable").invoke(
            None, self._objects(delete_files)
        )
        for name, value in (("specsById", table.specs()), ("schemasById", table.schemas())):
            self._method(_BUILDER, name, "java.util.Map").invoke(builder, self._objects(value))
        index = self._method(_BUILDER, "build").invoke(builder, self._objects())
        # Java: task -> index.forDataFile((DataFile) task.file())
        find = self.lookup.unreflect(self._method(_INDEX, "forDataFile", DATA_FILE)).bindTo(index)
        return self.compose(self._task_file.asType(self.type_of(DATA_FILE, TASK)), find)

    def length_of(self, deletes_of: Any) -> Any:
        """A function: the number of delete files that `deletes_of` returns, as text."""
        # Java: task -> Integer.toString(deletesOf(task).length)
        length = self.invoke.MethodHandles.arrayLength(self.class_of(DELETE_FILES))
        return self.function(self.compose(self.compose(deletes_of, length), self._int_text))

    def _method(self, owner: str, name: str, *arguments: str) -> Any:
        classes = self.bridge.array(self.bridge.jvm.java.lang.Class, map(self.class_of, arguments))
        method = self.class_of(owner).getDeclaredMethod(name, classes)
        method.setAccessible(True)
        return method

    def _objects(self, *values: Any) -> Any:
        return self.bridge.array(self.bridge.jvm.java.lang.Object, values)


@dataclass(frozen=True, slots=True)
class Table:
    """A Java table, and the values that its reads and rewrites share."""

    java: Any
    name: str
    schema_json: str
    columns: tuple[str, ...]
    field_ids: Mapping[str, int]
    types: Mapping[int, str]

    @property
    def lineage(self) -> tuple[str, ...]:
        """The lineage columns that a write must contain: the columns of `field_ids` that are not in the schema."""
        return tuple(n for n in LINEAGE if n in self.field_ids)


def load_table_info(bridge: Bridge, java: Any, name: str, snapshot_id: int) -> Table:
    """The values of a Java table at a snapshot.

    Rows have lineage if the snapshot has a first row id. A snapshot has none before v3, and none
    if the table became v3 after it.
    """
    schema = java.schema()
    schema_json = str(bridge.iceberg.SchemaParser.toJson(schema))
    fields = json.loads(schema_json)["fields"]
    ids = {f["name"]: f["id"] for f in fields}
    if java.snapshot(snapshot_id).firstRowId() is not None:
        ids |= LINEAGE
    return Table(
        java=java,
        name=name,
        schema_json=schema_json,
        columns=tuple(f["name"] for f in fields),
        field_ids=ids,
        types=_types(bridge, schema, fields),
    )


def _types(bridge: Bridge, schema: Any, fields: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """The type of each field, nested ones included, as Iceberg's text. In a schema's JSON a primitive type has this
    text, and a nested one has none."""
    if all(isinstance(f["type"], str) for f in fields):
        return {f["id"]: f["type"] for f in fields}
    by_id = bridge.iceberg.types.TypeUtil.indexById(schema.asStruct())
    return {int(i): str(by_id[i].type().toString()) for i in by_id}


def quoted_columns(table: Table) -> list[str]:
    return [quoted(c) for c in table.columns]


_EXACT_TYPES = frozenset({"boolean", "int", "string", "date"})
"""py4j and Iceberg's literals carry identity values of these types without a change."""

_MOST_KNOWN = 100


class _KnownSpecs:
    """The values of specs by their schema's and their own JSON: to read them takes some 40 calls."""

    def __init__(self, _bridge: Bridge) -> None:
        self.by_texts: dict[tuple[str, str], dict[int, PartitionSpec]] = {}


def partition_specs(bridge: Bridge, table: Any) -> dict[int, PartitionSpec]:
    """All specs of a Java table as values. Tables of the same schema and spec have the same values."""
    specs = table.specs()
    if specs.size() != 1:
        return spec_values(bridge, specs.values())
    return _known_values(bridge, table.spec())


def metadata_specs(bridge: Bridge, metadata: Any) -> dict[int, PartitionSpec]:
    """All specs of a Java `TableMetadata` as values."""
    specs = metadata.specs()
    if specs.size() != 1:
        return spec_values(bridge, bridge.iterate(specs))
    return _known_values(bridge, specs.get(0))


def _known_values(bridge: Bridge, spec: Any) -> dict[int, PartitionSpec]:
    texts = (
        str(bridge.iceberg.SchemaParser.toJson(spec.schema())),
        str(bridge.iceberg.PartitionSpecParser.toJson(spec)),
    )
    known = bridge.once(_KnownSpecs).by_texts
    if texts not in known:
        if len(known) >= _MOST_KNOWN:
            known.clear()
        known[texts] = spec_values(bridge, [spec])
    return known[texts]


def spec_values(bridge: Bridge, java_specs: Iterable[Any]) -> dict[int, PartitionSpec]:
    """Java specs as values, by id."""
    specs = {}
    for spec in java_specs:
        types = {
            int(f.fieldId()): str(f.type().toString()) for f in bridge.iterate(spec.partitionType().fields())
        }
        fields = tuple(
            PartitionField(
                int(f.fieldId()),
                int(f.sourceId()),
                str(f.name()),
                str(f.transform().toString()),
                types[int(f.fieldId())],
                types[int(f.fieldId())] == "unknown" and not f.transform().isVoid(),
            )
            for f in bridge.iterate(spec.fields())
        )
        specs[int(spec.specId())] = PartitionSpec(int(spec.specId()), fields)
    return specs


def partitions_filter(bridge: Bridge, table: Any, batch: Batch) -> Any | None:
    """A Java expression that is true for every row of the batch's partitions; None if there is none.

    It consists of typed values and transform terms. No value becomes text of a query. A transform of a column that is a
    partition value of another spec is left out: Iceberg compares its result with that value (apache/iceberg#15502).
    """
    specs = partition_specs(bridge, table)
    identities = {f.source_id for spec in specs.values() for f in spec.fields if f.transform == "identity"}
    schema = _bound_schema(bridge, table, batch.snapshot_id)
    expressions = bridge.iceberg.expressions.Expressions
    batch_filter = None
    for key in batch.partitions:
        spec_id, values = decode_partition(key, specs, FIRST_SPEC_ID)
        partition = None
        for field, value in zip(specs[spec_id].fields, values, strict=True):
            if field.transform != "identity" and field.source_id in identities:
                continue
            name = schema.findColumnName(field.source_id)
            term = None if name is None else _predicate(expressions, str(name), field, value)
            if term is not None:
                partition = term if partition is None else getattr(expressions, "and")(partition, term)
        if partition is None:
            return None
        batch_filter = (
            partition if batch_filter is None else getattr(expressions, "or")(batch_filter, partition)
        )
    return batch_filter


def _bound_schema(bridge: Bridge, table: Any, snapshot_id: int) -> Any:
    """The Java schema to which a scan of the snapshot binds the names of its filter: the current schema for the
    current snapshot, even if that is older, else the schema of the snapshot (Iceberg's `SnapshotScan.specs`)."""
    if table.currentSnapshot().snapshotId() == snapshot_id:
        return table.schema()
    return bridge.iceberg.util.SnapshotUtil.schemaFor(table, snapshot_id)


def _predicate(expressions: Any, name: str, field: PartitionField, value: PartitionValue) -> Any | None:
    transform, _, argument = field.transform.partition("[")
    if transform == "identity":
        if value is None:
            return expressions.isNull(name)
        return expressions.equal(name, value) if field.result_type in _EXACT_TYPES else None
    if transform == "bucket":
        term = expressions.bucket(name, int(argument.rstrip("]")))
    elif transform in ("year", "month", "day", "hour"):
        term = getattr(expressions, transform)(name)
    else:
        return None
    return expressions.isNull(term) if value is None else expressions.equal(term, value)


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


def discard_files(table: Any, locations: Iterable[str]) -> None:
    """Deletes files of a Java table that no intent and no metadata name, so that no other process needs them. The orphan scan
    removes a file that cannot be deleted here."""
    with suppress(*DEAD_JVM_ERRORS):
        io = table.io()
        for location in locations:
            with suppress(*DEAD_JVM_ERRORS):
                io.deleteFile(location)


def scan_task(bridge: Bridge, table: Any, file: Any, deletes: Iterable[Any] = ()) -> Any:
    """A scan task that reads a whole Java DataFile and applies these Java DeleteFiles only."""
    iceberg = bridge.iceberg
    return iceberg.BaseFileScanTask(
        file,
        bridge.array(iceberg.DeleteFile, deletes),
        iceberg.SchemaParser.toJson(table.schema()),
        iceberg.PartitionSpecParser.toJson(table.specs()[file.specId()]),
        bridge.all_rows(),
    )
