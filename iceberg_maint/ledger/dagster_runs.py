"""Active Dagster runs: the time of each run's last heartbeat."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select

from iceberg_maint.ledger.schema import db_now_ms, run

_FORGOTTEN_AFTER_MS = 7 * 24 * 3600 * 1000
"""Age at which a heartbeat is deleted: of a run that ended while the ledger was unreachable, or whose
Dagster instance no longer exists."""


def record_heartbeat(conn: Connection, run_id: str) -> None:
    """Records a heartbeat of the run."""
    conn.execute(
        delete(run).where((run.c.run_id == run_id) | (run.c.beat_ms < db_now_ms() - _FORGOTTEN_AFTER_MS))
    )
    conn.execute(insert(run).values(run_id=run_id, beat_ms=db_now_ms()))


def end(conn: Connection, run_id: str) -> None:
    """Deletes the heartbeat of an ended run."""
    conn.execute(delete(run).where(run.c.run_id == run_id))


def heartbeats(conn: Connection) -> dict[str, int]:
    """Returns the time of the last heartbeat of each run that has not ended, ms since epoch by the
    database's clock."""
    return {r.run_id: r.beat_ms for r in conn.execute(select(run))}
