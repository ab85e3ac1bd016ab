"""Checks of the engines that run statements: each answers, is new enough, takes the credentials, and shows the same tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from iceberg_maint.cli.checks import OK, PROPERTIES_READ, WARNING, Check, check_or_failure
from iceberg_maint.core.decisions.statement_hazards import CannotError
from iceberg_maint.core.model.ids import ALL_OPERATIONS
from iceberg_maint.core.policy.engines import engines_of
from iceberg_maint.errors import ConfigurationError, IcebergMaintError
from iceberg_maint.ports.statement_engine import StatementEngine

if TYPE_CHECKING:
    from iceberg_maint.config import Config
    from iceberg_maint.core.model.ids import TableId
    from iceberg_maint.loop.context import Context

_SECONDS = 30.0


def check_engines(config: Config, context: Context, listed: Mapping[str, list[TableId]]) -> Iterator[Check]:
    """A check for each engine and each catalog with tables whose policy names it; for each catalog if none does."""
    for name, engine in context.engine.elsewhere.items():
        used = {catalog: _tables_of(name, config, tables) for catalog, tables in listed.items()}
        chosen = {catalog: tables for catalog, tables in used.items() if tables} or listed
        for catalog, tables in chosen.items():
            check = f"engine {name}, catalog {catalog}"
            yield check_or_failure(check, partial(_ask, check, engine, catalog, tables, context))


def _tables_of(engine: str, config: Config, tables: list[TableId]) -> list[TableId]:
    """The tables whose policy names the engine."""
    policies = ((table, config.policy_for(table).policy) for table in tables)
    try:
        return [t for t, policy in policies if any(engine in engines_of(op, policy) for op in ALL_OPERATIONS)]
    except ConfigurationError:  # Another check says so.
        return []


def _ask(check: str, engine: StatementEngine, catalog: str, tables: list[TableId], context: Context) -> Check:
    """Asks the engine for its version, and for the first table that it can name at the table's snapshot."""
    try:
        version = engine.version(catalog)
    except CannotError as why:
        return Check(check, WARNING, f"It cannot maintain the catalog: {why}.")
    for table in tables[:PROPERTIES_READ]:
        try:
            snapshot = context.catalogs.pin(table).snapshot
        except IcebergMaintError:  # Other checks say why a table cannot be read.
            continue
        with suppress(CannotError):
            if snapshot is not None:
                engine.find(table, snapshot.snapshot_id, _SECONDS)
                return Check(check, OK, f"{version}, shows {table} with snapshot {snapshot.snapshot_id}")
    return Check(check, OK, f"{version}; the catalog has no table to look for there")
