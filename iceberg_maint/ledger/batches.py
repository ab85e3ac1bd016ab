"""The order of a batch's rows: STARTED → INTENT → ATTEMPT → OUTCOME → CURSOR."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, bindparam, case, func, insert, select, update

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.planning.plan import Plan, batch_of_text, batch_text
from iceberg_maint.ledger.database import Part
from iceberg_maint.ledger.leases import require
from iceberg_maint.ledger.schema import attempt, batch, cursor, db_now_ms
from iceberg_maint.ports.stored import BatchStatus, Cursor, Lease, StoredBatch


class OutOfOrderError(RuntimeError):
    """A call that would break the order of a batch's rows. It is a defect of the caller; nothing was
    written."""


OPEN = (BatchStatus.PLANNED, BatchStatus.STARTED, BatchStatus.UNKNOWN)
_REOPENED = (BatchStatus.FAILED, BatchStatus.SUPERSEDED)
_OPEN_BATCHES = (
    select(batch)
    .where(
        batch.c.table_uuid == bindparam("table_uuid"),
        batch.c.operation == bindparam("operation"),
        batch.c.status.in_(OPEN),
    )
    .order_by(batch.c.ordinal)
)
_OPEN_OPERATIONS = (
    select(batch.c.operation)
    .where(batch.c.table_uuid == bindparam("table_uuid"), batch.c.status.in_(OPEN))
    .distinct()
)
_LAST_ORDINAL = select(func.coalesce(func.max(batch.c.ordinal), 0)).where(
    batch.c.table_uuid == bindparam("table_uuid")
)
_STATUS = select(batch.c.status).where(batch.c.batch_id == bindparam("batch_id"))
_INSERT = insert(batch).values(status=BatchStatus.PLANNED, updated_ms=db_now_ms())
_OF_TABLE = select(batch).where(
    batch.c.batch_id == bindparam("batch_id"), batch.c.table_uuid == bindparam("table_uuid")
)
_UPDATE = update(batch).where(batch.c.batch_id == bindparam("changed_id")).values(updated_ms=db_now_ms())
_SET_STATUS = _UPDATE.values(status=bindparam("status"))
_ADVANCE = (
    update(cursor)
    .where(cursor.c.table_uuid == bindparam("of_table"), cursor.c.operation == bindparam("of_operation"))
    .values(advanced_ms=db_now_ms())
)
_FIRST_CURSOR = insert(cursor).values(advanced_ms=db_now_ms())
"""Statements of every run, built once: to build one costs more than SQLite needs to run it."""


def load(conn: Connection, lease: Lease, batch_id: str) -> Row[Any]:
    """Returns the batch's row. Raises OutOfOrderError if the leased table has no such batch."""
    row = conn.execute(_OF_TABLE, {"batch_id": batch_id, "table_uuid": lease.table_uuid}).first()
    if row is None:
        raise OutOfOrderError(f"{lease.table} has no batch {batch_id}")
    return row


def set_status(conn: Connection, batch_id: str, status: BatchStatus) -> None:
    """Overwrites the status. The caller checks that the change is allowed."""
    conn.execute(_SET_STATUS, {"changed_id": batch_id, "status": status})


def advance(conn: Connection, lease: Lease, row: Row[Any], snapshot_id: int | None) -> None:
    """Moves the cursor of the batch's operation to this committed batch."""
    which = {"of_table": row.table_uuid, "of_operation": row.operation}
    values = {"batch_id": row.batch_id, "snapshot_id": snapshot_id, "fence": lease.fence}
    if conn.execute(_ADVANCE, {**which, **values}).rowcount == 0:
        of_table = {"table_uuid": row.table_uuid, "operation": row.operation}
        conn.execute(_FIRST_CURSOR, {**of_table, **values})


