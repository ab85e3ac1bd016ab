"""The demo's second code location: the job that adds small files to the lake."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog, load_catalog

from iceberg_maint.config.load import load_config
from iceberg_maint.demo import duckdb_reader
from iceberg_maint.demo.workspace import CATALOG, NAMESPACE


def build_loader(name: str, load: Callable[[], Sequence[str]], cron: str, description: str) -> dg.Definitions:
    """A job of one op, and its schedule, which runs from the first load on. `load` returns sentences for the
    run's log."""

    @dg.op(name=f"{name}_load", description=description)
    def load_data(context: dg.OpExecutionContext) -> None:
        for line in load():
            context.log.info(line)

    @dg.job(name=name, executor_def=dg.in_process_executor, description=description)
    def load_job() -> None:
        load_data()

    schedule = dg.ScheduleDefinition(
        name=f"{name}_schedule",
        job=load_job,
        cron_schedule=cron,
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )
    return dg.Definitions(jobs=[load_job], schedules=[schedule])


APPENDS = 6
"""Appends per table and call: enough small files that a partition becomes due."""
_YEAR = timedelta(days=365)


def ingest(environ: Mapping[str, str]) -> list[str]:
    """Appends one day, with dates a year later, to the lake that $ICEBERG_MAINT_CONFIG names. Returns a
    sentence per table."""
    connection = load_config(None, environ).catalogs[CATALOG]
    catalog = load_catalog(CATALOG, **connection.pyiceberg_properties())
    return [
        _append(catalog, "flights_by_month", duckdb_reader.flights()),
        _append(catalog, "weather", duckdb_reader.weather()),
    ]


def _append(catalog: Catalog, name: str, rows: pa.Table) -> str:
    table = catalog.load_table((NAMESPACE, name))
    days = list(duckdb_reader.days(rows))
    snapshot = table.current_snapshot()
    # The sequence number chooses the day, so that the job needs no state.
    number = (snapshot.sequence_number or 0) if snapshot else 0
    day = _a_year_later(days[number % len(days)])
    for batch in duckdb_reader.slices(day, APPENDS):
        table.append(batch)
    return f"{CATALOG}.{NAMESPACE}.{name}: {day.num_rows} rows in {APPENDS} appends"


def _a_year_later(rows: pa.Table) -> pa.Table:
    return pa.Table.from_arrays(list(_shifted(rows)), schema=rows.schema)


def _shifted(rows: pa.Table) -> Iterator[pa.ChunkedArray]:
    for name in rows.column_names:
        column = rows[name]
        if name == "year":
            column = pc.add(column, 1)
        elif name == "time_hour":
            column = pc.add(column, pa.scalar(_YEAR, pa.duration("us")))
        yield column


CRON = "*/3 * * * *"

defs = build_loader(
    "demo_ingest",
    lambda: ingest(os.environ),
    CRON,
    "Appends another day of flights and weather in small files, so that maintenance becomes due.",
)
