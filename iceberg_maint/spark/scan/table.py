"""A Java table, and the values that its reads and rewrites share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.jvm.columns import LINEAGE, quoted


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
