"""The page of the fleet: health, work, cost, conflicts, small files and failures, from what the ledger has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from iceberg_maint.core.model.reasons import LOST_RACES
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.report.fleet import trends_section, writers_section
from iceberg_maint.report.formatting import counted, duration, moment, number, size
from iceberg_maint.report.page import Bar, Page, Section, Tile, first_rows
from iceberg_maint.report.report_page import FleetReport, failure_message
from iceberg_maint.report.verdicts import Status

MOST_ROWS = 50
GIBIBYTE = 1024**3
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Prices:
    """What compute and storage cost, in one currency. None: not stated, and no cost is shown."""

    currency: str = "USD"
    run_hour: float | None = None
    stored_gib_month: float | None = None


def fleet_page(report: FleetReport, records: Sequence[Record], prices: Prices, now_ms: int) -> Page:
    """The page from a report, and from the records that the report counts, newest first."""
    rows = report.rows
    days = _days(records, now_ms)
    deleted = _deleted_bytes(records)
    return Page(
        "Fleet report",
        f"iceberg_maint, {moment(now_ms)}, work of the last {counted(days, 'day')}",
        ". ".join(report.sentences()) + ".",
        (
            Tile(number(len(rows)), "tables"),
            Tile(number(sum(r.small_files for r in rows)), "small files now"),
            Tile(number(sum(r.delete_files for r in rows)), "delete files now"),
            Tile(number(sum(r.files_removed for r in rows)), "files fewer by maintenance"),
            Tile(size(sum(r.input_bytes for r in rows)), "rewritten"),
            Tile(size(deleted), "of storage given back"),
        ),
        tuple(
            s
            for s in (
                _statuses(report),
                _most_files(report),
                trends_section(report.trends),
                writers_section(report.writer_changes),
                _cost(report, deleted, prices),
                _conflicts(records),
                _failures(report),
                _tables(report),
            )
            if s is not None
        ),
    )


def _days(records: Sequence[Record], now_ms: int) -> int:
    oldest = min((r.started_ms for r in records), default=now_ms)
    return max(1, -(-(now_ms - oldest) // _DAY_MS))


def _deleted_bytes(records: Sequence[Record]) -> int:
    """Bytes deleted after their retention. An orphan scan counts what it deleted of expiries in `swept_bytes` too; an expiry
    has no such count. What only moved to the trash still takes space."""
    counts = [b.counts for r in records for b in r.outcome.batches]
    return sum(c.get("swept_bytes", c.get("released_deleted_bytes", 0)) for c in counts)


def _statuses(report: FleetReport) -> Section:
    counts = Counter(report.statuses.values())
    bars = tuple(Bar(s.value, counts[s], number(counts[s])) for s in Status if counts[s])
    return Section("Health", bars=bars)


def _most_files(report: FleetReport) -> Section | None:
    worst = sorted(report.rows, key=lambda r: -(r.small_files + r.delete_files))
    bars = tuple(
        Bar(
            r.table,
            r.small_files + r.delete_files,
            f"{counted(r.small_files, 'small file')}, {counted(r.delete_files, 'delete file')}",
        )
        for r in worst[:10]
        if r.small_files + r.delete_files
    )
    return Section("Most small files and delete files", bars=bars) if bars else None


def _cost(report: FleetReport, deleted_bytes: int, prices: Prices) -> Section:
    seconds = sum(r.busy_seconds for r in report.rows)
    wasted = sum(r.wasted_bytes for r in report.rows)
    lines = [f"Runs worked for {duration(seconds)}. {size(wasted)} of output were discarded."]
    if prices.run_hour is not None:
        cost = seconds / 3600 * prices.run_hour
        lines.append(f"Compute: {cost:,.2f} {prices.currency} at {prices.run_hour:g} an hour.")
    if prices.stored_gib_month is not None:
        saved = deleted_bytes / GIBIBYTE * prices.stored_gib_month
        lines.append(
            f"Storage given back: {saved:,.2f} {prices.currency} a month at {prices.stored_gib_month:g} a GiB."
        )
    if prices.run_hour is None and prices.stored_gib_month is None:
        lines.append("No prices are configured: set report.run_hour_price and report.stored_gib_month_price.")
    return Section("Cost and savings", tuple(lines))


def _conflicts(records: Sequence[Record]) -> Section | None:
    lost: Counter[str] = Counter()
    tries: Counter[str] = Counter()
    for record in records:
        for batch in record.outcome.batches:
            tries[record.table] += batch.commit_tries
            lost[record.table] += batch.reason in LOST_RACES
    rows, omitted = first_rows(
        [(t, number(n), number(tries[t])) for t, n in lost.most_common() if n], MOST_ROWS
    )
    if not rows:
        return None
    return Section(
        "Conflicts with writers",
        ("Batches that a writer's commit made useless.",),
        ("table", "batches lost", "commit tries"),
        rows,
        frozenset({1, 2}),
        omitted=omitted,
    )


def _failures(report: FleetReport) -> Section | None:
    rows, omitted = first_rows(
        [
            (
                r.table,
                moment(r.ended_ms),
                r.operation.value,
                "unknown" if r.outcome.outcome is OutcomeStatus.UNKNOWN else r.outcome.reason.value,
                failure_message(r),
            )
            for r in report.failures
        ],
        MOST_ROWS,
    )
    columns = ("table", "time", "operation", "reason", "message")
    return (
        Section("Failures", (), columns, rows, unbroken=frozenset({1, 2}), omitted=omitted) if rows else None
    )


def _tables(report: FleetReport) -> Section:
    order = list(Status)
    ranked = sorted(report.rows, key=lambda r: order.index(report.statuses[r.table]))
    unread = [(table, status, *[""] * 8) for table, status in report.unread()]
    rows, omitted = first_rows(
        [
            *unread,
            *(
                (
                    r.table,
                    report.statuses[r.table].value,
                    number(r.data_files),
                    size(r.data_bytes),
                    number(r.small_files),
                    number(r.delete_files),
                    number(r.snapshots),
                    number(r.runs),
                    number(r.failed_runs),
                    size(r.input_bytes),
                )
                for r in ranked
            ),
        ],
        10 * MOST_ROWS,
    )
    columns = (
        "table",
        "status",
        "files",
        "size",
        "small",
        "deletes",
        "snapshots",
        "runs",
        "failed",
        "rewritten",
    )
    return Section("Tables", (), columns, rows, frozenset(range(2, 10)), omitted=omitted)
