"""The tables that the catalogs list, and what is known of them without reading them: pointers, stored health, verdicts."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.decisions.table_decision import TableVerdict, verdict_on
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.health.state_facts import basis_of
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation, TableId
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.policy.data import Mode
from iceberg_maint.core.removal.clock_skew import clock_skew_text
from iceberg_maint.errors import IcebergMaintError, RefusedError, UnknownTableError
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.fleet.catalogs import late_catalog, late_table
from iceberg_maint.loop.read_table import is_of_catalog, read_clocks
from iceberg_maint.machine.bounded_calls import BoundedCalls, CallGroup, CallLimits, LateError
from iceberg_maint.ports.stored import StoredMeasurement, unmeasured_uuid

_log = logging.getLogger(__name__)
IN_MEMORY = CallLimits(at_once=1)
"""The limits of a catalog that has none."""


def pointer_questions(
    name: str, tables: Collection[TableId], context: Context
) -> Iterator[tuple[tuple[TableId, ...], Any]]:
    """Yields the calls that give the pointers of tables of one catalog, each with its tables. A service is asked for each
    table, those first that were observed the longest time ago: they may be what the last cycle had no time for."""
    catalog = context.catalogs[name]
    if not catalog.asks_each_table:
        if tables:
            yield tuple(tables), partial(catalog.pointers, tuple(tables))
        return
    observed = {k.table: k.observed_ms for k in context.ledger.health.known_tables()}
    for table in sorted(tables, key=lambda t: (observed.get(t, 0), t)):
        yield (table,), partial(catalog.pointers, (table,))


def read_known_pointers(
    tables: Sequence[TableId], context: Context
) -> tuple[dict[TableId, str], dict[str, IcebergMaintError]]:
    """Returns the pointers of the tables that are answered for, and an error for each catalog that does not answer for all.
    A catalog that fails as a whole is asked no more."""
    by_catalog: dict[str, list[TableId]] = {}
    for table in tables:
        by_catalog.setdefault(context.catalogs.of(table).name, []).append(table)
    calls = BoundedCalls[tuple[TableId, ...]](context.catalogs.threads)
    groups: dict[str, CallGroup[tuple[TableId, ...]]] = {}
    for name, members in by_catalog.items():
        groups[name] = calls.group(context.catalogs.limits_of(name) or IN_MEMORY)
        for some, question in pointer_questions(name, members, context):
            groups[name].add(some, question)
    pointers: dict[TableId, str] = {}
    errors: dict[str, IcebergMaintError] = {}
    for some, answer in calls:
        name = some[0].catalog
        if isinstance(answer, LateError):
            errors[name] = late_table(some[0], answer, context.catalogs.within_seconds)
        elif isinstance(answer, IcebergMaintError):
            errors[name] = answer
            if is_of_catalog(answer):
                groups[name].drop_waiting()
        elif isinstance(answer, Exception):
            raise answer
        else:
            pointers.update(answer)
    return pointers, errors


@dataclass(frozen=True, slots=True)
class UnchangedTable:
    """The stored health of an unchanged table, with the histories that decisions on its data need, if they were
    asked for."""

    measured: Measured
    histories: Mapping[Operation, TableHistory]


def is_unchanged(stored: StoredMeasurement, pointer: str | None, context: Context, installation: str) -> bool:
    """Whether the stored health is that of the table at this pointer. A table whose policy is wrong is not unchanged: the
    look at it reports the error."""
    if not stored.basis or stored.pointer != pointer:
        return False
    try:
        policy = context.policies.of_table(stored.table, stored.maintenance_properties)
    except Exception:  # noqa: BLE001 - the reading of the table reports it
        return False
    return stored.basis == basis_of(policy, installation)


def load_unchanged(
    stored: Collection[StoredMeasurement], context: Context, *, observe: bool, histories: bool
) -> Iterator[tuple[TableId, UnchangedTable | None]]:
    """Yields every table with its stored health; with None if another process has stored newer health since. With
    `observe` the reading counts as an observation of these tables."""
    if observe:
        context.ledger.health.confirm({s.table_uuid: s.pointer for s in stored})
    healths = context.ledger.health.get_all([s.table for s in stored])
    stored_histories = (
        context.ledger.health.histories({s.table_uuid: str(s.table) for s in stored}) if histories else {}
    )
    for s in stored:
        measured = healths.get(s.table)
        if measured is None or measured.metadata_location != s.pointer:
            yield s.table, None
            continue
        of_table = {o: stored_histories[s.table_uuid, o] for o in DATA_OPERATIONS} if histories else {}
        yield s.table, UnchangedTable(measured, of_table)


def verdicts_of(measured: Collection[Measured], context: Context) -> dict[TableId, TableVerdict]:
    """Returns the verdicts on tables whose health is stored."""
    return _verdicts({m.table_uuid: m.table for m in measured}, context, is_measured=True)


def verdicts_of_unmeasured(tables: Collection[TableId], context: Context) -> dict[TableId, TableVerdict]:
    """Returns the verdicts on tables without stored health: whether they could be read."""
    return _verdicts({unmeasured_uuid(t): t for t in tables}, context, is_measured=False)


def _verdicts(
    tables: Mapping[str, TableId], context: Context, *, is_measured: bool
) -> dict[TableId, TableVerdict]:
    names = {uuid: str(table) for uuid, table in tables.items()}
    # Each history has the faults of all operations.
    histories = context.ledger.health.histories(names, (Operation.REWRITE_DATA_FILES,))
    return {tables[uuid]: verdict_on(is_measured, h.faults) for (uuid, _), h in histories.items()}


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
    """Lists every catalog. Deletes the stored health of tables that a catalog which answers does not list, and that they
    could not be read. Else a dropped table would stay in reports and have the alert `not_observed` without end. Old work
    of dropped tables is deleted from the ledger."""
    known = context.ledger.health.known_tables()
    listing = list_tables(context)
    answered, listed = set(context.catalogs) - set(listing.errors), set(listing.tables)
    for stored in known:
        if stored.table.catalog in answered and stored.table not in listed:
            context.ledger.health.forget_table(stored.table)
    for catalog in sorted(answered):
        context.ledger.health.forget_unread(catalog, [t for t in listed if t.catalog == catalog])
    prune_dropped_tables(context)
    return listing
