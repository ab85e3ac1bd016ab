"""The cost of a batch: what it is predicted from, and what it took."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field, replace
from itertools import groupby

from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import Strategy
from iceberg_maint.core.policy.data import WindowsPolicy


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
