"""The pass over the fleet: divides the budget of the fleet among the due work of all tables, from stored health."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from iceberg_maint.core.decisions.fleet_budget import (
    Allotment,
    DueWork,
    FleetBudget,
    WorkKey,
    allot,
    has_room,
)
from iceberg_maint.core.decisions.history import FleetWait, combine_histories
from iceberg_maint.core.decisions.priority import Load, Speed
from iceberg_maint.core.model.ids import DATA_OPERATIONS, TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.ports.stored import KnownTable
from iceberg_maint.runner.due_table import LEARNED_BATCHES, LEARNED_DAYS, DueTable, decided_due
from iceberg_maint.runner.fleet_spends import batch_load, spends_of
from iceberg_maint.runner.prediction import predicted
from iceberg_maint.runner.remembered_decisions import Basis
from iceberg_maint.runner.runtime import Runtime

_log = logging.getLogger(__name__)

PASS_SECONDS = 60
"""A pass is not repeated within this time, in whatever process."""
_TABLES_AT_ONCE = 50


def divide_budget(runtime: Runtime) -> None:
    """Stores which due partitions wait for the budget of the fleet. Does nothing within `PASS_SECONDS` of the last
    pass. Without a budget it deletes the waits of an earlier configuration."""
    budget, ledger = runtime.fleet_budget, runtime.ledger
    passed_ms = ledger.fleet_passed_ms()
    if budget is None:
        if passed_ms is not None:
            ledger.delete_fleet_waits()
        return
    if passed_ms is None or not 0 <= ledger.now_ms() - passed_ms < PASS_SECONDS * 1000:
        store_waits(runtime, budget)


def store_waits(runtime: Runtime, budget: FleetBudget) -> None:
    """Divides the budget now, and stores which due partitions wait for it."""
    runtime.ledger.replace_fleet_waits(allotment(runtime, budget).waits)


def in_budget_order(runtime: Runtime, tables: Sequence[TableId]) -> list[TableId]:
    """Divides the budget and returns the tables in its order: those whose work may run, the highest priority first,
    before the others. Without a budget the order stays."""
    budget = runtime.fleet_budget
    if budget is None:
        divide_budget(runtime)
        return list(tables)
    allotted = allotment(runtime, budget)
    runtime.ledger.replace_fleet_waits(allotted.waits)
    rank: dict[str, int] = {}
    for place, (uuid, _) in enumerate(allotted.granted):
        rank.setdefault(uuid, place)
    uuids = {k.table: k.table_uuid for k in runtime.ledger.known_tables()}
    return sorted(tables, key=lambda t: rank.get(uuids.get(t, ""), len(rank) + len(allotted.granted)))


def allotment(runtime: Runtime, budget: FleetBudget) -> Allotment:
    """Divides the budget among the due work of all tables with stored health."""
    spends, speed = spends_of(runtime.ledger, budget)
    now_ms = runtime.ledger.now_ms()
    work = due_work(runtime, budget, speed, runtime.ledger.fleet_waits(), now_ms)
    return allot(work, budget, spends, now_ms)


def due_work(
    runtime: Runtime, budget: FleetBudget, speed: Speed, waits: Mapping[WorkKey, FleetWait], now_ms: int
) -> Iterator[DueWork]:
    """Yields the due partitions of all tables, those that wait for the budget or are left alone included."""
    known: Sequence[KnownTable] = runtime.ledger.known_tables()
    for start in range(0, len(known), _TABLES_AT_ONCE):
        group = {k.table: k.table_uuid for k in known[start : start + _TABLES_AT_ONCE]}
        stored = runtime.ledger.histories({u: str(t) for t, u in group.items()}, DATA_OPERATIONS)
        due_tables = []
        for table, measured in runtime.ledger.healths(group).items():
            try:
                policy = runtime.policy_for(table, measured.maintenance_properties)
                histories = {
                    o: replace(stored[measured.table_uuid, o], fleet_waits={}) for o in DATA_OPERATIONS
                }
                basis = Basis(measured, policy, histories, runtime.row_types)
                due = runtime.decisions.decide(
                    "pass", basis, runtime.clock.now_ms(), partial(decided_due, basis), len
                )
            except Exception as why:  # noqa: BLE001 - one table must not stop the others
                _log.warning("%s has no part of the budget: %s", table, runtime.redacted_error(why))
                continue
            if due:
                past = combine_histories(tuple(histories.values()))
                due_tables.append(DueTable(measured, policy, due, past))
        learning = [t.measured.table_uuid for t in due_tables if t.learns]
        past_work = runtime.ledger.past_work(learning, LEARNED_DAYS, LEARNED_BATCHES) if learning else {}
        for due_table in due_tables:
            yield from due_table.work(
                budget, speed, waits, past_work.get(due_table.measured.table_uuid, ()), now_ms
            )


def fleet_stop(batch: Batch, policy: Policy, runtime: Runtime) -> Reason | None:
    """Returns the reason to start no batch, if the budget of the fleet does not hold this one. A rewrite counts with its own
    prediction, which is learned from the batches of its table."""
    budget = runtime.fleet_budget
    if budget is None or batch.operation not in DATA_OPERATIONS:
        return None
    spends, speed = spends_of(runtime.ledger, budget)
    load = batch_load(batch.input_bytes, speed)
    expected = predicted(batch, policy, runtime, runtime.engine.batches)
    if expected is not None and expected.learned_from:
        measured = any(s.load.cpu_seconds is not None for s in spends)
        load = Load(batch.input_bytes, expected.seconds, 1.0, expected.cpu_seconds if measured else None)
    return None if has_room(budget, spends, load, runtime.ledger.now_ms()) else Reason.FLEET_BUDGET
