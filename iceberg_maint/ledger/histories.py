"""The histories that decisions need: back-off, quarantine, pauses, leases, and this hour's use. One statement reads each
kind of row of a chunk of tables."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Label, Row, bindparam, case, delete, func, insert, select

from iceberg_maint.core.decisions.history import FleetWait, PartitionHistory, TableHistory, faults_of
from iceberg_maint.core.model.ids import DATA_OPERATIONS, FLEET, READING, VERIFYING, Operation, PartitionKey
from iceberg_maint.ledger.database import Part, among, chunks, in_chunks
from iceberg_maint.ledger.leases import in_force
from iceberg_maint.ledger.registry import pause_of
from iceberg_maint.ledger.schema import (
    db_now_ms,
    fleet_wait,
    lease,
    outcome,
    partition_history,
    pause,
    statement_now_ms,
)
from iceberg_maint.ports.stored import BatchStatus

_HOUR_MS = 3_600_000
Key = tuple[str, str]
"""UUID and operation."""

_WAIT_MS = 86_400_000
"""A wait for the budget of the fleet counts no longer after the cycle that decided it."""
_PAUSES = select(pause).order_by(pause.c.paused_ms.desc())
_ended = outcome.alias()
_has_ended = (
    select(_ended.c.ordinal)
    .where(_ended.c.attempt_id == outcome.c.attempt_id, _ended.c.status != BatchStatus.UNKNOWN)
    .exists()
)
_ANY_OPERATION = outcome.c.operation.in_(tuple(Operation))
"""Lets the indices, in which the operation comes before status and time, find the few rows that are asked for."""
_HOUR = select(outcome.c.table_uuid, outcome.c.operation, outcome.c.partitions, outcome.c.input_bytes).where(
    outcome.c.recorded_ms > statement_now_ms() - _HOUR_MS, _ANY_OPERATION, among(outcome.c.table_uuid)
)
_UNKNOWN = (
    select(
        outcome.c.table_uuid,
        outcome.c.operation,
        func.count(outcome.c.attempt_id.distinct()).label("attempts"),
    )
    .where(outcome.c.status == BatchStatus.UNKNOWN, _ANY_OPERATION, ~_has_ended, among(outcome.c.table_uuid))
    .group_by(outcome.c.table_uuid, outcome.c.operation)
)


def _last_done_of(operation: Operation) -> Label[int | None]:
    last = select(func.max(outcome.c.recorded_ms)).where(
        outcome.c.table_uuid == lease.c.table_uuid,
        outcome.c.operation == operation,
        outcome.c.status == BatchStatus.DONE,
    )
    return last.scalar_subquery().label(operation)


_LEASES = select(
    lease.c.table_uuid,
    case((in_force(), lease.c.owner)).label("owner"),
    *map(_last_done_of, Operation),
).where(among(lease.c.table_uuid))
"""The owner of a lease in force, and one search of an index for each operation. Every table with an outcome has had a
lease."""
_FLEET_WAITS = select(fleet_wait).where(
    fleet_wait.c.until_ms > db_now_ms(),
    fleet_wait.c.decided_ms > db_now_ms() - _WAIT_MS,
    among(fleet_wait.c.table_uuid),
)
_DELETE = delete(partition_history).where(
    partition_history.c.table_uuid == bindparam("of_table"),
    partition_history.c.operation == bindparam("of_operation"),
    among(partition_history.c.partition),
)
_INSERT = insert(partition_history)
_PARTITIONS = (
    select(partition_history)
    .where(among(partition_history.c.table_uuid))
    .order_by(partition_history.c.partition)
)


class Histories(Part):
    """The histories that decisions need: a part of `SqlHealth`."""

    def history(self, table_uuid: str, table: str, operation: Operation) -> TableHistory:
        """Returns the history of one operation of a table."""
        return self.histories({table_uuid: table}, (operation,))[table_uuid, operation]

    def histories(
        self, tables: Mapping[str, str], operations: Sequence[Operation] = DATA_OPERATIONS
    ) -> dict[tuple[str, Operation], TableHistory]:
        """Returns the histories of the operations of the tables, given as UUID → name. `lease_owner` is the owner of any
        lease in force, including the caller's own."""
        with self._read() as conn:
            pauses = conn.execute(_PAUSES).all()
            fleet = next((pause_of(r) for r in pauses if r.table_name == FLEET), None)
            owners, last_done = _leases(conn, tables)
            hours, unknown = _hours(conn, tables), _unknown(conn, tables)
            partitions, fleet_waits = _partitions(conn, tables), _fleet_waits(conn, tables)
            histories = {}
            for uuid, name in tables.items():
                own = next(
                    (
                        pause_of(r)
                        for r in pauses
                        if r.table_name != FLEET and (r.table_name == name or r.table_uuid == uuid)
                    ),
                    None,
                )
                in_force = tuple(p for p in (own, fleet) if p is not None)
                faults = faults_of(
                    {o: partitions.get((uuid, o), {}) for o in (READING, VERIFYING, *Operation)}
                )
                for operation in operations:
                    keys, input_bytes = hours.get((uuid, operation), (frozenset(), 0))
                    histories[uuid, operation] = TableHistory(
                        paused=bool(in_force),
                        paused_reason=in_force[0].note if in_force else "",
                        pauses=in_force,
                        lease_owner=owners.get(uuid),
                        unknown_commits=unknown.get((uuid, operation), 0),
                        hour_partitions=len(keys),
                        hour_bytes=input_bytes,
                        last_done_ms=last_done.get((uuid, operation)),
                        partitions=partitions.get((uuid, operation), {}),
                        fleet_waits=fleet_waits.get(uuid, {}),
                        faults=faults,
                    )
            return histories

    def set_partition_history(
        self, table_uuid: str, operation: str, histories: Mapping[PartitionKey, PartitionHistory]
    ) -> None:
        """Replaces back-off and quarantine of these partitions."""
        with self._write(table_uuid) as conn:
            write(conn, table_uuid, operation, histories)


