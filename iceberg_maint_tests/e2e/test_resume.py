"""SIGKILL after the swap of a batch: the next run finishes, and no batch is done twice. `qualification/kill/` kills runs at every point."""

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
]

TABLE = "db.after_swap"
FILES_PER_PARTITION = 6
LAST_BREATH_SECONDS = 5
"""How much of its lease the dead run still has when the program starts."""


@dataclass(frozen=True, slots=True)
class Healed:
    """What was there before, between and after."""

    folder: Path
    config: Path
    rows_before: Counter[tuple[object, ...]]
    commits_of_killed: Counter[str]
    lease_expires_ms: int
    again: subprocess.CompletedProcess[str]

    def operation(self) -> Any:
        """What the second run says it did to the table."""
        [table] = json.loads(self.again.stdout)["tables"]
        operations = {o["operation"]: o for o in table["operations"]}
        return operations["rewrite_data_files"]


@pytest.fixture(scope="module")
def healed(tmp_path_factory: pytest.TempPathFactory) -> Healed:
    folder = tmp_path_factory.mktemp("resume")
    config = make_lake(folder)
    make_table(folder, TABLE, FILES_PER_PARTITION)
    before = rows_by_duckdb(folder, TABLE)
    child = [sys.executable, "-m", "iceberg_maint_tests.support.e2e.killed_run"]
    ended = subprocess.run(
        [*child, str(config), TABLE, "after_swap", "killed"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]
    killed = commits(folder)
    expires_ms = shorten_lease(folder)
    return Healed(folder, config, before, killed, expires_ms, iceberg_maint(["run", "--json"], config))


def commits(folder: Path) -> Counter[str]:
    """How many retained snapshots carry each batch."""
    snapshots = catalog_of(folder).load_table(TABLE).snapshots()
    summaries = [s.summary.additional_properties for s in snapshots if s.summary is not None]
    return Counter(s[BATCH_PROPERTY] for s in summaries if BATCH_PROPERTY in s)


def shorten_lease(folder: Path) -> int:
    """As if the run had died earlier: the next run must wait a little. Returns when the lease ends."""
    expires_ms = time.time_ns() // 1_000_000 + LAST_BREATH_SECONDS * 1000
    with sqlite3.connect(folder / "ledger.db") as ledger:
        assert ledger.execute("update icm_lease set expires_ms = ?", [expires_ms]).rowcount == 1
    return expires_ms


def test_run_killed_then_run_again_finishes_and_repeats_no_batch(healed: Healed) -> None:
    by_killed = healed.commits_of_killed
    assert sum(by_killed.values()) == 2
    assert healed.again.returncode == 0, healed.again.stderr[-2000:]
    operation = healed.operation()
    assert operation["outcome"] == "IMPROVED"
    after = commits(healed.folder)
    assert len(after) == PARTITIONS
    assert set(after.values()) == {1}
    assert {b["batch_id"] for b in operation["batches"]} & set(by_killed) == set()
    assert rows_by_duckdb(healed.folder, TABLE) == healed.rows_before
    table = catalog_of(healed.folder).load_table(TABLE)
    files = Counter(t.file.partition[0] for t in table.scan().plan_files())
    assert files == dict.fromkeys(range(PARTITIONS), 1)


def test_run_waits_for_the_lease_of_a_dead_run_by_itself(healed: Healed) -> None:
    with sqlite3.connect(healed.folder / "ledger.db") as ledger:
        (started_ms,) = ledger.execute(
            "select min(started_ms) from icm_attempt join icm_batch using (batch_id) "
            "where icm_attempt.run_id like 'cli-%' and body like ?",
            [f"%lake.{TABLE}%"],
        ).fetchone()
    assert started_ms >= healed.lease_expires_ms


def test_run_says_on_stderr_nothing_but_what_it_has_to_say(healed: Healed) -> None:
    waits = re.compile(
        r"lake\.db\.after_swap: waits for run killed, whose lease ends at [\d:]{8} UTC unless it still works\."
    )
    assert [line for line in healed.again.stderr.splitlines() if not waits.fullmatch(line)] == []


@pytest.mark.variant  # spark/test_verify.py has it without a kill
def test_attest_proves_what_a_killed_run_had_committed(healed: Healed) -> None:
    """The batch whose run died after the swap, before anybody took note."""
    found = iceberg_maint(["attest", TABLE, "--json"], healed.config)
    assert found.returncode == 0, found.stderr[-2000:]
    document = json.loads(found.stdout)
    assert {(c["status"], c["stored"]) for c in document["commits"]} == {("ATTESTED", "EQUAL")}
    rows = {c[side]["rows"] for c in document["commits"] for side in ("before", "after")}
    assert rows == {FILES_PER_PARTITION}


def test_history_shows_the_killed_run_and_of_every_commit_once(healed: Healed) -> None:
    found = iceberg_maint(["history", "--json"], healed.config)
    records = json.loads(found.stdout)["records"]
    [record] = [r for r in records if r["run_id"] == "killed"]
    assert record["message"] == "the run ended without a record"
    committed = Counter(b["batch_id"] for b in record["batches"] if b["outcome"] == "IMPROVED")
    assert committed == healed.commits_of_killed
    told = [b for r in records for b in r["batches"]]
    assert Counter(b["batch_id"] for b in told if b["snapshot_after"]) == commits(healed.folder)
