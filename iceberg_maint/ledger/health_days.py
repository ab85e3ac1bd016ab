"""The numbers of each table by day: the last measurement of the day, for at most 90 days."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from sqlalchemy import Connection, bindparam, delete, insert, select

from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.health.trend import KEPT_DAYS, HealthDay, day_metrics
from iceberg_maint.core.model.codec import dumps
from iceberg_maint.ledger.chunks import among, in_chunks
from iceberg_maint.ledger.schema import db_now_ms, health_day

_DAY_MS = 86_400_000
_NOW = select(db_now_ms())
_of_table = health_day.c.table_uuid == bindparam("of_table")
_DELETE_DAY = delete(health_day).where(
    _of_table, (health_day.c.day == bindparam("today")) | (health_day.c.day <= bindparam("last_old"))
)
_DELETE_OLD = delete(health_day).where(_of_table, health_day.c.day < bindparam("first_kept"))


def put(conn: Connection, measured: Measured, now_ms: int) -> None:
    """Stores the measurement as the last one of today. Days beyond the limit are deleted."""
    today, uuid = now_ms // _DAY_MS, measured.table_uuid
    conn.execute(_DELETE_DAY, {"of_table": uuid, "today": today, "last_old": today - KEPT_DAYS})
    conn.execute(insert(health_day).values(table_uuid=uuid, day=today, body=dumps(day_metrics(measured))))


def read(conn: Connection, table_uuids: Collection[str]) -> dict[str, tuple[HealthDay, ...]]:
    """Returns the stored days of these tables, by day. A table without days is missing."""
    query = select(health_day).where(among(health_day.c.table_uuid)).order_by(health_day.c.day)
    days: dict[str, tuple[HealthDay, ...]] = {}
    for row in in_chunks(conn, query, table_uuids):
        metrics: Mapping[str, float] = json.loads(row.body)
        days[row.table_uuid] = (*days.get(row.table_uuid, ()), HealthDay(row.day, metrics))
    return days


def prune(conn: Connection, table_uuid: str, keep_days: int) -> None:
    """Deletes the days of a table that are more than `keep_days` ago."""
    today = (conn.scalar(_NOW) or 0) // _DAY_MS
    conn.execute(_DELETE_OLD, {"of_table": table_uuid, "first_kept": today - keep_days})


def drop(conn: Connection, table_uuid: str) -> None:
    """Deletes every day of a table."""
    conn.execute(delete(health_day).where(health_day.c.table_uuid == table_uuid))