def write(
    conn: Connection, table_uuid: str, operation: str, changed: Mapping[PartitionKey, PartitionHistory]
) -> None:
    """Overwrites the histories of these partitions. An empty history leaves no row."""
    which = {"of_table": table_uuid, "of_operation": operation}
    for keys in chunks(changed):
        conn.execute(_DELETE, {**which, "chunk": keys})
    rows = [
        {
            "table_uuid": table_uuid,
            "operation": operation,
            "partition": partition,
            "ineffective": history.ineffective,
            "crashes": history.crashes,
            "not_before_ms": history.not_before_ms,
            "quarantined": history.quarantined,
            "reason": history.reason,
            "environment_failures": history.environment_failures,
        }
        for partition, history in changed.items()
        if history != PartitionHistory()
    ]
    if rows:
        conn.execute(_INSERT, rows)


def _partition_history_of(row: Row[*tuple[Any, ...]]) -> PartitionHistory:
    """Returns the history of one row."""
    return PartitionHistory(
        ineffective=row.ineffective,
        crashes=row.crashes,
        not_before_ms=row.not_before_ms,
        quarantined=row.quarantined,
        reason=row.reason,
        environment_failures=row.environment_failures,
    )


def _hours(conn: Connection, tables: Mapping[str, str]) -> dict[Key, tuple[frozenset[str], int]]:
    hours: dict[Key, tuple[frozenset[str], int]] = {}
    for row in in_chunks(conn, _HOUR, tables):
        keys, input_bytes = hours.get((row.table_uuid, row.operation), (frozenset(), 0))
        keys = keys.union(json.loads(row.partitions))
        hours[row.table_uuid, row.operation] = keys, input_bytes + row.input_bytes
    return hours


def _unknown(conn: Connection, tables: Mapping[str, str]) -> dict[Key, int]:
    return {(r.table_uuid, r.operation): r.attempts for r in in_chunks(conn, _UNKNOWN, tables)}


def _leases(conn: Connection, tables: Mapping[str, str]) -> tuple[dict[str, str], dict[Key, int]]:
    """Returns the owners by UUID, and when each operation was last done."""
    owners: dict[str, str] = {}
    last_done: dict[Key, int] = {}
    for table_uuid, owner, *newest in in_chunks(conn, _LEASES, tables):
        if owner is not None:
            owners[table_uuid] = owner
        for operation, newest_ms in zip(Operation, newest, strict=True):
            if newest_ms is not None:
                last_done[table_uuid, operation] = newest_ms
    return owners, last_done


def _fleet_waits(conn: Connection, tables: Mapping[str, str]) -> dict[str, dict[PartitionKey, FleetWait]]:
    of_tables: dict[str, dict[PartitionKey, FleetWait]] = defaultdict(dict)
    for row in in_chunks(conn, _FLEET_WAITS, tables):
        of_tables[row.table_uuid][row.partition] = FleetWait(row.since_ms, row.until_ms)
    return dict(of_tables)


def _partitions(
    conn: Connection, tables: Mapping[str, str]
) -> dict[Key, dict[PartitionKey, PartitionHistory]]:
    of_tables: dict[Key, dict[PartitionKey, PartitionHistory]] = defaultdict(dict)
    for row in in_chunks(conn, _PARTITIONS, tables):
        of_tables[row.table_uuid, row.operation][row.partition] = _partition_history_of(row)
    return dict(of_tables)
