"""The last health of each table, and the partitions that are missing from it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.health.metrics import Measured, PartitionHealth, TableHealth
from iceberg_maint.core.model.codec import digest, dumps, loads
from iceberg_maint.core.model.ids import READING, WHOLE_TABLE, PartitionKey, TableId
from iceberg_maint.ledger import health_days, histories
from iceberg_maint.ledger.database import Database, among, chunks, in_chunks
from iceberg_maint.ledger.health_days import StoredPartitions, UnpackedPartitions, pack, packed_keys
from iceberg_maint.ledger.histories import Histories
from iceberg_maint.ledger.leases import owner_of
from iceberg_maint.ledger.schema import NOW, db_now_ms, health, partition_history, partition_missing
from iceberg_maint.ports.stored import (
    HealthDay,
    KnownTable,
    StoredMeasurement,
    unmeasured_prefix,
    unmeasured_uuid,
)

RETIRED_AFTER_MISSES = 2
_SAME_OBSERVATION_MS = 10_000
"""A run measures a table before and after each step. Equal measurements within this time are one observation."""


_FORM = digest(
    tuple(tuple(f.name for f in fields(kind)) for kind in (Measured, TableHealth, PartitionHealth))
)[:16]
"""The stored format. Health in another format was stored by another version and counts as not measured."""

_STORED = select(health).where(health.c.table_uuid == bindparam("of_table"))
_OTHERS = select(health.c.table_uuid).where(
    health.c.table_name == bindparam("of_name"), health.c.table_uuid != bindparam("of_table")
)
_INSERT, _UPDATE = insert(health), update(health).where(health.c.table_uuid == bindparam("of_table"))
"""Statements of every measurement, built once: to build one costs more than SQLite needs to run it."""

GOVERNED = "governed"
"""The form of the mark of a table with read restrictions."""


def _put(conn: Connection, measured: Measured) -> bool:
    """Stores the health of the table with this UUID; returns False if a newer one is stored.

    Another table that had the name no longer has it, so its health is deleted.
    """
    uuid = measured.table_uuid
    stored = conn.execute(_STORED, {"of_table": uuid}).first()
    if stored is None or stored.form != _FORM:
        histories.write(conn, unmeasured_uuid(measured.table), READING, {WHOLE_TABLE: PartitionHistory()})
    if stored is not None and (stored.form != _FORM or not json.loads(stored.head)["basis"]):
        histories.write(conn, uuid, READING, {WHOLE_TABLE: PartitionHistory()})
    if stored is not None and stored.sequence_number > measured.sequence_number:
        return False
    for other in conn.scalars(_OTHERS, {"of_table": uuid, "of_name": str(measured.table)}).all():
        _drop(conn, other)
    now_ms = conn.execute(NOW).scalar_one()
    health_days.put_day(conn, measured, now_ms)
    values: dict[str, Any] = {
        "sequence_number": measured.sequence_number,
        "observed_ms": now_ms,
        **_facts(measured),
    }
    if stored is None:
        conn.execute(_INSERT, {"table_uuid": uuid, **values})
        return True
    conn.execute(_UPDATE, {"of_table": uuid, **values})
    if stored.pointer != measured.metadata_location or now_ms > stored.observed_ms:
        _count_missing(conn, uuid, packed_keys(stored.partitions), measured.partitions, now_ms)
    return True


def _distrust(conn: Connection, table_uuid: str) -> None:
    """Keeps the stored health of the table, but not as that of an unchanged table: its basis becomes empty."""
    own = (health.c.table_uuid == table_uuid) & (health.c.form == _FORM)
    head = conn.scalar(select(health.c.head).where(own))
    if head is not None:
        conn.execute(update(health).where(own).values(head=dumps(replace(loads(Measured, head), basis=""))))


def _is_stored(conn: Connection, measured: Measured) -> bool:
    """Whether the same health was stored a moment ago, so that storing it again would change nothing but the time.

    A table with partitions that are missing counts each observation, so its health is always stored again.
    """
    is_missing = partition_missing.c.table_uuid == measured.table_uuid
    names = health.c.table_name, health.c.pointer, health.c.form, health.c.head, health.c.partitions
    age_ms = db_now_ms() - health.c.observed_ms
    query = select(*names, age_ms.label("age_ms")).where(
        health.c.table_uuid == measured.table_uuid, ~select(partition_missing).where(is_missing).exists()
    )
    row = conn.execute(query).mappings().first()
    return (
        row is not None
        and 0 <= row["age_ms"] < _SAME_OBSERVATION_MS
        and all(row[name] == value for name, value in _facts(measured).items())
    )


def partition_keys(conn: Connection, table_uuid: str) -> frozenset[PartitionKey] | None:
    """Returns the partitions of the table's stored health. None without health that this version stored."""
    query = select(health.c.partitions).where(health.c.table_uuid == table_uuid, health.c.form == _FORM)
    packed = conn.scalar(query)
    return None if packed is None else frozenset(packed_keys(packed))


