"""Leases with fences, and the check that makes every other write conditional on a lease."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    String,
    and_,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from iceberg_maint.core.removal.clock_skew import MAX_SKEW_MS, ClockReading
from iceberg_maint.errors import FenceLostError
from iceberg_maint.ledger import schema
from iceberg_maint.ledger.database import Part
from iceberg_maint.ledger.schema import clock, db_now_ms, lease, partition_history, run, statement_now_ms
from iceberg_maint.ports.stored import Lease

_LONGEST_MS = 5 * 60 * 1000
"""No lease is longer."""


def in_force() -> ColumnElement[bool]:
    """Whether a lease has an owner who may work. One that ends later than now + its length was dated by a clock that
    was ahead, and a dead owner would hold the table until that clock's time."""
    return lease.c.expires_ms.between(db_now_ms() + 1, db_now_ms() + _LONGEST_MS + MAX_SKEW_MS)


_SAME_LEASE = and_(
    lease.c.table_uuid == bindparam("held_table"),
    lease.c.owner == bindparam("held_owner"),
    lease.c.fence == bindparam("held_fence"),
)
_UNEXPIRED = lease.c.expires_ms > db_now_ms()
_HELD = and_(_SAME_LEASE, _UNEXPIRED)
"""An owner whose lease a wrong clock has dated still has it, because no other owner has taken it since."""
_HOLDS = select(lease.c.fence).where(_HELD)
_OF_TABLE = select(
    lease.c.owner,
    lease.c.fence,
    lease.c.expires_ms,
    _UNEXPIRED.label("live"),
    in_force().label("in_force"),
).where(lease.c.table_uuid == bindparam("table_uuid"))
_LATER = {"expires_ms": db_now_ms() + bindparam("ttl_ms", type_=BigInteger)}
_FIRST = insert(lease).values(**_LATER)
_TAKE = update(lease).where(lease.c.table_uuid == bindparam("of_table")).values(**_LATER)
_EXTEND = update(lease).where(_HELD).values(**_LATER)
_RELEASE = update(lease).where(_SAME_LEASE).values(owner=None, expires_ms=0)
_LAST_NAME = select(lease.c.table_name).where(lease.c.table_uuid == bindparam("table_uuid"))
_OWNER = select(lease.c.owner, lease.c.expires_ms).where(
    lease.c.table_uuid == bindparam("table_uuid"), in_force()
)
"""Statements of every run, built once: to build one costs more than SQLite needs to run it."""


def holds(conn: Connection, lease_to_check: Lease) -> bool:
    """Returns whether owner and fence are the current ones and the lease has not expired."""
    return conn.execute(_HOLDS, _held(lease_to_check)).first() is not None


def require(conn: Connection, required: Lease) -> None:
    """Raises FenceLostError unless the lease is in force. It stays in force until the transaction ends,
    because every acquisition of a lease locks the same key."""
    if holds(conn, required):
        return
    row = conn.execute(
        select(lease.c.owner, lease.c.fence).where(lease.c.table_uuid == required.table_uuid)
    ).first()
    mine = f"lease of '{required.owner}' on {required.table} (fence {required.fence})"
    if row is None or (row.owner, row.fence) == (required.owner, required.fence):
        raise FenceLostError(f"the {mine} has expired.")
    owner = f"'{row.owner}'" if row.owner is not None else "no owner"
    raise FenceLostError(f"the {mine} is over: {owner} holds fence {row.fence}.")


def owner_of(conn: Connection, table_uuid: str) -> tuple[str, int] | None:
    """Returns the owner of the table's lease in force, and when it expires."""
    row = conn.execute(_OWNER, {"table_uuid": table_uuid}).first()
    return None if row is None else (row.owner, row.expires_ms)


def _held(held: Lease) -> dict[str, str | int]:
    return {"held_table": held.table_uuid, "held_owner": held.owner, "held_fence": held.fence}


_FORGOTTEN_AFTER_MS = 7 * 24 * 3600 * 1000
"""Age at which a heartbeat is deleted: of a run that ended while the ledger was unreachable, or whose
Dagster instance no longer exists."""


_NO_BOOT = ""
_KEPT_MS = 90 * 24 * 3600 * 1000
"""How long readings of ended boots are kept."""
_NEWEST = select(func.max(clock.c.newest_ms))
_BOOTED = select(clock.c.booted_ms).where(clock.c.boot == bindparam("boot", type_=String))
_EVENTS = (
    *(schema.attempt.c.started_ms, schema.intent.c.recorded_ms, schema.attempt_try.c.recorded_ms),
    *(schema.outcome.c.recorded_ms, schema.batch.c.updated_ms, schema.cursor.c.advanced_ms),
    *(schema.record.c.appended_ms, schema.health.c.observed_ms, schema.partition_missing.c.since_ms),
    *(
        schema.pause.c.paused_ms,
        schema.reader.c.seen_ms,
        schema.run.c.beat_ms,
        schema.location_owner.c.current_ms,
    ),
)
_READINGS = select(_NEWEST.scalar_subquery(), _BOOTED.scalar_subquery())


