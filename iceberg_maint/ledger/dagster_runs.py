"""Runs of Dagster's that are at work: when each last said that it lives."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select

from iceberg_maint.ledger.schema import db_now_ms, run

_FORGOTTEN_AFTER_MS = 7 * 24 * 3600 * 1000
"""Of a run that ended while the ledger was away, or whose Dagster instance is gone."""


def beat(conn: Connection, run_id: str) -> None:
    """Hears the run, for the first time or again."""
    conn.execute(
        delete(run).where((run.c.run_id == run_id) | (run.c.beat_ms < db_now_ms() - _FORGOTTEN_AFTER_MS))
    )
    conn.execute(insert(run).values(run_id=run_id, beat_ms=db_now_ms()))


def end(conn: Connection, run_id: str) -> None:
    """Hears no more of the run."""
    conn.execute(delete(run).where(run.c.run_id == run_id))


def beats(conn: Connection) -> dict[str, int]:
    """When each run that has not ended was last heard, ms since epoch by the database's clock."""
    return {r.run_id: r.beat_ms for r in conn.execute(select(run))}
