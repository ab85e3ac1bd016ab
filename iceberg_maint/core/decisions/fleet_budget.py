"""The budget of the fleet: which due partitions of all tables run now, in which order, and how long the others wait.

What is spent is given as the batches of the last period. The period slides: in no period of this length is more
spent than the budget, except by batches that start at the same moment in several processes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import ceil

from iceberg_maint.core.decisions.history import FleetWait
from iceberg_maint.core.decisions.priority import Load, Prediction
from iceberg_maint.core.decisions.windows import BatchCount, BatchPart, in_blackout
from iceberg_maint.core.model.ids import PartitionKey

MINUTE_MS = 60_000
WorkKey = tuple[str, PartitionKey]
"""The UUID of a table, and a partition."""


@dataclass(frozen=True, slots=True)
class FleetBudget:
    """The caps of all operations on data in one period, None without a cap. A batch whose CPU
    seconds were not measured counts with its seconds."""

    period_seconds: int = 3600
    max_bytes: int | None = None
    max_commits: int | None = None
    max_wait_seconds: int = 7 * 86_400
    blackout_hours: tuple[str, ...] = ()
    max_cpu_seconds: float | None = None

    def cpu_seconds(self, load: Load) -> float:
        """Returns the CPU seconds of the load, measured or by its time."""
        return load.seconds if load.cpu_seconds is None else load.cpu_seconds

    def share(self, load: Load) -> float:
        """Returns the share of the budget that the load takes, by the cap that it takes most of."""
        return max(_shares(self, load), default=0.0)


@dataclass(frozen=True, slots=True)
class Spend:
    """What one batch spent, and when its end was recorded. A batch without an end (`is_open`) counts from its beginning,
    and its seconds are not known."""

    at_ms: int
    load: Load
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class DueWork:
    """A due partition of one table. `since_ms` is when it began to wait for the budget, `weight` the
    read weight of the table. `part`: what it takes of a batch that partitions of the table share; None if it shares none."""

    key: WorkKey
    prediction: Prediction
    since_ms: int
    weight: float = 1.0
    part: BatchPart | None = None


@dataclass(frozen=True, slots=True)
class Allotment:
    """The work that the budget holds now, the first to run first, and the waits of the others."""

    granted: tuple[WorkKey, ...]
    waits: Mapping[WorkKey, FleetWait] = field(default_factory=dict)


def in_priority(work: Iterable[DueWork], budget: FleetBudget, now_ms: int) -> list[DueWork]:
    """Returns the work in order: first what has waited for half of the bound, the longest waiting first; then by
    predicted gain per share of the budget. The gain counts with the probability that no other commit wins."""

    def rank(one: DueWork) -> tuple[bool, float, WorkKey]:
        if is_late(one, budget, now_ms):
            return False, one.since_ms, one.key
        prediction = one.prediction
        gain = one.weight * prediction.gain * (1 - prediction.conflict)
        return True, -gain / max(budget.share(prediction.load), 1e-12), one.key

    return sorted(work, key=rank)


def is_late(work: DueWork, budget: FleetBudget, now_ms: int) -> bool:
    """Whether the work has waited for half of the bound."""
    return now_ms - work.since_ms >= budget.max_wait_seconds * 500


def allot(work: Iterable[DueWork], budget: FleetBudget, spends: Sequence[Spend], now_ms: int) -> Allotment:
    """Divides the remaining budget among the due work.

    Work that does not fit lets smaller work behind it go first, unless it is late: late work begins as soon as one of its
    batches fits, and until then the remaining budget is kept for it. Partitions of a
    table share batches, and a batch is one commit.
    """
    ordered = in_priority(work, budget, now_ms)
    recent = sorted(
        (s for s in spends if s.at_ms > now_ms - budget.period_seconds * 1000), key=lambda s: s.at_ms
    )
    used = _sum((s.load for s in recent), budget)
    granted: list[WorkKey] = []
    waiting: list[DueWork] = []
    reserved = in_blackout(budget.blackout_hours, now_ms // MINUTE_MS % 1440) is not None
    batches = BatchCount()
    for one in ordered:
        load = _load_beside(one, batches)
        late = is_late(one, budget, now_ms)
        fits = budget.share(_sum((used, load), budget)) <= 1
        begins = (not granted and not recent) or (
            late and budget.share(_sum((used, _batch(load)), budget)) <= 1
        )
        if not reserved and (fits or begins):
            granted.append(one.key)
            batches.add(one.key[0], one.part, one.prediction.load.commits)
            used = _sum((used, load), budget)
        else:
            waiting.append(one)
            reserved = reserved or late
    return Allotment(tuple(granted), _waits(waiting, budget, recent, used, now_ms))


def has_room(budget: FleetBudget, spends: Sequence[Spend], load: Load, now_ms: int) -> bool:
    """Whether a batch may start now. An unspent budget holds a batch of any size: otherwise a batch larger than the
    budget would never run."""
    if in_blackout(budget.blackout_hours, now_ms // MINUTE_MS % 1440) is not None:
        return False
    recent = [s.load for s in spends if s.at_ms > now_ms - budget.period_seconds * 1000]
    return not recent or budget.share(_sum((*recent, load), budget)) <= 1


def after_blackout(budget: FleetBudget, at_ms: int) -> int:
    """Returns the first time from `at_ms` on that is in no blackout, to the minute. Blackouts that leave no minute of
    the day return `at_ms` itself."""
    for minutes in range(1440):
        minute = at_ms // MINUTE_MS + minutes
        if in_blackout(budget.blackout_hours, minute % 1440) is None:
            return at_ms if minutes == 0 else minute * MINUTE_MS
    return at_ms


def _waits(
    waiting: Iterable[DueWork], budget: FleetBudget, recent: Sequence[Spend], used: Load, now_ms: int
) -> dict[WorkKey, FleetWait]:
    """Returns until when each is expected to wait, in the order of the work: earlier batches leave the period, and further
    periods are spent in full."""
    period_ms = budget.period_seconds * 1000
    shares = (budget.share(s.load) for s in recent)
    free = list(accumulate(shares, initial=1 - budget.share(used)))
    waits: dict[WorkKey, FleetWait] = {}
    ahead = 0.0
    batches = BatchCount()
    for one in waiting:
        ahead += budget.share(_load_beside(one, batches))
        batches.add(one.key[0], one.part, one.prediction.load.commits)
        departures = bisect_left(free, ahead)
        if departures == 0:
            until_ms = now_ms
        elif departures < len(free):
            until_ms = recent[departures - 1].at_ms + period_ms
        else:
            until_ms = now_ms + period_ms * max(1, ceil(ahead - free[-1]))
        until_ms = max(after_blackout(budget, until_ms), now_ms + MINUTE_MS)
        waits[one.key] = FleetWait(one.since_ms, until_ms)
    return waits


def _load_beside(work: DueWork, batches: BatchCount) -> Load:
    """The load of the work, with the commits that it adds to these batches."""
    load = work.prediction.load
    return replace(load, commits=batches.more(work.key[0], work.part, load.commits))


def _batch(load: Load) -> Load:
    """One batch of this work, on average."""
    batches = max(1.0, load.commits)
    cpu_seconds = None if load.cpu_seconds is None else load.cpu_seconds / batches
    return Load(int(load.bytes / batches), load.seconds / batches, 1.0, cpu_seconds)


def _sum(loads: Iterable[Load], budget: FleetBudget) -> Load:
    total_bytes, seconds, commits, cpu_seconds = 0, 0.0, 0.0, 0.0
    for load in loads:
        total_bytes += load.bytes
        seconds += load.seconds
        commits += load.commits
        cpu_seconds += budget.cpu_seconds(load)
    return Load(total_bytes, seconds, commits, cpu_seconds)


def _shares(budget: FleetBudget, load: Load) -> Iterable[float]:
    for cap, spent in (
        (budget.max_bytes, load.bytes),
        (budget.max_cpu_seconds, budget.cpu_seconds(load)),
        (budget.max_commits, load.commits),
    ):
        if cap is not None:
            yield spent / cap
