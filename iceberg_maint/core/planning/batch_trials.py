"""Trials: what the tried batches teach about the next one: its largest size, its seconds and its output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from statistics import median

from iceberg_maint.core.health.thresholds import expected_output_files, size_limits
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import RewriteDataFiles, Strategy
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint.core.policy.runs import WindowsPolicy


@dataclass(frozen=True, slots=True)
class BatchCost:
    """What a batch worked on, and the CPU seconds that it took.

    `deleted_rows` are those that position deletes and deletion vectors of the batch state. `earlier` counts the batches that the same engine ran before: the first ones of a session cost more. `rows` are
    the input rows. `cpu_seconds` are those of all processes of the batch: Python, its JVM and Spark's workers; None
    where they were not measured.
    """

    strategy: str
    groups: int
    rows: int
    delete_files: int
    deleted_rows: int
    earlier: int
    cpu_seconds: float | None = None

    def kept_bytes(self, input_bytes: int) -> float:
        """Returns the share of the input bytes whose rows are not known to be deleted."""
        return input_bytes * (1 - min(self.rows, self.deleted_rows) / self.rows) if self.rows else input_bytes


def batch_cost(
    batch: Batch, earlier: int, cpu_seconds: float | None = None, strategy: Strategy | None = None
) -> BatchCost:
    """Returns what the batch works on. If it has run: with its CPU seconds, and the strategy that wrote its rows where it is
    not that of the plan."""
    return BatchCost(
        (strategy or batch.strategy).value,
        len(batch.groups),
        sum(f.record_count for g in batch.groups for f in g.files),
        len(batch.applied_deletes) + len(batch.equality_deletes) + len(batch.position_deletes),
        sum(d.record_count for d in batch.applied_deletes),
        earlier,
        None if cpu_seconds is None else round(cpu_seconds, 3),
    )


@dataclass(frozen=True, slots=True)
class BatchSize:
    """Input files, input bytes and partitions of a batch."""

    files: int
    input_bytes: int
    partitions: int

    def halved(self) -> BatchSize:
        """Returns half of each, at least one."""
        return BatchSize(*(max(1, n // 2) for n in astuple(self)))

    def doubled(self) -> BatchSize:
        """Returns twice each."""
        return BatchSize(*(2 * n for n in astuple(self)))

    def contains(self, other: BatchSize) -> bool:
        """Whether no value of the other is larger."""
        return all(own >= n for own, n in zip(astuple(self), astuple(other), strict=True))


@dataclass(frozen=True, slots=True)
class CommitTrial:
    """One batch whose commit was tried. If it did not land, other commits won every try. `seconds` is its time,
    `cost` what it worked on, None of a batch that did not run."""

    run_id: str
    size: BatchSize
    landed: bool
    seconds: float = field(default=0.0, compare=False)
    output_bytes: int = field(default=0, compare=False)
    cost: BatchCost | None = field(default=None, compare=False)


def batch_limit(trials: Sequence[CommitTrial]) -> BatchSize | None:
    """Returns the largest batch to plan next, from the trials of one operation on one table, oldest first.
    None if the policy alone limits it.

    A run with a lost batch sets the limit to half of its smallest lost batch. Each later run that lost none
    doubles it, until it contains the batch that was lost first.
    """
    limit: BatchSize | None = None
    first_lost: BatchSize | None = None
    for _, of_run in groupby(trials, lambda t: t.run_id):
        lost = [t.size for t in of_run if not t.landed]
        if lost:
            smallest = _least(lost).halved()
            limit = smallest if limit is None else _least((limit, smallest))
            first_lost = lost[0] if first_lost is None else first_lost
        elif limit is not None and first_lost is not None:
            limit = limit.doubled()
            if limit.contains(first_lost):
                limit = first_lost = None
    return limit


def limited(windows: WindowsPolicy, limit: BatchSize | None) -> WindowsPolicy:
    """Returns the windows with the batch size of the limit, where that is smaller."""
    if limit is None:
        return windows
    return replace(
        windows,
        max_files_per_batch=min(windows.max_files_per_batch, max(2, limit.files)),
        max_bytes_per_batch=min(windows.max_bytes_per_batch, limit.input_bytes),
        max_partitions_per_batch=min(windows.partitions_per_batch, limit.partitions),
    )


def with_gain(limit: BatchSize | None, min_files: int, min_bytes: int) -> BatchSize | None:
    """Returns the limit for one file group: large enough that rewriting the group gains something."""
    if limit is None:
        return None
    return replace(limit, files=max(limit.files, min_files), input_bytes=max(limit.input_bytes, min_bytes))


def _least(sizes: Iterable[BatchSize]) -> BatchSize:
    columns = zip(*(astuple(s) for s in sizes), strict=True)
    return BatchSize(*(min(column) for column in columns))


SWEEPS = 20
"""Rounds over the parts at most. Each sets one part to its optimum, given the others."""
SETTLED = 0.0001
"""The share by which a round changes no part if the parts are settled: far below the error of a prediction."""
TRUST = 0.5
"""Weight of the parts before any batch, in batches."""
UNCORRECTED = 2
"""Batches without a correction that a table's own batches are weighed against."""
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class WorkSize:
    """What a batch works on. `earlier` counts the batches that the session ran before, None if not known."""

    groups: int
    files: int
    input_bytes: int
    delete_files: int = 0
    earlier: int | None = None

    def amounts(self) -> tuple[float, ...]:
        """Returns how much of each part the batch has."""
        cold = 0.0 if self.earlier is None else 1 / (1 + self.earlier)
        return 1.0, float(self.groups), float(self.files + self.delete_files), self.input_bytes / _MIB, cold


