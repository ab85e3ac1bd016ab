"""What earlier commits of the product stored, opened and finished by this one.

Each archive is a lake with half-done work; its JSON says what must be true. Names of the stored format are
literals here: a constant of the product that changes must not change the test with it.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from iceberg_maint_tests.stored.place import (
    ARCHIVES,
    CONFIG,
    HALF_DONE,
    PLACE,
    child,
    fingerprints,
    locked_place,
    policy_of,
    stored_of,
    unpack,
)
from iceberg_maint_tests.support.e2e.lake import catalog_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

BATCH, FENCE = "iceberg-maint.batch-id", "iceberg-maint.fence"
HOUR_MS = 3_600_000
DIED_BEFORE_MS = {"events": HOUR_MS, "tried": 24 * HOUR_MS}
"""How long ago the killed runs began. Files of the first are young enough to be adopted, those of the second
are not, whatever the age of the archive."""

HISTORY = ("history", "--limit", "1000")
BEFORE = {
    "history": HISTORY,
    "readers": ("readers", "list", "db.logs"),
    "trash": ("orphans", "list", "db.logs"),
    "report": ("report",),
    **{f"why {table}": ("why", f"db.{table}") for table in ("broken", "events", "paused")},
}
"""Calls of the program before the run, by the name of their document."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An archive that the program has opened, continued and verified."""

    expected: Any
    documents: dict[str, Any]
    fences: dict[str, int]
    rows: Any

    def operation(self, table: str, name: str = "rewrite_data_files") -> Any:
        """What the run says it did to a table."""
        [found] = [t for t in self.documents["run"]["tables"] if t["table"] == f"lake.db.{table}"]
        [operation] = [o for o in found["operations"] if o["operation"] == name]
        return operation


@pytest.fixture(scope="module", params=sorted(p.name for p in ARCHIVES.glob("*.tar.gz")))
def opened(request: pytest.FixtureRequest) -> Iterator[Opened]:
    archive = ARCHIVES / request.param
    expected = json.loads((ARCHIVES / request.param.replace(".tar.gz", ".json")).read_text("utf-8"))
    with locked_place():
        unpack(archive)
        _date_killed_runs()
        fences = {table: max(int(s[FENCE]) for s in summaries(table) if FENCE in s) for table in HALF_DONE}
        calls = {**BEFORE, "run": ("run",), **_after(expected["half_done"]["events"]["done"])}
        yield Opened(expected, _documents(calls), fences, fingerprints())


def _after(done: str) -> dict[str, tuple[str, ...]]:
    """What is asked after the run; `done` is the batch that the killed run had committed."""
    [snapshot] = [
        str(s.snapshot_id)
        for s in catalog_of(PLACE).load_table("db.events").snapshots()
        if s.summary and s.summary.additional_properties.get(BATCH) == done
    ]
    return {
        "history after": HISTORY,
        "reconcile": ("reconcile",),
        "verify": ("verify", "db.events", "--snapshot", snapshot),
        "restore": ("orphans", "restore", "db.logs"),
    }


