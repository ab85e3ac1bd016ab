"""A Java table, and the values that its reads and rewrites share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
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
from iceberg_maint.engines.spark.jvm.functions import JavaFunctions
from iceberg_maint.engines.spark.jvm.local_frame import LINEAGE, quoted
from iceberg_maint.engines.spark.scan.delete_index import with_all_equality_deletes


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

    It consists of typed values and transform terms. No value becomes text of a query.
    """
    specs = partition_specs(bridge, table)
    schema = _bound_schema(bridge, table, batch.snapshot_id)
    expressions = bridge.iceberg.expressions.Expressions
    batch_filter = None
    for key in batch.partitions:
        spec_id, values = decode_partition(key, specs, FIRST_SPEC_ID)
        partition = None
        for field, value in zip(specs[spec_id].fields, values, strict=True):
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
