"""The names of tables with the attributes that `translation` of the component changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import dagster as dg
from dagster.components.utils.translation import TranslationFn
from pydantic import BaseModel

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.assets.table_specs import table_spec
from iceberg_maint.defs.translator import IcebergTranslator


class TableProps(BaseModel):
    """What `translation` sees of a table, as `props`."""

    catalog: str
    namespace: str
    table: str


class TranslatedNames(IcebergTranslator):
    """The names of another translator, with the attributes that `translation` changes."""

    def __init__(self, names: IcebergTranslator, translation: TranslationFn[TableProps]) -> None:
        super().__init__(names.prefix)
        self._names, self._translation = names, translation
        self._specs: dict[TableId, dg.AssetSpec] = {}

    def _spec(self, table: TableId) -> dg.AssetSpec:
        if table not in self._specs:
            props = TableProps(catalog=table.catalog, namespace=".".join(table.namespace), table=table.name)
            self._specs[table] = self._translation(table_spec(table, self._names, None), props)
        return self._specs[table]

    def get_asset_key(self, table: TableId) -> dg.AssetKey:
        """The translated key."""
        return self._spec(table).key

    def get_group_name(self, table: TableId) -> str:
        """The translated group."""
        return self._spec(table).group_name or self._names.get_group_name(table)

    def get_owners(self, table: TableId) -> Sequence[str]:
        """The translated owners."""
        return self._spec(table).owners

    def get_tags(self, table: TableId) -> Mapping[str, str]:
        """The translated tags."""
        return {k: v for k, v in self._spec(table).tags.items() if not k.startswith("dagster/kind/")}

    def get_kinds(self, table: TableId) -> frozenset[str]:
        """The translated kinds."""
        return frozenset(self._spec(table).kinds)

    def get_description(self, table: TableId) -> str:
        """The translated description."""
        return self._spec(table).description or ""

    def get_metadata(self, table: TableId) -> Mapping[str, object]:
        """The translated metadata."""
        return self._spec(table).metadata
