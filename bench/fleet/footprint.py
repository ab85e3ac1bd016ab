"""The ledger of 10,000 tables after 90 days: bytes per table and day, and the time and the plan of every query.

    python -m bench.fleet.footprint [--tables 10000] [--days 90] [--database sqlite|postgres|both]

Each table has one operation in two days, of one batch with one attempt, one intent, one try, one outcome and one
record, and one row of health per day. The rows of one operation are written by the ledger's own functions, then copied
with other keys and times in SQL. Every query is then asked as a command or a sensor asks it, and its plan is explained.
Exits 1 when a plan reads a growing table whole, or a query or the bytes are over target.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, text

from bench.record import publish
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.ledger.ledger import sql_ledger
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.stored import BatchStatus
from iceberg_maint_tests.support.ledger.query_plans import captured, whole_reads
from iceberg_maint_tests.support.ledger.questions import FLEET_QUESTIONS, Question, questions

TABLE_QUERY_MS = 50.0
"""The longest time of a query about one table."""
FLEET_QUERY_MS = 10_000.0
"""The longest time of a query about all tables, in a tick or a command over the fleet."""
BYTES_PER_TABLE_AND_DAY = 5_000
DAYS_PER_OPERATION = 2
DAY_MS = 86_400_000
PROJECT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Prints a table per database and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--database", choices=("sqlite", "postgres", "both"), default="both")
    given = parser.parse_args()
    missed = False
    figures: dict[str, Any] = {"tables": given.tables, "days": given.days}
    for name in ("sqlite", "postgres") if given.database == "both" else (given.database,):
        with _database(name) as url:
            figures[name] = _measure(url, given.tables, given.days)
        missed |= _report(name, figures[name], given.tables, given.days)
    publish("footprint", figures)
    return int(missed)


@contextmanager
def _database(name: str) -> Iterator[str]:
    if name == "postgres":
        from iceberg_maint_tests.support.servers.postgres import postgres_server

        with postgres_server() as server:
            yield server.url
        return
    with tempfile.TemporaryDirectory(prefix="bench-footprint-") as folder:
        yield f"sqlite:///{folder}/ledger.db"


def _measure(url: str, tables: int, days: int) -> dict[str, Any]:
    ledger = sql_ledger(url)
    started = time.perf_counter()
    _first_rows(ledger)
    engine = create_engine(url)
    with engine.begin() as conn:
        _copy(conn, tables, days)
    _settle(engine)
    made_seconds = time.perf_counter() - started
    figures: dict[str, Any] = {"made_seconds": round(made_seconds, 1), **_sizes(engine, tables, days)}
    figures["queries"] = {q.name: _time(q) for q in questions(ledger, tables)}
    figures["whole_reads"] = _whole_reads(ledger, engine, tables)
    ledger.close()
    engine.dispose()
    return figures


def _first_rows(ledger: Ledger) -> None:
    """One operation of one table, by the functions of the ledger."""
    from iceberg_maint_tests.support.ledger.values import (
        NAME,
        PROOF,
        UUID,
        make_record,
        measured,
        outcome_of,
        plan_of,
        written,
    )

    lease = ledger.leases.acquire(UUID, NAME, "run", 60, 0)
    assert lease is not None
    plan = plan_of(*(f"day=2026-01-{n:02d}" for n in range(1, 2)))
    ledger.work.save_plan(lease, plan)
    [batch] = plan.batches
    attempt = ledger.work.start_attempt(lease, batch.batch_id, "run", {})
    ledger.work.record_intent(lease, attempt.attempt_id, written(batch), PROOF)
    ledger.work.record_try(
        lease, attempt.attempt_id, 1, "s3://bucket/warehouse/db/events/metadata/00001.metadata.json"
    )
    ledger.work.finish_attempt(lease, attempt.attempt_id, BatchStatus.DONE, outcome_of(batch), {})
    record = make_record("record")
    ledger.records.append(
        replace(record, run_id="run", outcome=replace(record.outcome, batches=(outcome_of(batch),)))
    )
    ledger.health.put(measured(*(f"day=2026-01-{n:02d}" for n in range(1, 25))))
    ledger.leases.release(lease)


def _copy(conn: Connection, tables: int, days: int) -> None:
    """Copies the first rows for all tables, days and operations, with other keys and times, and deletes them."""
    operations = list(Operation)
    is_postgres = conn.dialect.name == "postgresql"
    series = (
        "SELECT CAST(v AS BIGINT) AS {name} FROM generate_series(0, {last}) AS s(v)"
        if is_postgres
        else "WITH RECURSIVE s(v) AS (SELECT 0 UNION ALL SELECT v + 1 FROM s WHERE v < {last}) SELECT v AS {name} FROM s"
    )
    for name, last in (("t", tables - 1), ("n", days // DAYS_PER_OPERATION - 1), ("d", days - 1)):
        conn.execute(text(f"CREATE TEMPORARY TABLE bench_{name} AS " + series.format(name=name, last=last)))
    case = " ".join(f"WHEN {i} THEN '{o.value}'" for i, o in enumerate(operations))
    operation = f"CASE n % {len(operations)} {case} END"
    now_ms = time.time_ns() // 1_000_000
    at = f"({now_ms - days * DAY_MS} + n * {DAY_MS * DAYS_PER_OPERATION} + t * {max(1, DAY_MS // tables)})"
    uuid, key = "'uuid-' || t", "'t' || t || '-' || n"
    per_operation = "bench_n CROSS JOIN bench_t"
    keys = {"batch_id": f"'b-' || {key}", "attempt_id": f"'a-' || {key}", "table_uuid": uuid}
    copies: list[tuple[str, str, dict[str, str]]] = [
        ("icm_lease", "bench_t", {"table_uuid": uuid, "table_name": "'lake.db.t' || t"}),
        (
            "icm_batch",
            per_operation,
            {
                "batch_id": keys["batch_id"],
                "table_uuid": uuid,
                "operation": operation,
                "plan_id": f"'p-' || {key}",
                "run_id": f"'r-' || {key}",
                "ordinal": "n",
                "updated_ms": at,
            },
        ),
        (
            "icm_attempt",
            per_operation,
            {
                **keys,
                "ordinal": "",
                "operation": operation,
                "run_id": f"'r-' || {key}",
                "token": f"'k-' || {key}",
                "started_ms": at,
            },
        ),
        ("icm_intent", per_operation, {"attempt_id": keys["attempt_id"], "recorded_ms": at}),
        ("icm_try", per_operation, {"attempt_id": keys["attempt_id"], "recorded_ms": at}),
        (
            "icm_outcome",
            per_operation,
            {
                "attempt_id": keys["attempt_id"],
                "table_uuid": uuid,
                "ordinal": "",
                "operation": operation,
                "recorded_ms": at,
            },
        ),
        (
            "icm_record",
            per_operation,
            {
                "ordinal": "",
                "record_id": f"'d-' || {key}",
                "table_uuid": uuid,
                "table_name": "'lake.db.t' || t",
                "appended_ms": at,
                "run_id": f"'r-' || {key}",
            },
        ),
        (
            "icm_recorded",
            per_operation,
            {"table_uuid": uuid, "operation": operation, "run_id": f"'r-' || {key}"},
        ),
        (
            "icm_health_day",
            "bench_d CROSS JOIN bench_t",
            {"table_uuid": uuid, "day": f"{now_ms // DAY_MS - days + 1} + d"},
        ),
        (
            "icm_health",
            "bench_t",
            {
                "table_uuid": uuid,
                "table_name": "'lake.db.t' || t",
                "head": "replace(replace(first.head, 'events', 't' || t), '11111111-1111-1111-1111-111111111111', 'uuid-' || t)",
            },
        ),
    ]
    for table, source, values in copies:
        _insert(conn, table, source, values)
    for table, _, _ in reversed(copies):
        where = (
            "attempt_id NOT LIKE 'a-%'"
            if table in ("icm_intent", "icm_try")
            else "table_uuid NOT LIKE 'uuid-%'"
        )
        if table == "icm_batch":
            conn.execute(text("DELETE FROM icm_cursor"))
        conn.execute(text(f"DELETE FROM {table} WHERE {where}"))


def _insert(conn: Connection, table: str, source: str, values: dict[str, str]) -> None:
    from iceberg_maint.ledger.schema import metadata

    columns = [c.name for c in metadata.tables[table].columns if values.get(c.name) != ""]
    chosen = ", ".join(values.get(c, f"first.{c}") for c in columns)
    conn.execute(
        text(
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {chosen} FROM {source} "
            f"CROSS JOIN (SELECT * FROM {table} LIMIT 1) AS first"
        )
    )


def _settle(engine: Engine) -> None:
    """PostgreSQL gathers its statistics, as autovacuum does. SQLite has none, as in the product."""
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            conn.execute(text("VACUUM ANALYZE"))


def _sizes(engine: Engine, tables: int, days: int) -> dict[str, Any]:
    with engine.connect() as conn:
        if engine.dialect.name == "postgresql":
            rows = conn.execute(
                text(
                    "SELECT relname, pg_total_relation_size(oid) FROM pg_class WHERE relkind = 'r' AND relname LIKE 'icm_%'"
                )
            ).all()
        else:
            rows = conn.execute(
                text(
                    "SELECT COALESCE(m.tbl_name, s.name), SUM(s.pgsize) FROM dbstat s LEFT JOIN sqlite_master m "
                    "ON m.name = s.name GROUP BY 1"
                )
            ).all()
    by_table = {name: int(size) for name, size in rows if size > 100_000}
    daily = sum(size for name, size in by_table.items() if name != "icm_health")
    return {
        "bytes": sum(by_table.values()),
        "bytes_per_table_and_day": round(daily / tables / days),
        "bytes_by_table": dict(sorted(by_table.items(), key=lambda item: -item[1])),
    }


def _time(question: Question) -> float:
    """The median time in ms, of one call for a query about the fleet."""
    times = []
    for _ in range(1 if question.fleet else 3):
        start = time.perf_counter()
        question.ask()
        times.append((time.perf_counter() - start) * 1000)
    return round(statistics.median(times), 2)


def _whole_reads(ledger: Ledger, engine: Engine, tables: int) -> list[str]:
    """The steps of plans that read a growing table whole."""
    with captured() as statements:
        for question in questions(ledger, tables):
            question.ask()
    with engine.connect() as conn:
        return [
            f"{step}: {statement[0][:200]}"
            for statement in statements()
            for step in whole_reads(conn, statement)
        ]


def _report(name: str, figures: dict[str, Any], tables: int, days: int) -> bool:
    from rich.console import Console
    from rich.table import Table

    shown = Table(f"{name}: {tables:,} tables, {days} days", "measured", "limit")
    missed = figures["bytes_per_table_and_day"] > BYTES_PER_TABLE_AND_DAY
    shown.add_row("size, MB", f"{figures['bytes'] / 1e6:,.0f}", "")
    shown.add_row(
        "bytes per table and day", f"{figures['bytes_per_table_and_day']:,}", f"{BYTES_PER_TABLE_AND_DAY:,}"
    )
    for table, size in figures["bytes_by_table"].items():
        shown.add_row(f"  {table}, MB", f"{size / 1e6:,.1f}", "")
    for query, ms in figures["queries"].items():
        limit = FLEET_QUERY_MS if query in FLEET_QUESTIONS else TABLE_QUERY_MS
        missed |= ms > limit
        shown.add_row(f"{query}, ms", f"{ms:,.1f}{' MISSED' if ms > limit else ''}", f"{limit:,.0f}")
    shown.add_row("whole reads of growing tables", str(len(figures["whole_reads"])), "0")
    Console().print(shown)
    for step in figures["whole_reads"]:
        print("whole read:", step)
    return missed or bool(figures["whole_reads"])


if __name__ == "__main__":
    sys.exit(main())