class SqlLeases(Part):
    """Leases, heartbeats of runs, and readings of clocks; see `ports.ledger.Leases`."""

    def acquire(
        self, table_uuid: str, table: str, owner: str, ttl_seconds: int, min_fence: int
    ) -> Lease | None:
        """Returns a lease with the next fence, or None while another owner's lease has not expired.

        A lease that a wrong clock has dated is cut to one length from now. An owner that lives extends it within that
        time, so no second owner works beside it.
        """
        with self._write(table_uuid) as conn:
            row = conn.execute(_OF_TABLE, {"table_uuid": table_uuid}).first()
            if row is not None and row.live and row.owner != owner:
                if not row.in_force:
                    conn.execute(_TAKE, {"of_table": table_uuid, "ttl_ms": ttl_seconds * 1000})
                return None
            fence = max(row.fence if row is not None else 0, min_fence) + 1
            values: dict[str, Any] = {
                "table_name": table,
                "owner": owner,
                "fence": fence,
                "ttl_ms": ttl_seconds * 1000,
            }
            if row is None:
                conn.execute(_FIRST, {"table_uuid": table_uuid, **values})
            else:
                conn.execute(_TAKE, {"of_table": table_uuid, **values})
            if row is None or row.owner in (None, owner):
                return Lease(table_uuid, table, owner, fence, ttl_seconds)
            return Lease(
                table_uuid, table, owner, fence, ttl_seconds, row.owner, row.expires_ms - ttl_seconds * 1000
            )

    def owner(self, table_uuid: str) -> tuple[str, int] | None:
        """Returns the owner of the table's lease in force, and when it expires."""
        with self._read() as conn:
            return owner_of(conn, table_uuid)

    def heartbeat(self, lease: Lease) -> bool:
        """Extends the lease by its ttl. Returns False if it has expired or another owner has it."""
        with self._write(lease.table_uuid) as conn:
            ttl = {"ttl_ms": lease.ttl_seconds * 1000}
            changed = conn.execute(_EXTEND, {**_held(lease), **ttl})
            return changed.rowcount == 1

    def holds(self, lease: Lease) -> bool:
        """Whether owner and fence are the current ones and the lease has not expired."""
        with self._read() as conn:
            return holds(conn, lease)

    def release(self, lease: Lease) -> None:
        """Frees the table if the lease is still ours. The table keeps the lease's fence as its last one."""
        with self._write(lease.table_uuid) as conn:
            conn.execute(_RELEASE, _held(lease))

    def last_leased_name(self, table_uuid: str) -> str | None:
        """Returns the name under which the table was last leased, also after the lease has ended."""
        with self._read() as conn:
            return conn.scalar(_LAST_NAME, {"table_uuid": table_uuid})

    def adopt_table(self, table_uuid: str, table: str) -> None:
        """Stores that the table with this UUID had this name last. Its fence stays."""
        with self._write(table_uuid) as conn:
            renamed = conn.execute(
                update(lease).where(lease.c.table_uuid == table_uuid).values(table_name=table)
            )
            if not renamed.rowcount:
                free = {"table_uuid": table_uuid, "table_name": table, "fence": 0, "expires_ms": 0}
                conn.execute(insert(lease).values(**free))

    def record_run_heartbeat(self, run_id: str) -> None:
        """Records a heartbeat of the run."""
        with self._write(run_id) as conn:
            conn.execute(
                delete(run).where(
                    (run.c.run_id == run_id) | (run.c.beat_ms < db_now_ms() - _FORGOTTEN_AFTER_MS)
                )
            )
            conn.execute(insert(run).values(run_id=run_id, beat_ms=db_now_ms()))

    def end_run(self, run_id: str) -> None:
        """Deletes the heartbeat of an ended run."""
        with self._write(run_id) as conn:
            conn.execute(delete(run).where(run.c.run_id == run_id))

    def run_heartbeats(self) -> dict[str, int]:
        """Returns the time of the last heartbeat of each run that has not ended, ms since epoch by the
        database's clock."""
        with self._read() as conn:
            return {r.run_id: r.beat_ms for r in conn.execute(select(run))}

    def clock_reading(self, boot: str | None) -> ClockReading:
        """Returns the newest reading of all machines, and the start of this boot of this machine."""
        with self._read() as conn:
            newest_ms, booted_ms = conn.execute(_READINGS, {"boot": boot}).one()
            return ClockReading(newest_ms or 0, booted_ms)

    def keep_clock_reading(self, boot: str | None, booted_ms: int | None, newest_ms: int) -> None:
        """Stores a reading. A newer stored reading stays."""
        with self._write(f"clock {boot}") as conn:
            name = boot or _NO_BOOT
            stored = conn.execute(select(clock.c.newest_ms).where(clock.c.boot == name)).first()
            if stored is None:
                conn.execute(insert(clock).values(boot=name, booted_ms=booted_ms, newest_ms=newest_ms))
                # A machine that keeps only its boot has stored no reading, and has no other row.
                ended = clock.c.newest_ms.between(1, newest_ms - _KEPT_MS - 1)
                conn.execute(delete(clock).where(ended))
                return
            newest_ms = max(newest_ms, stored.newest_ms)
            conn.execute(
                update(clock).where(clock.c.boot == name).values(booted_ms=booted_ms, newest_ms=newest_ms)
            )

    def accept_clock(self) -> None:
        """Deletes all readings, after an operator has confirmed the clocks. Ends back-offs and waits, because the wrong
        clock may have dated them. What has happened in the future by its date happened by now."""
        with self._write("clock") as conn:
            conn.execute(delete(clock))
            conn.execute(delete(schema.fleet_wait))
            conn.execute(update(partition_history).values(not_before_ms=None))
            for at in _EVENTS:
                conn.execute(
                    update(at.table).where(at > statement_now_ms()).values({at.name: statement_now_ms()})
                )
