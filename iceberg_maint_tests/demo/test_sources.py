from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from iceberg_maint.demo import duckdb_reader
from iceberg_maint.demo.main import open_lake
from iceberg_maint.errors import ConfigurationError

pytestmark = pytest.mark.slow


def test_flights_are_all_336776_of_365_days() -> None:
    flights = duckdb_reader.flights()
    assert flights.num_rows == 336_776
    days = list(duckdb_reader.days(flights))
    assert len(days) == 365
    assert sum(d.num_rows for d in days) == 336_776
    assert days[0]["month"].unique().to_pylist() == [1]
    assert days[-1]["day"].unique().to_pylist() == [31]


def test_na_is_null_and_departures_are_utc() -> None:
    flights = duckdb_reader.flights()
    assert flights["arr_delay"].null_count == 9430
    assert flights.schema.field("arr_delay").type == pa.int64()
    assert flights.schema.field("time_hour").type == pa.timestamp("us", tz="UTC")


def test_slices_cover_every_row_once_in_order() -> None:
    table = pa.table({"i": list(range(10))})
    parts = [t["i"].to_pylist() for t in duckdb_reader.slices(table, 3)]
    assert parts == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]


def test_lineitem_has_plain_strings_and_the_scale_asked_for(tmp_path: Path) -> None:
    table = duckdb_reader.lineitem(0.001, tmp_path)
    assert table.num_rows == 6005
    assert pa.string_view() not in table.schema.types


def test_lineitem_without_its_generator_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duckdb_reader.shutil, "which", lambda _name, path: None)
    with pytest.raises(ConfigurationError, match="tpchgen-cli"):
        duckdb_reader.lineitem(0.001, tmp_path)


def test_lake_without_a_package_of_the_demo_is_refused_before_its_folder_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duckdb_reader.shutil, "which", lambda _name, path: None)
    with pytest.raises(ConfigurationError, match="tpchgen-cli") as refusal:
        open_lake(tmp_path / "data", Console())
    assert refusal.value.fix.endswith("install iceberg-maint with its extra 'demo'.")
    assert list(tmp_path.iterdir()) == []
