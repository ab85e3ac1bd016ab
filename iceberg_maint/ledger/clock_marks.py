"""The newest clock readings, which show whether a clock has moved, and what a wrong clock has dated."""

from __future__ import annotations

from sqlalchemy import Connection, String, bindparam, delete, func, insert, select, update

from iceberg_maint.core.removal.clock_agreement import ClockMark
from iceberg_maint.ledger import fleet, schema
from iceberg_maint.ledger.schema import clock, partition_history, statement_now_ms

_NO_BOOT = ""
_KEPT_MS = 90 * 24 * 3600 * 1000
"""How long readings of ended boots are kept."""
_NEWEST = select(func.max(clock.c.newest_ms))
_BOOTED = select(clock.c.booted_ms).where(clock.c.boot == bindparam("boot", type_=String))
_EVENTS = (
    *(schema.attempt.c.started_ms, schema.intent.c.recorded_ms, schema.attempt_try.c.recorded_ms),
    *(schema.outcome.c.recorded_ms, schema.batch.c.updated_ms, schema.cursor.c.advanced_ms),
    *(schema.record.c.appended_ms, schema.health.c.observed_ms, schema.partition_missing.c.since_ms),
    *(schema.pause.c.paused_ms, schema.reader.c.seen_ms, schema.run.c.beat_ms, schema.claim.c.current_ms),
)
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


def accept(conn: Connection) -> None:
    """Deletes all readings, after an operator has confirmed the clocks. Ends back-offs and waits, because the wrong
    clock may have dated them. What has happened in the future by its date happened by now."""
    conn.execute(delete(clock))
    fleet.delete_waits(conn)
    conn.execute(update(partition_history).values(not_before_ms=None))
    for at in _EVENTS:
        conn.execute(update(at.table).where(at > statement_now_ms()).values({at.name: statement_now_ms()}))
