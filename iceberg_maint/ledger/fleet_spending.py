"""The budget of the fleet: what batches spent, from their attempts and outcomes, and the partitions that wait."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select

from iceberg_maint.core.decisions.fleet_budget import DAY_MS, Spend, WorkKey
from iceberg_maint.core.decisions.history import FleetWait, PastWork
from iceberg_maint.core.decisions.priority import Load
from iceberg_maint.core.model.codec import from_data
from iceberg_maint.core.model.ids import DATA_OPERATIONS, FLEET, Operation
from iceberg_maint.core.model.reasons import LOST_RACES
from iceberg_maint.core.planning.batch_trials import BatchCost, BatchSize, CommitTrial
from iceberg_maint.core.planning.plan import batch_of_text
from iceberg_maint.ledger.database import among, in_chunks
from iceberg_maint.ledger.schema import attempt, batch, db_now_ms, fleet_wait, outcome, statement_now_ms
from iceberg_maint.ports.stored import BatchStatus

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
    .limit(bindparam("most"))
)
_BODIES = select(batch.c.batch_id, batch.c.body).where(among(batch.c.batch_id))


def spends(conn: Connection, period_seconds: int) -> tuple[Spend, ...]:
    """Returns what each batch on data spent that ended in the period, and the bytes of each that began in it and has no
    outcome. An attempt counts once, at its first outcome."""
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
            Load(row.input_bytes, 0.0, 0.0) if row.settled else _load(row.input_bytes, json.loads(row.body))
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
    return (*by_attempt.values(), *(Spend(at_ms, loads[batch_id], True) for batch_id, at_ms in running))


def _load(input_bytes: int, reported: Mapping[str, Any]) -> Load:
    cost = reported["cost"]
    return Load(
        input_bytes,
        float(reported["seconds"]),
        float(reported["snapshot_after"] is not None),
        None if cost is None else cost["cpu_seconds"],
    )


def past_work(
    conn: Connection, table_uuids: Collection[str], days: int, each: int
) -> dict[str, tuple[PastWork, ...]]:
    """Returns the batches on data of the last days, by table, at most the newest `each` of a table. Settled attempts are left
    out: their time is not known."""
    newest_first = func.row_number().over(
        partition_by=outcome.c.table_uuid, order_by=(outcome.c.recorded_ms.desc(), outcome.c.ordinal.desc())
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
        generation = body["generation"] or {"sequence_number": None, "oldest": {}}
        work[row.table_uuid].append(
            PastWork(
                row.recorded_ms,
                float(body["seconds"]),
                tuple(body["partitions"]),
                body["snapshot_after"] is not None,
                body["reason"] in LOST_RACES,
                generation["sequence_number"],
                generation["oldest"],
            )
        )
    return {uuid: tuple(batches) for uuid, batches in work.items()}


def rewrites(conn: Connection, limit: int) -> tuple[CommitTrial, ...]:
    """Returns the newest rewrites of data files of the last days that landed and recorded their cost, of all tables, oldest first."""
    rows = conn.execute(_REWRITES, {"most": limit})
    trials = []
    for row in rows:
        body = json.loads(row.body)
        cost = body["cost"]
        if cost is None or body["snapshot_after"] is None:
            continue
        size = BatchSize(body["input_files"], body["input_bytes"], len(body["partitions"]))
        trials.append(
            CommitTrial(
                "", size, True, float(body["seconds"]), body["output_bytes"], from_data(BatchCost, cost)
            )
        )
    return tuple(reversed(trials))


def waits(conn: Connection) -> dict[WorkKey, FleetWait]:
    """Returns every partition that waits."""
    rows = conn.execute(select(fleet_wait).where(fleet_wait.c.table_uuid != FLEET))
    return {(r.table_uuid, r.partition): FleetWait(r.since_ms, r.until_ms, r.left_alone) for r in rows}


def passed_ms(conn: Connection) -> int | None:
    """Returns the time of the last pass over the fleet. None if there was none, or the waits were deleted."""
    return conn.scalar(select(fleet_wait.c.decided_ms).where(fleet_wait.c.table_uuid == FLEET))


def replace_waits(conn: Connection, new: Mapping[WorkKey, FleetWait]) -> None:
    """Stores these waits in place of all stored ones, with the time of the pass."""
    conn.execute(delete(fleet_wait))
    rows = [
        {
            "table_uuid": uuid,
            "partition": partition,
            "since_ms": wait.since_ms,
            "until_ms": wait.until_ms,
            "left_alone": wait.is_left_alone,
        }
        for (uuid, partition), wait in new.items()
    ]
    rows.append({"table_uuid": FLEET, "partition": "", "since_ms": 0, "until_ms": 0, "left_alone": False})
    now_ms = conn.execute(select(db_now_ms())).scalar_one()
    conn.execute(insert(fleet_wait), [{**row, "decided_ms": now_ms} for row in rows])


def delete_waits(conn: Connection) -> None:
    """Deletes all waits and the time of the last pass."""
    conn.execute(delete(fleet_wait))
