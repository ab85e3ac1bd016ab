"""A JVM or a worker that the system ends is a failure of the machine: nothing counts against the table, the next batch has
another one, and the next run finishes what was begun."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from iceberg_maint.core.model.table_state import BATCH_PROPERTY
from iceberg_maint_tests.support.e2e.lake import (
    PARTITIONS,
    catalog_of,
    iceberg_maint,
    make_lake,
    make_table,
    rows_by_duckdb,
)
from iceberg_maint_tests.support.e2e.sessions import ended, in_session

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.together("programs")]

DRAWN, OTHERS = ("task", "worker"), ("written", "session", "swapped")
POINTS = [*DRAWN, *(pytest.param(point, marks=pytest.mark.variant) for point in OTHERS)]
FILES = 6
_OPERATION = ("--operation", "rewrite_data_files")


@dataclass(frozen=True, slots=True)
class Killed:
    """What a run with a kill said, and the processes that it left. `histories` has the failures of its partitions, those of
    the environment last."""

    exit_code: int
    table: dict[str, Any]
    left: list[int]
    histories: list[tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class Lake:
    folder: Path
    rows: Counter[tuple[object, ...]]
    runs: dict[str, Killed]
    again: subprocess.CompletedProcess[str]

    def files(self, point: str) -> Counter[Any]:
        table = catalog_of(self.folder).load_table(f"db.{point}")
        return Counter(task.file.partition[0] for task in table.scan().plan_files())

    def commits(self, point: str) -> list[int]:
        """How often each batch is in the table."""
        snapshots = catalog_of(self.folder).load_table(f"db.{point}").snapshots()
        batches = [s.summary.additional_properties.get(BATCH_PROPERTY) for s in snapshots if s.summary]
        return sorted(Counter(filter(None, batches)).values())


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[str, ...]], Lake]:
    """The lake of some points, made once."""
    return cache(lambda points: make_killed(tmp_path_factory.mktemp("killed"), points))


@pytest.fixture
def lake(lakes: Callable[[tuple[str, ...]], Lake], point: str) -> Lake:
    return lakes(DRAWN if point in DRAWN else OTHERS)


def make_killed(folder: Path, points: tuple[str, ...]) -> Lake:
    """A table for each point, whose run is killed there, and then one run of all."""
    config = make_lake(folder, cores=1)
    # Declared memory lets workers do the tasks, small as they are.
    text = config.read_text("utf-8").replace("conf: {", "conf: {spark.executor.pyspark.memory: 2g, ")
    config.write_text(
        f"{text}tables:\n  lake.db.session: {{rewrite_data_files: {{strategy: native}}}}\n", "utf-8"
    )
    for point in points:
        make_table(folder, f"db.{point}", FILES)
    rows = rows_by_duckdb(folder, f"db.{points[0]}")
    runs = {point: run_killed(config, point) for point in points}
    return Lake(folder, rows, runs, iceberg_maint(["run", *_OPERATION], config))


def run_killed(config: Path, point: str) -> Killed:
    program = [sys.executable, "-m", "iceberg_maint_tests.support.e2e.killed_process", point]
    command = [*program, "run", f"db.{point}", *_OPERATION, "--json", "--config", str(config)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        out, err = process.communicate()
    assert out, err[-2000:]
    [table] = json.loads(out)["tables"]
    left = [] if ended(process.pid) else in_session(process.pid)
    with sqlite3.connect(config.parent / "ledger.db") as ledger:
        columns = "ineffective, crashes, environment_failures"
        histories = ledger.execute(f"select {columns} from icm_partition_history").fetchall()
        ledger.execute("delete from icm_partition_history")
    return Killed(process.returncode, table, left, histories)


@pytest.mark.parametrize("point", POINTS)
def test_process_that_is_killed_counts_against_no_partition_and_leaves_none(lake: Lake, point: str) -> None:
    run = lake.runs[point]
    [operation] = run.table["operations"]
    outcomes, codes = zip(*((b["outcome"], b["message"][:7]) for b in operation["batches"]), strict=True)
    assert (outcomes, codes) == {
        "session": (("FAILED", "IMPROVED", "IMPROVED"), ("ICM-175", "", "")),
        "swapped": (("IMPROVED",) * PARTITIONS, ("",) * PARTITIONS),
    }.get(point, (("FAILED",) * 2, ("ICM-175",) * 2))
    assert run.exit_code == int("FAILED" in outcomes)
    assert run.histories == [(0, 0, 1)] * outcomes.count("FAILED")
    assert run.left == []


@pytest.mark.parametrize("point", POINTS)
def test_next_run_finishes_every_partition_once(lake: Lake, point: str) -> None:
    assert lake.again.returncode == 0, lake.again.stderr[-2000:]
    assert lake.commits(point) == [1] * PARTITIONS
    assert lake.files(point) == dict.fromkeys(range(PARTITIONS), 1)
    assert rows_by_duckdb(lake.folder, f"db.{point}") == lake.rows


@pytest.mark.parametrize("point", ["worker"])
def test_process_that_is_killed_says_what_to_set(lake: Lake, point: str) -> None:
    [operation] = lake.runs[point].table["operations"]
    message = operation["batches"][0]["message"]
    assert "spark.executor.pyspark.memory" in message
    assert "spark.master" in message
