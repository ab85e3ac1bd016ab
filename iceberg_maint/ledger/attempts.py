"""Attempts at batches: rows that are only appended, in the order that settling relies on."""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, func, insert, select

from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.model.codec import digest, dumps, loads
from iceberg_maint.core.model.ids import Operation, PartitionKey
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import BatchOutcome, CommitStatus
from iceberg_maint.core.outcomes.record import Settlement
from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.core.planning.plan import batch_of_text
from iceberg_maint.errors import FenceLostError
from iceberg_maint.ledger import batches, histories
from iceberg_maint.ledger.batches import Batches, OutOfOrderError
from iceberg_maint.ledger.leases import require
from iceberg_maint.ledger.schema import attempt, attempt_try, batch, db_now_ms, intent, outcome
from iceberg_maint.ports.engine import WrittenFile
from iceberg_maint.ports.stored import Attempt, AttemptStatus, AttemptStep, BatchStatus, Lease

_NOT_OF_THE_FILES = (Reason.ERROR, Reason.CONFLICT)
"""Rejections after which another commit of the same files may succeed: the files themselves are sound."""

_SETTLED = {
    CommitStatus.COMMITTED: (BatchStatus.DONE, BatchStatus.FAILED),
    CommitStatus.REJECTED: (BatchStatus.PLANNED, BatchStatus.FAILED, BatchStatus.SUPERSEDED),
    CommitStatus.UNKNOWN: (BatchStatus.UNKNOWN, BatchStatus.PLANNED),
}

_ATTEMPTS = (
    select(attempt, intent.c.files, intent.c.proof)
    .select_from(attempt.outerjoin(intent, intent.c.attempt_id == attempt.c.attempt_id))
    .order_by(attempt.c.ordinal)
)
_judged = outcome.alias()
_OPEN = _ATTEMPTS.where(
    attempt.c.table_uuid == bindparam("table_uuid"),
    ~select(_judged.c.attempt_id)
    .where(_judged.c.attempt_id == attempt.c.attempt_id, _judged.c.status != BatchStatus.UNKNOWN)
    .exists(),
)
_BY_ID = _ATTEMPTS.where(
    attempt.c.attempt_id == bindparam("attempt_id"), attempt.c.table_uuid == bindparam("table_uuid")
)
_OF_BATCH = _ATTEMPTS.where(
    attempt.c.batch_id == bindparam("batch_id"), attempt.c.table_uuid == bindparam("table_uuid")
)
_OF_FENCE = _ATTEMPTS.where(
    attempt.c.batch_id == bindparam("batch_id"), attempt.c.fence == bindparam("fence")
)
_NEWEST_FILES = (
    select(attempt.c.attempt_id, intent.c.files, intent.c.batch_digest, db_now_ms().label("now_ms"))
    .join(intent, intent.c.attempt_id == attempt.c.attempt_id)
    .where(attempt.c.table_uuid == bindparam("table_uuid"), attempt.c.batch_id == bindparam("batch_id"))
    .order_by(attempt.c.ordinal.desc())
    .limit(1)
)
_INSERT = insert(attempt).values(started_ms=db_now_ms())
_INSERT_INTENT = insert(intent).values(recorded_ms=db_now_ms())
_INSERT_TRY = insert(attempt_try).values(recorded_ms=db_now_ms())
_INSERT_OUTCOME = insert(outcome).values(recorded_ms=db_now_ms())
_TRIES = (
    select(attempt_try.c.base_snapshot_id, attempt_try.c.metadata_location, attempt_try.c.recorded_ms)
    .where(attempt_try.c.attempt_id == bindparam("attempt_id"))
    .order_by(attempt_try.c.position)
)
_LAST_OUTCOME = (
    select(outcome.c.status, outcome.c.settled, outcome.c.body)
    .where(outcome.c.attempt_id == bindparam("attempt_id"))
    .order_by(outcome.c.ordinal.desc())
    .limit(1)
)
"""Statements of every run, built once: to build one costs more than SQLite needs to run it."""


def _attempt_under_lease(
    conn: Connection, lease: Lease, attempt_id: str, *expected: AttemptStatus
) -> Attempt:
    require(conn, lease)
    current = _attempt_by_id(conn, lease, attempt_id)
    if current.fence != lease.fence:
        raise FenceLostError(
            f"the attempt {attempt_id} on {lease.table} was started under fence {current.fence}, "
            f"the lease has fence {lease.fence}."
        )
    if current.status not in expected:
        raise OutOfOrderError(f"attempt {attempt_id} is {current.status}, not {' or '.join(expected)}")
    return current