Parts = tuple[float, ...]
"""Seconds per batch, file group, file, MiB of input, and of a cold session."""


def predicted_seconds(size: WorkSize, parts: Parts) -> float:
    """Returns the seconds of a batch of this size."""
    return sum(amount * part for amount, part in zip(size.amounts(), parts, strict=True))


@lru_cache(maxsize=8)
def learned_parts(assumed: Parts, batches: tuple[tuple[WorkSize, float], ...]) -> Parts:
    """Returns the parts that recent batches (size and seconds) took; the assumed ones without batches.

    Minimizes the sum of |predicted / measured - 1|, part by part: the best value of one part, given the others, is a
    weighted median. The assumed parts, scaled to the batches, count as `TRUST` batches. No part is negative.
    """
    known = [(size.amounts(), seconds) for size, seconds in batches if seconds > 0]
    if not known:
        return assumed
    scale = median(seconds / predicted_seconds(size, assumed) for size, seconds in batches if seconds > 0)
    parts = [part * scale for part in assumed]
    first = tuple(parts)
    totals = [sum(a * p for a, p in zip(amounts, parts, strict=True)) for amounts, _ in known]
    for _ in range(SWEEPS):
        before = tuple(parts)
        for n, part in enumerate(before):
            points = [
                (part + (seconds - total) / amounts[n], amounts[n] / seconds)
                for (amounts, seconds), total in zip(known, totals, strict=True)
                if amounts[n] > 0
            ]
            weight = sum(w for _, w in points) / len(points) * TRUST if points else 1.0
            parts[n] = max(0.0, _weighted_median([*points, (first[n], weight)]))
            change = parts[n] - part
            totals = [total + change * amounts[n] for (amounts, _), total in zip(known, totals, strict=True)]
        if all(abs(new - old) <= SETTLED * old for new, old in zip(parts, before, strict=True)):
            break
    return tuple(parts)


def correction(parts: Parts, batches: Sequence[tuple[WorkSize, float]]) -> float:
    """Returns the factor by which a table's batches differ from the fleet's: the median of measured to predicted seconds,
    with `UNCORRECTED` ones beside it."""
    ratios = [
        seconds / predicted
        for size, seconds in batches
        if seconds > 0 and (predicted := predicted_seconds(size, parts)) > 0
    ]
    return median([*ratios, *[1.0] * UNCORRECTED])


