from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

from bench.flink.stream import TABLES, Stream
from bench.flink.verdict import FlinkResult, History, history
from iceberg_maint.core.health.metrics import Measured, PartitionHealth, TableHealth
from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.model.reasons import Decision, Reason, Verdict
from iceberg_maint.core.model.table_state import TOKEN_PROPERTY
from iceberg_maint.demo.duckdb_reader import Comparison, DuckDBReader
from iceberg_maint.demo.heal import DemoState
from iceberg_maint.demo.workspace import table_id
from iceberg_maint_tests.demo.conftest import SmallLake

pytestmark = pytest.mark.slow

STREAM = Stream(rows=20, ids=25, rows_per_second=10)
GOOD = History(flink=9, maintenance=4, while_running=3, equality_deletes=9, wrong=())


@pytest.fixture
def reader() -> Iterator[DuckDBReader]:
    reader = DuckDBReader()
    yield reader
    reader.close()


def streamed(first: int, last: int) -> pa.Table:
    """The rows of numbers [first, last), each under a key of its own."""
    with duckdb.connect() as db:
        query = f"SELECT * FROM ({STREAM.expected_sql(last)}) WHERE v >= {first} ORDER BY v"
        return db.execute(query).to_arrow_table()


def appended(lake: SmallLake, commits: list[tuple[pa.Table, bool]]) -> list[int]:
    """A table of these commits, those of maintenance marked; the snapshots' ids."""
    table = lake.writers.catalog.create_table(("demo", "t"), commits[0][0].schema)
    for number, (rows, ours) in enumerate(commits):
        table.append(rows, snapshot_properties={TOKEN_PROPERTY: str(number)} if ours else {})
    return [s.snapshot_id for s in table.snapshots()]


def read(lake: SmallLake, reader: DuckDBReader) -> History:
    return history(STREAM, lake.context.catalogs["lake"].pin(table_id("t")), reader)


def test_commits_are_counted_by_who_made_them(small_lake: SmallLake, reader: DuckDBReader) -> None:
    nothing = streamed(0, 0)
    appended(
        small_lake,
        [(streamed(0, 7), False), (nothing, True), (streamed(7, 12), False), (nothing, True)],
    )
    found = read(small_lake, reader)
    assert (found.flink, found.maintenance, found.while_running, found.wrong) == (2, 2, 1, ())


def test_snapshot_with_a_row_that_was_not_streamed_is_wrong(
    small_lake: SmallLake, reader: DuckDBReader
) -> None:
    ids = appended(small_lake, [(streamed(0, 7), False), (streamed(8, 9), False), (streamed(7, 8), False)])
    assert read(small_lake, reader).wrong == (ids[1],)


def test_maintenance_that_changes_rows_is_wrong_even_where_the_stream_comes_to_them_later(
    small_lake: SmallLake, reader: DuckDBReader
) -> None:
    ids = appended(small_lake, [(streamed(0, 7), False), (streamed(7, 8), True)])
    assert read(small_lake, reader).wrong == (ids[1],)


def state(verdict: Verdict, equality_deletes: int) -> DemoState:
    table = TableId("lake", ("demo",), "t")
    health = PartitionHealth(data_files=1, equality_delete_files=equality_deletes)
    measured = Measured(table, "uuid", 1, 1, "file:///m.json", TableHealth(), {"__all__": health}, 1)
    return DemoState(measured, Decision(str(table), Operation.REWRITE_DATA_FILES, verdict, Reason.HEALTHY, 1))


CLEAN = state(Verdict.SKIP, 0)


def test_table_cleaned_beside_the_job_is_good() -> None:
    result = FlinkResult(TABLES[0], state(Verdict.RUN, 3), CLEAN, GOOD, Comparison(20, 20, 0, 0))
    assert (result.good, result.faults) == (True, ())


@pytest.mark.parametrize(
    ("after", "found", "rows", "fault"),
    [
        (CLEAN, GOOD, Comparison(20, 20, 1, 1), "not the rows of the stream"),
        (CLEAN, History(9, 4, 3, 9, (7, 8)), Comparison(20, 20, 0, 0), "of 2 snapshots are wrong"),
        (CLEAN, History(9, 4, 3, 0, ()), Comparison(20, 20, 0, 0), "the demo shows nothing"),
        (CLEAN, History(9, 4, 0, 9, ()), Comparison(20, 20, 0, 0), "while Flink wrote"),
        (state(Verdict.SKIP, 1), GOOD, Comparison(20, 20, 0, 0), "equality deletes remain"),
        (state(Verdict.DEFER, 0), GOOD, Comparison(20, 20, 0, 0), "maintenance is still due"),
    ],
)
def test_each_fault_is_named(after: DemoState, found: History, rows: Comparison, fault: str) -> None:
    result = FlinkResult(TABLES[0], CLEAN, after, found, rows)
    [said] = result.faults
    assert fault in said
    assert not result.good
