"""Registrations: pauses, incidents, readers of changes, locations of tables, and waits for the budget of the fleet."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, insert, or_, select

from iceberg_maint.core.alerts import Incident
from iceberg_maint.core.decisions.fleet_budget import WorkKey
from iceberg_maint.core.decisions.history import FleetWait, Pause
from iceberg_maint.core.decisions.snapshot_retention import RegisteredReader
from iceberg_maint.core.model.codec import dumps, loads
from iceberg_maint.core.model.ids import FLEET, TableId
from iceberg_maint.core.model.location import LocationOwner
from iceberg_maint.ledger.database import Database, Part, chunks
from iceberg_maint.ledger.leases import require
from iceberg_maint.ledger.schema import (
    NOW,
    alert,
    db_now_ms,
    fleet_wait,
    health,
    installation,
    location_owner,
    pause,
    reader,
)
from iceberg_maint.ports.stored import Lease, StoredLocationOwner, StoredPause

_FORM = "1"
"""Changes whenever the locations that a metadata file owns are derived in another way."""
_READERS = select(reader).where(reader.c.table_uuid == bindparam("table_uuid")).order_by(reader.c.name)
_PAUSES = (
    select(pause)
    .where(
        or_(
            pause.c.table_name.in_((bindparam("table", type_=pause.c.table_name.type), FLEET)),
            pause.c.table_uuid == bindparam("table_uuid"),
        )
    )
    .order_by(pause.c.paused_ms.desc())
)


class SqlRegistry(Part):
    """What is registered beside the work; see `ports.ledger.Registry`."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._installation: str | None = None

    def now_ms(self) -> int:
        """Returns the time of the database's clock."""
        with self._read() as conn:
            return conn.execute(NOW).scalar_one()

    def installation(self) -> str:
        """Returns the id of this ledger, which never changes."""
        if self._installation is None:
            with self._read() as conn:
                self._installation = str(conn.execute(select(installation.c.id)).scalar_one())
        return self._installation

    def pause(self, table: str, note: str, by: str = "") -> None:
        """Pauses the name and, if its health is stored, the table that has it now."""
        with self._write(f"pause {table}") as conn:
            _remove_pause(conn, table)
            conn.execute(
                insert(pause).values(
                    table_name=table,
                    table_uuid=_uuid_of(conn, table),
                    note=note,
                    paused_ms=db_now_ms(),
                    paused_by=by,
                )
            )

    def pauses(self) -> tuple[StoredPause, ...]:
        """Returns the pauses in force: the fleet's first, then by name."""
        with self._read() as conn:
            rows = conn.execute(select(pause).order_by(pause.c.table_name != FLEET, pause.c.table_name))
            return tuple(StoredPause(r.table_name, r.table_uuid, pause_of(r)) for r in rows)

    def resume(self, table: str, table_uuid: str | None = None) -> None:
        """Ends the pause of a name."""
        with self._write(f"pause {table}") as conn:
            _remove_pause(conn, table, table_uuid)

    def pause_note(self, table_uuid: str, table: str) -> str | None:
        """Returns the note of the pause in force, None without a pause. The table's own pause takes
        precedence over the fleet's."""
        with self._read() as conn:
            in_force = _pauses_of(conn, table_uuid, table)
            return in_force[0].note if in_force else None

    def incidents(self) -> tuple[Incident, ...]:
        """Returns every stored incident, by id."""
        with self._read() as conn:
            rows = conn.execute(select(alert.c.body).order_by(alert.c.incident_id))
            return tuple(loads(Incident, row.body) for row in rows)

    def replace_incidents(self, lease: Lease, incidents: Sequence[Incident]) -> None:
        """Stores these incidents in place of the stored ones. Rows that do not change are not written."""
        with self._write(lease.table_uuid) as conn:
            require(conn, lease)
            stored = {row.incident_id: row.body for row in conn.execute(select(alert))}
            bodies = {i.incident_id: dumps(i) for i in incidents}
            changed = [name for name, body in stored.items() if bodies.get(name) != body]
            for chunk in chunks(changed):
                conn.execute(delete(alert).where(alert.c.incident_id.in_(chunk)))
            new = [
                {"incident_id": name, "body": body}
                for name, body in bodies.items()
                if stored.get(name) != body
            ]
            if new:
                conn.execute(insert(alert), new)

    def readers(self, table_uuid: str) -> tuple[RegisteredReader, ...]:
        """Returns the readers of a table, by name."""
        with self._read() as conn:
            rows = conn.execute(_READERS, {"table_uuid": table_uuid})
            return tuple(RegisteredReader(r.name, r.snapshot_id, r.seen_ms) for r in rows)

    def put_reader(self, table_uuid: str, name: str, snapshot_id: int) -> None:
        """Registers the reader or replaces its earlier report."""
        with self._write(table_uuid) as conn:
            _remove_reader(conn, table_uuid, name)
            conn.execute(
                insert(reader).values(
                    table_uuid=table_uuid, name=name, snapshot_id=snapshot_id, seen_ms=db_now_ms()
                )
            )

    def remove_reader(self, table_uuid: str, name: str) -> bool:
        """Removes the reader; returns whether it was registered."""
        with self._write(table_uuid) as conn:
            return _remove_reader(conn, table_uuid, name)

    def location_owners(self, catalog: str) -> Mapping[TableId, StoredLocationOwner]:
        """Returns the owners of the catalog's tables in the present form."""
        with self._read() as conn:
            rows = conn.execute(
                select(location_owner).where(
                    location_owner.c.catalog == catalog, location_owner.c.form == _FORM
                )
            )
            return {
                _table(row.table_name): StoredLocationOwner(row.pointer, _owner(row.body), row.current_ms)
                for row in rows
            }

    def put_location_owners(
        self, catalog: str, stored: Mapping[TableId, StoredLocationOwner], dropped: Collection[TableId] = ()
    ) -> None:
        """Stores owners in place of earlier ones, and deletes those of dropped tables. Owners of tables whose name is not
        unique are not stored, so they are read again."""
        with self._write(f"claims {catalog}") as conn:
            stored = {table: entry for table, entry in stored.items() if table.is_unique}
            for keys in chunks([_key(table) for table in (*stored, *dropped)]):
                conn.execute(delete(location_owner).where(location_owner.c.table_key.in_(keys)))
            if stored:
                conn.execute(
                    insert(location_owner),
                    [
                        {
                            "table_key": _key(table),
                            "catalog": catalog,
                            "table_name": str(table),
                            "pointer": entry.pointer,
                            "form": _FORM,
                            "body": dumps(entry.owner),
                            "current_ms": entry.current_ms,
                        }
                        for table, entry in stored.items()
                    ],
                )

    def fleet_waits(self) -> dict[WorkKey, FleetWait]:
        """Returns every partition that waits."""
        with self._read() as conn:
            rows = conn.execute(select(fleet_wait).where(fleet_wait.c.table_uuid != FLEET))
            return {(r.table_uuid, r.partition): FleetWait(r.since_ms, r.until_ms) for r in rows}

    def fleet_cycle_ms(self) -> int | None:
        """Returns the time of the last cycle over the fleet. None if there was none, or the waits were deleted."""
        with self._read() as conn:
            return conn.scalar(select(fleet_wait.c.decided_ms).where(fleet_wait.c.table_uuid == FLEET))

    def replace_fleet_waits(self, new: Mapping[WorkKey, FleetWait] | None) -> None:
        """Stores these waits in place of all stored ones, with the time of the cycle. None deletes the time, too."""
        with self._write("fleet waits") as conn:
            conn.execute(delete(fleet_wait))
            if new is None:
                return
            rows = [
                {
                    "table_uuid": uuid,
                    "partition": partition,
                    "since_ms": wait.since_ms,
                    "until_ms": wait.until_ms,
                }
                for (uuid, partition), wait in new.items()
            ]
            rows.append({"table_uuid": FLEET, "partition": "", "since_ms": 0, "until_ms": 0})
            now_ms = conn.execute(NOW).scalar_one()
            conn.execute(insert(fleet_wait), [{**row, "decided_ms": now_ms} for row in rows])


