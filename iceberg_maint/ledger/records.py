"""The audit trail: records are only appended, and pruned by age."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import BindParameter, ColumnElement, Connection, bindparam, delete, func, insert, or_, select

from iceberg_maint.core.model.codec import dumps, loads
from iceberg_maint.core.model.ids import DATA_OPERATIONS
from iceberg_maint.core.outcomes.record import Record, without_values
from iceberg_maint.ledger import gone_partitions, unrecorded_runs
from iceberg_maint.ledger.order import OutOfOrderError
from iceberg_maint.ledger.schema import (
    attempt,
    attempt_try,
    batch,
    db_now_ms,
    health,
    intent,
    outcome,
    record,
    recorded,
)
from iceberg_maint.ledger.table_health import GOVERNED
from iceberg_maint.ports.stored import BatchStatus

_DAY_MS = 86_400_000
_LAST_CHARACTER = "\U0010ffff"
_ENDED = (BatchStatus.DONE, BatchStatus.FAILED, BatchStatus.SUPERSEDED)
_STORED = select(record.c.body).where(record.c.record_id == bindparam("record_id"))
_INSERT = insert(record).values(appended_ms=db_now_ms())
_NOW = select(db_now_ms())

_uuid: BindParameter[str] = bindparam("of_table")
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
_LAST = select(func.max(record.c.ordinal)).where(record.c.table_uuid == _uuid)
_DELETE_RECORDS = delete(record).where(
    record.c.table_uuid == _uuid, record.c.ordinal < bindparam("last"), record.c.appended_ms < _before
)
_DELETE_RECORDED = delete(recorded).where(recorded.c.table_uuid == _uuid, ~_remaining.exists())
"""Statements of every run, built once: to build one costs more than SQLite needs to run it."""


def append(conn: Connection, new: Record) -> None:
    """Appends a record. The same record again changes nothing; a different record with its id is refused."""
    body = dumps(new)
    stored = conn.scalar(_STORED, {"record_id": new.record_id})
    if stored is not None:
        if stored != body:
            raise OutOfOrderError(f"record {new.record_id} already exists with other contents")
        return
    conn.execute(
        _INSERT,
        {
            "record_id": new.record_id,
            "table_uuid": new.table_uuid,
            "table_name": new.table,
            "body": body,
            "run_id": new.run_id,
        },
    )
    unrecorded_runs.mark(conn, new)


def newest(conn: Connection, table: str | None, limit: int) -> tuple[Record, ...]:
    """Returns the newest records, newest first. For a table's name, records under its earlier names are
    included if its UUID is known."""
    query = select(record.c.body).order_by(record.c.ordinal.desc()).limit(limit)
    if table is not None:
        query = query.where(_of_table(table))
    return _shown(conn, [loads(Record, body) for body in conn.scalars(query)])


def of_run(conn: Connection, run_id: str) -> tuple[Record, ...]:
    """Returns the records of the runs whose id begins with this text, oldest first."""
    after = run_id + _LAST_CHARACTER
    query = select(record.c.body).where(record.c.run_id >= run_id, record.c.run_id < after)
    return _shown(conn, [loads(Record, body) for body in conn.scalars(query.order_by(record.c.ordinal))])


def last_proved(conn: Connection, table: str) -> Record | None:
    """Returns the newest record of the table that has a committed batch with a proof of rows or positions."""
    query = select(record.c.body).where(
        _of_table(table), record.c.body.contains('"proof":{', autoescape=True)
    )
    for body in conn.scalars(query.order_by(record.c.ordinal.desc())):
        found = loads(Record, body)
        if found.operation in DATA_OPERATIONS and any(
            b.snapshot_after is not None and b.proof is not None for b in found.outcome.batches
        ):
            return _shown(conn, [found])[0]
    return None


def _shown(conn: Connection, found: Sequence[Record]) -> tuple[Record, ...]:
    """Returns the records, those of tables with read restrictions without values."""
    marks = conn.execute(
        select(health.c.table_name, health.c.table_uuid).where(health.c.form == GOVERNED)
    ).all()
    governed = {value for mark in marks for value in mark}
    return tuple(without_values(r) if {r.table, r.table_uuid} & governed else r for r in found)


def _of_table(table: str) -> ColumnElement[bool]:
    """The records of this name, and of the table that has the name now."""
    same = select(health.c.table_uuid).where(health.c.table_name == table).scalar_subquery()
    return or_(record.c.table_name == table, record.c.table_uuid == same)


def prune(conn: Connection, table_uuid: str, keep_days: int) -> int:
    """Deletes work of a table that ended more than `keep_days` ago: records except the newest one, batches with their
    attempts, and the back-off of partitions that have been missing for so long. Returns the number of deleted rows. Open
    work, UNKNOWN attempts, cursors, fences and each operation's last outcome, which decides when it is due, stay."""
    of_table: dict[str, str | int] = {"of_table": table_uuid}
    before_ms = (conn.scalar(_NOW) or 0) - keep_days * _DAY_MS
    old_of_table = {**of_table, "before_ms": before_ms}
    old_batches = list(conn.scalars(_OLD_BATCHES, old_of_table))
    deleted = 0
    for batch_id in old_batches:
        attempts = select(attempt.c.attempt_id).where(attempt.c.batch_id == batch_id)
        for rows in (outcome, attempt_try, intent):
            deleted += conn.execute(delete(rows).where(rows.c.attempt_id.in_(attempts))).rowcount
        deleted += conn.execute(delete(attempt).where(attempt.c.batch_id == batch_id)).rowcount
        deleted += conn.execute(delete(batch).where(batch.c.batch_id == batch_id)).rowcount
    last = conn.scalar(_LAST, of_table) or 0
    deleted += conn.execute(_DELETE_RECORDS, {**old_of_table, "last": last}).rowcount
    deleted += conn.execute(_DELETE_RECORDED, of_table).rowcount
    return deleted + gone_partitions.prune(conn, table_uuid, before_ms)
