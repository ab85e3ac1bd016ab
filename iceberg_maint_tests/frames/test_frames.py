"""Frames of a ledger that this program wrote, and the example of their page."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from iceberg_maint.core.model.ids import PartitionKey, TableId
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.planning.batch_memory import MemoryUse
from iceberg_maint.errors import ConfigurationError
from iceberg_maint.integrations import frames
from iceberg_maint.ledger.ledger import sql_ledger
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint_tests.support.fakes.ledger import memory_ledger
from iceberg_maint_tests.support.ledger.values import (
    NAME,
    OTHER_UUID,
    UUID,
    make_batch,
    make_record,
    measured,
    outcome_of,
)

pytestmark = pytest.mark.seconds

PROJECT = Path(__file__).resolve().parents[2]
HOW_TO = PROJECT / "docs" / "how-to" / "frames.md"
NOTEBOOK = HOW_TO.with_suffix(".ipynb")
FRAMES: dict[str, Callable[[Ledger], pd.DataFrame]] = {
    "health": frames.health,
    "batches": frames.batches,
    "records": frames.records,
    "fleet": frames.fleet,
}
OTHER = TableId.parse("lake.db.clicks")
FAILED = replace(
    outcome_of(make_batch("day=2"), OutcomeStatus.FAILED, snapshot_after=None),
    proof=None,
    memory=MemoryUse(4_000_000_000, 5_000_000_000, 8, 1),
    wasted_bytes=3_000_000_000,
    message="out of memory",
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration file beside a ledger of two tables and three records."""
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    ledger = sql_ledger(url)
    ledger.health.put(measured("day=1", "day=2"))
    ledger.health.put(measured("day=1", table_uuid=OTHER_UUID, table=OTHER))
    ledger.records.append(make_record("r1"))
    ledger.records.append(make_record("r2", OTHER, OTHER_UUID))
    third = make_record("r3")
    ledger.records.append(
        replace(third, outcome=replace(third.outcome, batches=(*third.outcome.batches, FAILED)))
    )
    ledger.close()
    file = tmp_path / "iceberg_maint.yaml"
    file.write_text(
        f"catalogs:\n  lake: {{type: jdbc, uri: 'sqlite:////nowhere/c.db', warehouse: 'file:///nowhere/w'}}\nledger: {url}\n"
    )
    return file


@pytest.mark.parametrize("name", FRAMES)
def test_frame_of_a_ledger_has_the_listed_columns_and_dtypes(config: Path, name: str) -> None:
    with frames.open(config) as ledger:
        frame = FRAMES[name](ledger)
    assert len(frame) > 0
    assert dict(frame.dtypes.map(str)) == {c.name: c.dtype for c in frames.COLUMNS[name]}


@pytest.mark.parametrize("name", FRAMES)
def test_frame_of_an_empty_ledger_has_the_same_columns_and_dtypes(name: str) -> None:
    frame = FRAMES[name](memory_ledger())
    assert len(frame) == 0
    assert dict(frame.dtypes.map(str)) == {c.name: c.dtype for c in frames.COLUMNS[name]}


@pytest.mark.parametrize("name", FRAMES)
def test_bytes_are_integers_and_times_have_a_zone(name: str) -> None:
    columns = frames.COLUMNS[name]
    sizes = {c.dtype for c in columns if c.name.endswith("bytes") and not c.name.startswith("average")}
    assert sizes <= {"int64", "Int64"}
    assert [c.name for c in columns if c.key.endswith("_ms") and c.dtype != "datetime64[ms, UTC]"] == []
    assert [c.name for c in columns if c.name.endswith("_ms")] == []


def test_health_has_a_row_per_partition_of_every_table(config: Path) -> None:
    with frames.open(config) as ledger:
        health = frames.health(ledger)
        stored = ledger.health.known_tables()
    keys = list(zip(health["table"], health["partition"], strict=True))
    assert keys == [(str(OTHER), "day=1"), (NAME, "day=1"), (NAME, "day=2")]
    row = health.set_index(["table", "partition"]).loc[(NAME, "day=2")]
    assert (row["table_uuid"], row["snapshot_id"], row["records"], row["spec_ids"]) == (UUID, 1, 1, (0, 1))
    assert row["last_change"] == pd.Timestamp(7, unit="ms", tz="UTC")
    assert pd.isna(row["oldest_equality_delete"])
    assert row["average_file_bytes"] == 100.0
    assert row["observed"] == pd.Timestamp(stored[1].observed_ms, unit="ms", tz="UTC")


def test_records_are_newest_first_and_filtered_by_table_and_limit(config: Path) -> None:
    with frames.open(config) as ledger:
        assert list(frames.records(ledger)["record_id"]) == ["r3", "r2", "r1"]
        assert list(frames.records(ledger, NAME)["record_id"]) == ["r3", "r1"]
        assert list(frames.records(ledger, limit=1)["record_id"]) == ["r3"]
        newest = frames.records(ledger).iloc[0]
        [stored] = ledger.records.newest(None, 1)
    assert (newest["outcome"], newest["batches"], newest["snapshot_after"]) == ("IMPROVED", 2, 2)
    assert newest["started"] == pd.Timestamp(stored.started_ms, unit="ms", tz="UTC")
    assert newest["versions"] == dict(stored.versions)


