"""A month of a fleet in simulated time: the product's own decision, order and budget over arriving files.

    python -m bench.fleet.simulation [--tables 2000] [--days 30] [--budget 1.5] [--bound-days 7] [--seed 1] [--calls N]

Each table gets commits of small files into its newest partition (log-normal rate, median two a day; two thirds of the tables begin
a partition per day); 20 % also get position deletes. Every simulated hour the sensor asks for the pointers of the catalog,
100 tables per call, and observes changed tables with two calls each, as far as the limit of calls lasts; the others wait for the next
hour. Then `decide` of the product decides on the observed tables and on those whose back-off ended, `predict` and `allot` divide the
budget, and the granted work runs: it is lost with the true probability of a change of another writer, fails at 1 %, and the
product's `failed` backs it off. A commit costs three calls.

The budget is a multiple of what all arriving bytes cost if each was rewritten once. The figures are the backlog, the wait of due
partitions for the budget, the time from due to done, wasted bytes, and calls. Exits 1 if a partition waited for longer than the bound.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import sys
import time
from dataclasses import dataclass, field
from math import exp, log

from iceberg_maint.core.decisions.decide import decide
from iceberg_maint.core.decisions.fleet_budget import (
    DueWork,
    FleetBudget,
    Spend,
    WorkKey,
    allot,
)
from iceberg_maint.core.decisions.history import (
    FleetWait,
    PartitionHistory,
    TableHistory,
)
from iceberg_maint.core.decisions.priority import BATCH_SECONDS, FILE_SECONDS, Experience, Load, predict
from iceberg_maint.core.decisions.rules import Situation
from iceberg_maint.core.decisions.waits import failed
from iceberg_maint.core.health.metrics import Measured, PartitionHealth, TableHealth
from iceberg_maint.core.health.thresholds import size_limits
from iceberg_maint.core.model.ids import Operation, PartitionKey, TableId
from iceberg_maint.core.policy.data import Policy

MIB, HOUR_MS, DAY_MS = 1024**2, 3_600_000, 86_400_000
START_MS = 1_700_006_400_000
POLICY = Policy()
TARGET = 128 * MIB
SMALL = size_limits(POLICY.rewrite_data_files, TARGET).small_below_bytes
BYTES_PER_SECOND = 25 * MIB
"""The true speed; the predictions assume the product's default."""


