"""What batches reported: their outcomes, in the hour, in the period of the fleet's budget, and for estimates."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import bindparam, func, select

from iceberg_maint.core.decisions.fleet_budget import Spend
from iceberg_maint.core.decisions.history import PastWork
from iceberg_maint.core.decisions.priority import Load
from iceberg_maint.core.model.codec import from_data, loads
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation
from iceberg_maint.core.model.reasons import LOST_RACES, Reason
from iceberg_maint.core.outcomes.outcome import BatchOutcome
from iceberg_maint.core.planning.batch_memory import MemoryUse
from iceberg_maint.core.planning.batch_trials import FLEET_LEARNED_FROM, BatchCost, BatchSize, CommitTrial
from iceberg_maint.core.planning.plan import batch_of_text
from iceberg_maint.ledger.database import Database, Part, among, in_chunks
from iceberg_maint.ledger.schema import attempt, batch, outcome, statement_now_ms
from iceberg_maint.ports.stored import BatchStatus, Report

DAY_MS = 86_400_000
_REWRITE_DAYS = 7
_REWRITES = (
    select(outcome.c.body)
    .where(
        outcome.c.recorded_ms > statement_now_ms() - _REWRITE_DAYS * DAY_MS,
        outcome.c.operation == Operation.REWRITE_DATA_FILES,
        outcome.c.status == BatchStatus.DONE,
        outcome.c.settled.is_(False),
    )
    .order_by(outcome.c.recorded_ms.desc())
    .limit(FLEET_LEARNED_FROM)
)
_BODIES = select(batch.c.batch_id, batch.c.body).where(among(batch.c.batch_id))
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
_LAST = (
    select(outcome.c.body, outcome.c.recorded_ms)
    .where(
        outcome.c.table_uuid == bindparam("table_uuid"),
        outcome.c.operation == bindparam("operation"),
        outcome.c.settled.is_(False),
    )
    .order_by(outcome.c.recorded_ms.desc(), outcome.c.ordinal.desc())
    .limit(1)
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


class Outcomes(Part):
    """What batches reported: a part of `SqlRecords`."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._rewrites, self._calls_left = tuple[CommitTrial, ...](), 0

    def last_report(self, table_uuid: str, operation: str) -> Report | None:
        """Returns the report of the operation's last attempt that reported. An attempt settled after its run
        died did not report."""
        with self._read() as conn:
            row = conn.execute(_LAST, {"table_uuid": table_uuid, "operation": operation}).first()
            return None if row is None else Report(row.recorded_ms, loads(BatchOutcome, row.body))

    def last_outcomes(
        self, table_uuids: Collection[str], operation: Operation, each: int
    ) -> dict[str, tuple[BatchOutcome, ...]]:
        """Returns the last reported outcomes of an operation, at most `each` of a table, newest first."""
        with self._read() as conn:
            newest_first = func.row_number().over(
                partition_by=outcome.c.table_uuid,
                order_by=(outcome.c.recorded_ms.desc(), outcome.c.ordinal.desc()),
            )
            ranked = (
                select(outcome.c.table_uuid, outcome.c.body, newest_first.label("rank"))
                .where(
                    outcome.c.operation == operation,
                    outcome.c.settled.is_(False),
                    among(outcome.c.table_uuid),
                )
                .subquery()
            )
            query = select(ranked).where(ranked.c.rank <= each).order_by(ranked.c.table_uuid, ranked.c.rank)
            outcomes: dict[str, tuple[BatchOutcome, ...]] = {}
            for row in in_chunks(conn, query, table_uuids):
                outcomes[row.table_uuid] = (*outcomes.get(row.table_uuid, ()), loads(BatchOutcome, row.body))
            return outcomes

    def memory_uses(self, table_uuid: str, limit: int = 20) -> tuple[MemoryUse, ...]:
        """Returns the memory use of the last batches that measured it, newest first."""
        with self._read() as conn:
            rows = conn.execute(_MEMORY, {"table_uuid": table_uuid, "most": limit})
            uses = (loads(BatchOutcome, row.body).memory for row in rows)
            return tuple(use for use in uses if use is not None)

    def commit_trials(
        self, table_uuid: str, operation: Operation, limit: int = 100
    ) -> tuple[CommitTrial, ...]:
        """Returns the last batches that landed or lost every try to other commits, oldest first."""
        with self._read() as conn:
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

    def fleet_rewrites(self) -> tuple[CommitTrial, ...]:
        """Returns the newest rewrites of data files of the last days that landed and recorded their cost, of all tables, oldest
        first, at most `FLEET_LEARNED_FROM`. They serve a quarter as many calls as there are: to read eighty and learn from them
        takes 4 ms of CPU."""
        self._calls_left -= 1
        if self._calls_left < 0:
            self._rewrites = self._read_rewrites()
            self._calls_left = len(self._rewrites) // 4
        return self._rewrites

    def _read_rewrites(self) -> tuple[CommitTrial, ...]:
        with self._read() as conn:
            rows = conn.execute(_REWRITES)
            trials = []
            for row in rows:
                body = json.loads(row.body)
                cost = body["cost"]
                if cost is None or body["snapshot_after"] is None:
                    continue
                size = BatchSize(body["input_files"], body["input_bytes"], len(body["partitions"]))
                trials.append(
                    CommitTrial(
                        "",
                        size,
                        True,
                        float(body["seconds"]),
                        body["output_bytes"],
                        from_data(BatchCost, cost),
                    )
                )
            return tuple(reversed(trials))

    def fleet_spends(self, period_seconds: int) -> tuple[Spend, ...]:
        """Returns what each batch on data spent that ended in the period, and the bytes of each that began in it and has no
        outcome. An attempt counts once, at its first outcome."""
        with self._read() as conn:
            since_ms = statement_now_ms() - period_seconds * 1000
            ended = conn.execute(
                select(
                    outcome.c.ordinal,
                    outcome.c.attempt_id,
                    outcome.c.recorded_ms,
                    outcome.c.input_bytes,
                    outcome.c.settled,
                    outcome.c.body,
                ).where(outcome.c.recorded_ms > since_ms, outcome.c.operation.in_(DATA_OPERATIONS))
            ).all()
            by_attempt: dict[str, Spend] = {}
            # Asked for this order, SQLite reads all outcomes in it and not the index of times.
            for row in sorted(ended, key=lambda row: row.ordinal):
                load = (
                    Load(row.input_bytes, 0.0, 0.0)
                    if row.settled
                    else _load(row.input_bytes, json.loads(row.body))
                )
                by_attempt.setdefault(row.attempt_id, Spend(row.recorded_ms, load))
            begun = conn.execute(
                select(attempt.c.attempt_id, attempt.c.batch_id, attempt.c.started_ms).where(
                    attempt.c.started_ms > since_ms, attempt.c.operation.in_(DATA_OPERATIONS)
                )
            )
            # The outcome of an attempt of the period is in the period.
            running = [(row.batch_id, row.started_ms) for row in begun if row.attempt_id not in by_attempt]
            rows = in_chunks(conn, _BODIES, {batch_id for batch_id, _ in running})
            loads = {row.batch_id: Load(batch_of_text(row.body).input_bytes, 0.0, 1.0) for row in rows}
            return (
                *by_attempt.values(),
                *(Spend(at_ms, loads[batch_id], True) for batch_id, at_ms in running),
            )

    def past_work(
        self, table_uuids: Collection[str], days: int, each: int
    ) -> dict[str, tuple[PastWork, ...]]:
        """Returns the batches on data of the last days, by table, at most the newest `each` of a table. Settled attempts are left
        out: their time is not known."""
        with self._read() as conn:
            newest_first = func.row_number().over(
                partition_by=outcome.c.table_uuid,
                order_by=(outcome.c.recorded_ms.desc(), outcome.c.ordinal.desc()),
            )
            ranked = (
                select(outcome.c.ordinal, newest_first.label("rank"))
                .where(
                    among(outcome.c.table_uuid),
                    outcome.c.operation.in_(DATA_OPERATIONS),
                    outcome.c.recorded_ms > statement_now_ms() - days * DAY_MS,
                    outcome.c.settled.is_(False),
                )
                .subquery()
            )
            query = (
                select(outcome.c.table_uuid, outcome.c.recorded_ms, outcome.c.body)
                .join(ranked, ranked.c.ordinal == outcome.c.ordinal)
                .where(ranked.c.rank <= each)
            )
            work: dict[str, list[PastWork]] = defaultdict(list)
            for row in in_chunks(conn, query, table_uuids):
                body = json.loads(row.body)
                work[row.table_uuid].append(
                    PastWork(
                        row.recorded_ms,
                        float(body["seconds"]),
                        tuple(body["partitions"]),
                        body["snapshot_after"] is not None,
                        body["reason"] in LOST_RACES,
                    )
                )
            return {uuid: tuple(batches) for uuid, batches in work.items()}


def _load(input_bytes: int, reported: Mapping[str, Any]) -> Load:
    cost = reported["cost"]
    return Load(
        input_bytes,
        float(reported["seconds"]),
        float(reported["snapshot_after"] is not None),
        None if cost is None else cost["cpu_seconds"],
    )
