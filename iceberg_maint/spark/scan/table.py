"""A Java table, and the values that its reads and rewrites share."""

from __future__ import annotations

from collections.abc import Mapping
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
    fields = list(bridge.iterate(java.schema().columns()))
    ids = {str(f.name()): int(f.fieldId()) for f in fields}
    if java.snapshot(snapshot_id).firstRowId() is not None:
        ids |= LINEAGE
    by_id = bridge.iceberg.types.TypeUtil.indexById(java.schema().asStruct())
    return Table(
        java=java,
        name=name,
        schema_json=str(bridge.iceberg.SchemaParser.toJson(java.schema())),
        columns=tuple(str(f.name()) for f in fields),
        field_ids=ids,
        types={int(i): str(by_id[i].type().toString()) for i in by_id},
    )


def quoted_columns(table: Table) -> list[str]:
    return [quoted(c) for c in table.columns]
