"""The verdicts on tables, and what makes one: a table that could not be read, which every screen says and whose next
automatic try waits."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from iceberg_maint.core.decisions.backoff import environment_failed, unreadable
from iceberg_maint.core.decisions.decide import automation_waits
from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.decisions.table_verdict import TableVerdict, verdict_on
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import READING, Operation, TableId
from iceberg_maint.core.outcomes.environment import ENVIRONMENT_CODES
from iceberg_maint.errors import (
    GovernedTableError,
    IcebergMaintError,
    UnknownTableError,
    UnreadableTableError,
)
from iceberg_maint.runner.pointers import is_of_catalog
from iceberg_maint.runner.runtime import Runtime

_NOT_OF_THE_TABLE = frozenset({"ICM-128", "ICM-179"})
"""Errors of a read that say nothing of the table: the ledger, and an answer that came late."""


def verdicts_of(measured: Collection[Measured], runtime: Runtime) -> dict[TableId, TableVerdict]:
    """Returns the verdicts on tables whose health is stored."""
    histories = runtime.ledger.histories(
        {m.table_uuid: str(m.table) for m in measured}, (Operation.REWRITE_DATA_FILES,)
    )
    return {
        m.table: verdict_on(True, histories[m.table_uuid, Operation.REWRITE_DATA_FILES].faults)
        for m in measured
    }


@contextmanager
def unreadable_noted(table: TableId, runtime: Runtime) -> Iterator[None]:
    """Notes an error of the block, which reads the table, and raises it."""
    try:
        yield
    except IcebergMaintError as error:
        note_unreadable(table, error, runtime)
        raise


def note_unreadable(table: TableId, error: IcebergMaintError, runtime: Runtime) -> None:
    """Stores that the table could not be read, and when that is tried again. Stores nothing of a table without stored
    health, which nothing else is decided from, and nothing while an earlier failure waits with the same
    error."""
    if not is_of_the_table(error):
        return
    stored = runtime.ledger.measurements((table,))
    if not stored:
        return
    before, now_ms = reading_of(table, stored[0].table_uuid, runtime), runtime.clock.now_ms()
    text = runtime.masked(str(error))
    if before.reason == text and automation_waits(before, now_ms):
        return
    try:
        retry = runtime.policy_for(table, stored[0].maintenance_properties).retry
    except Exception:  # noqa: BLE001 - a wrong policy is what the read failed by, and the caller reports that
        return
    after = (environment_failed if error.code in ENVIRONMENT_CODES else unreadable)(
        before, retry, now_ms, text
    )
    runtime.ledger.put_unreadable(stored[0].table_uuid, after)


def is_of_the_table(error: IcebergMaintError) -> bool:
    """Returns whether a read failed by the table, and not by its catalog, the ledger or the machine."""
    if isinstance(error, UnreadableTableError):
        return True
    is_elsewhere = is_of_catalog(error) or error.code in (*ENVIRONMENT_CODES, *_NOT_OF_THE_TABLE)
    return not is_elsewhere and not isinstance(error, (UnknownTableError, GovernedTableError))


def reading_of(table: TableId, table_uuid: str, runtime: Runtime) -> PartitionHistory:
    """Returns how the table failed to be read last. An empty history if it did not."""
    history = runtime.ledger.history(table_uuid, str(table), Operation.REWRITE_DATA_FILES)
    readings = (f.history for f in history.faults if f.operation == READING)
    return next(readings, PartitionHistory())
