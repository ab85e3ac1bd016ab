from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from iceberg_maint.demo.duckdb_reader import Comparison, DuckDBReader
from iceberg_maint_tests.demo.conftest import SmallLake

pytestmark = pytest.mark.slow

ROWS = pa.table({"id": [1, 1, 2, 3], "v": ["a", "a", None, "c"], "x": [0.5, 0.5, None, 2.0]})


@pytest.fixture
def reader() -> Iterator[DuckDBReader]:
    reader = DuckDBReader()
    yield reader
    reader.close()


def compare(lake: SmallLake, reader: DuckDBReader, tmp_path: Path, after: pa.Table) -> Comparison:
    """A table of ROWS, copied, then overwritten with `after`, compared."""
    table = lake.writers.catalog.create_table(("demo", "t"), ROWS.schema)
    table.append(ROWS)
    assert reader.copy(table.metadata_location, tmp_path / "t.parquet") == 4
    table.overwrite(after)
    return reader.compare(tmp_path / "t.parquet", table.metadata_location)


def test_same_rows_in_another_order_and_in_other_files_are_equal(
    small_lake: SmallLake, reader: DuckDBReader, tmp_path: Path
) -> None:
    found = compare(small_lake, reader, tmp_path, ROWS.take([3, 0, 2, 1]))
    assert found == Comparison(4, 4, 0, 0)
    assert found.equal


@pytest.mark.parametrize(
    ("indices", "missing", "unexpected"),
    [
        ([0, 1, 2], 1, 0),  # a row lost
        ([0, 1, 2, 3, 3], 0, 1),  # a row twice
        ([0, 2, 2, 3], 1, 1),  # same number of rows, another multiset
    ],
)
def test_lost_or_repeated_row_is_found(
    small_lake: SmallLake,
    reader: DuckDBReader,
    tmp_path: Path,
    indices: list[int],
    missing: int,
    unexpected: int,
) -> None:
    found = compare(small_lake, reader, tmp_path, ROWS.take(indices))
    assert (found.missing, found.unexpected) == (missing, unexpected)
    assert not found.equal


@pytest.mark.parametrize(("column", "value"), [("v", ""), ("x", 0.0)])
def test_null_that_became_a_value_is_found(
    small_lake: SmallLake, reader: DuckDBReader, tmp_path: Path, column: str, value: object
) -> None:
    rows = ROWS.to_pylist()
    rows[2][column] = value
    found = compare(small_lake, reader, tmp_path, pa.Table.from_pylist(rows, ROWS.schema))
    assert (found.missing, found.unexpected) == (1, 1)