def _remove_pause(conn: Connection, table: str, table_uuid: str | None = None) -> None:
    """Ends the pause of the name and of the table that has it now: the given one or, if none is given,
    the one whose health was stored under the name."""
    uuid = table_uuid or _uuid_of(conn, table)
    by_uuid = [pause.c.table_uuid == uuid] if uuid is not None else []
    conn.execute(delete(pause).where(or_(pause.c.table_name == table, *by_uuid)))


def _pauses_of(conn: Connection, table_uuid: str, table: str) -> tuple[Pause, ...]:
    """Returns the newest pause of the table's own, then the fleet's."""
    rows = conn.execute(_PAUSES, {"table": table, "table_uuid": table_uuid})
    newest: dict[bool, Pause] = {}
    for row in rows:
        newest.setdefault(row.table_name == FLEET, pause_of(row))
    return tuple(newest[fleet] for fleet in (False, True) if fleet in newest)


def pause_of(row: Row[*tuple[Any, ...]]) -> Pause:
    """Returns the pause of one row."""
    return Pause(row.note, row.paused_by, row.paused_ms, fleet=row.table_name == FLEET)


def _uuid_of(conn: Connection, table: str) -> str | None:
    return conn.scalar(select(health.c.table_uuid).where(health.c.table_name == table))


@lru_cache(maxsize=10_000)
def _table(name: str) -> TableId:
    return TableId.parse(name)


@lru_cache(maxsize=10_000)
def _owner(body: str) -> LocationOwner:
    """The owner of a stored text. Each orphan scan reads those of all tables."""
    return loads(LocationOwner, body)


def _key(table: TableId) -> str:
    # A name has no limit of length, a key has.
    return blake2b(str(table).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _remove_reader(conn: Connection, table_uuid: str, name: str) -> bool:
    """Removes the reader; returns whether it was registered."""
    deletion = conn.execute(delete(reader).where(reader.c.table_uuid == table_uuid, reader.c.name == name))
    return deletion.rowcount > 0
