"""The order of maintenance at equal budget: ours against the published scoring of AutoComp and of Amoro.

    python -m bench.fleet.priorities [--tables 1000 --tables 10000] [--seeds 5] [--share 0.1]

Synthetic fleets (`bench.fleet.synthetic`), metadata only. Every order is executed by the same rule: the candidates run in
its order, each that still fits the budget, at the true cost; the gain is the number of data files removed, times the probability
that no change of another writer arrives during the rewrite. The unit of cost is AutoComp's: GB-hours of an executor of 2 GB
that rewrites 2 MB/s. The budget is a share of the cost of all candidates. In `start-up` each table of the result also
costs 0.5 GB-hours once, as in AutoComp's published constants; in `warm` a session is shared.

Baselines: AutoComp ranks by 0.7 x normalised gain (the count of small files) - 0.3 x normalised cost (with start-up),
per table and per partition; the better one counts. Amoro ranks tables by its health score (lowest first), or by
the time since the last maintenance ("balanced"), and partitions of a table by their cost. Exits 1 below the target.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from math import ceil

from bench.fleet.synthetic import MIB, NOW_MS, POLICY, SyntheticPartition, is_lost, make_fleet
from bench.record import publish
from iceberg_maint.core.decisions.fleet_budget import DueWork, FleetBudget, WorkKey, in_priority
from iceberg_maint.core.decisions.priority import Experience, Speed, in_run, predict
from iceberg_maint.core.health.thresholds import findings, is_due
from iceberg_maint.core.model.ids import PartitionKey

TARGET = 1.13
GB = 2.0
BYTES_PER_SECOND = 2 * MIB
STARTUP = 0.5
_WEIGHTS = (0.7, 0.3)
Fleet = Sequence[SyntheticPartition]
Order = Callable[[Fleet, float], list[list[SyntheticPartition]]]
"""Candidates in order: each is the partitions that run together."""


def main() -> int:
    """Prints the gain of every order and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, action="append")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--share", type=float, default=0.1)
    given = parser.parse_args()
    figures: dict[str, float] = {}
    for tables in given.tables or (1000, 10_000):
        ratios: dict[str, list[float]] = defaultdict(list)
        for seed in range(given.seeds):
            fleet = [p for p in make_fleet(tables, seed) if p.health.small_files >= 5]
            for mode, startup in (("warm", 0.0), ("start-up", STARTUP)):
                budget = given.share * _cost(fleet, startup)
                gains = {
                    name: _execute(order(fleet, startup), budget, startup) for name, order in ORDERS.items()
                }
                autocomp = max(gains["autocomp_tables"], gains["autocomp_partitions"])
                for name, gain in gains.items():
                    ratios[f"{mode}_{name}"].append(gain / autocomp)
        for name, values in ratios.items():
            median = statistics.median(values)
            figures[f"{tables}_{name}"] = round(median, 3)
            print(f"{tables:6d} {name:32} {median:7.3f} ({min(values):.3f} to {max(values):.3f}) x AutoComp")
    missed = [k for k, v in figures.items() if k.endswith("_ours") and v < TARGET]
    publish("priorities", {"share": given.share, "target": TARGET, "missed": missed, **figures})
    return 1 if missed else 0


def _seconds(partition: SyntheticPartition) -> float:
    return partition.health.small_bytes / BYTES_PER_SECOND


def _cost(candidate: Fleet, startup: float) -> float:
    """GB-hours of these partitions, in one run per table."""
    return sum(GB * _seconds(p) / 3600 for p in candidate) + startup * len({p.table for p in candidate})


def _removed(partition: SyntheticPartition) -> float:
    """The true gain: outputs are a tenth smaller than their inputs, and full up to the target."""
    outputs = max(1, ceil(0.9 * partition.health.small_bytes / partition.target_bytes))
    lost = is_lost(partition.change_seconds, 30 + _seconds(partition))
    return max(0, partition.health.small_files - outputs) * (1 - lost)


