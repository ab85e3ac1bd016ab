"""What the ledger still has of tables that were dropped: they have no run that prunes it."""

from __future__ import annotations

from sqlalchemy import Connection, delete, func, or_, select

from iceberg_maint.ledger.leases import in_force
from iceberg_maint.ledger.schema import (
    attempt,
    attempt_try,
    batch,
    cursor,
    db_now_ms,
    health,
    health_day,
    intent,
    lease,
    outcome,
    partition_history,
    partition_missing,
    reader,
    record,
    recorded,
)
from iceberg_maint.ports.stored import BatchStatus, DroppedTable

_DAY_MS = 86_400_000
_OF_A_TABLE = (
    *(outcome, attempt, batch, record, recorded, cursor),
    *(partition_history, partition_missing, health_day, reader),
)
"""Attempts come before the batches that they refer to."""

_ROWS = tuple(
    select(rows.c.table_uuid).where(rows.c.table_uuid == lease.c.table_uuid).exists()
    for rows in (batch, record)
)
_LAST = tuple(
    func.coalesce(
        select(func.max(at)).where(at.table.c.table_uuid == lease.c.table_uuid).scalar_subquery(), 0
    )
    for at in (batch.c.updated_ms, record.c.appended_ms, outcome.c.recorded_ms)
)
_has_health = select(health.c.table_uuid).where(health.c.table_uuid == lease.c.table_uuid).exists()
_has_ended = (
    select(outcome.c.ordinal)
    .where(outcome.c.attempt_id == attempt.c.attempt_id, outcome.c.status != BatchStatus.UNKNOWN)
    .exists()
)


def read(conn: Connection) -> tuple[DroppedTable, ...]:
    """Returns the tables that have work and no health, and that no owner has leased."""
    query = select(lease.c.table_uuid, lease.c.table_name, *_LAST, db_now_ms()).where(
        ~in_force(), ~_has_health, or_(*_ROWS)
    )
    return tuple(
        DroppedTable(uuid, name, (now_ms - max(last)) // 1000)
        for uuid, name, *last, now_ms in conn.execute(query)
    )


def delete_old(conn: Connection, table_uuid: str, keep_days: int) -> int:
    """Deletes everything of a dropped table whose last work ended more than `keep_days` ago, except its fence. Returns
    the number of deleted rows. An open attempt keeps everything."""
    dropped = next((t for t in read(conn) if t.table_uuid == table_uuid), None)
    if dropped is None or dropped.idle_seconds * 1000 <= keep_days * _DAY_MS:
        return 0
    is_open = select(attempt.c.attempt_id).where(attempt.c.table_uuid == table_uuid, ~_has_ended).exists()
    if conn.scalar(select(is_open)):
        return 0
    attempts = select(attempt.c.attempt_id).where(attempt.c.table_uuid == table_uuid)
    deleted = sum(
        conn.execute(delete(rows).where(rows.c.attempt_id.in_(attempts))).rowcount
        for rows in (attempt_try, intent)
    )
    return deleted + sum(
        conn.execute(delete(rows).where(rows.c.table_uuid == table_uuid)).rowcount for rows in _OF_A_TABLE
    )