def _facts(measured: Measured) -> dict[str, Any]:
    """The columns that follow from the measurement alone."""
    return {
        "table_name": str(measured.table),
        "pointer": measured.metadata_location,
        "form": _FORM,
        "head": dumps(replace(measured, partitions={})),
        "partitions": pack(measured.partitions),
    }


def _empty(conn: Connection, uuids: Collection[str]) -> set[str]:
    nothing = pack({})
    query = select(health.c.table_uuid).where(health.c.table_uuid.in_(uuids), health.c.partitions == nothing)
    return set(conn.scalars(query))


def _count_missing(
    conn: Connection, uuid: str, before: Collection[PartitionKey], now: Collection[PartitionKey], now_ms: int
) -> None:
    """Counts one observation. An observation without partitions is no evidence that partitions are gone:
    it only stores which partitions existed."""
    of_table = partition_missing.c.table_uuid == uuid
    missing = set(conn.scalars(select(partition_missing.c.partition).where(of_table)))
    count = 1 if now else 0
    for key in missing.intersection(now):
        conn.execute(delete(partition_missing).where(of_table, partition_missing.c.partition == key))
    conn.execute(update(partition_missing).where(of_table).values(misses=partition_missing.c.misses + count))
    new_rows = [
        {"table_uuid": uuid, "partition": key, "misses": count, "since_ms": now_ms}
        for key in before
        if key not in now and key not in missing
    ]
    if new_rows:
        conn.execute(insert(partition_missing), new_rows)


def _drop(conn: Connection, uuid: str) -> None:
    health_days.drop_days(conn, uuid)
    conn.execute(delete(partition_missing).where(partition_missing.c.table_uuid == uuid))
    conn.execute(delete(health).where(health.c.table_uuid == uuid))


