"""The audit trail: records are only appended, and pruned by age."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    bindparam,
    case,
    func,
    insert,
    or_,
    select,
    update,
)

from iceberg_maint.core.model.codec import dumps, loads
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import SUCCESSFUL, BatchOutcome, OutcomeStatus
from iceberg_maint.core.outcomes.record import AttemptTrace, Record, RunTrace, Settlement, without_values
from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.core.planning.plan import batch_of_text
from iceberg_maint.ledger import pruning
from iceberg_maint.ledger.batches import OutOfOrderError
from iceberg_maint.ledger.leases import require
from iceberg_maint.ledger.outcomes import Outcomes
from iceberg_maint.ledger.schema import (
    attempt,
    attempt_try,
    batch,
    db_now_ms,
    health,
    intent,
    outcome,
    record,
    recorded,
)
from iceberg_maint.ledger.table_health import GOVERNED
from iceberg_maint.ports.engine import WrittenFile
from iceberg_maint.ports.stored import BatchStatus, DroppedTable, Lease

_SINCE = func.coalesce(func.max(recorded.c.through), 0)
_IS_NEWS = recorded.c.through.is_(None) | (outcome.c.status != BatchStatus.UNKNOWN)
_RUNS_WITH_NEWS = (
    select(attempt.c.run_id, attempt.c.operation, _SINCE.label("through"))
    .join(outcome, outcome.c.attempt_id == attempt.c.attempt_id)
    .outerjoin(
        recorded,
        (recorded.c.table_uuid == attempt.c.table_uuid)
        & (recorded.c.operation == attempt.c.operation)
        & (recorded.c.run_id == attempt.c.run_id),
    )
    .where(attempt.c.table_uuid == bindparam("table_uuid"))
    .group_by(attempt.c.run_id, attempt.c.operation)
    .having(func.max(case((_IS_NEWS, outcome.c.ordinal))) > _SINCE)
)
"""The runs of a table that ended attempts which are in no record."""
_ANY_RUN = _RUNS_WITH_NEWS.limit(1)
_EARLIER_RUNS = _RUNS_WITH_NEWS.where(
    attempt.c.run_id != bindparam("owner"), attempt.c.fence < bindparam("fence")
).order_by(func.min(attempt.c.ordinal))

_OF_RUN = (
    recorded.c.table_uuid == bindparam("of_table"),
    recorded.c.operation == bindparam("of_operation"),
    recorded.c.run_id == bindparam("of_run"),
)
_THROUGH = select(recorded.c.through).where(*_OF_RUN)
_OUTCOMES_AFTER = (
    select(outcome.c.ordinal, outcome.c.status, outcome.c.settled, outcome.c.partitions, attempt.c.batch_id)
    .join(attempt, attempt.c.attempt_id == outcome.c.attempt_id)
    .where(
        attempt.c.table_uuid == bindparam("of_table"),
        attempt.c.operation == bindparam("of_operation"),
        attempt.c.run_id == bindparam("of_run"),
        outcome.c.ordinal > bindparam("after"),
    )
    .order_by(outcome.c.ordinal)
)
_INSERT_RECORDED = insert(recorded).values(
    table_uuid=bindparam("of_table"), operation=bindparam("of_operation"), run_id=bindparam("of_run")
)
_UPDATE = update(recorded).where(*_OF_RUN)


def mark(conn: Connection, record: Record) -> None:
    """Notes how far the run's outcomes are recorded: up to the first outcome that the record lacks. A run
    interrupted between a batch's end and its note lacks the last one. Attempts settled while the run was
    active were recorded earlier."""
    run = {"of_table": record.table_uuid, "of_operation": record.operation, "of_run": record.run_id}
    through = conn.scalar(_THROUGH, run)
    rows = conn.execute(_OUTCOMES_AFTER, {**run, "after": through or 0})
    ends: dict[str, set[OutcomeStatus]] = {}
    for batch_outcome in record.outcome.batches:
        ends.setdefault(batch_outcome.batch_id, set()).add(batch_outcome.outcome)
    last = None
    for row in rows:
        if not _contains_row(ends.get(row.batch_id, set()), row):
            break
        last = row.ordinal
    if last is None:
        return
    if through is None:
        conn.execute(_INSERT_RECORDED, {**run, "through": last})
    else:
        conn.execute(_UPDATE, {**run, "through": last})


_NOT_DONE = {OutcomeStatus.FAILED, OutcomeStatus.DEFERRED, OutcomeStatus.UNSUPPORTED}


def _contains_row(ends: set[OutcomeStatus], row: Row[*tuple[Any, ...]]) -> bool:
    """Returns whether a record with these outcomes of the row's batch contains the row."""
    handed_back = not row.settled and row.partitions == dumps(())
    match row.status:
        case BatchStatus.DONE:
            return bool(ends & SUCCESSFUL)
        case BatchStatus.UNKNOWN:
            return bool(ends)
        case _:
            return handed_back or bool(ends & _NOT_DONE)


