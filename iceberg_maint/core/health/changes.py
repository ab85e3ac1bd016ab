"""Changes of a table: its numbers by day, when one reaches its threshold, and a writer that began to write small files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations, pairwise
from math import log2
from statistics import median

from iceberg_maint.core.model.other_writers import writer_name
from iceberg_maint.core.model.table_state import TOKEN_PROPERTY, Snapshot

KEPT_DAYS = 90
LEAST_DAYS = 4
_DROP = 0.5
_HORIZON_DAYS = 365


@dataclass(frozen=True, slots=True)
class HealthDay:
    """The last measurement of a table on one day (UTC, days since epoch): metrics by name."""

    day: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a number reaches its threshold. `in_days` is None without a forecast, and `why` has the reason. `days` are
    the measured days that the forecast uses, `per_day` is their slope."""

    in_days: float | None
    per_day: float | None
    days: int
    why: str


def series(days: Sequence[HealthDay], metric: str) -> tuple[tuple[int, float], ...]:
    """The days that have the metric, with its value, by day."""
    return tuple(sorted((d.day, d.metrics[metric]) for d in days if metric in d.metrics))


def forecast(points: Sequence[tuple[int, float]], threshold: float, today: int) -> Forecast:
    """Forecasts when the number reaches the threshold.

    The slope is the median of the slopes between all pairs of days (Theil-Sen), so one odd day does not change it.
    Only the days since the last drop by half count: before it maintenance had not run.
    """
    recent = _since_drop(points)
    count = len(recent)
    if count < LEAST_DAYS:
        return Forecast(
            None, None, count, f"no forecast: {count} of {LEAST_DAYS} measured days since the last drop"
        )
    slope = median((b - a) / (second - first) for (first, a), (second, b) in combinations(recent, 2))
    if recent[-1][1] >= threshold:
        return Forecast(0.0, slope, count, "the threshold is reached")
    if slope <= 0:
        return Forecast(None, slope, count, "no forecast: the number does not grow")
    level = median(value - slope * (day - today) for day, value in recent)
    in_days = max(0.0, (threshold - level) / slope)
    if in_days > _HORIZON_DAYS:
        return Forecast(
            None, slope, count, f"no forecast: the threshold is more than {_HORIZON_DAYS} days away"
        )
    return Forecast(in_days, slope, count, f"median slope of {count} measured days")


def _since_drop(points: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    drops = [n for n, (before, after) in enumerate(pairwise(points), 1) if after[1] < before[1] * _DROP]
    return points[drops[-1] :] if drops else points


LEAST_COMMITS = 5
"""Commits on each side of a change at least."""
MAX_COMMITS = 1_000
"""The newest commits of a writer that are compared."""
_FACTOR = 4
"""Files are at least so many times smaller after a change."""


@dataclass(frozen=True, slots=True)
class WriterChange:
    """The commit with which a writer began to write small files. `commits` counts it and those since. The sizes are
    medians over commits of the mean size of the files of a commit, before it and since."""

    writer: str
    snapshot_id: int
    timestamp_ms: int
    commits: int
    before_bytes: float
    after_bytes: float


@dataclass(frozen=True, slots=True)
class _Commit:
    snapshot: Snapshot
    mean_bytes: float


def writer_changes(
    snapshots: Sequence[Snapshot], location: str, small_below_bytes: float
) -> tuple[WriterChange, ...]:
    """Returns the changes of the writers that write small files now, newest first.

    The change point splits the logarithms of the sizes in two groups with the least sum of squares (Scott and Knott,
    1974). Commits of maintenance do not count. Summaries without sizes are left out.
    """
    by_writer: dict[str, list[_Commit]] = {}
    for snapshot in sorted(snapshots, key=lambda s: (s.timestamp_ms, s.sequence_number)):
        mean_bytes = _mean_bytes(snapshot)
        if mean_bytes is not None:
            by_writer.setdefault(_group(snapshot), []).append(_Commit(snapshot, mean_bytes))
    changes = (_change(commits[-MAX_COMMITS:], location, small_below_bytes) for commits in by_writer.values())
    return tuple(sorted((c for c in changes if c is not None), key=lambda c: -c.timestamp_ms))


def _mean_bytes(snapshot: Snapshot) -> float | None:
    """The mean size of the files that the commit added. None for a commit of maintenance, and without sizes."""
    summary = snapshot.summary
    if snapshot.operation == "replace" or TOKEN_PROPERTY in summary:
        return None
    try:
        files = int(summary.get("added-data-files", "0")) + int(summary.get("added-delete-files", "0"))
        size_bytes = int(summary["added-files-size"])
    except (KeyError, ValueError):
        return None
    return size_bytes / files if files > 0 and size_bytes > 0 else None


def _group(snapshot: Snapshot) -> str:
    """What stays the same from one commit of a writer to the next. The id of a Spark application does not."""
    summary = snapshot.summary
    keys = ("engine-name", "app-name", "flink.job-id", "flink.operator-id")
    return "\n".join(summary.get(key, "") for key in keys)


def _change(commits: Sequence[_Commit], location: str, small_below_bytes: float) -> WriterChange | None:
    at = _change_point([log2(c.mean_bytes) for c in commits])
    if at is None:
        return None
    before = median(c.mean_bytes for c in commits[:at])
    after = median(c.mean_bytes for c in commits[at:])
    if after >= small_below_bytes or before < small_below_bytes or before < _FACTOR * after:
        return None
    first = commits[at].snapshot
    return WriterChange(
        writer_name(first.summary, location),
        first.snapshot_id,
        first.timestamp_ms,
        len(commits) - at,
        before,
        after,
    )


def _change_point(values: Sequence[float]) -> int | None:
    """The index that splits the values in the two groups with the least sum of squares. None if one has few values."""
    sums = [0.0, *accumulate(values)]

    def between(at: int) -> float:
        # The sum of squares between the groups; it is greatest where the sum within them is least.
        first, rest = sums[at], sums[-1] - sums[at]
        return first * first / at + rest * rest / (len(values) - at)

    at = max(range(1, len(values)), key=between, default=0)
    return at if LEAST_COMMITS <= at <= len(values) - LEAST_COMMITS else None
