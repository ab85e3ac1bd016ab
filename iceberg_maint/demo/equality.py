"""Change data capture by Iceberg's own Java writers: equality deletes, as Flink leaves them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from iceberg_maint.spark.bridge import Bridge

Row = Mapping[str, Any]


def append_upserts(session: Any, table_name: str, key: str, rows: Sequence[Row]) -> None:
    """Commits one row delta to an unpartitioned table: the rows of these keys are deleted by an
    equality delete file, and the given ones are added.

    Values are texts and 32-bit integers; keys are distinct and not null.
    """
    bridge = Bridge(session)
    table = bridge.load_table(table_name)
    schema = table.schema()
    key_schema = schema.select(bridge.list([key]))
    key_ids = bridge.ints([schema.findField(key).fieldId()])
    factory = _builder(bridge, table).equalityFieldIds(key_ids).equalityDeleteRowSchema(key_schema).build()
    deletes = factory.newEqualityDeleteWriter(_output(bridge, table), table.spec(), None)
    for row in rows:
        deletes.write(_record(bridge, key_schema, {key: row[key]}))
    deletes.close()
    data = _builder(bridge, table).build().newDataWriter(_output(bridge, table), table.spec(), None)
    for row in rows:
        data.write(_record(bridge, schema, row))
    data.close()
    table.newRowDelta().addDeletes(deletes.toDeleteFile()).addRows(data.toDataFile()).commit()


def _builder(bridge: Bridge, table: Any) -> Any:
    return getattr(bridge.iceberg.data, "GenericFileWriterFactory$Builder")(table)


def _output(bridge: Bridge, table: Any) -> Any:
    factory = bridge.iceberg.io.OutputFileFactory.builderFor(table, 1, uuid.uuid4().int % 2**31)
    return factory.format(bridge.iceberg.FileFormat.PARQUET).build().newOutputFile(table.spec(), None)


def _record(bridge: Bridge, schema: Any, row: Row) -> Any:
    record = bridge.iceberg.data.GenericRecord.create(schema)
    for name, value in row.items():
        record.setField(name, value)
    return record
