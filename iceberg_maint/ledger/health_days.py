"""The numbers of each table by day: the last measurement of the day, for at most 90 days."""

from __future__ import annotations

import hashlib
import json
import threading
import zlib
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select

from iceberg_maint.core.health.metrics import Measured, PartitionHealth, day_metrics
from iceberg_maint.core.model.codec import dumps
from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.ledger.database import among, in_chunks
from iceberg_maint.ledger.schema import NOW, health_day
from iceberg_maint.ports.stored import KEPT_DAYS, HealthDay

_DAY_MS = 86_400_000
_of_table = health_day.c.table_uuid == bindparam("of_table")
_INSERT = insert(health_day)
_DELETE_DAY = delete(health_day).where(
    _of_table, (health_day.c.day == bindparam("today")) | (health_day.c.day <= bindparam("last_old"))
)
_DELETE_OLD = delete(health_day).where(_of_table, health_day.c.day < bindparam("first_kept"))


def put_day(conn: Connection, measured: Measured, now_ms: int) -> None:
    """Stores the measurement as the last one of today. Days beyond the limit are deleted."""
    today, uuid = now_ms // _DAY_MS, measured.table_uuid
    conn.execute(_DELETE_DAY, {"of_table": uuid, "today": today, "last_old": today - KEPT_DAYS})
    conn.execute(_INSERT, {"table_uuid": uuid, "day": today, "body": dumps(day_metrics(measured))})


def read_days(conn: Connection, table_uuids: Collection[str]) -> dict[str, tuple[HealthDay, ...]]:
    """Returns the stored days of these tables, by day. A table without days is missing."""
    query = select(health_day).where(among(health_day.c.table_uuid)).order_by(health_day.c.day)
    days: dict[str, tuple[HealthDay, ...]] = {}
    for row in in_chunks(conn, query, table_uuids):
        metrics: Mapping[str, float] = json.loads(row.body)
        days[row.table_uuid] = (*days.get(row.table_uuid, ()), HealthDay(row.day, metrics))
    return days


def prune_days(conn: Connection, table_uuid: str, keep_days: int) -> None:
    """Deletes the days of a table that are more than `keep_days` ago."""
    today = conn.execute(NOW).scalar_one() // _DAY_MS
    conn.execute(_DELETE_OLD, {"of_table": table_uuid, "first_kept": today - keep_days})


def drop_days(conn: Connection, table_uuid: str) -> None:
    """Deletes every day of a table."""
    conn.execute(delete(health_day).where(health_day.c.table_uuid == table_uuid))


KEPT_PARTITIONS = 100_000
"""Partitions that a ledger keeps unpacked; about 0.6 KB each."""
_FIELDS = tuple(f.name for f in fields(PartitionHealth))
_LISTS = tuple(i for i, f in enumerate(fields(PartitionHealth), 1) if isinstance(f.default, tuple))
"""The places of tuples in a stored row."""
_values = attrgetter(*_FIELDS)

Partitions = Mapping[PartitionKey, PartitionHealth]


def pack(partitions: Partitions) -> bytes:
    """Returns the partitions as bytes."""
    rows = [(key, *_values(part)) for key, part in partitions.items()]
    return zlib.compress(json.dumps(rows, separators=(",", ":")).encode(), 1)


def packed_keys(packed: bytes) -> list[PartitionKey]:
    """Returns the keys of packed partitions."""
    return [row[0] for row in _rows(packed)]


def _rows(packed: bytes) -> list[list[Any]]:
    rows: list[list[Any]] = json.loads(zlib.decompress(packed))
    return rows


def _unpack(packed: bytes) -> dict[PartitionKey, PartitionHealth]:
    parts: dict[PartitionKey, PartitionHealth] = {}
    for row in _rows(packed):
        for i in _LISTS:
            row[i] = tuple(row[i])
        parts[row[0]] = PartitionHealth(*row[1:])
    return parts


class UnpackedPartitions:
    """The partitions unpacked last, by the digest of their bytes: `kept` at most, of all tables together. Threads may
    share it."""

    def __init__(self, kept: int = KEPT_PARTITIONS) -> None:
        self._kept, self._count = kept, 0
        self._by_digest: OrderedDict[bytes, dict[PartitionKey, PartitionHealth]] = OrderedDict()
        self._lock = threading.Lock()

    def unpack(self, digest: bytes, packed: bytes) -> dict[PartitionKey, PartitionHealth]:
        """Returns the partitions of the bytes with this digest."""
        with self._lock:
            if (known := self._by_digest.get(digest)) is not None:
                self._by_digest.move_to_end(digest)
                return known
        parts = _unpack(packed)
        with self._lock:
            if len(parts) <= self._kept and digest not in self._by_digest:
                self._by_digest[digest] = parts
                self._count += len(parts)
                while self._count > self._kept:
                    self._count -= len(self._by_digest.popitem(last=False)[1])
        return parts


class StoredPartitions(Mapping[PartitionKey, PartitionHealth]):
    """Partitions that are unpacked at the first use. `digest` identifies them."""

    def __init__(self, packed: bytes, unpacked: UnpackedPartitions) -> None:
        self.digest = hashlib.sha256(packed).digest()
        self._packed: bytes | None = packed
        self._unpacked, self._parts = unpacked, dict[PartitionKey, PartitionHealth]()

    def _all(self) -> dict[PartitionKey, PartitionHealth]:
        # Another thread may have unpacked them since the first reading.
        if (packed := self._packed) is not None:
            self._parts = self._unpacked.unpack(self.digest, packed)
            self._packed = None
        return self._parts

    def __getitem__(self, key: PartitionKey) -> PartitionHealth:
        return self._all()[key]

    def __contains__(self, key: object) -> bool:
        return key in self._all()

    def __iter__(self) -> Iterator[PartitionKey]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, StoredPartitions):
            return self.digest == other.digest or self._all() == other._all()
        return self._all() == other

    __hash__ = None  # type: ignore[assignment]  # as of dict

    def __repr__(self) -> str:
        return repr(self._all())
