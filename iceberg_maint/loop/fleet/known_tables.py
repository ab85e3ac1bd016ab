"""What is known of many tables without reading them: pointers, unchanged tables, verdicts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from iceberg_maint.core.decisions.history import PartitionHistory, TableHistory
from iceberg_maint.core.decisions.table_decision import TableVerdict, verdict_on
from iceberg_maint.core.decisions.waits import automation_waits, environment_failed, unreadable
from iceberg_maint.core.health.metrics import Measured, basis_of
from iceberg_maint.core.model.ids import DATA_OPERATIONS, READING, Operation, TableId
from iceberg_maint.core.outcomes.failures import ENVIRONMENT_CODES
from iceberg_maint.errors import (
    ConfigurationError,
    GovernedTableError,
    IcebergMaintError,
    UnknownTableError,
    UnreadableTableError,
)
from iceberg_maint.loop.catalogs import late_table
from iceberg_maint.loop.context import Context
from iceberg_maint.machine.bounded_calls import BoundedCalls, CallGroup, CallLimits, LateError
from iceberg_maint.ports.stored import StoredMeasurement

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


def is_of_catalog(error: IcebergMaintError) -> bool:
    """Whether the error is one of a catalog as a whole: it cannot be reached, refuses the credentials, serves nothing."""
    return isinstance(error, ConfigurationError) and error.code in ("ICM-104", "ICM-160", "ICM-161")


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
    except Exception:  # noqa: BLE001 - the look at the table reports it
        return False
    return stored.basis == basis_of(policy, installation)


def load_unchanged(
    stored: Collection[StoredMeasurement], context: Context, *, observe: bool, histories: bool
) -> Iterator[tuple[TableId, UnchangedTable | None]]:
    """Yields every table with its stored health; with None if another process has stored newer health since. With
    `observe` the look counts as an observation of these tables."""
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


_NOT_OF_THE_TABLE = frozenset({"ICM-128", "ICM-179"})
"""Errors of a read that say nothing of the table: the ledger, and an answer that came late."""


def verdicts_of(measured: Collection[Measured], context: Context) -> dict[TableId, TableVerdict]:
    """Returns the verdicts on tables whose health is stored."""
    histories = context.ledger.health.histories(
        {m.table_uuid: str(m.table) for m in measured}, (Operation.REWRITE_DATA_FILES,)
    )
    return {
        m.table: verdict_on(True, histories[m.table_uuid, Operation.REWRITE_DATA_FILES].faults)
        for m in measured
    }


def note_unreadable(table: TableId, error: IcebergMaintError, context: Context) -> None:
    """Stores that the table could not be read, and when that is tried again. Stores nothing of a table without stored
    health, which nothing else is decided from, and nothing while an earlier failure waits with the same
    error."""
    if not is_of_the_table(error):
        return
    stored = context.ledger.health.measurements((table,))
    if not stored:
        return
    before, now_ms = reading_of(table, stored[0].table_uuid, context), context.clock.now_ms()
    text = context.process.masked(str(error))
    if before.reason == text and automation_waits(before, now_ms):
        return
    try:
        retry = context.policies.of_table(table, stored[0].maintenance_properties).retry
    except Exception:  # noqa: BLE001 - a wrong policy is what the read failed by, and the caller reports that
        return
    after = (environment_failed if error.code in ENVIRONMENT_CODES else unreadable)(
        before, retry, now_ms, text
    )
    context.ledger.health.put_unreadable(stored[0].table_uuid, after)


def is_of_the_table(error: IcebergMaintError) -> bool:
    """Returns whether a read failed by the table, and not by its catalog, the ledger or the machine."""
    if isinstance(error, UnreadableTableError):
        return True
    is_elsewhere = is_of_catalog(error) or error.code in (*ENVIRONMENT_CODES, *_NOT_OF_THE_TABLE)
    return not is_elsewhere and not isinstance(error, (UnknownTableError, GovernedTableError))


def reading_of(table: TableId, table_uuid: str, context: Context) -> PartitionHistory:
    """Returns how the table failed to be read last. An empty history if it did not."""
    history = context.ledger.health.history(table_uuid, str(table), Operation.REWRITE_DATA_FILES)
    readings = (f.history for f in history.faults if f.operation == READING)
    return next(readings, PartitionHistory())
