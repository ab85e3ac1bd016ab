"""The newest clock readings, which show whether a clock has moved."""

from __future__ import annotations

from sqlalchemy import Connection, String, bindparam, delete, func, insert, select, update

from iceberg_maint.core.removal.clock_agreement import ClockMark
from iceberg_maint.ledger.schema import clock

_NO_BOOT = ""
_KEPT_MS = 90 * 24 * 3600 * 1000
"""How long readings of ended boots are kept."""
_NEWEST = select(func.max(clock.c.newest_ms))
_BOOTED = select(clock.c.booted_ms).where(clock.c.boot == bindparam("boot", type_=String))
_BOTH = select(_NEWEST.scalar_subquery(), _BOOTED.scalar_subquery())


def read(conn: Connection, boot: str | None) -> ClockMark:
    """Returns the mark of all machines, and of this boot of this machine."""
    newest_ms, booted_ms = conn.execute(_BOTH, {"boot": boot}).one()
    return ClockMark(newest_ms or 0, booted_ms)


def keep(conn: Connection, boot: str | None, booted_ms: int | None, newest_ms: int) -> None:
    """Stores a reading. A newer stored reading stays."""
    name = boot or _NO_BOOT
    stored = conn.execute(select(clock.c.newest_ms).where(clock.c.boot == name)).first()
    if stored is None:
        conn.execute(insert(clock).values(boot=name, booted_ms=booted_ms, newest_ms=newest_ms))
        # A machine that keeps only its boot has stored no reading, and has no other row.
        ended = clock.c.newest_ms.between(1, newest_ms - _KEPT_MS - 1)
        conn.execute(delete(clock).where(ended))
        return
    newest_ms = max(newest_ms, stored.newest_ms)
    conn.execute(update(clock).where(clock.c.boot == name).values(booted_ms=booted_ms, newest_ms=newest_ms))


def forget(conn: Connection) -> None:
    """Deletes all readings, after an operator has confirmed the clocks."""
    conn.execute(delete(clock))
