"""The demo's tables: the real writers of each, and its problem.

PyIceberg is the streaming writer. Spark updates rows. Iceberg's Java writers are the change data capture.
No writer knows the maintainer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform, MonthTransform, Transform, YearTransform

from iceberg_maint.demo import duckdb_reader
from iceberg_maint.demo.equality_deletes import append_upserts
from iceberg_maint.demo.workspace import CATALOG, NAMESPACE, Place

CONTROL = "control"
SNAPSHOTS_KEPT = 25
"""The streaming writer expires its snapshots every so many commits. It removes no file."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Amount of data: days of the stream, batches per table, size of TPC-H."""

    days: int = 365
    weather_batches: int = 60
    weather_days: int = 60
    updates: int = 4
    update_rows: int = 24_951
    lineitem: float = 0.05
    lineitem_batches: int = 8
    upserts: int = 3
    cdc_rows: int = 5_000


SMALL = Scale(
    days=6,
    weather_batches=7,
    weather_days=31,
    updates=4,
    update_rows=600,
    lineitem=0.001,
    lineitem_batches=5,
    upserts=3,
    cdc_rows=500,
)
"""Every kind of table, few rows."""


@dataclass(frozen=True, slots=True)
class Writers:
    """The writers' connections: PyIceberg's catalog, and a Spark session that starts at its first use.
    `add_orphans` adds the files of a killed job to a table's folder."""

    catalog: Catalog
    session: Callable[[], Any]
    place: Place
    scale: Scale
    add_orphans: Callable[[Table], None]


@dataclass(frozen=True, slots=True)
class DemoTable:
    """One table of the demo. `problem` describes what is wrong with it, `build` writes it."""

    name: str
    problem: str
    build: Callable[[Writers], None]

    @property
    def full_name(self) -> str:
        """`catalog.namespace.table`."""
        return f"{CATALOG}.{NAMESPACE}.{self.name}"


def build_flights_by_month(writers: Writers) -> None:
    """A year of flights, appended day by day to a table partitioned by month."""
    days = list(duckdb_reader.days(duckdb_reader.flights()))[: writers.scale.days]
    table = _create(writers, "flights_by_month", days[0].schema, {"time_hour": MonthTransform()})
    for number, day in enumerate(days, start=1):
        table.append(day)
        if number % SNAPSHOTS_KEPT == 0:
            # PyIceberg copies the whole metadata some twenty times per commit.
            table.maintenance.expire_snapshots().older_than(datetime.now(UTC)).commit()


def build_flights_updates_v2(writers: Writers) -> None:
    """Corrected flights in format version 2: updates leave position delete files."""
    _update_flights(writers, "flights_updates_v2", format_version=2)


def build_flights_updates_v3(writers: Writers) -> None:
    """Corrected flights in format version 3: updates leave deletion vectors."""
    _update_flights(writers, "flights_updates_v3", format_version=3)


def build_weather(writers: Writers) -> None:
    """Weather reports in many small appends to a table without partitions."""
    rows = duckdb_reader.weather()
    table = _create(writers, "weather", rows.schema, {})
    for batch in duckdb_reader.slices(rows, writers.scale.weather_batches):
        table.append(batch)


def build_weather_by_day(writers: Writers) -> None:
    """Weather reports by day, one commit and one file of the right size per day.

    Every commit adds a snapshot and a manifest, and a job that was killed a month ago has left files.
    """
    days = list(duckdb_reader.days(duckdb_reader.weather()))[: writers.scale.weather_days]
    by_day = {"month": IdentityTransform[Any](), "day": IdentityTransform[Any]()}
    table = _create(writers, "weather_by_day", days[0].schema, by_day)
    for day in days:
        table.append(day)
    writers.add_orphans(table)


