"""SIGKILL between and inside batches: the next run finishes, and no batch is done twice.

Two runs are killed, each at its point and on its own table; one run of the program then heals both. `qualification/kill/` kills runs
at every other point.
"""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
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

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.together("programs"),
    pytest.mark.long(280),
    pytest.mark.drawn(1),
]

POINTS = ("after_swap", "files_written")
FILES_PER_PARTITION = 6
LAST_BREATH_SECONDS = 8
"""How much of its lease the dead run of the first table still has when the program starts."""


@dataclass(frozen=True, slots=True)
class Healed:
    """What was there before, between and after."""

    folder: Path
    config: Path
    rows_before: dict[str, Counter[tuple[object, ...]]]
    commits_of_killed: dict[str, Counter[str]]
    lease_expires_ms: int
    again: subprocess.CompletedProcess[str]

    def operation(self, point: str) -> Any:
        """What the second run says it did to the table of this point."""
        tables = {t["table"]: t for t in json.loads(self.again.stdout)["tables"]}
        operations = {o["operation"]: o for o in tables[f"lake.db.{point}"]["operations"]}
        return operations["rewrite_data_files"]


@pytest.fixture(scope="module")
def healed(tmp_path_factory: pytest.TempPathFactory) -> Healed:
    folder = tmp_path_factory.mktemp("resume")
    config = make_lake(folder)
    before, killed = {}, {}
    for point in POINTS:
        make_table(folder, f"db.{point}", FILES_PER_PARTITION)
        before[point] = rows_by_duckdb(folder, f"db.{point}")
        child = [sys.executable, "-m", "iceberg_maint_tests.support.e2e.killed_run"]
        ended = subprocess.run(
            [*child, str(config), f"db.{point}", point, f"killed-{point}"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]
        killed[point] = commits(folder, point)
    expires_ms = shorten_leases(folder)
    return Healed(folder, config, before, killed, expires_ms, iceberg_maint(["run", "--json"], config))


def commits(folder: Path, point: str) -> Counter[str]:
    """How many retained snapshots carry each batch."""
    snapshots = catalog_of(folder).load_table(f"db.{point}").snapshots()
    summaries = [s.summary.additional_properties for s in snapshots if s.summary is not None]
    return Counter(s[BATCH_PROPERTY] for s in summaries if BATCH_PROPERTY in s)


def shorten_leases(folder: Path) -> int:
    """As if the runs had died earlier: all leases are over, but that of the table that comes first
    in the next run, which must wait for it. Returns when that one ends.
    """
    expires_ms = time.time_ns() // 1_000_000 + LAST_BREATH_SECONDS * 1000
    with sqlite3.connect(folder / "ledger.db") as ledger:
        ledger.execute("update icm_lease set expires_ms = 0")
        first = "update icm_lease set expires_ms = ? where table_name = ?"
        assert ledger.execute(first, [expires_ms, f"lake.db.{min(POINTS)}"]).rowcount == 1
    return expires_ms


@pytest.mark.parametrize("point", POINTS)
def test_run_killed_then_run_again_finishes_and_repeats_no_batch(healed: Healed, point: str) -> None:
    by_killed = healed.commits_of_killed[point]
    assert sum(by_killed.values()) == (2 if point == "after_swap" else 1)
    assert healed.again.returncode == 0, healed.again.stderr[-2000:]
    operation = healed.operation(point)
    assert operation["outcome"] == "IMPROVED"
    after = commits(healed.folder, point)
    assert len(after) == PARTITIONS
    assert set(after.values()) == {1}
    assert {b["batch_id"] for b in operation["batches"]} & set(by_killed) == set()
    assert rows_by_duckdb(healed.folder, f"db.{point}") == healed.rows_before[point]
    table = catalog_of(healed.folder).load_table(f"db.{point}")
    files = Counter(t.file.partition[0] for t in table.scan().plan_files())
    assert files == dict.fromkeys(range(PARTITIONS), 1)


def test_run_waits_for_the_lease_of_a_dead_run_by_itself(healed: Healed) -> None:
    with sqlite3.connect(healed.folder / "ledger.db") as ledger:
        (started_ms,) = ledger.execute(
            "select min(started_ms) from icm_attempt join icm_batch using (batch_id) "
            "where icm_attempt.run_id like 'cli-%' and body like ?",
            [f"%lake.db.{min(POINTS)}%"],
        ).fetchone()
    assert started_ms >= healed.lease_expires_ms


def test_run_says_on_stderr_nothing_but_what_it_has_to_say(healed: Healed) -> None:
    waits = re.compile(
        r"lake\.db\.\w+: waits for run killed-\w+, whose lease ends at [\d:]{8} UTC unless it still works\."
    )
    assert [line for line in healed.again.stderr.splitlines() if not waits.fullmatch(line)] == []


def test_verify_proves_what_a_killed_run_had_committed(healed: Healed) -> None:
    """The batch whose run died after the swap, before anybody took note."""
    found = iceberg_maint(["verify", "db.after_swap", "--json"], healed.config)
    assert found.returncode == 0, found.stderr[-2000:]
    document = json.loads(found.stdout)
    assert (document["status"], document["stored"]) == ("PROVED", "EQUAL")
    assert document["before"]["rows"] == document["after"]["rows"] == FILES_PER_PARTITION


def test_history_shows_every_killed_run_and_of_every_commit_once(healed: Healed) -> None:
    found = iceberg_maint(["history", "--json"], healed.config)
    records = json.loads(found.stdout)["records"]
    killed = {r["run_id"]: r for r in records if r["run_id"].startswith("killed-")}
    assert set(killed) == {f"killed-{point}" for point in POINTS}
    for point in POINTS:
        record = killed[f"killed-{point}"]
        assert record["message"] == "the run ended without a record"
        committed = Counter(b["batch_id"] for b in record["batches"] if b["outcome"] == "IMPROVED")
        assert committed == healed.commits_of_killed[point]
        told = [b for r in records if r["table"] == record["table"] for b in r["batches"]]
        assert Counter(b["batch_id"] for b in told if b["snapshot_after"]) == commits(healed.folder, point)
