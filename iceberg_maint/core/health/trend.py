"""Trend: the numbers of a table by day, and when one reaches its threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import median

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
