"""SIGKILL between and inside batches: the next run finishes, and no batch is done twice."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from iceberg_maint.core.state import BATCH_PROPERTY
from iceberg_maint_tests.e2e.killed_run import POINTS
from iceberg_maint_tests.e2e.lake import CONFIG, rows_by_duckdb

pytestmark = pytest.mark.spark
PARTITIONS = 4
FILES_PER_PARTITION = 6


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake whose table has four sick partitions; every batch takes one of them."""
    (tmp_path / "config.yaml").write_text(CONFIG.format(dir=tmp_path))
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/wh")
    catalog.create_namespace("db")
    schema = pa.schema([("p", pa.int64()), ("v", pa.string())])
    table = catalog.create_table("db.t", schema)
    with table.update_spec() as update:
        update.add_identity("p")
    for i in range(FILES_PER_PARTITION):
        values = [f"{i}-{p}" for p in range(PARTITIONS)]
        table.append(pa.table({"p": list(range(PARTITIONS)), "v": values}, schema=schema))
    return tmp_path


@pytest.mark.parametrize("point", POINTS)
def test_run_killed_then_run_again_finishes_and_repeats_no_batch(lake: Path, point: str) -> None:
    before = rows_by_duckdb(lake, "db.t")
    child = [sys.executable, "-m", "iceberg_maint_tests.e2e.killed_run"]
    killed = subprocess.run(
        [*child, str(lake / "config.yaml"), "db.t", point, "first"], capture_output=True, text=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    done_by_first = _commits(lake)
    assert sum(done_by_first.values()) == (2 if point == "after_swap" else 1)
    _let_the_dead_lease_expire(lake)

    again = subprocess.run(
        [sys.executable, "-m", "iceberg_maint.cli", "run", "--config", str(lake / "config.yaml"), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 0, again.stderr[-2000:]
    (operation,) = json.loads(again.stdout)["tables"][0]["operations"]
    assert operation["outcome"] == "IMPROVED"
    commits = _commits(lake)
    assert set(commits.values()) == {1}
    assert len(commits) == PARTITIONS
    redone = {b["batch_id"] for b in operation["batches"]} & set(done_by_first)
    assert redone == set()
    assert rows_by_duckdb(lake, "db.t") == before
    table = SqlCatalog("lake", uri=f"sqlite:///{lake}/catalog.db").load_table("db.t")
    files = Counter(t.file.partition[0] for t in table.scan().plan_files())
    assert files == dict.fromkeys(range(PARTITIONS), 1)


def _commits(lake: Path) -> Counter[str]:
    """How many retained snapshots carry each batch."""
    table = SqlCatalog("lake", uri=f"sqlite:///{lake}/catalog.db").load_table("db.t")
    summaries = [s.summary for s in table.snapshots() if s.summary is not None]
    return Counter(s[BATCH_PROPERTY] for s in summaries if BATCH_PROPERTY in s.additional_properties)


def _let_the_dead_lease_expire(lake: Path) -> None:
    with sqlite3.connect(lake / "ledger.db") as ledger:
        ledger.execute("update icm_lease set expires_ms = 0")