class SqlHealth(Histories):
    """Measurements, health and histories of tables; see `ports.ledger.HealthStore`."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._last = ("", "")
        self._unpacked = UnpackedPartitions()

    def put(self, measured: Measured) -> bool:
        """Stores health unless the stored health is newer. Returns whether it stored it."""
        key = (measured.table_uuid, measured.metadata_location)
        if key == self._last:
            with self._read() as conn:
                if _is_stored(conn, measured):
                    return True
        with self._write(measured.table_uuid, str(measured.table)) as conn:
            is_newest = _put(conn, measured)
        self._last = key
        return is_newest

    def put_unreadable(self, table_uuid: str, reading: PartitionHistory) -> None:
        """Stores how the table's metadata failed to be read."""
        with self._write(table_uuid) as conn:
            histories.write(conn, table_uuid, READING, {WHOLE_TABLE: reading})
            _distrust(conn, table_uuid)

    def get(self, table: TableId) -> Measured | None:
        """Returns the stored health of the table with this name."""
        return self.get_all((table,)).get(table)

    def get_all(self, tables: Iterable[TableId]) -> dict[TableId, Measured]:
        """Returns the stored health of those of the tables that have one."""
        with self._read() as conn:
            query = select(health).where(health.c.form == _FORM, among(health.c.table_name))
            rows = in_chunks(conn, query, map(str, tables))
            return {
                measured.table: replace(measured, partitions=StoredPartitions(row.partitions, self._unpacked))
                for measured, row in ((loads(Measured, row.head), row) for row in rows)
            }

    def health_days(self, table_uuids: Collection[str]) -> Mapping[str, tuple[HealthDay, ...]]:
        """Returns the stored days of these tables, by day."""
        with self._read() as conn:
            return health_days.read_days(conn, table_uuids)

    def measurements(self, tables: Iterable[TableId]) -> tuple[StoredMeasurement, ...]:
        """Returns what the stored health of these tables was measured from, without its numbers."""
        with self._read() as conn:
            query = select(health.c.table_name, health.c.table_uuid, health.c.pointer, health.c.head)
            by_name = {str(t): t for t in tables}
            found = []
            for row in in_chunks(
                conn, query.where(health.c.form == _FORM, among(health.c.table_name)), by_name
            ):
                head = json.loads(row.head)
                found.append(
                    StoredMeasurement(
                        by_name[row.table_name],
                        row.table_uuid,
                        row.pointer,
                        head["basis"],
                        head["maintenance_properties"],
                    )
                )
            return tuple(found)

    def confirm(self, pointers: Mapping[str, str]) -> None:
        """Counts one more observation of the tables with these UUIDs whose stored health still has this pointer."""
        with self._write(*sorted(pointers)) as conn:
            now_ms = conn.execute(NOW).scalar_one()
            query = select(health.c.table_uuid, health.c.pointer, health.c.observed_ms)
            uuids = [
                row.table_uuid
                for row in in_chunks(conn, query.where(among(health.c.table_uuid)), pointers)
                if row.pointer == pointers[row.table_uuid] and row.observed_ms < now_ms
            ]
            for chunk in chunks(uuids):
                conn.execute(update(health).where(health.c.table_uuid.in_(chunk)).values(observed_ms=now_ms))
                # As in `_count_missing`: health without partitions is no evidence that partitions are gone. Its table
                # counts nothing.
                conn.execute(
                    update(partition_missing)
                    .where(partition_missing.c.table_uuid.in_(set(chunk) - _empty(conn, chunk)))
                    .values(misses=partition_missing.c.misses + 1)
                )

    def known_tables(self) -> tuple[KnownTable, ...]:
        """Returns the tables with stored health, by name."""
        with self._read() as conn:
            rows = conn.execute(
                select(
                    health.c.table_name, health.c.table_uuid, health.c.pointer, health.c.observed_ms
                ).where(health.c.form == _FORM)
            )
            tables = (
                KnownTable(TableId.parse(r.table_name), r.table_uuid, r.pointer, r.observed_ms) for r in rows
            )
            return tuple(sorted(tables, key=lambda k: k.table))

    def outdated_tables(self) -> tuple[str, ...]:
        """Returns the names of the tables whose health another version of the program stored in a format of its own."""
        with self._read() as conn:
            return tuple(sorted(conn.scalars(select(health.c.table_name).where(health.c.form != _FORM))))

    def forget_table(self, table: TableId) -> None:
        """Deletes the stored health of the table with this name."""
        with self._write(str(table)) as conn:
            uuid = conn.scalar(select(health.c.table_uuid).where(health.c.table_name == str(table)))
            if uuid is not None:
                _drop(conn, uuid)
                histories.write(conn, uuid, READING, {WHOLE_TABLE: PartitionHistory()})

    def forget_unread(self, catalog: str, listed: Collection[TableId]) -> None:
        """Deletes how tables of the catalog that were never measured failed to be read, except of those that it lists."""
        column = partition_history.c.table_uuid
        query = select(column).where(
            partition_history.c.operation == READING, column.startswith(unmeasured_prefix(catalog))
        )
        with self._read() as conn:
            noted = set(conn.scalars(query))
        gone = noted - {unmeasured_uuid(t) for t in listed} if noted else noted
        for uuid in sorted(gone):
            with self._write(uuid) as conn:
                histories.write(conn, uuid, READING, {WHOLE_TABLE: PartitionHistory()})

    def mark_governed(self, table: TableId) -> None:
        """Replaces the stored health of a table with read restrictions by a mark without values. Partition keys are
        values of rows, and metrics count rows that this program may not see."""
        with self._write(str(table)) as conn:
            name = str(table)
            row = conn.execute(
                select(health.c.table_uuid, health.c.form).where(health.c.table_name == name)
            ).first()
            if row is not None and row.form == GOVERNED:
                return
            if row is not None:
                _drop(conn, row.table_uuid)
            histories.write(conn, unmeasured_uuid(table), READING, {WHOLE_TABLE: PartitionHistory()})
            conn.execute(
                insert(health).values(
                    table_uuid=unmeasured_uuid(table) if row is None else row.table_uuid,
                    table_name=name,
                    sequence_number=-1,
                    pointer="",
                    observed_ms=db_now_ms(),
                    form=GOVERNED,
                    head="",
                    partitions=pack({}),
                )
            )

    def missing_partitions(self, table: TableId) -> tuple[PartitionKey, ...]:
        """Returns the partition keys that earlier health of the table had and the stored health lacks."""
        with self._read() as conn:
            uuid = select(health.c.table_uuid).where(health.c.table_name == str(table)).scalar_subquery()
            rows = select(partition_missing.c.partition).where(partition_missing.c.table_uuid == uuid)
            return tuple(sorted(map(PartitionKey, conn.scalars(rows))))

    def retired_partitions(self, table: TableId) -> tuple[PartitionKey, ...]:
        """Returns the partition keys that were missing in two observations in a row; none while a run has the
        table's lease."""
        with self._read() as conn:
            uuid = conn.scalar(select(health.c.table_uuid).where(health.c.table_name == str(table)))
            if uuid is None or owner_of(conn, uuid) is not None:
                return ()
            keys = conn.scalars(
                select(partition_missing.c.partition).where(
                    partition_missing.c.table_uuid == uuid,
                    partition_missing.c.misses >= RETIRED_AFTER_MISSES,
                )
            )
            return tuple(sorted(map(PartitionKey, keys)))
