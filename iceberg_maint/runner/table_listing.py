"""The tables that the catalogs list, and what the ledger still has of tables that they no longer list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.runner.dropped_tables import prune_dropped_tables
from iceberg_maint.runner.runtime import Runtime


@dataclass(frozen=True, slots=True)
class TableListing:
    """The tables of every catalog that answers, sorted, and the error of every other catalog."""

    tables: tuple[TableId, ...]
    errors: Mapping[str, IcebergMaintError]


def list_tables(runtime: Runtime) -> TableListing:
    """Lists every catalog. Raises the error of the last one if none answers."""
    tables: list[TableId] = []
    errors: dict[str, IcebergMaintError] = {}
    for name, catalog in runtime.catalogs.items():
        try:
            tables += catalog.tables()
        except IcebergMaintError as error:
            errors[name] = error
            if len(errors) == len(runtime.catalogs):
                raise
    return TableListing(tuple(sorted(tables)), errors)


def list_and_forget(runtime: Runtime) -> TableListing:
    """Lists every catalog, and deletes the stored health of tables that a catalog which answers does not list. Else a
    dropped table would stay in reports and have the alert `not_observed` without end. Old work of dropped tables is
    deleted from the ledger."""
    known = runtime.ledger.known_tables()
    listing = list_tables(runtime)
    answered, listed = set(runtime.catalogs) - set(listing.errors), set(listing.tables)
    for stored in known:
        if stored.table.catalog in answered and stored.table not in listed:
            runtime.ledger.forget_table(stored.table)
    prune_dropped_tables(runtime)
    return listing
