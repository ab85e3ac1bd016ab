"""Incidents, by id."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, insert, select

from iceberg_maint.core.alerts.incident import Incident
from iceberg_maint.core.model.codec import dumps, loads
from iceberg_maint.ledger.chunks import chunks
from iceberg_maint.ledger.schema import alert


def read(conn: Connection) -> tuple[Incident, ...]:
    """Returns every stored incident, by id."""
    rows = conn.execute(select(alert.c.body).order_by(alert.c.incident_id))
    return tuple(loads(Incident, row.body) for row in rows)


def replace_all(conn: Connection, incidents: Sequence[Incident]) -> None:
    """Stores these incidents in place of the stored ones. Rows that do not change are not written."""
    stored = {row.incident_id: row.body for row in conn.execute(select(alert))}
    bodies = {i.incident_id: dumps(i) for i in incidents}
    changed = [name for name, body in stored.items() if bodies.get(name) != body]
    for chunk in chunks(changed):
        conn.execute(delete(alert).where(alert.c.incident_id.in_(chunk)))
    new = [{"incident_id": name, "body": body} for name, body in bodies.items() if stored.get(name) != body]
    if new:
        conn.execute(insert(alert), new)
