"""The pass over the fleet: divides the budget of the fleet among the due work of all tables, from stored health."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

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
from iceberg_maint.core.decisions.history import FleetWait, TableHistory, combine_histories
from iceberg_maint.core.decisions.past_work import PastWork, commit_losses, life_seconds
from iceberg_maint.core.decisions.pay_back import Readers, is_worth_it
from iceberg_maint.core.decisions.priority import BATCH_SECONDS, RUN_SECONDS, Load, Speed, in_run, predict
from iceberg_maint.core.decisions.shared_batches import batch_part
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import DATA_OPERATIONS, TableId
from iceberg_maint.core.model.reasons import PartitionDecision, Reason, Verdict
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.ports.stored import KnownTable
from iceberg_maint.runner.assess import decisions_of
from iceberg_maint.runner.prediction import predicted
from iceberg_maint.runner.remembered_decisions import Basis
from iceberg_maint.runner.runtime import Runtime

PASS_SECONDS = 60
"""A pass is not repeated within this time, in whatever process."""
_TABLES_AT_ONCE = 50
_LEAST_BATCHES = 10
"""Batches from which the speed is measured."""
_LEARNED_DAYS, _LEARNED_BATCHES = 30, 30
"""Days of batches, and batches of a table, from which a partition's writers are known."""


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
    spends, speed = _spends(runtime, budget)
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
            policy = runtime.policy_for(table, measured.maintenance_properties)
            histories = {o: replace(stored[measured.table_uuid, o], fleet_waits={}) for o in DATA_OPERATIONS}
            basis = Basis(measured, policy, histories, runtime.row_types)
            due = runtime.decisions.decide(
                "pass", basis, runtime.clock.now_ms(), partial(decided_due, basis), len
            )
            if due:
                past = combine_histories(tuple(histories.values()))
                due_tables.append(_DueTable(measured, policy, due, past))
        learning = [t.measured.table_uuid for t in due_tables if t.learns]
        past_work = runtime.ledger.past_work(learning, _LEARNED_DAYS, _LEARNED_BATCHES) if learning else {}
        for due_table in due_tables:
            yield from due_table.work(
                budget, speed, waits, past_work.get(due_table.measured.table_uuid, ()), now_ms
            )


def decided_due(basis: Basis, now_ms: int) -> tuple[PartitionDecision, ...]:
    """Returns the partitions that would run now."""
    decision = combine_decisions(
        decisions_of(basis.measured, basis.policy, basis.histories, now_ms, basis.readers)
    )
    return decision.due() if decision.verdict is Verdict.RUN else ()


@dataclass(frozen=True, slots=True)
class _DueTable:
    """A table with due partitions."""

    measured: Measured
    policy: Policy
    due: tuple[PartitionDecision, ...]
    past: TableHistory

    @property
    def learns(self) -> bool:
        """Whether earlier batches change what is predicted: how often writers win over them, and how soon writers replace
        the data."""
        if self.policy.windows.reads_per_day is not None:
            return True
        return any(
            self.measured.partitions[p.partition].delete_files or self.past.of(p.partition).ineffective
            for p in self.due
        )

    def work(
        self,
        budget: FleetBudget,
        speed: Speed,
        waits: Mapping[WorkKey, FleetWait],
        past_work: Sequence[PastWork],
        now_ms: int,
    ) -> Iterator[DueWork]:
        """Yields the due partitions with their prediction. What waits for the budget keeps its place: it was judged to pay
        when it became due."""
        windows = self.policy.windows
        sharing = min(len(self.due), windows.partitions_per_batch)
        for due in self.due:
            key = (self.measured.table_uuid, due.partition)
            history, health = self.past.of(due.partition), self.measured.partitions[due.partition]
            prediction = predict(
                health,
                self.policy,
                self.measured.target_file_size_bytes,
                due.candidate_bytes,
                now_ms,
                conflicts=history.ineffective if history.reason == Reason.CONFLICT else 0,
                losses=commit_losses(due.partition, past_work),
                speed=speed,
            )
            life = life_seconds(due.partition, past_work, health.min_data_sequence_number, now_ms)
            readers = Readers(windows.reads_per_day, life)
            wait = waits.get(key)
            pays = is_worth_it(prediction, due.findings, readers, budget, wait, sharing)
            is_same = wait is not None and wait.is_left_alone is not pays
            since_ms = wait.since_ms if wait is not None and is_same else now_ms
            yield DueWork(
                key,
                in_run(prediction, RUN_SECONDS / len(self.due)),
                since_ms,
                windows.read_weight,
                pays,
                batch_part(due, health, self.policy, prediction.input_files),
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


def fleet_stop(batch: Batch, policy: Policy, runtime: Runtime) -> Reason | None:
    """Returns the reason to start no batch, if the budget of the fleet does not hold this one. A rewrite counts with its own
    prediction, which is learned from the batches of its table."""
    budget = runtime.fleet_budget
    if budget is None or batch.operation not in DATA_OPERATIONS:
        return None
    spends, speed = _spends(runtime, budget)
    load = _load(batch.input_bytes, speed)
    expected = predicted(batch, policy, runtime, runtime.engine.batches)
    if expected is not None and expected.learned_from:
        measured = any(s.load.cpu_seconds is not None for s in spends)
        load = Load(batch.input_bytes, expected.seconds, 1.0, expected.cpu_seconds if measured else None)
    return None if has_room(budget, spends, load, runtime.ledger.now_ms()) else Reason.FLEET_BUDGET


def _spends(runtime: Runtime, budget: FleetBudget) -> tuple[tuple[Spend, ...], Speed]:
    """Returns what was spent in the period, and the speed of its batches. A batch that has not ended counts with its predicted seconds."""
    spends = runtime.ledger.fleet_spends(budget.period_seconds)
    speed = measured_speed(spends)
    return tuple(replace(s, load=_load(s.load.bytes, speed)) if s.is_open else s for s in spends), speed


def _load(input_bytes: int, speed: Speed) -> Load:
    """The predicted load of one batch of this size."""
    cpu_rate = speed.bytes_per_cpu_second
    return Load(
        input_bytes,
        BATCH_SECONDS + input_bytes / speed.bytes_per_second,
        1.0,
        None if cpu_rate is None else BATCH_SECONDS + input_bytes / cpu_rate,
    )
