"""Registered readers of tables' changes: the snapshot each has read up to, and the time of its last
report."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, delete, insert, select

from iceberg_maint.core.decisions.retention import RegisteredReader
from iceberg_maint.ledger.schema import db_now_ms, reader

_OF_TABLE = select(reader).where(reader.c.table_uuid == bindparam("table_uuid")).order_by(reader.c.name)


def of_table(conn: Connection, table_uuid: str) -> tuple[RegisteredReader, ...]:
    """Returns the readers of a table, by name."""
    rows = conn.execute(_OF_TABLE, {"table_uuid": table_uuid})
    return tuple(RegisteredReader(r.name, r.snapshot_id, r.seen_ms) for r in rows)


def put(conn: Connection, table_uuid: str, name: str, snapshot_id: int) -> None:
    """Registers the reader or replaces its earlier report."""
    remove(conn, table_uuid, name)
    conn.execute(
        insert(reader).values(table_uuid=table_uuid, name=name, snapshot_id=snapshot_id, seen_ms=db_now_ms())
    )


def remove(conn: Connection, table_uuid: str, name: str) -> bool:
    """Removes the reader; returns whether it was registered."""
    deletion = conn.execute(delete(reader).where(reader.c.table_uuid == table_uuid, reader.c.name == name))
    return deletion.rowcount > 0
