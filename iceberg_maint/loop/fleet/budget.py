"""The budget of the fleet: what was spent, and how the rest is divided among the due work of all tables."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from iceberg_maint.core.decisions.fleet_budget import (
    Allotment,
    DueWork,
    FleetBudget,
    Spend,
    WorkKey,
    allot,
    has_room,
)
from iceberg_maint.core.decisions.history import (
    FleetWait,
    PastWork,
    TableHistory,
    combine_histories,
    commit_losses,
)
from iceberg_maint.core.decisions.priority import (
    BATCH_SECONDS,
    RUN_SECONDS,
    Experience,
    Load,
    Speed,
    in_run,
    predict,
)
from iceberg_maint.core.decisions.table_decision import combine_decisions
from iceberg_maint.core.decisions.windows import batch_part
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation, TableId
from iceberg_maint.core.model.reasons import Decision, PartitionDecision, Reason, Verdict
from iceberg_maint.core.planning.batch_trials import (
    LEARNED_FROM,
    BatchPrediction,
    predict_batch,
)
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import RewriteDataFiles
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.fleet.stored_decisions import Basis, decisions_of
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.stored import KnownTable

_LEAST_BATCHES = 10
"""Batches from which the speed is measured."""


def spends_of(ledger: Ledger, budget: FleetBudget) -> tuple[tuple[Spend, ...], Speed]:
    """Returns what was spent in the period, and the speed of its batches. A batch that has not ended counts with its predicted seconds."""
    spends = ledger.records.fleet_spends(budget.period_seconds)
    speed = measured_speed(spends)
    return tuple(replace(s, load=batch_load(s.load.bytes, speed)) if s.is_open else s for s in spends), speed


def batch_load(input_bytes: int, speed: Speed) -> Load:
    """The predicted load of one batch of this size."""
    cpu_rate = speed.bytes_per_cpu_second
    return Load(
        input_bytes,
        BATCH_SECONDS + input_bytes / speed.bytes_per_second,
        1.0,
        None if cpu_rate is None else BATCH_SECONDS + input_bytes / cpu_rate,
    )


def measured_speed(spends: Sequence[Spend]) -> Speed:
    """Returns the speed of the batches of the period; the assumed one while they are few."""
    rate = _rate([(s.load.bytes, s.load.seconds) for s in spends])
    cpu_rate = _rate([(s.load.bytes, s.load.cpu_seconds or 0.0) for s in spends])
    return Speed(Speed().bytes_per_second if rate is None else rate, cpu_rate)


def _rate(ended: Sequence[tuple[int, float]]) -> float | None:
    """Bytes per second of batches whose seconds are known, None while they are few."""
    known = [(size, taken) for size, taken in ended if taken > 0]
    seconds = sum(max(0.0, taken - BATCH_SECONDS) for _, taken in known)
    if len(known) < _LEAST_BATCHES or seconds <= 0:
        return None
    return max(1.0, sum(size for size, _ in known) / seconds)


LEARNED_DAYS, LEARNED_BATCHES = 30, 30
"""Days of batches, and batches of a table, from which a partition's writers are known."""


def decided_due(basis: Basis, now_ms: int) -> tuple[PartitionDecision, ...]:
    """Returns the partitions that would run now."""
    decision = combine_decisions(
        decisions_of(basis.measured, basis.policy, basis.histories, now_ms, basis.readers)
    )
    return decision.due() if decision.verdict is Verdict.RUN else ()


@dataclass(frozen=True, slots=True)
class DueTable:
    """A table with due partitions."""

    measured: Measured
    policy: Policy
    due: tuple[PartitionDecision, ...]
    past: TableHistory

    @property
    def learns(self) -> bool:
        """Whether earlier batches change what is predicted: how often writers win over them."""
        return any(
            self.measured.partitions[p.partition].delete_files or self.past.of(p.partition).ineffective
            for p in self.due
        )

    def work(
        self,
        speed: Speed,
        waits: Mapping[WorkKey, FleetWait],
        past_work: Sequence[PastWork],
        now_ms: int,
    ) -> Iterator[DueWork]:
        """Yields the due partitions with their prediction. What waits for the budget keeps its place."""
        for due in self.due:
            key = (self.measured.table_uuid, due.partition)
            history, health = self.past.of(due.partition), self.measured.partitions[due.partition]
            prediction = predict(
                health,
                self.policy,
                self.measured.target_file_size_bytes,
                due.candidate_bytes,
                now_ms,
                Experience(
                    history.ineffective if history.reason == Reason.CONFLICT else 0,
                    commit_losses(due.partition, past_work),
                    speed,
                ),
            )
            wait = waits.get(key)
            yield DueWork(
                key,
                in_run(prediction, RUN_SECONDS / len(self.due)),
                now_ms if wait is None else wait.since_ms,
                self.policy.windows.read_weight,
                batch_part(due, health, self.policy, prediction.input_files),
            )


def predicted(batch: Batch, policy: Policy, context: Context, earlier: int) -> BatchPrediction | None:
    """Returns what a rewrite of data files is predicted to leave and to take, None for other work. `earlier` counts the batches
    that the engine ran before."""
    if not isinstance(batch.work, RewriteDataFiles):
        return None
    ledger = context.ledger
    trials = ledger.records.commit_trials(batch.table_uuid, batch.operation, LEARNED_FROM)
    return predict_batch(batch, policy.rewrite_data_files, trials, earlier, ledger.records.fleet_rewrites())


