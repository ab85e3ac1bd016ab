"""The pass over the fleet: divides the budget of the fleet among the due work of all tables, from stored health."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from iceberg_maint.core.decisions.combine import combine_decisions
from iceberg_maint.core.decisions.fleet_budget import (
    Allotment,
    DueWork,
    FleetBudget,
    Spend,
    WorkKey,
    allot,
    has_room,
)
from iceberg_maint.core.decisions.history import FleetWait, combine_histories
from iceberg_maint.core.decisions.priority import BATCH_SECONDS, RUN_SECONDS, Load, Speed, predict
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation, TableId
from iceberg_maint.core.model.reasons import Reason, Verdict
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.ports.stored import KnownTable
from iceberg_maint.runner.assess import decisions_of
from iceberg_maint.runner.runtime import Runtime

PASS_SECONDS = 60
"""A pass is not repeated within this time, in whatever process."""
_TABLES_AT_ONCE = 50
_LEAST_BATCHES = 10
"""Batches from which the speed is measured."""


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
        ledger.replace_fleet_waits(allotment(runtime, budget).waits)


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
    spends = runtime.ledger.fleet_spends(budget.period_seconds)
    now_ms = runtime.ledger.now_ms()
    work = due_work(runtime, measured_speed(spends), runtime.ledger.fleet_waits(), now_ms)
    return allot(work, budget, spends, now_ms)


def due_work(
    runtime: Runtime, speed: Speed, waits: dict[WorkKey, FleetWait], now_ms: int
) -> Iterator[DueWork]:
    """Yields the due partitions of all tables, those that wait for the budget included."""
    known: Sequence[KnownTable] = runtime.ledger.known_tables()
    for start in range(0, len(known), _TABLES_AT_ONCE):
        group = {k.table: k.table_uuid for k in known[start : start + _TABLES_AT_ONCE]}
        stored = runtime.ledger.histories({u: str(t) for t, u in group.items()}, DATA_OPERATIONS)
        for table, measured in runtime.ledger.healths(group).items():
            policy = runtime.policy_for(table, measured.maintenance_properties)
            histories = {o: replace(stored[measured.table_uuid, o], fleet_waits={}) for o in DATA_OPERATIONS}
            decision = combine_decisions(
                decisions_of(measured, policy, histories, runtime.clock.now_ms(), runtime.row_types)
            )
            if decision.verdict is not Verdict.RUN:
                continue
            past = combine_histories(tuple(histories.values()))
            for due in decision.due():
                history = past.of(due.partition)
                key = (measured.table_uuid, due.partition)
                yield DueWork(
                    key,
                    predict(
                        measured.partitions[due.partition],
                        policy,
                        measured.target_file_size_bytes,
                        due.candidate_bytes,
                        now_ms,
                        conflicts=history.ineffective if history.reason == Reason.CONFLICT else 0,
                        speed=speed,
                        run_seconds=RUN_SECONDS / len(decision.due()),
                    ),
                    waits[key].since_ms if key in waits else now_ms,
                    policy.windows.read_weight,
                )


def measured_speed(spends: Sequence[Spend]) -> Speed:
    """Returns the speed of the batches of the period; the assumed one while they are few."""
    ended = [s.load for s in spends if s.load.seconds > 0]
    seconds = sum(max(0.0, load.seconds - BATCH_SECONDS) for load in ended)
    if len(ended) < _LEAST_BATCHES or seconds <= 0:
        return Speed()
    return Speed(max(1.0, sum(load.bytes for load in ended) / seconds))


def fleet_stop(batch: Batch, operation: Operation, runtime: Runtime) -> Reason | None:
    """Returns the reason to start no batch, if the budget of the fleet does not hold this one."""
    budget = runtime.fleet_budget
    if budget is None or operation not in DATA_OPERATIONS:
        return None
    spends = runtime.ledger.fleet_spends(budget.period_seconds)
    seconds = BATCH_SECONDS + batch.input_bytes / measured_speed(spends).bytes_per_second
    load = Load(batch.input_bytes, seconds, 1.0)
    return None if has_room(budget, spends, load, runtime.ledger.now_ms()) else Reason.FLEET_BUDGET