def test_batches_tell_what_is_missing_of_a_batch_that_failed(config: Path) -> None:
    with frames.open(config) as ledger:
        batches = frames.batches(ledger, NAME)
    assert list(batches["record_id"]) == ["r3", "r3", "r1"]
    done, failed = batches.iloc[0], batches.iloc[1]
    assert (done["partitions"], done["proof_level"], done["proof_equal"]) == (("day=1",), "full", True)
    assert (done["input_records"], done["output_records"], done["removed_records"]) == (10, 10, 0)
    assert done[["estimated_bytes", "peak_bytes"]].isna().all()
    assert (failed["outcome"], failed["message"]) == ("FAILED", "out of memory")
    assert failed[["snapshot_after", "proof_level", "proof_equal", "input_records"]].isna().all()
    assert (failed["peak_bytes"], failed["wasted_bytes"]) == (5_000_000_000, 3_000_000_000)


def test_fleet_has_a_row_per_table_with_the_sums_of_its_records(config: Path) -> None:
    with frames.open(config) as ledger:
        fleet = frames.fleet(ledger).set_index("table")
        assert frames.fleet(ledger, limit=1).set_index("table").loc[str(OTHER), "runs"] == 0
    assert sorted(fleet.index) == [str(OTHER), NAME]
    assert (fleet.loc[NAME, "runs"], fleet.loc[NAME, "batches"], fleet.loc[NAME, "files_removed"]) == (
        2,
        3,
        2,
    )
    assert fleet.loc[NAME, "wasted_bytes"] == 3_000_000_000


def test_example_of_the_page_runs_and_loads_no_spark_catalog_or_dagster(config: Path) -> None:
    [example] = re.findall(r"^```python\n(.*?)^```$", HOW_TO.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    loaded = "import sys\nprint(sorted({'pyspark', 'py4j', 'pyiceberg', 'dagster'} & set(sys.modules)))\n"
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", example + loaded],
        capture_output=True,
        text=True,
        check=True,
        cwd=config.parent,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    lines = run.stdout.splitlines()
    assert lines[0].split() == ["table", "partition", "small_files", "data_bytes", "last_change"]
    assert lines[1].split()[1:5] == ["day=1", "0", "300", "1970-01-01"]
    assert re.search(rf"^ +{re.escape(NAME)} +6 +3 +3000000000$", run.stdout, re.MULTILINE)
    assert lines[-1] == "[]"


def shown(cell: str) -> list[str]:
    """The statements of a cell. It prints the value of the last one, as a notebook shows it."""
    statements = ast.parse(cell).body
    last = statements[-1]
    if isinstance(last, ast.Expr):
        call = ast.Call(ast.Name("print"), [ast.Call(ast.Name("str"), [last.value], [])], [])
        statements[-1] = ast.Expr(call)
    return [ast.unparse(statement) for statement in statements]


def test_notebook_runs_from_its_first_cell_to_its_last(config: Path) -> None:
    cells = [
        "".join(c["source"])
        for c in json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
        if c["cell_type"] == "code"
    ]
    program = [part for cell in cells for part in shown(cell)]
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(program)],
        capture_output=True,
        text=True,
        check=True,
        cwd=config.parent,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "ICEBERG_MAINT_CONFIG": str(config)},
    )
    assert run.stdout.startswith("(3, 4, 3, 2)\n")
    assert re.search(rf"^{re.escape(NAME)} .* 0\.0$", run.stdout, re.MULTILINE)
    assert re.search(r"FAILED +6? *\d", run.stdout)


def test_reading_writes_nothing(config: Path) -> None:
    with frames.open(config) as ledger:
        frames.fleet(ledger)
        with pytest.raises(ConfigurationError, match="ICM-128"):
            ledger.registry.pause("*", "")
    with frames.open(config) as ledger:
        assert ledger.registry.pause_note(UUID, NAME) is None


def test_ledger_that_does_not_exist_is_refused_and_not_made(config: Path) -> None:
    (config.parent / "ledger.db").unlink()
    with frames.open(config) as ledger, pytest.raises(ConfigurationError, match=r"ICM-128 .*no such file"):
        frames.health(ledger)
    assert not (config.parent / "ledger.db").exists()


def test_time_beyond_every_calendar_is_missing_and_breaks_no_frame() -> None:
    """A writer may store nanoseconds where the specification has milliseconds."""
    ledger = memory_ledger()
    stored = measured("day=1")
    late = replace(stored.partitions[PartitionKey("day=1")], last_change_ms=1_800_000_000 * 10**9)
    ledger.health.put(replace(stored, partitions={PartitionKey("day=1"): late}))
    ledger.health.put(measured("day=1", table_uuid=OTHER_UUID, table=OTHER))
    frame = frames.health(ledger).set_index("table")
    assert frame["last_change"].dtype == "datetime64[ms, UTC]"
    assert pd.isna(frame["last_change"][NAME])
    assert len(frame) == 2
