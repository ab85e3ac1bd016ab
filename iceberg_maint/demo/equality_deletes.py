"""Change data capture with Iceberg's Java writers: equality deletes as Flink writes them."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from iceberg_maint.engines.spark.jvm.bridge import Bridge

Row = Mapping[str, Any]


def append_upserts(
    session: Any,
    table_name: str,
    key: Sequence[str],
    rows: Sequence[Row],
    *,
    gone: Sequence[Row] = (),
    summary: Mapping[str, str] | None = None,
) -> None:
    """Commits one row delta. Equality delete files, one per partition, delete the keys of `rows` and `gone`.
    Data files add `rows`. `summary` goes into the snapshot's summary.

    Values are strings, 32-bit integers, doubles and None; keys are distinct and not null. The table has
    identity partitions on columns of the key, or no partitions.
    """
    bridge = Bridge(session)
    table = bridge.load_table(table_name)
    schema = table.schema()
    key_schema = schema.select(bridge.list(key))
    key_ids = bridge.ints([schema.findField(column).fieldId() for column in key])
    deleting = _builder(bridge, table).equalityFieldIds(key_ids).equalityDeleteRowSchema(key_schema).build()
    adding = _builder(bridge, table).build()
    delta = table.newRowDelta()
    added = _by_partition(bridge, table, rows)
    for values, part in _by_partition(bridge, table, [*rows, *gone]).items():
        partition = _partition(bridge, table, values)
        deletes = deleting.newEqualityDeleteWriter(_output(bridge, table, partition), table.spec(), partition)
        for row in part:
            deletes.write(_record(bridge, key_schema, {column: row[column] for column in key}))
        deletes.close()
        delta.addDeletes(deletes.toDeleteFile())
        if values not in added:
            continue
        data = adding.newDataWriter(_output(bridge, table, partition), table.spec(), partition)
        for row in added[values]:
            data.write(_record(bridge, schema, row))
        data.close()
        delta.addRows(data.toDataFile())
    for name, text in (summary or {}).items():
        delta.set(name, text)
    delta.commit()


def _by_partition(bridge: Bridge, table: Any, rows: Sequence[Row]) -> Mapping[tuple[Any, ...], list[Row]]:
    schema = table.schema()
    columns = [schema.findColumnName(field.sourceId()) for field in bridge.iterate(table.spec().fields())]
    parts: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        parts[tuple(row[column] for column in columns)].append(row)
    return parts


def _partition(bridge: Bridge, table: Any, values: Sequence[Any]) -> Any:
    if not values:
        return None
    partition = bridge.iceberg.PartitionData(table.spec().partitionType())
    for position, value in enumerate(values):
        partition.set(position, value)
    return partition


def _builder(bridge: Bridge, table: Any) -> Any:
    return getattr(bridge.iceberg.data, "GenericFileWriterFactory$Builder")(table)


def _output(bridge: Bridge, table: Any, partition: Any) -> Any:
    factory = bridge.iceberg.io.OutputFileFactory.builderFor(table, 1, uuid.uuid4().int % 2**31)
    files = factory.format(bridge.iceberg.FileFormat.PARQUET).build()
    # As Iceberg's writers do. With a partition of no fields the location has an empty part: data//FILE.
    return files.newOutputFile() if partition is None else files.newOutputFile(table.spec(), partition)


def _record(bridge: Bridge, schema: Any, row: Row) -> Any:
    record = bridge.iceberg.data.GenericRecord.create(schema)
    for name, value in row.items():
        record.setField(name, value)
    return record