def _execute(order: list[list[SyntheticPartition]], budget: float, startup: float) -> float:
    """The gain within the budget. A candidate that does not fit is left out, as by AutoComp's greedy choice."""
    gain, spent = 0.0, 0.0
    started: set[int] = set()
    for candidate in order:
        table = candidate[0].table
        cost = _cost(candidate, 0.0) + (0.0 if table in started else startup)
        if spent + cost <= budget:
            spent += cost
            started.add(table)
            gain += sum(map(_removed, candidate))
    return gain


def _ours(fleet: Fleet, startup: float) -> list[list[SyntheticPartition]]:
    rules = POLICY.rewrite_data_files
    due = [p for p in fleet if is_due(findings(p.health, rules, p.target_bytes, NOW_MS))]
    in_table = Counter(p.table for p in due)
    work: list[DueWork] = []
    by_key: dict[WorkKey, SyntheticPartition] = {}
    for p in due:
        key = (str(p.table), PartitionKey(p.name))
        by_key[key] = p
        prediction = predict(
            p.health,
            POLICY,
            p.target_bytes,
            p.health.small_bytes,
            NOW_MS,
            Experience(speed=Speed(BYTES_PER_SECOND)),
        )
        run_seconds = startup / GB * 3600 / in_table[p.table]
        work.append(DueWork(key, in_run(prediction, run_seconds), NOW_MS))
    return [[by_key[w.key]] for w in in_priority(work, FleetBudget(max_cpu_seconds=1.0), NOW_MS)]


def _tables(fleet: Fleet) -> list[list[SyntheticPartition]]:
    by_table: dict[int, list[SyntheticPartition]] = defaultdict(list)
    for p in fleet:
        by_table[p.table].append(p)
    return list(by_table.values())


def _autocomp(candidates: list[list[SyntheticPartition]]) -> list[list[SyntheticPartition]]:
    """Min-max normalised traits, weighted: the count of files below the target, and GB-hours with start-up."""
    gains = [float(sum(p.health.small_files for p in c)) for c in candidates]
    costs = [_cost(c, STARTUP) for c in candidates]

    def normal(values: list[float]) -> list[float]:
        low, high = min(values), max(values)
        return [(v - low) / max(high - low, 1e-12) for v in values]

    scores = [_WEIGHTS[0] * g - _WEIGHTS[1] * c for g, c in zip(normal(gains), normal(costs), strict=True)]
    return [candidates[n] for n in sorted(range(len(candidates)), key=lambda n: -scores[n])]


def _amoro(fleet: Fleet, rank: Callable[[list[SyntheticPartition]], float]) -> list[list[SyntheticPartition]]:
    """Tables by rank, the partitions of each by cost: twice the bytes, and 4 MB per opened file."""

    def cost(p: SyntheticPartition) -> int:
        return 2 * p.health.small_bytes + 4 * MIB * p.health.small_files

    return [[p] for t in sorted(_tables(fleet), key=rank) for p in sorted(t, key=cost, reverse=True)]


def _health_score(table: list[SyntheticPartition]) -> float:
    """100 less 40 for small files, 40 for equality deletes (none here) and 20 for position deletes."""
    files = sum(p.health.data_files for p in table)
    rows = max(1, sum(p.health.records for p in table))
    average = sum(p.health.data_bytes for p in table) / max(1, files)
    small = 1 - min(1.0, average / (0.75 * table[0].target_bytes))
    deletes = min(1.0, sum(p.health.position_delete_records for p in table) / rows)
    return 100 - 40 * small - 20 * deletes


def _random(fleet: Fleet, _startup: float) -> list[list[SyntheticPartition]]:
    candidates = _tables(fleet)
    random.Random(0).shuffle(candidates)
    return candidates


ORDERS: dict[str, Order] = {
    "random_tables": _random,
    "amoro_balanced": lambda fleet, _: _amoro(fleet, lambda t: -t[0].waited_days),
    "amoro_health_score": lambda fleet, _: _amoro(fleet, _health_score),
    "autocomp_tables": lambda fleet, _: _autocomp(_tables(fleet)),
    "autocomp_partitions": lambda fleet, _: _autocomp([[p] for p in fleet]),
    "ours": _ours,
}

if __name__ == "__main__":
    sys.exit(main())
