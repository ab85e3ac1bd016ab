"""The tables that the catalogs list, and what the ledger still has of tables that they no longer list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from iceberg_maint.bounded_calls import BoundedCalls, CallLimits, LateError
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.runner.dropped_tables import prune_dropped_tables
from iceberg_maint.runner.late import late_catalog
from iceberg_maint.runner.runtime import Runtime


@dataclass(frozen=True, slots=True)
class TableListing:
    """The tables of every catalog that answers, sorted, and the error of every other catalog."""

    tables: tuple[TableId, ...]
    errors: Mapping[str, IcebergMaintError]


def list_tables(runtime: Runtime) -> TableListing:
    """Lists the catalogs. Raises the error of the last one if none answers."""
    listing = ask_catalogs(runtime)
    if listing.errors and len(listing.errors) == len(runtime.catalogs):
        raise listing.errors[list(runtime.catalogs)[-1]]
    return listing


def ask_catalogs(runtime: Runtime) -> TableListing:
    """Lists all catalogs beside each other, each within its time."""
    tables: list[TableId] = []
    errors: dict[str, IcebergMaintError] = {}
    calls = BoundedCalls[str](runtime.threads)
    for name, catalog in runtime.catalogs.items():
        calls.group(runtime.limits_of(name) or CallLimits()).add(name, catalog.tables)
    for name, listed in calls:
        if isinstance(listed, LateError):
            errors[name] = late_catalog(name, listed, runtime.looks_within)
        elif isinstance(listed, IcebergMaintError):
            errors[name] = listed
        elif isinstance(listed, Exception):
            raise listed
        else:
            tables += listed
    return TableListing(tuple(sorted(tables)), {n: errors[n] for n in runtime.catalogs if n in errors})


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
