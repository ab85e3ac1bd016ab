"""Decisions of the Dagster layer from stored health, without reading the table."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import islice

import dagster as dg

from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.decisions.housekeeping_decision import cannot_run_now
from iceberg_maint.core.decisions.table_decision import combine_decisions
from iceberg_maint.core.decisions.waits import automation_waits
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import (
    DATA_OPERATIONS,
    REMOVING_OPERATIONS,
    UNPARTITIONED_KEY,
    Operation,
    PartitionKey,
    TableId,
)
from iceberg_maint.core.model.reasons import CHECK_OF, SENTENCES, Decision, Verdict
from iceberg_maint.core.policy.data import Mode, Policy
from iceberg_maint.core.removal.clock_skew import Clocks, clock_skew_text
from iceberg_maint.defs.dagster_internals import CheckStatus
from iceberg_maint.errors import with_code
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.fleet.known_tables import read_known_pointers
from iceberg_maint.loop.fleet.stored_decisions import Basis, decide_stored, decisions_of
from iceberg_maint.loop.read_table import read_clocks
from iceberg_maint.ports.stored import Report
from iceberg_maint.report.deferrals import deferral
from iceberg_maint.report.formatting import counted, moment

_log = logging.getLogger(__name__)
SHARE_RUN_BELOW_BYTES = 128 * 1024 * 1024
"""Tables with less due data than this share a run and its Spark."""


def read_pointers(context: Context, tables: Iterable[TableId]) -> dict[TableId, str]:
    """Metadata pointers of the tables whose catalog answers in time."""
    pointers, errors = read_known_pointers(tuple(tables), context)
    for name, why in errors.items():
        _log.warning("catalog %s does not give all pointers: %s", name, context.process.masked(str(why)))
    return pointers


def stored_policy(context: Context, measured: Measured) -> Policy:
    """The effective policy with the properties of the stored health."""
    return context.policies.of_table(measured.table, measured.maintenance_properties)


def stored_decision(context: Context, measured: Measured) -> tuple[TableHistory, Decision]:
    """The history of the table's data in the ledger, and the decision from stored health; reads no catalog."""
    now_ms = context.clock.now_ms()
    return decide_stored(
        measured, stored_policy(context, measured), context.ledger, now_ms, context.engine.row_types
    )


def unknown_partitions(context: Context, table: TableId, keys: Iterable[PartitionKey]) -> set[PartitionKey]:
    """Returns the keys that no partition of the table has or had, by its stored health. Returns none without
    stored health."""
    measured = context.ledger.health.get(table)
    if measured is None:
        return set()
    known = {UNPARTITIONED_KEY, *measured.partitions, *context.ledger.health.missing_partitions(table)}
    return set(keys) - known


def last_expiry(context: Context, table_uuid: str) -> Report | None:
    """The report of the table's last expiry, from any run."""
    return context.ledger.records.last_report(table_uuid, Operation.EXPIRE_SNAPSHOTS)


def last_orphan_scan(context: Context, table_uuid: str) -> Report | None:
    """The report of the table's last orphan scan, from any run."""
    return context.ledger.records.last_report(table_uuid, Operation.REMOVE_ORPHAN_FILES)


_TABLES_AT_ONCE = 50
"""Tables whose stored health is in memory at once."""
_OPERATIONS = (*DATA_OPERATIONS, *CHECK_OF)


@dataclass(frozen=True, slots=True)
class DueWork:
    """The work of one table. `partitions` are those that a run would rewrite now, with their scores; `sentence`
    says why it would, or what delays it. Nothing delays the `allowed` operations of housekeeping. `shares_run`: the
    policy lets the table share a Dagster run with other tables."""

    sentence: str
    partitions: Mapping[PartitionKey, float] = field(default_factory=dict)
    allowed: tuple[Operation, ...] = ()
    shares_run: bool = False


IN_SHARED_RUN = DueWork("a run of several tables has this table")
_NOT_MEASURED = DueWork("not measured yet")


def read_due_work(context: Context, tables: Iterable[TableId]) -> dict[TableId, DueWork]:
    """Returns the due work of the tables, from what the ledger has."""
    rest, work = iter(tables), {}
    clocks: Clocks | None = None
    while group := tuple(islice(rest, _TABLES_AT_ONCE)):
        measured = context.ledger.health.get_all(group)
        uuids = {m.table_uuid: str(m.table) for m in measured.values()}
        histories = context.ledger.health.histories(uuids, _OPERATIONS)
        clocks = clocks or read_clocks(context.clock, context.ledger)
        for table in group:
            if (health := measured.get(table)) is None:
                work[table] = _NOT_MEASURED
                continue
            own = {o: histories[health.table_uuid, o] for o in _OPERATIONS}
            try:
                work[table] = _work(context, health, own, clocks)
            except Exception as why:  # noqa: BLE001 - one table must not stop the others
                work[table] = DueWork(context.process.masked(str(with_code(why))))
    return work


