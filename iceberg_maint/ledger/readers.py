"""Readers of tables' changes: how far each has come, and when it last said so."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select

from iceberg_maint.core.decisions.retention import RegisteredReader
from iceberg_maint.ledger.schema import db_now_ms, reader


def of_table(conn: Connection, table_uuid: str) -> tuple[RegisteredReader, ...]:
    """By name."""
    rows = conn.execute(select(reader).where(reader.c.table_uuid == table_uuid).order_by(reader.c.name))
    return tuple(RegisteredReader(r.name, r.snapshot_id, r.seen_ms) for r in rows)


def put(conn: Connection, table_uuid: str, name: str, snapshot_id: int) -> None:
    """Registers the reader or replaces what it said before."""
    remove(conn, table_uuid, name)
    conn.execute(
        insert(reader).values(table_uuid=table_uuid, name=name, snapshot_id=snapshot_id, seen_ms=db_now_ms())
    )


def remove(conn: Connection, table_uuid: str, name: str) -> bool:
    """Whether there was one."""
    gone = conn.execute(delete(reader).where(reader.c.table_uuid == table_uuid, reader.c.name == name))
    return gone.rowcount > 0
