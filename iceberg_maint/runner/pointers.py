"""Pointers of many tables: catalogs are asked beside each other, services for several tables at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any

from iceberg_maint.bounded_calls import BoundedCalls, CallGroup, CallLimits, LateError
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import ConfigurationError, IcebergMaintError
from iceberg_maint.runner.late import late_table
from iceberg_maint.runner.runtime import Runtime

IN_MEMORY = CallLimits(at_once=1)
"""The limits of a catalog that has none."""


def pointer_questions(
    name: str, tables: Collection[TableId], runtime: Runtime
) -> Iterator[tuple[tuple[TableId, ...], Any]]:
    """Yields the calls that give the pointers of tables of one catalog, each with its tables. A service is asked for each
    table, those first that were observed the longest time ago: they may be what the last pass had no time for."""
    catalog = runtime.catalogs[name]
    if not catalog.asks_each_table:
        if tables:
            yield tuple(tables), partial(catalog.pointers, tuple(tables))
        return
    observed = {k.table: k.observed_ms for k in runtime.ledger.known_tables()}
    for table in sorted(tables, key=lambda t: (observed.get(t, 0), t)):
        yield (table,), partial(catalog.pointers, (table,))


def read_known_pointers(
    tables: Sequence[TableId], runtime: Runtime
) -> tuple[dict[TableId, str], dict[str, IcebergMaintError]]:
    """Returns the pointers of the tables that are answered for, and an error for each catalog that does not answer for all.
    A catalog that fails as a whole is asked no more."""
    by_catalog: dict[str, list[TableId]] = {}
    for table in tables:
        by_catalog.setdefault(runtime.catalog_of(table).name, []).append(table)
    calls = BoundedCalls[tuple[TableId, ...]](runtime.threads)
    groups: dict[str, CallGroup[tuple[TableId, ...]]] = {}
    for name, members in by_catalog.items():
        groups[name] = calls.group(runtime.limits_of(name) or IN_MEMORY)
        for some, question in pointer_questions(name, members, runtime):
            groups[name].add(some, question)
    pointers: dict[TableId, str] = {}
    errors: dict[str, IcebergMaintError] = {}
    for some, answer in calls:
        name = some[0].catalog
        if isinstance(answer, LateError):
            errors[name] = late_table(some[0], answer, runtime.looks_within)
        elif isinstance(answer, IcebergMaintError):
            errors[name] = answer
            if is_of_catalog(answer):
                groups[name].drop_waiting()
        elif isinstance(answer, Exception):
            raise answer
        else:
            pointers.update(answer)
    return pointers, errors


def is_of_catalog(error: IcebergMaintError) -> bool:
    """Whether the error is one of a catalog as a whole: it cannot be reached, refuses the credentials, serves nothing."""
    return isinstance(error, ConfigurationError) and error.code in ("ICM-104", "ICM-160", "ICM-161")