def _with_heartbeat(run: RunTrace, lease: Lease) -> RunTrace:
    """The run with its last heartbeat as the last sign of it."""
    *earlier, last = run.attempts
    ended_ms = max(last.ended_ms, lease.crashed_beat_ms)
    return replace(run, attempts=(*earlier, replace(last, ended_ms=ended_ms)))


def _trace(conn: Connection, table_uuid: str, run: Row[*tuple[Any, ...]]) -> RunTrace:
    news = select(outcome.c.attempt_id).where(outcome.c.ordinal > run.through)
    if run.through:
        news = news.where(outcome.c.status != BatchStatus.UNKNOWN)
    rows = conn.execute(
        select(attempt, batch.c.body, batch.c.plan_id, intent.c.files, intent.c.proof, intent.c.recorded_ms)
        .join(batch, batch.c.batch_id == attempt.c.batch_id)
        .outerjoin(intent, intent.c.attempt_id == attempt.c.attempt_id)
        .where(
            attempt.c.table_uuid == table_uuid,
            attempt.c.run_id == run.run_id,
            attempt.c.operation == run.operation,
            attempt.c.attempt_id.in_(news),
        )
        .order_by(attempt.c.ordinal)
    ).all()
    lost_lease = _ended_by_lost_lease(conn, table_uuid, run)
    return RunTrace(
        run_id=run.run_id,
        table_uuid=table_uuid,
        operation=Operation(run.operation),
        plan_id=rows[-1].plan_id,
        attempts=tuple(_attempt(conn, row) for row in rows),
        recorded=run.through > 0 or lost_lease,
        lost_lease=lost_lease,
    )


def _ended_by_lost_lease(conn: Connection, table_uuid: str, run: Row[*tuple[Any, ...]]) -> bool:
    query = select(record.c.body).where(record.c.run_id == run.run_id, record.c.table_uuid == table_uuid)
    records = (loads(Record, body) for body in conn.scalars(query.order_by(record.c.ordinal.desc())))
    last = next((r for r in records if r.operation == run.operation), None)
    return last is not None and last.outcome.reason is Reason.LEASE_HELD


def _attempt(conn: Connection, row: Row[*tuple[Any, ...]]) -> AttemptTrace:
    tries = conn.execute(
        select(func.count(), func.max(attempt_try.c.recorded_ms)).where(
            attempt_try.c.attempt_id == row.attempt_id
        )
    ).one()
    ends = conn.execute(
        select(outcome.c.settled, outcome.c.body, outcome.c.recorded_ms)
        .where(outcome.c.attempt_id == row.attempt_id)
        .order_by(outcome.c.ordinal)
    ).all()
    reported = next((e for e in ends if not e.settled), None)
    settled = ends[-1] if ends[-1].settled else None
    files = loads(tuple[WrittenFile, ...], row.files) if row.files is not None else ()
    signs = (row.started_ms, row.recorded_ms, tries[1], reported.recorded_ms if reported else None)
    return AttemptTrace(
        batch=batch_of_text(row.body),
        started_ms=row.started_ms,
        ended_ms=max(sign for sign in signs if sign is not None),
        commit_tries=tries[0],
        output_sizes_bytes=tuple(f.size_bytes for f in files),
        proof=loads(Proof, row.proof) if row.proof is not None else None,
        reported=loads(BatchOutcome, reported.body) if reported else None,
        settled=loads(Settlement, settled.body) if settled else None,
        adopted=bool(files) and _is_adopted(conn, row),
    )


def _is_adopted(conn: Connection, row: Row[*tuple[Any, ...]]) -> bool:
    """Returns whether an earlier attempt at the batch wrote the files. No two attempts write a file of
    the same name."""
    same = (
        select(attempt.c.ordinal)
        .join(intent, intent.c.attempt_id == attempt.c.attempt_id)
        .where(
            attempt.c.batch_id == row.batch_id,
            attempt.c.ordinal < row.ordinal,
            intent.c.files == row.files,
        )
    )
    return conn.execute(same.limit(1)).first() is not None


_LAST_CHARACTER = "\U0010ffff"
_STORED = select(record.c.body).where(record.c.record_id == bindparam("record_id"))
_INSERT = insert(record).values(appended_ms=db_now_ms())

"""Statements of every run, built once: to build one costs more than SQLite needs to run it."""


