"""Deletes what the ledger no longer needs: old work, and what it has of partitions and tables that are gone."""

from __future__ import annotations

import json
from collections.abc import Iterator

from sqlalchemy import (
    BindParameter,
    Connection,
    bindparam,
    delete,
    func,
    or_,
    select,
)

from iceberg_maint.core.planning.plan import batch_of_text
from iceberg_maint.ledger import health_days, table_health
from iceberg_maint.ledger.batches import OPEN
from iceberg_maint.ledger.database import chunks
from iceberg_maint.ledger.leases import in_force
from iceberg_maint.ledger.schema import (
    NOW,
    attempt,
    attempt_try,
    attestation,
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

_uuid: BindParameter[str] = bindparam("of_table")
_OLD = (partition_missing.c.table_uuid == _uuid) & (partition_missing.c.since_ms < bindparam("before_ms"))
_RETIRED = select(partition_missing.c.partition).where(
    _OLD, partition_missing.c.misses >= table_health.RETIRED_AFTER_MISSES
)
_has_back_off = (
    select(partition_history.c.partition)
    .where(
        partition_history.c.table_uuid == partition_missing.c.table_uuid,
        partition_history.c.partition == partition_missing.c.partition,
    )
    .exists()
)
_DELETE_MISSING = delete(partition_missing).where(_OLD, ~_has_back_off)
_has_ended = (
    select(outcome.c.ordinal)
    .where(outcome.c.attempt_id == attempt.c.attempt_id, outcome.c.status != BatchStatus.UNKNOWN)
    .exists()
)
_OPEN_BATCHES = select(batch.c.body).where(batch.c.table_uuid == _uuid, batch.c.status.in_(OPEN))
_OPEN_ATTEMPTS = select(attempt.c.partitions).where(attempt.c.table_uuid == _uuid, ~_has_ended)
_DAY_MS = 86_400_000
_ENDED = (BatchStatus.DONE, BatchStatus.FAILED, BatchStatus.SUPERSEDED)
_before: BindParameter[int] = bindparam("before_ms")
_settled = select(outcome.c.attempt_id).where(
    outcome.c.table_uuid == _uuid, outcome.c.status != BatchStatus.UNKNOWN
)
_completed = (
    select(func.max(outcome.c.ordinal))
    .where(outcome.c.table_uuid == _uuid, outcome.c.status == BatchStatus.DONE)
    .group_by(outcome.c.operation)
)
_last_done = select(outcome.c.attempt_id).where(outcome.c.ordinal.in_(_completed))
_kept_batches = select(attempt.c.batch_id).where(
    attempt.c.table_uuid == _uuid,
    or_(attempt.c.attempt_id.not_in(_settled), attempt.c.attempt_id.in_(_last_done)),
)
_OLD_BATCHES = select(batch.c.batch_id).where(
    batch.c.table_uuid == _uuid,
    batch.c.status.in_(_ENDED),
    batch.c.updated_ms < _before,
    batch.c.batch_id.not_in(_kept_batches),
)
_same_run = (attempt.c.table_uuid == recorded.c.table_uuid) & (attempt.c.run_id == recorded.c.run_id)
_remaining = select(attempt.c.attempt_id).where(_same_run, attempt.c.operation == recorded.c.operation)
_LAST_RECORD = select(func.max(record.c.ordinal)).where(record.c.table_uuid == _uuid)
_DELETE_RECORDS = delete(record).where(
    record.c.table_uuid == _uuid, record.c.ordinal < bindparam("last"), record.c.appended_ms < _before
)
_DELETE_RECORDED = delete(recorded).where(recorded.c.table_uuid == _uuid, ~_remaining.exists())
"""Statements of every run, built once: to build one costs more than SQLite needs to run it."""


def prune(conn: Connection, table_uuid: str, keep_days: int) -> int:
    """Deletes work of a table that ended more than `keep_days` ago: records except the newest one, batches with their
    attempts, and the back-off of partitions that have been missing for so long. Returns the number of deleted rows. Open
    work, UNKNOWN attempts, cursors, fences and each operation's last outcome, which decides when it is due, stay."""
    of_table: dict[str, str | int] = {"of_table": table_uuid}
    before_ms = conn.execute(NOW).scalar_one() - keep_days * _DAY_MS
    old_of_table = {**of_table, "before_ms": before_ms}
    old_batches = list(conn.scalars(_OLD_BATCHES, old_of_table))
    deleted = 0
    for batch_id in old_batches:
        attempts = select(attempt.c.attempt_id).where(attempt.c.batch_id == batch_id)
        for rows in (outcome, attempt_try, intent):
            deleted += conn.execute(delete(rows).where(rows.c.attempt_id.in_(attempts))).rowcount
        deleted += conn.execute(delete(attempt).where(attempt.c.batch_id == batch_id)).rowcount
        deleted += conn.execute(delete(batch).where(batch.c.batch_id == batch_id)).rowcount
    last = conn.scalar(_LAST_RECORD, of_table) or 0
    deleted += conn.execute(_DELETE_RECORDS, {**old_of_table, "last": last}).rowcount
    deleted += conn.execute(_DELETE_RECORDED, of_table).rowcount
    health_days.prune_days(conn, table_uuid, keep_days)
    return deleted + _prune_partitions(conn, table_uuid, before_ms)


def _prune_partitions(conn: Connection, table_uuid: str, before_ms: int) -> int:
    """Deletes the back-off of partitions that the stored health lacks and that have been missing since before this
    time of the database's clock, unless work of them is open. Deletes what is known of missing partitions that have no
    back-off. Returns the number of deleted rows."""
    of_table = {"of_table": table_uuid}
    old = {**of_table, "before_ms": before_ms}
    deleted = 0
    gone = set(conn.scalars(_RETIRED, old))
    stored = table_health.partition_keys(conn, table_uuid) if gone else None
    # Without stored health that this version reads, nothing says which partitions there are.
    if stored is not None:
        gone -= stored | set(_of_open_work(conn, of_table))
        for keys in chunks(sorted(gone)):
            rows = partition_history.c.table_uuid == table_uuid, partition_history.c.partition.in_(keys)
            deleted += conn.execute(delete(partition_history).where(*rows)).rowcount
    return deleted + conn.execute(_DELETE_MISSING, old).rowcount


def _of_open_work(conn: Connection, of_table: dict[str, str]) -> Iterator[str]:
    for body in conn.scalars(_OPEN_BATCHES, of_table):
        yield from batch_of_text(body).partitions
    for partitions in conn.scalars(_OPEN_ATTEMPTS, of_table):
        yield from json.loads(partitions)


_OF_A_TABLE = (
    *(outcome, attempt, batch, record, recorded, cursor),
    *(partition_history, partition_missing, health_day, reader, attestation),
)
"""Attempts come before the batches that they refer to."""

_ROWS = tuple(
    select(rows.c.table_uuid).where(rows.c.table_uuid == lease.c.table_uuid).exists()
    for rows in (batch, record)
)
_LAST_TIMES = tuple(
    func.coalesce(
        select(func.max(at)).where(at.table.c.table_uuid == lease.c.table_uuid).scalar_subquery(), 0
    )
    for at in (batch.c.updated_ms, record.c.appended_ms, outcome.c.recorded_ms)
)
_has_health = select(health.c.table_uuid).where(health.c.table_uuid == lease.c.table_uuid).exists()


def dropped_tables(conn: Connection) -> tuple[DroppedTable, ...]:
    """Returns the tables that have work and no health, and that no owner has leased."""
    query = select(lease.c.table_uuid, lease.c.table_name, *_LAST_TIMES, db_now_ms()).where(
        ~in_force(), ~_has_health, or_(*_ROWS)
    )
    return tuple(
        DroppedTable(uuid, name, (now_ms - max(last)) // 1000)
        for uuid, name, *last, now_ms in conn.execute(query)
    )


def delete_dropped_tables(conn: Connection, table_uuid: str, keep_days: int) -> int:
    """Deletes everything of a dropped table whose last work ended more than `keep_days` ago, except its fence. Returns
    the number of deleted rows. An open attempt keeps everything."""
    dropped = next((t for t in dropped_tables(conn) if t.table_uuid == table_uuid), None)
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