def _attempt_by_id(conn: Connection, lease: Lease, attempt_id: str) -> Attempt:
    rows = _load(conn, _BY_ID, attempt_id=attempt_id, table_uuid=lease.table_uuid)
    if not rows:
        raise OutOfOrderError(f"{lease.table} has no attempt {attempt_id}")
    return rows[0]


def _load(conn: Connection, query: Select[Any], **which: str | int) -> tuple[Attempt, ...]:
    rows = conn.execute(query, which).all()
    return tuple(_attempt(conn, row) for row in rows)


def _attempt(conn: Connection, row: Row[Any]) -> Attempt:
    which = {"attempt_id": row.attempt_id}
    tries = conn.execute(_TRIES, which).all()
    last = conn.scalar(_LAST_OUTCOME, which)
    progress = (
        AttemptStep.ATTEMPT if tries else AttemptStep.INTENT if row.files is not None else AttemptStep.STARTED
    )
    return Attempt(
        attempt_id=row.attempt_id,
        batch_id=row.batch_id,
        table_uuid=row.table_uuid,
        operation=Operation(row.operation),
        run_id=row.run_id,
        fence=row.fence,
        token=row.token,
        partitions=tuple(json.loads(row.partitions)),
        status=progress if last is None else BatchStatus(last),
        tries=tuple((t.base_snapshot_id, t.metadata_location) for t in tries),
        tried_ms=tries[-1].recorded_ms if tries else None,
        files=loads(tuple[WrittenFile, ...], row.files) if row.files is not None else None,
        proof=loads(Proof, row.proof) if row.proof is not None else None,
    )


def _append(
    conn: Connection,
    current: Attempt,
    status: BatchStatus,
    end: BatchOutcome | Settlement,
    partitions: tuple[PartitionKey, ...],
    input_bytes: int,
) -> None:
    values: dict[str, Any] = {
        "attempt_id": current.attempt_id,
        "table_uuid": current.table_uuid,
        "operation": current.operation,
        "status": status,
        "settled": isinstance(end, Settlement),
        "partitions": dumps(partitions),
        "input_bytes": input_bytes,
        "body": dumps(end),
    }
    conn.execute(_INSERT_OUTCOME, values)


def _ended(settlement: Settlement) -> BatchStatus:
    match settlement.status:
        case CommitStatus.COMMITTED:
            return BatchStatus.FAILED if settlement.lost else BatchStatus.DONE
        case CommitStatus.REJECTED:
            return BatchStatus.FAILED
        case CommitStatus.UNKNOWN:
            return BatchStatus.UNKNOWN


def _has_later_attempt(conn: Connection, current: Attempt) -> bool:
    ordinal = select(attempt.c.ordinal).where(attempt.c.attempt_id == current.attempt_id).scalar_subquery()
    later_attempts = select(func.count()).where(
        attempt.c.batch_id == current.batch_id, attempt.c.ordinal > ordinal
    )
    return bool(conn.scalar(later_attempts))


