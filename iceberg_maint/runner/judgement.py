"""Judgement of one table before a decision: which of its due partitions the budget of the fleet leaves alone now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from iceberg_maint.core.decisions.combine import combine_decisions
from iceberg_maint.core.decisions.fleet_budget import left_alone
from iceberg_maint.core.decisions.history import TableHistory, combine_histories
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation
from iceberg_maint.core.model.reasons import Decision
from iceberg_maint.core.policy.data import Mode, Policy
from iceberg_maint.runner.due_table import LEARNED_BATCHES, LEARNED_DAYS, DueTable, decided_due
from iceberg_maint.runner.remembered_decisions import Basis
from iceberg_maint.runner.runtime import Runtime
from iceberg_maint.runner.stored_decisions import decisions_of


def judged(
    histories: Mapping[Operation, TableHistory], measured: Measured, policy: Policy, runtime: Runtime
) -> dict[Operation, TableHistory]:
    """Returns the histories of the operations on data with the judgement of the pass over the fleet, by the present settings:
    a command shows, and a run leaves alone, what the next pass would leave alone. Partitions that wait for the budget keep
    their waits. In mode advise the table is judged as if it acted. Writes nothing.
    """
    budget, ledger = runtime.fleet_budget, runtime.ledger
    own = {o: histories[o] for o in DATA_OPERATIONS}
    if budget is None:
        return own
    past = combine_histories(tuple(own.values()))
    waits = {p: w for p, w in past.fleet_waits.items() if not w.is_left_alone}
    if policy.windows.reads_per_day is not None:
        unheld = {o: replace(h, fleet_waits={}) for o, h in own.items()}
        acting = replace(policy, mode=Mode.ACT)
        now_ms = runtime.clock.now_ms()
        due = decided_due(Basis(measured, acting, unheld, runtime.row_types), now_ms)
        if due:
            uuid = measured.table_uuid
            speed = runtime.speed.of(ledger, budget, runtime.clock.monotonic_seconds())
            past_work = ledger.past_work([uuid], LEARNED_DAYS, LEARNED_BATCHES).get(uuid, ())
            stored = {(uuid, p): w for p, w in past.fleet_waits.items()}
            for work in DueTable(measured, policy, due, past).work(budget, speed, stored, past_work, now_ms):
                if not work.pays:
                    waits[work.key[1]] = left_alone(work.since_ms, now_ms, work.pay_back)
    return {o: replace(h, fleet_waits=waits) for o, h in own.items()}


def judged_decision(
    histories: Mapping[Operation, TableHistory], measured: Measured, policy: Policy, runtime: Runtime
) -> Decision:
    """Returns the decision on a table's data from its stored health, with the judgement of the pass over the fleet."""
    known = judged(histories, measured, policy, runtime)
    now_ms = runtime.clock.now_ms()
    return combine_decisions(decisions_of(measured, policy, known, now_ms, runtime.row_types))