def _work(
    context: Context, measured: Measured, histories: Mapping[Operation, TableHistory], clocks: Clocks
) -> DueWork:
    basis = Basis(measured, stored_policy(context, measured), histories, context.engine.row_types)
    work = context.policies.decisions.decide(
        "sensor", basis, context.clock.now_ms(), lambda now_ms: decided_work(basis, now_ms), _due_partitions
    )
    if clock_skew_text(replace(clocks, updated_ms=measured.table_health.last_change_ms)) is None:
        return work
    return replace(work, allowed=tuple(o for o in work.allowed if o not in REMOVING_OPERATIONS))


def _due_partitions(work: DueWork) -> int:
    return len(work.partitions)


def decided_work(basis: Basis, now_ms: int) -> DueWork:
    """Returns the due work of a table whose clocks agree."""
    measured, policy = basis.measured, basis.policy
    data = {o: basis.histories[o] for o in DATA_OPERATIONS}
    decision = combine_decisions(decisions_of(measured, policy, data, now_ms, basis.readers))
    wait = _environment_wait(data.values(), now_ms)
    due = decision.due() if decision.verdict is Verdict.RUN and wait is None else ()
    allowed = (
        operation
        for operation in CHECK_OF
        if policy.mode is Mode.ACT
        and not cannot_run_now(operation, measured, policy, basis.histories[operation], now_ms)
    )
    return DueWork(
        _sentence(decision) if wait is None else wait,
        {p.partition: p.score for p in due},
        tuple(allowed),
        sum(p.candidate_bytes for p in due) < SHARE_RUN_BELOW_BYTES,
    )


def _environment_wait(histories: Iterable[TableHistory], now_ms: int) -> str | None:
    """Until when the automation leaves the whole table after failures of the environment, and the last of them: they say
    nothing about the partitions that met them. None if it does not wait."""
    waiting = [
        p
        for history in histories
        for p in history.partitions.values()
        if p.environment_failures and automation_waits(p, now_ms)
    ]
    last = max(waiting, key=lambda p: p.not_before_ms or 0, default=None)
    return None if last is None else f"waits until {moment(last.not_before_ms or 0)}: {last.reason}"


def _sentence(decision: Decision) -> str:
    """The reason of a decision, and how much work it delays."""
    backlog = counted(len(decision.backlog()), "partition")
    if decision.verdict is Verdict.RUN:
        return f"{backlog} ({decision.reason.value})"
    waits = f"; {backlog} due" if decision.backlog() else ""
    error = decision.evidence.get("error")
    return f"{error or deferral(decision) or SENTENCES[decision.reason]}{waits}"


class TickWork:
    """What one tick of a sensor knows of its tables: their due work, and which checks of housekeeping failed."""

    def __init__(self, by_table: Mapping[TableId, DueWork], failed: Collection[dg.AssetCheckKey]) -> None:
        self.by_table, self.failed = by_table, failed


_TICK: ContextVar[TickWork | None] = ContextVar("iceberg_maint_tick", default=None)


@contextmanager
def tick(work: TickWork) -> Iterator[None]:
    """Within the block conditions of the tick's tables use this work."""
    token = _TICK.set(work)
    try:
        yield
    finally:
        _TICK.reset(token)


def due_work(context: Context, table: TableId) -> DueWork:
    """Returns the due work of one table: the tick's, or read now."""
    current = _TICK.get()
    by_table = current.by_table if current is not None and table in current.by_table else None
    return (by_table or read_due_work(context, (table,)))[table]


def failed_checks(
    instance: dg.DagsterInstance, checks: Iterable[dg.AssetCheckKey]
) -> frozenset[dg.AssetCheckKey]:
    """Returns the checks whose last evaluation failed: the tick's, or those read now."""
    current = _TICK.get()
    if current is not None:
        return frozenset(check for check in checks if check in current.failed)
    return read_failed_checks(instance, checks)


def read_failed_checks(
    instance: dg.DagsterInstance, checks: Iterable[dg.AssetCheckKey]
) -> frozenset[dg.AssetCheckKey]:
    """Returns the checks whose last evaluation failed, by one request to Dagster's storage."""
    keys = list(checks)
    latest = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys) if keys else {}
    return frozenset(
        key for key, record in latest.items() if record is not None and record.status is CheckStatus.FAILED
    )
