"""Prunes what the ledger has of partitions that are gone: since when they are missing, and their back-off."""

from __future__ import annotations

import json
from collections.abc import Iterator

from sqlalchemy import BindParameter, Connection, bindparam, delete, select

from iceberg_maint.core.planning.batch_body import batch_of_text
from iceberg_maint.ledger import table_health
from iceberg_maint.ledger.batches import OPEN
from iceberg_maint.ledger.chunks import chunks
from iceberg_maint.ledger.schema import attempt, batch, outcome, partition_history, partition_missing
from iceberg_maint.ports.stored import BatchStatus

_uuid: BindParameter[str] = bindparam("of_table")
_OLD = (partition_missing.c.table_uuid == _uuid) & (partition_missing.c.since_ms < bindparam("before_ms"))
_RETIRED = select(partition_missing.c.partition).where(
    _OLD, partition_missing.c.misses >= table_health.RETIRED_AFTER_MISSES
)
_has_back_off = (
    select(partition_history.c.partition)
    .where(
        partition_history.c.table_uuid == partition_missing.c.table_uuid,
        partition_history.c.partition == partition_missing.c.partition,
    )
    .exists()
)
_DELETE_MISSING = delete(partition_missing).where(_OLD, ~_has_back_off)
_has_ended = (
    select(outcome.c.ordinal)
    .where(outcome.c.attempt_id == attempt.c.attempt_id, outcome.c.status != BatchStatus.UNKNOWN)
    .exists()
)
_OPEN_BATCHES = select(batch.c.body).where(batch.c.table_uuid == _uuid, batch.c.status.in_(OPEN))
_OPEN_ATTEMPTS = select(attempt.c.partitions).where(attempt.c.table_uuid == _uuid, ~_has_ended)
"""Statements of every run, built once: to build one costs more than SQLite needs to run it."""


def prune(conn: Connection, table_uuid: str, before_ms: int) -> int:
    """Deletes the back-off of partitions that the stored health lacks and that have been missing since before this
    time of the database's clock, unless work of them is open. Deletes what is known of missing partitions that have no
    back-off. Returns the number of deleted rows."""
    of_table = {"of_table": table_uuid}
    old = {**of_table, "before_ms": before_ms}
    deleted = 0
    gone = set(conn.scalars(_RETIRED, old))
    stored = table_health.partition_keys(conn, table_uuid) if gone else None
    # Without stored health that this version reads, nothing says which partitions there are.
    if stored is not None:
        gone -= stored | set(_of_open_work(conn, of_table))
        for keys in chunks(sorted(gone)):
            rows = partition_history.c.table_uuid == table_uuid, partition_history.c.partition.in_(keys)
            deleted += conn.execute(delete(partition_history).where(*rows)).rowcount
    return deleted + conn.execute(_DELETE_MISSING, old).rowcount


def _of_open_work(conn: Connection, of_table: dict[str, str]) -> Iterator[str]:
    for body in conn.scalars(_OPEN_BATCHES, of_table):
        yield from batch_of_text(body).partitions
    for partitions in conn.scalars(_OPEN_ATTEMPTS, of_table):
        yield from json.loads(partitions)