def _weighted_median(points: Sequence[tuple[float, float]]) -> float:
    ordered = sorted(points)
    half, passed = sum(w for _, w in ordered) / 2, 0.0
    for value, weight in ordered:
        passed += weight
        if passed >= half:
            return value
    return ordered[-1][0]


LEARNED_FROM = 10
"""Earlier batches of a table that correct its predictions."""
FLEET_LEARNED_FROM = 80
"""Earlier batches of the fleet that the parts are learned from."""
_ASSUMED: Mapping[str, Parts] = {
    Strategy.COLUMNAR: (0.1, 0.02, 0.001, 0.035, 1.0),
    Strategy.NATIVE: (0.25, 0.07, 0.01, 0.045, 1.0),
    Strategy.SORTED: (0.3, 0.08, 0.01, 0.062, 1.0),
}
"""Seconds of the parts before any batch, as measured by `bench.fleet.predictions`. The first batches scale them."""


@dataclass(frozen=True, slots=True)
class BatchPrediction:
    """What a rewrite was predicted to leave and to take, before it ran. `learned_from` counts the earlier batches, of the
    fleet or of the table alone, that the seconds were learned from."""

    output_files: int
    seconds: float
    learned_from: int
    cpu_seconds: float
    output_bytes: int


def predict_batch(
    batch: Batch,
    policy: RewriteDataFilesPolicy,
    trials: Sequence[CommitTrial],
    earlier: int,
    fleet: Sequence[CommitTrial] = (),
) -> BatchPrediction | None:
    """Returns the prediction of a rewrite of data files, None for other work. `earlier` counts the batches that the
    session ran before. The seconds are learned from the batches of the same strategy that landed: their parts from the `fleet`
    (from the table's `trials` without it), a factor from the trials. The bytes are the
    input's without the share of deleted rows, times the median ratio of the table's batches."""
    if not isinstance(batch.work, RewriteDataFiles):
        return None
    target = batch.target_file_size_bytes
    limits = size_limits(policy, target)
    outputs = sum(
        expected_output_files(sum(f.size_bytes for f in g.files), target, limits) for g in batch.groups
    )
    cost = batch_cost(batch, earlier)
    own = _landed(trials, cost.strategy)
    every = _landed(fleet, cost.strategy) or own
    size = _size(batch.input_files, batch.input_bytes, cost)
    assumed = _ASSUMED.get(cost.strategy, _ASSUMED[Strategy.NATIVE])

    def seconds(measured: Callable[[CommitTrial, BatchCost], float | None]) -> float:
        parts = learned_parts(assumed, _sizes(every, measured))
        return round(predicted_seconds(size, parts) * correction(parts, _sizes(own, measured)), 3)

    ratios = [t.output_bytes / kept for t, c in own if (kept := c.kept_bytes(t.size.input_bytes)) > 0]
    kept_bytes = cost.kept_bytes(batch.input_bytes)
    return BatchPrediction(
        outputs,
        seconds(lambda trial, _: trial.seconds),
        max(len(every), len(own)),
        seconds(lambda _, cost: cost.cpu_seconds),
        round(kept_bytes * (median(ratios) if ratios else 1.0)),
    )


def _landed(trials: Sequence[CommitTrial], strategy: str) -> list[tuple[CommitTrial, BatchCost]]:
    return [
        (t, c)
        for t in trials
        if t.landed and t.seconds > 0 and (c := t.cost) is not None and c.strategy == strategy
    ]


def _sizes(
    landed: Sequence[tuple[CommitTrial, BatchCost]],
    measured: Callable[[CommitTrial, BatchCost], float | None],
) -> tuple[tuple[WorkSize, float], ...]:
    return tuple(
        (_size(t.size.files, t.size.input_bytes, c), seconds)
        for t, c in landed
        if (seconds := measured(t, c)) is not None
    )


def _size(input_files: int, input_bytes: int, cost: BatchCost) -> WorkSize:
    return WorkSize(cost.groups, input_files, input_bytes, cost.delete_files, cost.earlier)