def build_lineitem(writers: Writers) -> None:
    """TPC-H lineitem: half of the appends by year of shipment, then the partition spec changes
    and the rest comes by year and bucket of the order."""
    rows = duckdb_reader.lineitem(writers.scale.lineitem, writers.place.sources)
    batches = list(duckdb_reader.slices(rows, 2 * writers.scale.lineitem_batches))
    table = _create(writers, "lineitem", rows.schema, {"l_shipdate": YearTransform()})
    for batch in batches[: writers.scale.lineitem_batches]:
        table.append(batch)
    with table.update_spec() as update:
        update.add_field("l_orderkey", BucketTransform(2))
    for batch in batches[writers.scale.lineitem_batches :]:
        table.append(batch)


def build_control(writers: Writers) -> None:
    """Planes by number of engines, one file each. The table is healthy and must not change."""
    rows = duckdb_reader.planes()
    _create(writers, CONTROL, rows.schema, {"engines": IdentityTransform()}).append(rows)


def build_cdc_planes(writers: Writers) -> None:
    """Planes with captured changes: each commit deletes rows by key and inserts them with new values."""
    rows = _with_ints(duckdb_reader.planes().select(["tailnum", "manufacturer", "model", "seats"]))
    _create(writers, "cdc_planes", rows.schema, {}).append(rows)
    changes = (rows.slice(number * 40, 50) for number in range(writers.scale.upserts))
    _upsert(writers, "cdc_planes", ("tailnum",), "seats", changes)


