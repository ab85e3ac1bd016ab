"""The trend of a table's small files, as the pages and JSON documents show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iceberg_maint.core.health.trend import Forecast, HealthDay, forecast, series
from iceberg_maint.core.health.writer_change import WriterChange
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.report.formatting import counted, moment, number, size
from iceberg_maint.report.json_documents import Document
from iceberg_maint.report.page import Section, Sparkline

SHOWN_TABLES = 20
METRIC = "most_small_files"
THRESHOLD_KEY = "rewrite_data_files.min_input_files"
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class TableTrend:
    """The stored days of a table, and the forecast for the small files of its partition with the most of them."""

    table: str
    days: tuple[HealthDay, ...]
    threshold: int
    forecast: Forecast


def table_trend(table: str, days: Sequence[HealthDay], policy: Policy, now_ms: int) -> TableTrend:
    """The trend of a table under its policy."""
    threshold = policy.rewrite_data_files.min_input_files
    ahead = forecast(series(days, METRIC), threshold, now_ms // _DAY_MS)
    return TableTrend(table, tuple(days), threshold, ahead)


def trend_document(trend: TableTrend) -> Document:
    """The JSON document of a trend."""
    ahead = trend.forecast
    return {
        "table": trend.table,
        "days": [{"day": d.day, **d.metrics} for d in trend.days],
        "forecast": {
            "metric": METRIC,
            "key": THRESHOLD_KEY,
            "threshold": trend.threshold,
            "in_days": None if ahead.in_days is None else round(ahead.in_days, 1),
            "per_day": None if ahead.per_day is None else round(ahead.per_day, 3),
            "days": ahead.days,
            "why": ahead.why,
        },
    }


def trend_sentence(trend: TableTrend) -> str:
    """The forecast in one line. Empty if nothing is ahead: no forecast, or the threshold is reached."""
    ahead = trend.forecast
    if not ahead.in_days:
        return ""
    return (
        f"a partition reaches {counted(trend.threshold, 'small file')} ({THRESHOLD_KEY}) in about "
        f"{counted(max(1, round(ahead.in_days)), 'day')}, by the {ahead.why}"
    )


@dataclass(frozen=True, slots=True)
class TableWriterChange:
    """A writer of a table that began to write small files."""

    table: str
    change: WriterChange


def writers_section(changes: Sequence[TableWriterChange]) -> Section | None:
    """The section of the writers that began to write small files, in the order given."""
    if not changes:
        return None
    shown = changes[:SHOWN_TABLES]
    return Section(
        "Writers that began to write small files",
        ("By the commits in the table's history. The writer with the most such commits comes first.",),
        ("table", "what changed"),
        tuple((c.table, writer_change_sentence(c.change)) for c in shown),
        omitted=len(changes) - len(shown),
    )


def writer_change_sentence(change: WriterChange) -> str:
    """Who began when to write small files, by its commit."""
    return (
        f"{change.writer} writes files of {size(change.after_bytes)} since {moment(change.timestamp_ms)} (snapshot "
        f"{change.snapshot_id}, {counted(change.commits, 'commit')}); earlier files had {size(change.before_bytes)}"
    )


def trends_section(trends: Sequence[TableTrend]) -> Section | None:
    """The section of the tables that have two days or more: those nearest to their threshold first."""
    drawn = sorted(
        (t for t in trends if len(series(t.days, METRIC)) > 1),
        key=lambda t: (t.forecast.in_days is None, not t.forecast.in_days, t.forecast.in_days or 0, t.table),
    )
    if not drawn:
        return None
    lines = tuple(_sparkline(t) for t in drawn[:SHOWN_TABLES])
    return Section(
        "Trends",
        ("Small files by day, and when the partition with the most of them reaches its threshold.",),
        sparklines=lines,
        omitted=len(drawn) - len(lines),
    )


def _sparkline(trend: TableTrend) -> Sparkline:
    points = series(trend.days, "small_files")
    counts = f"{number(round(points[0][1]))} to {counted(round(points[-1][1]), 'small file')}"
    ahead = trend_sentence(trend) or f"in the partition with the most, {trend.forecast.why}"
    return Sparkline(trend.table, points, f"{counts}; {ahead}")
