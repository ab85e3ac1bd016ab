"""The trend of a table's small files: when they reach their threshold, as the pages and JSON documents show it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, pairwise
from statistics import median

from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.health.state_facts import WriterChange
from iceberg_maint.core.model.ids import POSITION_OPERATIONS
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.stored import HealthDay
from iceberg_maint.report.formatting import counted, moment, number, size
from iceberg_maint.report.json_documents import Document
from iceberg_maint.report.page import Section, Sparkline

SHOWN_TABLES = 20
METRIC = "most_small_files"
THRESHOLD_KEY = "rewrite_data_files.min_input_files"
_DAY_MS = 86_400_000
LEAST_DAYS = 4
_DROP = 0.5
_HORIZON_DAYS = 365


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


@dataclass(frozen=True, slots=True)
class FleetRow:
    """One table: its last stored health, and the work of the counted records."""

    table: str
    data_files: int
    data_bytes: int
    small_files: int
    delete_files: int
    snapshots: int
    metadata_bytes: int
    runs: int
    failed_runs: int
    batches: int
    files_removed: int
    input_bytes: int
    delete_files_removed: int
    wasted_bytes: int
    busy_seconds: float


def fleet(health: Iterable[Measured], records: Iterable[Record]) -> tuple[FleetRow, ...]:
    """One row per table with stored health. Tables with the most small files and delete files come first."""
    by_table: dict[str, list[Record]] = {}
    for record in records:
        by_table.setdefault(record.table, []).append(record)
    rows = [_row(measured, by_table.get(str(measured.table), [])) for measured in health]
    return tuple(sorted(rows, key=lambda r: (-r.small_files - r.delete_files, r.table)))


def read_fleet(ledger: Ledger, limit: int) -> tuple[FleetRow, ...]:
    """Reads the fleet from stored health and the `limit` newest records."""
    health = [h for k in ledger.health.known_tables() if (h := ledger.health.get(k.table)) is not None]
    return fleet(health, ledger.records.newest(None, limit))


def fleet_document(rows: tuple[FleetRow, ...]) -> Document:
    """The JSON document of `report`: totals, then tables."""
    tables = [asdict(r) for r in rows]
    names = [name for name in (tables[0] if tables else {}) if name != "table"]
    totals = {name: round(sum(t[name] for t in tables), 3) for name in names}
    return {"totals": {"tables": len(tables), **totals}, "tables": tables}


def _row(measured: Measured, records: list[Record]) -> FleetRow:
    total = measured.total()
    batches = [b for r in records for b in r.outcome.batches]
    committed = [b for b in batches if b.snapshot_after is not None]
    # The output of an operation on positions is delete files; it keeps the data files.
    rewritten = [
        b
        for r in records
        if r.operation not in POSITION_OPERATIONS
        for b in r.outcome.batches
        if b.snapshot_after is not None
    ]
    failed = [r for r in records if r.outcome.outcome in (OutcomeStatus.FAILED, OutcomeStatus.UNKNOWN)]
    return FleetRow(
        table=str(measured.table),
        data_files=total.data_files,
        data_bytes=total.data_bytes,
        small_files=total.small_files,
        delete_files=total.delete_files,
        snapshots=measured.table_health.snapshots,
        metadata_bytes=measured.table_health.metadata_bytes,
        runs=len(records),
        failed_runs=len(failed),
        batches=len(batches),
        files_removed=sum(b.input_files - b.output_files for b in rewritten),
        input_bytes=sum(b.input_bytes for b in committed),
        delete_files_removed=sum(b.delete_files_removed for b in committed),
        wasted_bytes=sum(b.wasted_bytes for b in batches),
        busy_seconds=round(sum(b.seconds for b in batches), 3),
    )
