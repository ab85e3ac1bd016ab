"""Leases with fences, and the check that makes every other write conditional on one."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, insert, select, update

from iceberg_maint.errors import FenceLostError
from iceberg_maint.ledger.schema import db_now_ms, lease
from iceberg_maint.ports.ledger import Lease


def acquire(
    conn: Connection, table_uuid: str, table: str, owner: str, ttl_seconds: int, min_fence: int
) -> Lease | None:
    """A lease with the next fence, or None while another owner's has not expired."""
    live = (lease.c.expires_ms > db_now_ms()).label("live")
    row = conn.execute(
        select(lease.c.owner, lease.c.fence, live).where(lease.c.table_uuid == table_uuid)
    ).first()
    if row is not None and row.live and row.owner != owner:
        return None
    fence = max(row.fence if row is not None else 0, min_fence) + 1
    values: dict[str, Any] = {
        "table_name": table,
        "owner": owner,
        "fence": fence,
        "expires_ms": db_now_ms() + ttl_seconds * 1000,
    }
    if row is None:
        conn.execute(insert(lease).values(table_uuid=table_uuid, **values))
    else:
        conn.execute(update(lease).where(lease.c.table_uuid == table_uuid).values(**values))
    return Lease(table_uuid, table, owner, fence, ttl_seconds)


def extend(conn: Connection, held: Lease) -> bool:
    """Extends by the lease's ttl; False when it has expired or is another's."""
    changed = conn.execute(
        update(lease).where(_held(held)).values(expires_ms=db_now_ms() + held.ttl_seconds * 1000)
    )
    return changed.rowcount == 1


def holds(conn: Connection, held: Lease) -> bool:
    """Whether owner and fence are the current ones and the lease has not expired."""
    return conn.execute(select(lease.c.fence).where(_held(held))).first() is not None


def release(conn: Connection, held: Lease) -> None:
    """Frees the table if the lease is still ours; its fence stays the last one given out."""
    conn.execute(update(lease).where(_same(held)).values(owner=None, expires_ms=0))


def require(conn: Connection, held: Lease) -> None:
    """Raises FenceLostError unless the lease is held; true until the transaction ends, because
    whoever takes a lease locks the same key."""
    if holds(conn, held):
        return
    row = conn.execute(
        select(lease.c.owner, lease.c.fence).where(lease.c.table_uuid == held.table_uuid)
    ).first()
    mine = f"lease of '{held.owner}' on {held.table} (fence {held.fence})"
    if row is None or (row.owner, row.fence) == (held.owner, held.fence):
        raise FenceLostError(f"the {mine} has expired.")
    owner = f"'{row.owner}'" if row.owner is not None else "nobody"
    raise FenceLostError(f"the {mine} is over: {owner} holds fence {row.fence}.")


def owner_of(conn: Connection, table_uuid: str) -> str | None:
    """Owner of the table's unexpired lease."""
    return conn.scalar(
        select(lease.c.owner).where(lease.c.table_uuid == table_uuid, lease.c.expires_ms > db_now_ms())
    )


def _same(held: Lease) -> ColumnElement[bool]:
    return and_(
        lease.c.table_uuid == held.table_uuid, lease.c.owner == held.owner, lease.c.fence == held.fence
    )


def _held(held: Lease) -> ColumnElement[bool]:
    return and_(_same(held), lease.c.expires_ms > db_now_ms())