def _documents(calls: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """What the program answers to each call."""
    ended = child("iceberg_maint_tests.stored.calls", str(PLACE / CONFIG), json.dumps(list(calls.values())))
    assert ended.returncode == 0, ended.stderr[-4000:]
    documents = {}
    for (name, arguments), (exit_code, stdout, stderr) in zip(
        calls.items(), json.loads(ended.stdout), strict=True
    ):
        # The archive has a partition in quarantine, which holds all due work of its table.
        assert exit_code == (1 if name == "run" else 0), (
            arguments,
            exit_code,
            stderr[-4000:],
            stdout[-2000:],
        )
        documents[name] = json.loads(stdout)
    return documents


def summaries(table: str) -> list[dict[str, str]]:
    snapshots = catalog_of(PLACE).load_table(f"db.{table}").snapshots()
    return [s.summary.additional_properties for s in snapshots if s.summary is not None]


def _date_killed_runs() -> None:
    now_ms = time.time_ns() // 1_000_000
    with closing(sqlite3.connect(PLACE / "ledger.db")) as ledger, ledger:
        for table, age_ms in DIED_BEFORE_MS.items():
            began = "update icm_attempt set started_ms = ? where run_id = ?"
            assert ledger.execute(began, [now_ms - age_ms, f"killed-{table}"]).rowcount == 2
        # As if the runs had died longer ago than their leases last, also right after the archive was made.
        ledger.execute("update icm_lease set expires_ms = 0")


def lost(old: Any, new: Any, path: str = "") -> list[str]:
    """Where a new document lacks what an old one has. New keys are no loss."""
    if isinstance(old, dict) and isinstance(new, dict):
        gone = [f"{path}.{key} is gone" for key in old if key not in new]
        return gone + [
            line for key in old if key in new for line in lost(old[key], new[key], f"{path}.{key}")
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            line for n, pair in enumerate(zip(old, new, strict=True)) for line in lost(*pair, f"{path}[{n}]")
        ]
    return [] if old == new else [f"{path} was {old!r}, is {new!r}"]


def test_there_is_an_archive() -> None:
    assert [p.name for p in ARCHIVES.glob("*.tar.gz")]


def test_old_configuration_has_its_values_and_sources(opened: Opened) -> None:
    policy = opened.expected["documents"]["policy"]
    assert lost(policy["events"], policy_of(opened.documents["why events"])) == []
    assert lost(policy["paused"], policy_of(opened.documents["why paused"])) == []
    sources = {source for _, source in (*policy["events"].values(), *policy["paused"].values())}
    assert len(sources) >= 5


def test_history_of_old_ledger_shows_its_records(opened: Opened) -> None:
    old = opened.expected["documents"]["history"]["records"]
    assert len(old) == 11
    assert lost(old, opened.documents["history"]["records"]) == []


def test_health_of_old_ledger_in_another_format_counts_as_not_measured(opened: Opened) -> None:
    assert {row["table"] for row in opened.expected["documents"]["report"]} == {
        "lake.db.broken",
        "lake.db.logs",
        "lake.db.paused",
        "lake.db.upserts",
    }
    assert opened.documents["report"]["tables"] == []


def test_back_off_and_quarantine_of_old_ledger_hold(opened: Opened) -> None:
    old = opened.expected["documents"]["why"]["broken"]
    assert lost(old, stored_of(opened.documents["why broken"])) == []
    assert [p["reason"] for p in old["partitions"]] == ["small_files", "back_off", "quarantined"]
    done = {p["partition"]: p["outcome"] for p in opened.operation("broken")["partitions"]}
    assert [key for key, outcome in done.items() if outcome == "IMPROVED"] == ["day=2026-01-03"]


def test_pause_of_old_ledger_holds(opened: Opened) -> None:
    old = opened.expected["documents"]["why"]["paused"]
    assert old["evidence"] == {"by": "operator", "note": "until the audit is over"}
    assert lost(old, stored_of(opened.documents["why paused"])) == []
    operation = opened.operation("paused")
    assert (operation["reason"], operation["batches"]) == ("paused", [])


def test_reader_of_old_ledger_is_shown(opened: Opened) -> None:
    assert lost(opened.expected["documents"]["readers"], opened.documents["readers"]) == []
    assert [r["reader"] for r in opened.documents["readers"]["readers"]] == ["billing"]


@pytest.mark.parametrize("table", HALF_DONE)
def test_half_done_run_of_old_commit_is_finished_and_done_batch_is_not_repeated(
    opened: Opened, table: str
) -> None:
    old, operation = opened.expected["half_done"][table], opened.operation(table)
    assert operation["outcome"] == "IMPROVED"
    batch_ids = [b["batch_id"] for b in operation["batches"]]
    assert (batch_ids == old["open"]) is old["resumed"]
    parts = sorted(b["partitions"] for b in operation["batches"])
    assert parts == sorted(old["partitions"][b] for b in old["open"])
    commits = Counter(s[BATCH] for s in summaries(table) if BATCH in s)
    assert commits == dict.fromkeys([old["done"], *batch_ids], 1)
    files = Counter(
        t.file.partition[0] for t in catalog_of(PLACE).load_table(f"db.{table}").scan().plan_files()
    )
    assert files == {"2026-01-01": 1, "2026-01-02": 1, "2026-01-03": 1}


def adopted_files(operation: dict[str, Any]) -> list[int]:
    """The number of adopted files of each batch."""
    return [batch["counts"].get("adopted_files", 0) for batch in operation["batches"]]


def test_files_of_young_old_attempt_are_adopted(opened: Opened) -> None:
    old, operation = opened.expected["half_done"]["events"], opened.operation("events")
    assert adopted_files(operation) == [int(old["resumed"]), 0]
    assert (set(old["written"]) <= _live_files("events")) is old["resumed"]


def test_files_of_aged_old_attempt_are_written_again(opened: Opened) -> None:
    old, operation = opened.expected["half_done"]["tried"], opened.operation("tried")
    assert adopted_files(operation) == [0, 0]
    assert not set(old["written"]) & _live_files("tried")
    assert all(Path(p.removeprefix("file:")).exists() for p in old["written"])


def test_open_attempts_of_old_ledger_are_settled(opened: Opened) -> None:
    assert opened.documents["reconcile"]["tables"] == []
    with closing(sqlite3.connect(PLACE / "ledger.db")) as ledger:
        statuses = dict(ledger.execute("select batch_id, status from icm_batch"))
    for old in opened.expected["half_done"].values():
        assert statuses[old["done"]] == "DONE"
        assert [statuses[b] for b in old["open"]] == ["DONE" if old["resumed"] else "SUPERSEDED"] * 2


def test_killed_runs_of_old_commit_come_on_record(opened: Opened) -> None:
    records = opened.documents["history after"]["records"]
    old = opened.expected["documents"]["history"]["records"]
    assert lost(old, records[-len(old) :]) == []
    killed = {r["table"]: r for r in records if r["run_id"].startswith("killed-")}
    assert set(killed) == {"lake.db.events", "lake.db.tried"}
    for table, half in opened.expected["half_done"].items():
        record = killed[f"lake.db.{table}"]
        assert record["message"] == "the run ended without a record"
        assert [b["batch_id"] for b in record["batches"] if b["outcome"] == "IMPROVED"] == [half["done"]]


@pytest.mark.parametrize("table", HALF_DONE)
def test_fences_go_on_from_old_snapshot_summaries(opened: Opened, table: str) -> None:
    """The configuration refuses a run beside foreign commits, so that the run shows these to be ours."""
    fences = [int(s[FENCE]) for s in summaries(table) if FENCE in s]
    assert len(fences) == 3
    assert min(fences) == opened.fences[table] < sorted(fences)[1]


def test_commit_of_old_summary_is_proved_by_its_stored_proof(opened: Opened) -> None:
    verified = opened.documents["verify"]
    assert verified["batch_id"] == opened.expected["half_done"]["events"]["done"]
    assert (verified["status"], verified["stored"]) == ("PROVED", "EQUAL")
    assert verified["before"]["rows"] == verified["after"]["rows"] == 20


def test_old_trash_is_listed_and_restored(opened: Opened) -> None:
    old, orphans = opened.expected["documents"]["trash"], opened.expected["orphans"]
    assert [mark["state"] for mark in old["trash"]] == ["restored", "held"]
    assert lost(old, opened.documents["trash"]) == []
    held = old["trash"][1]["mark_id"]
    assert opened.documents["restore"]["restored"] == [
        {"mark_id": held, "restored_files": 3, "left_files": 0}
    ]
    assert [mark["state"] for mark in opened.documents["restore"]["trash"]] == ["restored", "restored"]
    contents = {path: Path(path).read_text("utf-8") for path in (*orphans["restored"], *orphans["held"])}
    assert contents == {path: f"orphan {Path(path).name}\n" for path in contents}
    assert len(contents) == 4


def test_rows_are_those_of_the_old_commit(opened: Opened) -> None:
    assert opened.rows == opened.expected["rows"]
    assert sum(p["rows"] for p in opened.rows["events"].values()) == 50


def _live_files(table: str) -> set[str]:
    return {t.file.file_path for t in catalog_of(PLACE).load_table(f"db.{table}").scan().plan_files()}
