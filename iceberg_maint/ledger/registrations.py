"""Registrations: incidents, readers of changes, locations of tables, and readings of clocks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b

from sqlalchemy import Connection, String, bindparam, delete, func, insert, select, update

from iceberg_maint.core.alerts import Incident
from iceberg_maint.core.decisions.snapshot_retention import RegisteredReader
from iceberg_maint.core.model.codec import dumps, loads
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.location import Claim
from iceberg_maint.core.removal.clock_skew import ClockMark
from iceberg_maint.ledger import fleet_spending, schema
from iceberg_maint.ledger.database import chunks
from iceberg_maint.ledger.schema import (
    alert,
    claim,
    clock,
    db_now_ms,
    partition_history,
    reader,
    statement_now_ms,
)
from iceberg_maint.ports.stored import StoredClaim


def incidents(conn: Connection) -> tuple[Incident, ...]:
    """Returns every stored incident, by id."""
    rows = conn.execute(select(alert.c.body).order_by(alert.c.incident_id))
    return tuple(loads(Incident, row.body) for row in rows)


def replace_incidents(conn: Connection, incidents: Sequence[Incident]) -> None:
    """Stores these incidents in place of the stored ones. Rows that do not change are not written."""
    stored = {row.incident_id: row.body for row in conn.execute(select(alert))}
    bodies = {i.incident_id: dumps(i) for i in incidents}
    changed = [name for name, body in stored.items() if bodies.get(name) != body]
    for chunk in chunks(changed):
        conn.execute(delete(alert).where(alert.c.incident_id.in_(chunk)))
    new = [{"incident_id": name, "body": body} for name, body in bodies.items() if stored.get(name) != body]
    if new:
        conn.execute(insert(alert), new)


_FORM = "1"
"""Changes whenever the locations that a metadata file claims are derived in another way."""


def claims_of_catalog(conn: Connection, catalog: str) -> Mapping[TableId, StoredClaim]:
    """Returns the claims of the catalog's tables in the present form."""
    rows = conn.execute(select(claim).where(claim.c.catalog == catalog, claim.c.form == _FORM))
    # A stored name with an empty part names no table.
    return {
        _table(row.table_name): StoredClaim(row.pointer, _claim(row.body), row.current_ms)
        for row in rows
        if all(row.table_name.split("."))
    }


def put_claims(
    conn: Connection, catalog: str, stored: Mapping[TableId, StoredClaim], dropped: Collection[TableId]
) -> None:
    """Stores claims in place of earlier ones, and deletes those of dropped tables. Claims of tables whose name is not
    unique are not stored, so they are read again."""
    stored = {table: entry for table, entry in stored.items() if table.is_unique}
    for keys in chunks([_key(table) for table in (*stored, *dropped)]):
        conn.execute(delete(claim).where(claim.c.table_key.in_(keys)))
    if stored:
        conn.execute(
            insert(claim),
            [
                {
                    "table_key": _key(table),
                    "catalog": catalog,
                    "table_name": str(table),
                    "pointer": entry.pointer,
                    "form": _FORM,
                    "body": dumps(entry.claim),
                    "current_ms": entry.current_ms,
                }
                for table, entry in stored.items()
            ],
        )


@lru_cache(maxsize=10_000)
def _table(name: str) -> TableId:
    return TableId.parse(name)


@lru_cache(maxsize=10_000)
def _claim(body: str) -> Claim:
    """The claim of a stored text. Each orphan pass reads those of all tables."""
    return loads(Claim, body)


def _key(table: TableId) -> str:
    # A name has no limit of length, a key has.
    return blake2b(str(table).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


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


def clock_readings(conn: Connection, boot: str | None) -> ClockMark:
    """Returns the mark of all machines, and of this boot of this machine."""
    newest_ms, booted_ms = conn.execute(_BOTH, {"boot": boot}).one()
    return ClockMark(newest_ms or 0, booted_ms)


def keep_clock(conn: Connection, boot: str | None, booted_ms: int | None, newest_ms: int) -> None:
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


def accept_clock(conn: Connection) -> None:
    """Deletes all readings, after an operator has confirmed the clocks. Ends back-offs and waits, because the wrong
    clock may have dated them. What has happened in the future by its date happened by now."""
    conn.execute(delete(clock))
    fleet_spending.delete_waits(conn)
    conn.execute(update(partition_history).values(not_before_ms=None))
    for at in _EVENTS:
        conn.execute(update(at.table).where(at > statement_now_ms()).values({at.name: statement_now_ms()}))


_OF_TABLE = select(reader).where(reader.c.table_uuid == bindparam("table_uuid")).order_by(reader.c.name)


def readers_of_table(conn: Connection, table_uuid: str) -> tuple[RegisteredReader, ...]:
    """Returns the readers of a table, by name."""
    rows = conn.execute(_OF_TABLE, {"table_uuid": table_uuid})
    return tuple(RegisteredReader(r.name, r.snapshot_id, r.seen_ms) for r in rows)


def put_reader(conn: Connection, table_uuid: str, name: str, snapshot_id: int) -> None:
    """Registers the reader or replaces its earlier report."""
    remove_reader(conn, table_uuid, name)
    conn.execute(
        insert(reader).values(table_uuid=table_uuid, name=name, snapshot_id=snapshot_id, seen_ms=db_now_ms())
    )


def remove_reader(conn: Connection, table_uuid: str, name: str) -> bool:
    """Removes the reader; returns whether it was registered."""
    deletion = conn.execute(delete(reader).where(reader.c.table_uuid == table_uuid, reader.c.name == name))
    return deletion.rowcount > 0