class SqlWork(Batches):
    """Plans, batches, attempts and intents; see `ports.ledger.Work`."""

    def start_attempt(
        self,
        lease: Lease,
        batch_id: str,
        run_id: str,
        write_ahead: Mapping[PartitionKey, PartitionHistory],
    ) -> Attempt:
        """Writes STARTED, the claim and the write-ahead back-off. Refuses a batch that is not PLANNED, and a
        second attempt under one fence unless the first is known to have failed."""
        with self._write(lease.table_uuid) as conn:
            require(conn, lease)
            row = batches.load(conn, lease, batch_id)
            if row.status != BatchStatus.PLANNED:
                raise OutOfOrderError(f"batch {batch_id} is {row.status}, not PLANNED")
            earlier = _load(conn, _OF_FENCE, batch_id=batch_id, fence=lease.fence)
            if any(a.status == BatchStatus.UNKNOWN for a in earlier):
                raise OutOfOrderError(f"batch {batch_id} may have been committed under fence {lease.fence}")
            attempt_id = uuid.uuid4().hex
            partitions = batch_of_text(row.body).partitions
            started = Attempt(
                attempt_id=attempt_id,
                batch_id=batch_id,
                table_uuid=row.table_uuid,
                operation=Operation(row.operation),
                run_id=run_id,
                fence=lease.fence,
                token=f"{attempt_id}-{secrets.token_hex(8)}",
                partitions=partitions,
                status=AttemptStep.STARTED,
            )
            conn.execute(
                _INSERT,
                {
                    "attempt_id": attempt_id,
                    "batch_id": batch_id,
                    "table_uuid": row.table_uuid,
                    "operation": row.operation,
                    "run_id": run_id,
                    "fence": lease.fence,
                    "token": started.token,
                    "partitions": dumps(partitions),
                },
            )
            batches.set_status(conn, batch_id, BatchStatus.STARTED)
            histories.write(conn, row.table_uuid, row.operation, write_ahead)
            return started

    def record_intent(
        self, lease: Lease, attempt_id: str, files: tuple[WrittenFile, ...], proof: Proof
    ) -> None:
        """Writes INTENT, once, after STARTED."""
        with self._write(lease.table_uuid) as conn:
            started = _attempt_under_lease(conn, lease, attempt_id, AttemptStep.STARTED)
            conn.execute(
                _INSERT_INTENT,
                {
                    "attempt_id": attempt_id,
                    "files": dumps(files),
                    "proof": dumps(proof),
                    "batch_digest": digest(batches.load(conn, lease, started.batch_id).body),
                },
            )

    def record_try(
        self, lease: Lease, attempt_id: str, base_snapshot_id: int, metadata_location: str
    ) -> None:
        """Writes ATTEMPT, one row per compare-and-swap, after INTENT."""
        with self._write(lease.table_uuid) as conn:
            tries = _attempt_under_lease(
                conn, lease, attempt_id, AttemptStep.INTENT, AttemptStep.ATTEMPT
            ).tries
            conn.execute(
                _INSERT_TRY,
                {
                    "attempt_id": attempt_id,
                    "position": len(tries),
                    "base_snapshot_id": base_snapshot_id,
                    "metadata_location": metadata_location,
                },
            )

    def finish_attempt(
        self,
        lease: Lease,
        attempt_id: str,
        status: BatchStatus,
        reported: BatchOutcome,
        changed: Mapping[PartitionKey, PartitionHistory],
    ) -> None:
        """Writes OUTCOME, once; then back-off, the batch's status and, if DONE, the CURSOR.

        DONE and UNKNOWN need an ATTEMPT, because without one nothing can have been committed. An orphan scan
        is excepted: it commits nothing. PLANNED returns the batch and does not count against the hour.
        """
        with self._write(lease.table_uuid) as conn:
            current = _attempt_under_lease(conn, lease, attempt_id, *AttemptStep)
            if reported.batch_id != current.batch_id:
                raise OutOfOrderError(f"attempt {attempt_id} is of another batch than {reported.batch_id}")
            if status is BatchStatus.STARTED:
                raise OutOfOrderError("an attempt cannot end STARTED")
            commits = status is BatchStatus.UNKNOWN or current.operation != Operation.REMOVE_ORPHAN_FILES
            if status in (BatchStatus.DONE, BatchStatus.UNKNOWN) and commits and not current.tries:
                raise OutOfOrderError(f"attempt {attempt_id} cannot be {status}: no commit was attempted")
            handed_back = status is BatchStatus.PLANNED
            _append(
                conn,
                current,
                # The attempt ended without a commit, but its batch is still wanted.
                BatchStatus.FAILED if handed_back else status,
                reported,
                () if handed_back else reported.partitions,
                0 if handed_back else reported.input_bytes,
            )
            histories.write(conn, current.table_uuid, current.operation, changed)
            row = batches.load(conn, lease, current.batch_id)
            if row.status != BatchStatus.STARTED:
                return  # An earlier attempt has been settled as the commit of the batch.
            batches.set_status(conn, current.batch_id, status)
            if status is BatchStatus.DONE:
                batches.advance(conn, lease, row, reported.snapshot_after)

    def settle_attempt(
        self, lease: Lease, attempt_id: str, settlement: Settlement, status: BatchStatus
    ) -> None:
        """Settles an attempt that did not report. A commit makes its open batch DONE, or FAILED if the commit
        removed something of others. Otherwise the batch gets `status`, unless a later attempt decides it. An
        ended batch stays unchanged, and a repeated UNKNOWN adds no second row."""
        with self._write(lease.table_uuid) as conn:
            require(conn, lease)
            settled = _attempt_by_id(conn, lease, attempt_id)
            if settled.status not in (*AttemptStep, BatchStatus.UNKNOWN):
                raise OutOfOrderError(f"attempt {attempt_id} has ended {settled.status}")
            committed = settlement.status is CommitStatus.COMMITTED
            done = committed and not settlement.lost
            if status not in _SETTLED[settlement.status] or done is not (status is BatchStatus.DONE):
                raise OutOfOrderError(f"a batch whose commit is {settlement.status} cannot be {status}")
            # A commit in the table without an ATTEMPT belongs to a ledger restored from a backup.
            if settlement.status is CommitStatus.UNKNOWN and not settled.tries:
                raise OutOfOrderError(f"attempt {attempt_id} never tried to commit, so it is not UNKNOWN")
            row = batches.load(conn, lease, settled.batch_id)
            last = conn.execute(_LAST_OUTCOME, {"attempt_id": attempt_id}).first()
            if last is None or last.body != dumps(settlement):
                # Work reported as UNKNOWN was already counted.
                counts = committed and settled.status != BatchStatus.UNKNOWN
                _append(
                    conn,
                    settled,
                    _ended(settlement),
                    settlement,
                    settled.partitions if counts else (),
                    batch_of_text(row.body).input_bytes if counts else 0,
                )
            if row.status not in batches.OPEN:
                return
            if committed:
                batches.set_status(conn, settled.batch_id, status)
                if done:
                    batches.advance(conn, lease, row, settlement.snapshot_id)
            elif not _has_later_attempt(conn, settled):
                batches.set_status(conn, settled.batch_id, status)

    def open_attempts(self, table_uuid: str) -> tuple[Attempt, ...]:
        """Returns attempts without an outcome, and UNKNOWN ones; oldest first."""
        with self._read() as conn:
            return tuple(_attempt(conn, row) for row in conn.execute(_OPEN, {"table_uuid": table_uuid}).all())

    def attempts_at(self, table_uuid: str, batch_id: str) -> tuple[Attempt, ...]:
        """Returns every attempt at a batch, oldest first."""
        with self._read() as conn:
            return _load(conn, _OF_BATCH, table_uuid=table_uuid, batch_id=batch_id)

    def uncommitted_output(self, lease: Lease, batch_id: str, within_seconds: int) -> Attempt | None:
        """Returns the newest attempt at a batch that has an INTENT. Returns None if its files were refused,
        it is known to have committed, it began too long ago by the database's clock, or its files are of a
        batch with other contents."""
        with self._read() as conn:
            require(conn, lease)
            row = conn.execute(_NEWEST_FILES, {"table_uuid": lease.table_uuid, "batch_id": batch_id}).first()
            if row is None:
                return None
            # An attempt that reused the files has its own INTENT, which does not make the files younger.
            began_ms = conn.scalar(
                select(func.min(attempt.c.started_ms))
                .join(intent, intent.c.attempt_id == attempt.c.attempt_id)
                .where(
                    attempt.c.table_uuid == lease.table_uuid,
                    attempt.c.batch_id == batch_id,
                    intent.c.files == row.files,
                )
            )
            if row.now_ms - began_ms > within_seconds * 1000:
                return None
            if row.batch_digest != digest(batches.load(conn, lease, batch_id).body):
                return None
            end = conn.execute(_LAST_OUTCOME, {"attempt_id": row.attempt_id}).first()
            if end is None or end.status not in (BatchStatus.FAILED, BatchStatus.UNKNOWN):
                return None
            if not end.settled and loads(BatchOutcome, end.body).reason not in _NOT_OF_THE_FILES:
                return None
            return _attempt_by_id(conn, lease, row.attempt_id)

    def snapshot_before_files(self, of: Attempt) -> int | None:
        """Returns the pinned snapshot of the attempt's batch. None if the batch is not known to have had the same
        contents when the files were written: planned again, it is pinned at a snapshot that may have them."""
        with self._read() as conn:
            row = conn.execute(
                select(intent.c.batch_digest, batch.c.body)
                .join(batch, batch.c.batch_id == of.batch_id)
                .where(intent.c.attempt_id == of.attempt_id)
            ).first()
            if row is None or row.batch_digest != digest(row.body):
                return None
            return batch_of_text(row.body).snapshot_id