def _shown(conn: Connection, found: Sequence[Record]) -> tuple[Record, ...]:
    """Returns the records, those of tables with read restrictions without values."""
    names = conn.execute(
        select(health.c.table_name, health.c.table_uuid).where(health.c.form == GOVERNED)
    ).all()
    governed = {value for row in names for value in row}
    return tuple(without_values(r) if {r.table, r.table_uuid} & governed else r for r in found)


def _of_table(table: str) -> ColumnElement[bool]:
    """The records of this name, and of the table that has the name now."""
    same = select(health.c.table_uuid).where(health.c.table_name == table).scalar_subquery()
    return or_(record.c.table_name == table, record.c.table_uuid == same)


class SqlRecords(Outcomes):
    """Outcomes of batches and records of runs; see `ports.ledger.Records`."""

    def append(self, new: Record) -> None:
        """Appends a record. The same record again changes nothing; a different record with its id is refused."""
        with self._write(new.record_id) as conn:
            body = dumps(new)
            stored = conn.scalar(_STORED, {"record_id": new.record_id})
            if stored is not None:
                if stored != body:
                    raise OutOfOrderError(f"record {new.record_id} already exists with other contents")
                return
            conn.execute(
                _INSERT,
                {
                    "record_id": new.record_id,
                    "table_uuid": new.table_uuid,
                    "table_name": new.table,
                    "body": body,
                    "run_id": new.run_id,
                },
            )
            mark(conn, new)

    def newest(self, table: str | None, limit: int) -> tuple[Record, ...]:
        """Returns the newest records, newest first. For a table's name, records under its earlier names are
        included if its UUID is known."""
        with self._read() as conn:
            query = select(record.c.body).order_by(record.c.ordinal.desc()).limit(limit)
            if table is not None:
                query = query.where(_of_table(table))
            return _shown(conn, [loads(Record, body) for body in conn.scalars(query)])

    def of_run(self, run_id: str) -> tuple[Record, ...]:
        """Returns the records of the runs whose id begins with this text, oldest first."""
        with self._read() as conn:
            after = run_id + _LAST_CHARACTER
            query = select(record.c.body).where(record.c.run_id >= run_id, record.c.run_id < after)
            return _shown(
                conn, [loads(Record, body) for body in conn.scalars(query.order_by(record.c.ordinal))]
            )

    def last_proved(self, table: str) -> Record | None:
        """Returns the newest record of the table that has a committed batch with a proof of rows or positions."""
        with self._read() as conn:
            query = select(record.c.body).where(
                _of_table(table), record.c.body.contains('"proof":{', autoescape=True)
            )
            for body in conn.scalars(query.order_by(record.c.ordinal.desc())):
                found = loads(Record, body)
                if found.operation in DATA_OPERATIONS and any(
                    b.snapshot_after is not None and b.proof is not None for b in found.outcome.batches
                ):
                    return _shown(conn, [found])[0]
            return None

    def has_unrecorded_runs(self, table_uuid: str) -> bool:
        """Returns whether any run ended attempts at the table that are in no record."""
        with self._read() as conn:
            return conn.execute(_ANY_RUN, {"table_uuid": table_uuid}).first() is not None

    def unrecorded_runs(self, lease: Lease) -> tuple[RunTrace, ...]:
        """Returns the runs before the lease's own whose ended attempts at the table are in no record, oldest
        first. An earlier holder of the lease no longer works on the table.

        A commit that is still UNKNOWN adds nothing to a run that is already recorded.
        """
        with self._read() as conn:
            require(conn, lease)
            which = {"table_uuid": lease.table_uuid, "owner": lease.owner, "fence": lease.fence}
            runs = conn.execute(_EARLIER_RUNS, which).all()
            traces = (_trace(conn, lease.table_uuid, run) for run in runs)
            return tuple(_with_heartbeat(t, lease) if t.run_id == lease.crashed_owner else t for t in traces)

    def prune(self, table_uuid: str, keep_days: int) -> int:
        """Deletes old work of a table; see `pruning.prune`."""
        with self._write(table_uuid) as conn:
            return pruning.prune(conn, table_uuid, keep_days)

    def dropped_tables(self) -> tuple[DroppedTable, ...]:
        """Returns the tables that have work and no health, and that no owner has leased."""
        with self._read() as conn:
            return pruning.dropped_tables(conn)

    def prune_dropped(self, table_uuid: str, keep_days: int) -> int:
        """Deletes a dropped table; see `pruning.delete_dropped_tables`."""
        with self._write(table_uuid) as conn:
            return pruning.delete_dropped_tables(conn, table_uuid, keep_days)
