"""The tables that the catalogs list: each once, and what the ledger still has of dropped ones."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.policy.data import Mode
from iceberg_maint.core.removal.clock_skew import clock_skew_text
from iceberg_maint.errors import IcebergMaintError, RefusedError, UnknownTableError
from iceberg_maint.loop.catalogs import late_catalog
from iceberg_maint.loop.clocks import read_clocks
from iceberg_maint.loop.context import Context
from iceberg_maint.machine.bounded_calls import BoundedCalls, CallLimits, LateError


def refuse_other_name(state: TableState, context: Context) -> None:
    """Refuses a run under another name than the one that maintains the table.

    That is the name of its last lease, as long as a configured catalog has this table under it, and the policy of that
    name is to act. Pointers of two catalogs may differ, and the ledger's facts are those of the table's UUID.

    Raises RefusedError ICM-162, and what the other catalog raises if it does not answer.
    """
    name = context.ledger.leases.last_leased_name(state.uuid)
    if name is None or name == str(state.table):
        return
    other = TableId.parse(name)
    if other.catalog not in context.catalogs:
        return
    try:
        other_state = context.catalogs.of(other).pin(other)
    except UnknownTableError:
        return
    policy = context.policies.of(other_state)
    if other_state.uuid != state.uuid or policy.mode is not Mode.ACT or policy.paused:
        return
    raise RefusedError(
        "ICM-162",
        f"{state.table} is also {other}, which is maintained: both have the UUID {state.uuid}.",
        "set mode: advise for one of the two names.",
    )


_log = logging.getLogger(__name__)
_DAY_SECONDS = 86_400


def prune_dropped_tables(context: Context) -> None:
    """Deletes what the ledger has of each dropped table whose last work ended longer ago than the `ledger_keep_days` of
    its name, once the audit log has its records. Does nothing while clocks disagree."""
    old: list[tuple[TableId, str, int]] = []
    for dropped in context.ledger.records.dropped_tables():
        if not all(dropped.name.split(".")) or dropped.name.count(".") < 2:
            continue
        table = TableId.parse(dropped.name)
        keep_days = context.policies.of_table(table, {}).ledger_keep_days
        if keep_days is not None and dropped.idle_seconds > keep_days * _DAY_SECONDS:
            old.append((table, dropped.table_uuid, keep_days))
    if not old:
        return
    skew = clock_skew_text(read_clocks(context.clock, context.ledger))
    if skew is not None:
        _log.warning("The ledger keeps the work of dropped tables: %s.", skew)
        return
    for table, uuid, keep_days in old:
        if context.observers.audit.settle(str(table), uuid):
            context.ledger.records.prune_dropped(uuid, keep_days)


@dataclass(frozen=True, slots=True)
class TableListing:
    """The tables of every catalog that answers, sorted, and the error of every other catalog."""

    tables: tuple[TableId, ...]
    errors: Mapping[str, IcebergMaintError]


def list_tables(context: Context) -> TableListing:
    """Lists the catalogs. Raises the error of the last one if none answers."""
    listing = ask_catalogs(context)
    if listing.errors and len(listing.errors) == len(context.catalogs):
        raise listing.errors[list(context.catalogs)[-1]]
    return listing


def ask_catalogs(context: Context) -> TableListing:
    """Lists all catalogs beside each other, each within its time."""
    tables: list[TableId] = []
    errors: dict[str, IcebergMaintError] = {}
    calls = BoundedCalls[str](context.catalogs.threads)
    for name, catalog in context.catalogs.items():
        calls.group(context.catalogs.limits_of(name) or CallLimits()).add(name, catalog.tables)
    for name, listed in calls:
        if isinstance(listed, LateError):
            errors[name] = late_catalog(name, listed, context.catalogs.within_seconds)
        elif isinstance(listed, IcebergMaintError):
            errors[name] = listed
        elif isinstance(listed, Exception):
            raise listed
        else:
            tables += listed
    return TableListing(tuple(sorted(tables)), {n: errors[n] for n in context.catalogs if n in errors})


def list_and_forget(context: Context) -> TableListing:
    """Lists every catalog, and deletes the stored health of tables that a catalog which answers does not list. Else a
    dropped table would stay in reports and have the alert `not_observed` without end. Old work of dropped tables is
    deleted from the ledger."""
    known = context.ledger.health.known_tables()
    listing = list_tables(context)
    answered, listed = set(context.catalogs) - set(listing.errors), set(listing.tables)
    for stored in known:
        if stored.table.catalog in answered and stored.table not in listed:
            context.ledger.health.forget_table(stored.table)
    prune_dropped_tables(context)
    return listing
