"""Flink upserts tables, automation maintains them, and DuckDB reads every snapshot."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.flink.job import FlinkJob, flink_catalog, flink_home, started
from bench.flink.show import ending, results
from bench.flink.stream import TABLES, FlinkTable, Stream
from bench.flink.verdict import FlinkResult, judge
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.demo import report
from iceberg_maint.demo.duckdb_reader import DuckDBReader
from iceberg_maint.demo.heal import MAX_TICKS, DemoState, Healing, heal_once, open_in_process, state_of
from iceberg_maint.demo.main import make_catalog
from iceberg_maint.demo.workspace import CATALOG, Place, place, table_id
from iceberg_maint.loop.context import Context
from iceberg_maint.wiring.adapters import build

STREAM = Stream(rows=25_000, ids=499, rows_per_second=250)
_START_SECONDS = 120
_POLL_SECONDS = 1


@dataclass(frozen=True, slots=True)
class FlinkReport:
    """The results of the demo."""

    job_succeeded: bool
    healing: Healing
    tables: tuple[FlinkResult, ...]
    seconds: float

    @property
    def good(self) -> bool:
        """Whether the job and every run succeeded, and every table has the expected rows."""
        runs_good = self.healing.settled and not self.healing.failed_runs
        return self.job_succeeded and runs_good and all(t.good for t in self.tables)


def run(root: Path, flink: Path, console: Console, stream: Stream = STREAM) -> FlinkReport:
    """Starts the job on a new lake in `root`, and maintains the lake until nothing is due.

    `flink` is the folder of Flink. Raises ConfigurationError ICM-100 for a folder with other content or
    without Flink, RefusedError ICM-103 without a Java.
    """
    began = time.monotonic()
    where = place(root)
    where.clear()
    config = where.prepare(os.environ)
    context = build(config)
    home = flink_home(config, flink)
    # Created here, so that two processes do not create it at the same time.
    make_catalog(config)
    script = stream.statements(flink_catalog(config.catalogs[CATALOG]), TABLES)
    report.heading(console, "Flink", f"upserts {stream.rows} rows under {stream.keys} keys into each table")
    healing = Healing()
    at_end_of_job: dict[FlinkTable, DemoState] = {}
    with started(home, where.root / "flink", script) as job:
        # Spark and Flink start at the same time.
        context.engine.spark.session()
        _wait(lambda: not job.running or _written(context), _START_SECONDS)
        if _written(context):
            at_end_of_job = _heal(context, where, job, healing, console)
        if not job.succeeded:
            console.print("[red]The job failed.[/] Its output:")
            console.print(job.said()[-2000:], markup=False)
        succeeded = job.succeeded
    report.heading(console, "After", "DuckDB has read every snapshot")
    tables = _judge(context, stream, at_end_of_job)
    results(console, tables)
    demo = FlinkReport(succeeded, healing, tables, time.monotonic() - began)
    ending(console, where, demo.tables, good=demo.good, seconds=demo.seconds)
    return demo


def _heal(
    context: Context, where: Place, job: FlinkJob, healing: Healing, console: Console
) -> dict[FlinkTable, DemoState]:
    """Maintains the tables during the job and after it. Returns their state at the end of the job."""
    dagster = open_in_process(context, where)
    try:
        report.heading(console, "Healing", "by Dagster's automation, while the job writes")
        while job.running:
            dagster.observe()
            if not heal_once(context, dagster, healing, _step(console)):
                time.sleep(_POLL_SECONDS)
        at_end_of_job = {table: state_of(context, table_id(table.name)) for table in TABLES}
        report.heading(console, "Healing", "the work that remained at the end of the job")
        for _ in range(MAX_TICKS):
            dagster.observe()
            healing.settled = not heal_once(context, dagster, healing, _step(console))
            if healing.settled:
                break
    finally:
        dagster.close()
    return at_end_of_job


def _step(console: Console) -> Callable[..., None]:
    def step(tick: int, request: Any, success: bool, records: tuple[Record, ...]) -> None:
        report.run(console, tick, request, records, success=success)

    return step


def _judge(
    context: Context, stream: Stream, at_end_of_job: dict[FlinkTable, DemoState]
) -> tuple[FlinkResult, ...]:
    reader = DuckDBReader()
    verdicts = []
    for table, ended in at_end_of_job.items():
        after = state_of(context, table_id(table.name))
        state = context.catalogs[CATALOG].pin(table_id(table.name))
        verdicts.append(judge(table, stream, ended, after, state, reader))
    reader.close()
    return tuple(verdicts)


def _written(context: Context) -> bool:
    catalog = context.catalogs[CATALOG]
    tables = {table_id(table.name) for table in TABLES}
    return tables <= set(catalog.tables()) and all(catalog.pin(t).snapshot is not None for t in tables)


def _wait(done: Callable[[], bool], at_most_seconds: float) -> None:
    until = time.monotonic() + at_most_seconds
    while not done() and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