def _cursor(conn: Connection, row: Row[Any]) -> Cursor:
    of_plan = (batch.c.table_uuid == row.table_uuid) & (batch.c.plan_id == row.plan_id)
    done = func.coalesce(func.sum(case((batch.c.status == BatchStatus.DONE, 1), else_=0)), 0)
    window = conn.execute(select(func.count(), done).select_from(batch).where(of_plan)).one()
    partitions = conn.scalar(
        select(attempt.c.partitions)
        .where(attempt.c.batch_id == row.batch_id)
        .order_by(attempt.c.ordinal.desc())
        .limit(1)
    )
    return Cursor(
        operation=row.operation,
        plan_id=row.plan_id,
        window_batches=int(window[0]),
        window_done=int(window[1]),
        batch_id=row.batch_id,
        partitions=tuple(json.loads(partitions or "[]")),
        snapshot_id=row.snapshot_id,
        fence=row.fence,
        advanced_ms=row.advanced_ms,
    )


def _stored(row: Row[Any]) -> StoredBatch:
    return StoredBatch(batch_of_text(row.body), BatchStatus(row.status), row.plan_id)


class Batches(Part):
    """Plans and their batches: a part of `SqlWork`."""

    def save_plan(self, lease: Lease, plan: Plan) -> None:
        """Stores the plan's batches after the stored ones. A batch that is open or DONE does not change. A batch
        that ended without a commit is opened again, if it is planned again at the same snapshot with the same
        inputs."""
        with self._write(lease.table_uuid) as conn:
            require(conn, lease)
            if plan.table_uuid != lease.table_uuid:
                raise OutOfOrderError(f"plan {plan.plan_id} is of another table than the lease")
            if not plan.batches:
                return
            start = conn.scalar(_LAST_ORDINAL, {"table_uuid": plan.table_uuid}) or 0
            new, again = [], []
            for ordinal, planned in enumerate(plan.batches, start + 1):
                status = conn.scalar(_STATUS, {"batch_id": planned.batch_id})
                values = {"plan_id": plan.plan_id, "ordinal": ordinal, "body": batch_text(planned)}
                if status is None:
                    which = {"batch_id": planned.batch_id, "table_uuid": plan.table_uuid}
                    new.append({**which, "operation": planned.operation, **values})
                elif status in _REOPENED:
                    again.append({"changed_id": planned.batch_id, "status": BatchStatus.PLANNED, **values})
            if new:
                conn.execute(_INSERT, new)
            for values in again:
                conn.execute(_UPDATE, values)

    def open_batches(self, table_uuid: str, operation: str) -> tuple[StoredBatch, ...]:
        """Returns the PLANNED, STARTED and UNKNOWN batches in plan order."""
        with self._read() as conn:
            rows = conn.execute(_OPEN_BATCHES, {"table_uuid": table_uuid, "operation": operation})
            return tuple(map(_stored, rows))

    def open_operations(self, table_uuid: str) -> frozenset[Operation]:
        """Returns the operations that have such batches."""
        with self._read() as conn:
            return frozenset(map(Operation, conn.scalars(_OPEN_OPERATIONS, {"table_uuid": table_uuid})))

    def batch(self, batch_id: str) -> StoredBatch:
        """Returns a stored batch, whatever its status."""
        with self._read() as conn:
            return _stored(conn.execute(select(batch).where(batch.c.batch_id == batch_id)).one())

    def close_batch(self, lease: Lease, batch_id: str) -> None:
        """Marks the batch as SUPERSEDED. Refuses a batch that has ended, or whose attempt was never settled."""
        with self._write(lease.table_uuid) as conn:
            require(conn, lease)
            row = load(conn, lease, batch_id)
            if row.status == BatchStatus.SUPERSEDED:
                return
            if row.status not in (BatchStatus.PLANNED, BatchStatus.UNKNOWN):
                raise OutOfOrderError(f"batch {batch_id} is {row.status} and cannot be superseded")
            set_status(conn, batch_id, BatchStatus.SUPERSEDED)

    def cursors(self, table_uuid: str) -> Mapping[str, Cursor]:
        """Returns the cursors of the table by operation, in order of their names."""
        with self._read() as conn:
            rows = conn.execute(
                select(cursor, batch.c.plan_id)
                .outerjoin(batch, batch.c.batch_id == cursor.c.batch_id)
                .where(cursor.c.table_uuid == table_uuid)
                .order_by(cursor.c.operation)
            ).all()
            return {row.operation: _cursor(conn, row) for row in rows}