_log = logging.getLogger(__name__)

CYCLE_SECONDS = 60
"""The least time between two cycles over the fleet, of all processes together."""
_TABLES_AT_ONCE = 50


def divide_budget(context: Context) -> None:
    """Stores which due partitions wait for the budget of the fleet. Does nothing within `CYCLE_SECONDS` of the last
    cycle. Without a budget it deletes the waits of an earlier configuration."""
    budget, ledger = context.policies.fleet_budget, context.ledger
    cycle_ms = ledger.registry.fleet_cycle_ms()
    if budget is None:
        if cycle_ms is not None:
            ledger.registry.replace_fleet_waits(None)
        return
    if cycle_ms is None or not 0 <= ledger.registry.now_ms() - cycle_ms < CYCLE_SECONDS * 1000:
        store_waits(context, budget)


def store_waits(context: Context, budget: FleetBudget) -> None:
    """Divides the budget now, and stores which due partitions wait for it."""
    context.ledger.registry.replace_fleet_waits(allotment(context, budget).waits)


def in_budget_order(context: Context, tables: Sequence[TableId]) -> list[TableId]:
    """Divides the budget and returns the tables in its order: those whose work may run, the highest priority first,
    before the others. Without a budget the order stays."""
    budget = context.policies.fleet_budget
    if budget is None:
        divide_budget(context)
        return list(tables)
    allotted = allotment(context, budget)
    context.ledger.registry.replace_fleet_waits(allotted.waits)
    rank: dict[str, int] = {}
    for place, (uuid, _) in enumerate(allotted.granted):
        rank.setdefault(uuid, place)
    uuids = {k.table: k.table_uuid for k in context.ledger.health.known_tables()}
    return sorted(tables, key=lambda t: rank.get(uuids.get(t, ""), len(rank) + len(allotted.granted)))


def allotment(context: Context, budget: FleetBudget) -> Allotment:
    """Divides the budget among the due work of all tables with stored health."""
    spends, speed = spends_of(context.ledger, budget)
    now_ms = context.ledger.registry.now_ms()
    work = due_work(context, speed, context.ledger.registry.fleet_waits(), now_ms)
    return allot(work, budget, spends, now_ms)


def due_work(
    context: Context, speed: Speed, waits: Mapping[WorkKey, FleetWait], now_ms: int
) -> Iterator[DueWork]:
    """Yields the due partitions of all tables, those that wait for the budget included."""
    known: Sequence[KnownTable] = context.ledger.health.known_tables()
    for start in range(0, len(known), _TABLES_AT_ONCE):
        group = {k.table: k.table_uuid for k in known[start : start + _TABLES_AT_ONCE]}
        stored = context.ledger.health.histories({u: str(t) for t, u in group.items()}, DATA_OPERATIONS)
        due_tables = []
        for table, measured in context.ledger.health.get_all(group).items():
            try:
                policy = context.policies.of_table(table, measured.maintenance_properties)
                histories = {
                    o: replace(stored[measured.table_uuid, o], fleet_waits={}) for o in DATA_OPERATIONS
                }
                basis = Basis(measured, policy, histories, context.engine.row_types)
                due = context.policies.decisions.decide(
                    "cycle", basis, context.clock.now_ms(), partial(decided_due, basis), len
                )
            except Exception as why:  # noqa: BLE001 - one table must not stop the others
                _log.warning("%s has no part of the budget: %s", table, context.process.redacted_error(why))
                continue
            if due:
                past = combine_histories(tuple(histories.values()))
                due_tables.append(DueTable(measured, policy, due, past))
        learning = [t.measured.table_uuid for t in due_tables if t.learns]
        past_work = (
            context.ledger.records.past_work(learning, LEARNED_DAYS, LEARNED_BATCHES) if learning else {}
        )
        for due_table in due_tables:
            yield from due_table.work(speed, waits, past_work.get(due_table.measured.table_uuid, ()), now_ms)


def fleet_stop(batch: Batch, policy: Policy, context: Context) -> Reason | None:
    """Returns the reason to start no batch, if the budget of the fleet does not hold this one. A rewrite counts with its own
    prediction, which is learned from the batches of its table."""
    budget = context.policies.fleet_budget
    if budget is None or batch.operation not in DATA_OPERATIONS:
        return None
    spends, speed = spends_of(context.ledger, budget)
    load = batch_load(batch.input_bytes, speed)
    expected = predicted(batch, policy, context, context.engine.batches)
    if expected is not None and expected.learned_from:
        measured = any(s.load.cpu_seconds is not None for s in spends)
        load = Load(batch.input_bytes, expected.seconds, 1.0, expected.cpu_seconds if measured else None)
    return None if has_room(budget, spends, load, context.ledger.registry.now_ms()) else Reason.FLEET_BUDGET


def stored_decision(
    histories: Mapping[Operation, TableHistory], measured: Measured, policy: Policy, context: Context
) -> Decision:
    """Returns the decision on a table's data from its stored health."""
    known = {o: histories[o] for o in DATA_OPERATIONS}
    now_ms = context.clock.now_ms()
    return combine_decisions(decisions_of(measured, policy, known, now_ms, context.engine.row_types))
