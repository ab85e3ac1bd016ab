"""Back-off and quarantine of partitions, pauses, and what the last batches reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, insert, or_, select

from iceberg_maint.core.decisions.history import PartitionHistory, Pause
from iceberg_maint.core.model.codec import loads
from iceberg_maint.core.model.ids import FLEET, PartitionKey
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import BatchOutcome
from iceberg_maint.core.planning.batch_memory import MemoryUse
from iceberg_maint.core.planning.batch_trials import BatchSize, CommitTrial
from iceberg_maint.ledger.database import among, chunks
from iceberg_maint.ledger.schema import attempt, db_now_ms, health, outcome, partition_history, pause
from iceberg_maint.ports.stored import BatchStatus, Report, StoredPause

HOUR_MS = 3_600_000
_DELETE = delete(partition_history).where(
    partition_history.c.table_uuid == bindparam("of_table"),
    partition_history.c.operation == bindparam("of_operation"),
    among(partition_history.c.partition),
)
_INSERT = insert(partition_history)
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
_MEMORY = (
    select(outcome.c.body)
    .where(
        outcome.c.table_uuid == bindparam("table_uuid"),
        outcome.c.settled.is_(False),
        outcome.c.body.contains('"memory":{', autoescape=True),
    )
    .order_by(outcome.c.ordinal.desc())
    .limit(bindparam("most"))
)
_TRIALS = (
    select(outcome.c.body, attempt.c.run_id)
    .join(attempt, attempt.c.attempt_id == outcome.c.attempt_id)
    .where(
        outcome.c.table_uuid == bindparam("table_uuid"),
        outcome.c.operation == bindparam("operation"),
        outcome.c.settled.is_(False),
        outcome.c.status.in_((BatchStatus.DONE, BatchStatus.FAILED)),
    )
    .order_by(outcome.c.ordinal.desc())
    .limit(bindparam("most"))
)
"""Statements of every run, built once: to build one costs more than SQLite needs to run it."""


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


def set_pause(conn: Connection, table: str, note: str, by: str) -> None:
    """Pauses the name and, if its health is stored, the table that has it now."""
    remove_pause(conn, table)
    conn.execute(
        insert(pause).values(
            table_name=table,
            table_uuid=_uuid_of(conn, table),
            note=note,
            paused_ms=db_now_ms(),
            paused_by=by,
        )
    )


def remove_pause(conn: Connection, table: str, table_uuid: str | None = None) -> None:
    """Ends the pause of the name and of the table that has it now: the given one or, if none is given,
    the one whose health was stored under the name."""
    uuid = table_uuid or _uuid_of(conn, table)
    by_uuid = [pause.c.table_uuid == uuid] if uuid is not None else []
    conn.execute(delete(pause).where(or_(pause.c.table_name == table, *by_uuid)))


def pauses(conn: Connection) -> tuple[StoredPause, ...]:
    """Returns the pauses in force: the fleet's first, then by name."""
    rows = conn.execute(select(pause).order_by(pause.c.table_name != FLEET, pause.c.table_name))
    return tuple(StoredPause(r.table_name, r.table_uuid, pause_of(r)) for r in rows)


def pause_note(conn: Connection, table_uuid: str, table: str) -> str | None:
    """Returns the note of the pause in force, None without a pause. The table's own pause takes
    precedence over the fleet's."""
    in_force = _pauses_of(conn, table_uuid, table)
    return in_force[0].note if in_force else None


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


def memory_uses(conn: Connection, table_uuid: str, limit: int) -> tuple[MemoryUse, ...]:
    """Returns the memory use of the last batches that measured it, newest first."""
    rows = conn.execute(_MEMORY, {"table_uuid": table_uuid, "most": limit})
    uses = (loads(BatchOutcome, row.body).memory for row in rows)
    return tuple(use for use in uses if use is not None)


def commit_trials(conn: Connection, table_uuid: str, operation: str, limit: int) -> tuple[CommitTrial, ...]:
    """Returns the last batches that landed or lost every try to other commits, oldest first."""
    of_table = {"table_uuid": table_uuid, "operation": operation, "most": limit}
    rows = conn.execute(_TRIALS, of_table).all()
    reported = ((row.run_id, loads(BatchOutcome, row.body)) for row in reversed(rows))
    return tuple(
        CommitTrial(
            run_id,
            BatchSize(batch.input_files, batch.input_bytes, len(batch.partitions)),
            batch.snapshot_after is not None,
            batch.seconds,
            batch.output_bytes,
            batch.cost,
        )
        for run_id, batch in reported
        if batch.snapshot_after is not None or batch.reason is Reason.CONFLICT
    )


def last_report(conn: Connection, table_uuid: str, operation: str) -> Report | None:
    """Returns the report of the operation's last attempt that reported. An attempt settled after its run
    died did not report."""
    row = conn.execute(
        select(outcome.c.body, outcome.c.recorded_ms)
        .where(
            outcome.c.table_uuid == table_uuid,
            outcome.c.operation == operation,
            outcome.c.settled.is_(False),
        )
        .order_by(outcome.c.recorded_ms.desc(), outcome.c.ordinal.desc())
        .limit(1)
    ).first()
    return None if row is None else Report(row.recorded_ms, loads(BatchOutcome, row.body))


def _uuid_of(conn: Connection, table: str) -> str | None:
    return conn.scalar(select(health.c.table_uuid).where(health.c.table_name == table))


def partition_history_of(row: Row[*tuple[Any, ...]]) -> PartitionHistory:
    """Returns the history of one row."""
    return PartitionHistory(
        ineffective=row.ineffective,
        crashes=row.crashes,
        not_before_ms=row.not_before_ms,
        quarantined=row.quarantined,
        reason=row.reason,
        environment_failures=row.environment_failures,
    )
