"""The newest times that were read, by which a clock that moved is told."""

from __future__ import annotations

from sqlalchemy import Connection, delete, func, insert, select, update

from iceberg_maint.core.removal.clock_agreement import ClockMark
from iceberg_maint.ledger.schema import clock

_NO_BOOT = ""
_KEPT_MS = 90 * 24 * 3600 * 1000
"""How long boots that are over are remembered."""


def read(conn: Connection, boot: str | None) -> ClockMark:
    """The mark of all machines, and of this boot of this one."""
    newest_ms = conn.scalar(select(func.max(clock.c.newest_ms))) or 0
    booted_ms = None if boot is None else conn.scalar(select(clock.c.booted_ms).where(clock.c.boot == boot))
    return ClockMark(newest_ms, booted_ms)


def keep(conn: Connection, boot: str | None, booted_ms: int | None, newest_ms: int) -> None:
    """Notes a reading; what is newer stays."""
    name = boot or _NO_BOOT
    stored = conn.execute(select(clock.c.newest_ms).where(clock.c.boot == name)).first()
    if stored is None:
        conn.execute(insert(clock).values(boot=name, booted_ms=booted_ms, newest_ms=newest_ms))
        conn.execute(delete(clock).where(clock.c.newest_ms < newest_ms - _KEPT_MS))
        return
    newest_ms = max(newest_ms, stored.newest_ms)
    conn.execute(update(clock).where(clock.c.boot == name).values(booted_ms=booted_ms, newest_ms=newest_ms))


def forget(conn: Connection) -> None:
    """Forgets all readings: an operator says that the clocks are right now."""
    conn.execute(delete(clock))