@dataclass(slots=True)
class Part:
    """The true state of one partition."""

    small: int = 0
    small_bytes: int = 0
    large: int = 0
    large_bytes: int = 0
    deletes: int = 0
    change_ms: int = START_MS
    due_ms: int | None = None

    def health(self) -> PartitionHealth:
        return PartitionHealth(
            data_files=self.small + self.large,
            data_bytes=self.small_bytes + self.large_bytes,
            records=max(1, (self.small_bytes + self.large_bytes) // 100),
            small_files=self.small,
            small_bytes=self.small_bytes,
            position_delete_files=self.deletes,
            position_delete_records=self.deletes * 10,
            last_change_ms=self.change_ms,
        )

    def rewrite(self) -> None:
        """Replaces the small files by full ones and one rest, and applies the deletes."""
        full, rest = divmod(self.small_bytes, TARGET)
        self.large += full
        self.large_bytes += full * TARGET
        is_small = 0 < rest < SMALL
        self.large += int(rest > 0 and not is_small)
        self.large_bytes += 0 if is_small else rest
        self.small, self.small_bytes, self.deletes = int(is_small), rest if is_small else 0, 0


@dataclass(slots=True)
class SimTable:
    """A table: its writer, its partitions, what was observed last, and its history."""

    number: int
    commits_per_hour: float
    file_bytes: float
    daily: bool
    deletes: bool
    parts: dict[PartitionKey, Part] = field(default_factory=dict)
    changed: bool = False
    seen: dict[PartitionKey, PartitionHealth] = field(default_factory=dict)
    past: dict[PartitionKey, PartitionHistory] = field(default_factory=dict)

    def newest(self, now_ms: int) -> PartitionKey:
        return PartitionKey(f"day={(now_ms - START_MS) // DAY_MS}" if self.daily else "all")


@dataclass(slots=True)
class Figures:
    """The measurements of a run."""

    backlog: list[int] = field(default_factory=list)
    stale_tables: list[int] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    done_hours: list[float] = field(default_factory=list)
    waits_hours: list[float] = field(default_factory=list)
    rewritten: int = 0
    wasted: int = 0
    conflicts: int = 0
    failures: int = 0
    batch_seconds: float = 0.0


class Simulation:
    """The fleet, the budget, and the product's decisions over them."""

    def __init__(
        self,
        tables: int,
        seed: int,
        budget_factor: float,
        bound_days: float,
        calls: int,
    ) -> None:
        self.draw = random.Random(seed)
        self.calls = calls
        self.tables = [self._table(n) for n in range(tables)]
        files = sum(t.commits_per_hour * 4 for t in self.tables)
        size = sum(t.commits_per_hour * 4 * t.file_bytes for t in self.tables)
        batches = sum(min(1 / 24 if t.daily else 1 / 12, t.commits_per_hour * 4 / 5) for t in self.tables)
        seconds = size / BYTES_PER_SECOND + files * FILE_SECONDS + batches * BATCH_SECONDS
        self.budget = FleetBudget(
            max_cpu_seconds=budget_factor * seconds, max_wait_seconds=int(bound_days * 86_400)
        )
        self.spends: list[Spend] = []
        self.waits: dict[WorkKey, FleetWait] = {}
        self.due: dict[WorkKey, DueWork] = {}
        self.backoffs: dict[int, int] = {}
        self.used_calls = 0
        self.cursor = 0
        self.figures = Figures()

    def _table(self, number: int) -> SimTable:
        draw = self.draw
        return SimTable(
            number,
            min(60.0, draw.lognormvariate(log(2 / 24), 1.8)),
            min(64 * MIB, draw.lognormvariate(log(4 * MIB), 1.2)),
            draw.random() < 2 / 3,
            draw.random() < 0.2,
        )

    def hour(self, now_ms: int) -> None:
        """Simulates one hour: arrivals, observation, decisions, budget, work."""
        arrivals = [t for t in self.tables if self._arrive(t, now_ms)]
        for table in arrivals:
            table.changed = True
        observed = self._observe()
        for table in {t.number: t for t in (*observed, *self.backing_off(now_ms))}.values():
            self._decide(table, now_ms)
        horizon = now_ms - self.budget.period_seconds * 1000
        self.spends = [s for s in self.spends if s.at_ms > horizon]
        allotted = allot(self.due.values(), self.budget, self.spends, now_ms)
        calls = self.used_calls
        for key in allotted.granted:
            if calls + 3 > self.calls:
                self.waits.setdefault(key, FleetWait(now_ms, now_ms))
                continue
            calls += 3
            self._run(key, now_ms)
        granted = set(allotted.granted)
        self.waits = {k: w for k, w in self.waits.items() if k in granted and k in self.due} | dict(
            allotted.waits
        )
        self.figures.backlog.append(len(self.due))
        self.figures.calls.append(calls)

    def backing_off(self, now_ms: int) -> list[SimTable]:
        """The tables whose back-off ended in the last hour."""
        ended = [n for n, until_ms in self.backoffs.items() if until_ms <= now_ms]
        for number in ended:
            del self.backoffs[number]
        return [self.tables[n] for n in ended]

    def _arrive(self, table: SimTable, now_ms: int) -> bool:
        commits = _poisson(self.draw, table.commits_per_hour)
        if not commits:
            return False
        newest = table.newest(now_ms)
        part = table.parts.get(newest)
        if part is None:
            part = table.parts[newest] = Part()
        for _ in range(commits):
            files = self.draw.randint(1, 7)
            part.small += files
            part.small_bytes += int(files * table.file_bytes)
        part.deletes += commits if table.deletes else 0
        part.change_ms = now_ms - self.draw.randrange(HOUR_MS)
        if part.due_ms is None and part.small >= POLICY.rewrite_data_files.min_input_files:
            part.due_ms = now_ms
        return True

    def _observe(self) -> list[SimTable]:
        """Observes changed tables within half of the limit of calls, continuing where the last hour stopped."""
        self.used_calls = len(self.tables) // 100
        observed = []
        count = len(self.tables)
        for step in range(count):
            table = self.tables[(self.cursor + step) % count]
            if not table.changed:
                continue
            if self.used_calls + 2 > self.calls // 2:
                self.cursor = table.number
                break
            self.used_calls += 2
            table.changed = False
            least = POLICY.rewrite_data_files.min_input_files
            table.seen = {k: p.health() for k, p in table.parts.items() if p.small >= least}
            observed.append(table)
        self.figures.stale_tables.append(sum(t.changed for t in self.tables))
        return observed

    def _decide(self, table: SimTable, now_ms: int) -> None:
        uuid = str(table.number)
        measured = Measured(
            TableId("sim", ("db",), f"t{table.number}"), uuid, 1, 1, "", TableHealth(), table.seen, TARGET
        )
        for partition in table.seen:
            self.due.pop((uuid, partition), None)
        histories = {Operation.REWRITE_DATA_FILES: TableHistory(partitions=table.past)}
        decision = decide(Operation.REWRITE_DATA_FILES, Situation(measured, POLICY, histories, now_ms))
        for one in decision.due():
            key = (uuid, one.partition)
            history = table.past.get(one.partition, PartitionHistory())
            health, wait = table.seen[one.partition], self.waits.get(key)
            prediction = predict(
                health,
                POLICY,
                TARGET,
                one.candidate_bytes,
                now_ms,
                Experience(history.ineffective if history.reason == "conflict" else 0),
            )
            self.due[key] = DueWork(key, prediction, now_ms if wait is None else wait.since_ms)

    def _run(self, key: WorkKey, now_ms: int) -> None:
        table, work = self.tables[int(key[0])], self.due.pop(key)
        part = table.parts[key[1]]
        size, files = part.small_bytes, part.small
        seconds = BATCH_SECONDS + size / BYTES_PER_SECOND + files * FILE_SECONDS
        self.spends.append(Spend(now_ms, Load(size, seconds, 1.0)))
        self.figures.batch_seconds += seconds
        self.figures.rewritten += size
        self.figures.waits_hours.append((now_ms - work.since_ms) / HOUR_MS)
        hot = table.deletes and key[1] == table.newest(now_ms)
        lost = self.draw.random() < (1 - exp(-seconds * table.commits_per_hour / 3600) if hot else 0.0)
        fails = lost or self.draw.random() < 0.01
        if fails:
            self.figures.wasted += size
            self.figures.conflicts += lost
            self.figures.failures += not lost
            history = table.past.get(key[1], PartitionHistory())
            history = failed(history, POLICY.retry, now_ms, "conflict" if lost else "error")
            table.past[key[1]] = history
            self.backoffs[table.number] = history.not_before_ms or now_ms
            return
        if part.due_ms is not None:
            self.figures.done_hours.append((now_ms - part.due_ms) / HOUR_MS)
        part.rewrite()
        part.due_ms = None
        table.past.pop(key[1], None)
        table.seen.pop(key[1], None)


def _poisson(draw: random.Random, mean: float) -> int:
    count, product, limit = 0, draw.random(), exp(-mean)
    while product > limit:
        count += 1
        product *= draw.random()
    return count


def main() -> int:
    """Prints the figures and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=2000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--budget", type=float, default=1.5)
    parser.add_argument("--bound-days", type=float, default=7.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--calls", type=int, help="catalog calls per hour; default: two per table")
    given = parser.parse_args()
    began = time.process_time()
    calls = given.calls or 2 * given.tables
    simulation = Simulation(given.tables, given.seed, given.budget, given.bound_days, calls)
    for hour in range(1, given.days * 24 + 1):
        simulation.hour(START_MS + hour * HOUR_MS)
    end_ms = START_MS + given.days * DAY_MS
    f = simulation.figures
    open_waits = [(end_ms - w.since_ms) / HOUR_MS for w in simulation.waits.values()]
    bound = given.bound_days * 24
    waits = f.waits_hours + open_waits
    starved = sum(w > bound for w in waits)
    quarantined = sum(h.quarantined for t in simulation.tables for h in t.past.values())
    document = {
        "tables": given.tables,
        "partitions": sum(len(t.parts) for t in simulation.tables),
        "days": given.days,
        "budget": given.budget,
        "bound_hours": bound,
        "work": len(f.waits_hours),
        "backlog_median": statistics.median(f.backlog),
        "backlog_end": f.backlog[-1],
        "wait_hours_p99": round(_quantile(waits, 0.99), 1),
        "wait_hours_max": round(max(waits, default=0.0), 1),
        "starved": starved,
        "due_to_done_hours_median": round(statistics.median(f.done_hours), 1),
        "due_to_done_hours_p99": round(_quantile(f.done_hours, 0.99), 1),
        "stale_tables_median": statistics.median(f.stale_tables),
        "wasted_share": round(f.wasted / max(1, f.rewritten), 4),
        "conflicts": f.conflicts,
        "failures": f.failures,
        "quarantined": quarantined,
        "batch_hours": round(f.batch_seconds / 3600, 1),
        "calls_per_hour_median": statistics.median(f.calls),
        "calls_per_hour_max": max(f.calls),
        "cpu_seconds": round(time.process_time() - began, 1),
        "max_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    for name, value in document.items():
        print(f"{name:26} {value:>14,}")
    print(json.dumps({**document, "backlog_at_day_end": f.backlog[23::24]}))
    return 1 if starved else 0


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


if __name__ == "__main__":
    sys.exit(main())