def build_cdc_flights_v3(writers: Writers) -> None:
    """The first flights of January in format version 3. The key of the changes has four columns."""
    columns = ["day", "carrier", "flight", "origin", "tailnum", "dest", "arr_delay", "air_time"]
    rows = _with_ints(duckdb_reader.flights().slice(0, writers.scale.cdc_rows).select(columns))
    _load(writers, "cdc_flights_v3", rows, format_version=3)
    size = rows.num_rows // 10
    changes = (rows.slice(number * size // 2, size) for number in range(writers.scale.upserts))
    _upsert(writers, "cdc_flights_v3", ("day", "carrier", "flight", "origin"), "air_time", changes)


def build_cdc_weather(writers: Writers) -> None:
    """Weather by airport. The key of the changes has four columns; deletes are in the airport's partition.

    The changes add so many small files that a rewrite is due. In the two tables above it is not due.
    """
    columns = ["origin", "month", "day", "hour", "temp", "wind_dir", "precip"]
    rows = _with_ints(duckdb_reader.weather().select(columns))
    _load(writers, "cdc_weather", rows, partitioned_by="origin")
    # July has no hour twice.
    hours = rows.filter(pc.and_(pc.equal(rows["month"], 7), pc.is_valid(rows["wind_dir"])))
    count = 2 * writers.scale.upserts
    changes = (hours.filter(pc.equal(hours["day"], number + 1)) for number in range(count))
    _upsert(writers, "cdc_weather", ("origin", "month", "day", "hour"), "wind_dir", changes)


TABLES: tuple[DemoTable, ...] = (
    DemoTable("flights_by_month", "hundreds of small files from a stream", build_flights_by_month),
    DemoTable("flights_updates_v2", "position deletes of updates (format v2)", build_flights_updates_v2),
    DemoTable("flights_updates_v3", "deletion vectors of updates (format v3)", build_flights_updates_v3),
    DemoTable("weather", "small files, no partitions", build_weather),
    DemoTable("weather_by_day", "snapshots, manifests, orphan files", build_weather_by_day),
    DemoTable("lineitem", "small files in two partition specs", build_lineitem),
    DemoTable(CONTROL, "none: must not change", build_control),
    DemoTable("cdc_planes", "equality deletes", build_cdc_planes),
    DemoTable("cdc_flights_v3", "equality deletes of a composite key (v3)", build_cdc_flights_v3),
    DemoTable("cdc_weather", "equality deletes in partitions", build_cdc_weather),
)


def _create(
    writers: Writers, name: str, schema: pa.Schema, partition: Mapping[str, Transform[Any, Any]]
) -> Table:
    """Creates a table with partitions by these columns."""
    numbered = pa.schema(
        [f.with_metadata({"PARQUET:field_id": str(i)}) for i, f in enumerate(schema, start=1)]
    )
    iceberg = pyarrow_to_schema(numbered)
    fields = [
        PartitionField(
            iceberg.find_field(column).field_id, 1000 + i, transform, _field_name(column, transform)
        )
        for i, (column, transform) in enumerate(partition.items())
    ]
    return writers.catalog.create_table((NAMESPACE, name), iceberg, partition_spec=PartitionSpec(*fields))


def _with_ints(rows: pa.Table) -> pa.Table:
    """The rows with 32-bit integers, the only integers that `append_upserts` accepts."""
    ints = [f.with_type(pa.int32()) if f.type == pa.int64() else f for f in rows.schema]
    return rows.cast(pa.schema(ints))


def _upsert(
    writers: Writers, name: str, key: Sequence[str], column: str, changes: Iterable[pa.Table]
) -> None:
    """Commits these changes one after the other, with higher values of `column` each time."""
    for number, changed in enumerate(changes, start=1):
        rows = changed.to_pylist()
        for row in rows:
            row[column] = None if row[column] is None else row[column] + number
        append_upserts(writers.session(), f"{CATALOG}.{NAMESPACE}.{name}", key, rows)


def _load(
    writers: Writers, name: str, rows: pa.Table, *, format_version: int = 2, partitioned_by: str = ""
) -> None:
    """Creates a table with these rows with Spark, one file per partition."""
    spark, full_name = writers.session(), f"{CATALOG}.{NAMESPACE}.{name}"
    source = writers.place.sources / f"{name}.parquet"
    pyarrow.parquet.write_table(rows, source)
    by = f"PARTITIONED BY ({partitioned_by}) " if partitioned_by else ""
    spark.sql(
        f"CREATE TABLE {full_name} USING iceberg {by}TBLPROPERTIES ('format-version'='{format_version}') "
        f"AS SELECT /*+ COALESCE(1) */ * FROM parquet.`{source}`"
    )


def _field_name(column: str, transform: Transform[Any, Any]) -> str:
    return column if isinstance(transform, IdentityTransform) else f"{column}_{transform}"


def _update_flights(writers: Writers, name: str, format_version: int) -> None:
    """Loads one month in three commits, corrects some days per commit, then deletes the cancelled flights."""
    spark, scale = writers.session(), writers.scale
    full_name = f"{CATALOG}.{NAMESPACE}.{name}"
    flights = duckdb_reader.flights()
    month = flights.filter(pc.equal(flights["month"], 2)).slice(0, scale.update_rows)
    source = writers.place.sources / f"{name}.parquet"
    spark.sql(
        f"CREATE TABLE {full_name} (year bigint, month bigint, day bigint, carrier string, flight bigint, "
        "tailnum string, origin string, dest string, dep_delay bigint, arr_delay bigint, air_time bigint, "
        "time_hour timestamp) USING iceberg PARTITIONED BY (origin) TBLPROPERTIES ("
        f"'format-version'='{format_version}', 'write.delete.mode'='merge-on-read', "
        "'write.update.mode'='merge-on-read')"
    )
    for batch in duckdb_reader.slices(month, 3):
        pyarrow.parquet.write_table(batch, source)
        spark.sql(
            f"INSERT INTO {full_name} SELECT year, month, day, carrier, flight, tailnum, origin, dest, "
            f"dep_delay, arr_delay, air_time, time_hour FROM parquet.`{source}`"
        )
    for number in range(scale.updates):
        first = 1 + 5 * number
        spark.sql(
            f"UPDATE {full_name} SET arr_delay = arr_delay + 1 WHERE day >= {first} AND day < {first + 5}"
        )
    spark.sql(f"DELETE FROM {full_name} WHERE arr_delay IS NULL")
