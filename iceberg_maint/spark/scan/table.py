"""A Java table with what reading and rewriting it needs to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.jvm.columns import LINEAGE, quoted

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class Table:
    """A Java table with what a rewrite of it needs to know."""

    java: Any
    name: str
    schema_json: str
    columns: tuple[str, ...]
    field_ids: Mapping[str, int]
    types: Mapping[int, str]

    @property
    def lineage(self) -> tuple[str, ...]:
        """The lineage columns a write must carry: those of `field_ids` that are not the table's."""
        return tuple(n for n in LINEAGE if n in self.field_ids)


def load_table_info(bridge: Bridge, java: Any, name: str, snapshot_id: int) -> Table:
    """The values of a Java table that all groups of a batch share.

    Rows have lineage at this snapshot when it has a first row id: not before v3, nor yet in a
    table that became v3 since.
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
