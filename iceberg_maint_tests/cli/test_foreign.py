"""Beside another maintainer: refused with who and until when, shared where the policy says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import FileKind, LiveFile, Snapshot
from iceberg_maint_tests.cli.conftest import NOW_MS, TARGET_BYTES, Lake

pytestmark = pytest.mark.seconds

SICK = TableId.parse("lake.db.sick")
DAY_MS = 86_400_000
SPARK = {"engine-name": "spark", "app-name": "nightly", "added-data-files": "1", "deleted-data-files": "9"}


def rewritten_by_others(lake: Lake, age_ms: int = 5000, **summary: str) -> None:
    """A foreign rewrite as the head of the table `sick`, made so long ago."""
    table = lake.catalog.content[SICK]
    head = table.state.snapshot
    assert head is not None
    new = Snapshot(
        4711,
        head.snapshot_id,
        head.sequence_number + 1,
        NOW_MS - age_ms,
        "replace",
        {**SPARK, **summary},
        "list",
    )
    snapshots = (*table.state.snapshots, new)
    state = replace(table.state, snapshot=new, snapshots=snapshots, last_sequence_number=new.sequence_number)
    lake.catalog.put(replace(table, state=state))


def test_run_is_refused_and_says_by_whom(lake: Lake) -> None:
    rewritten_by_others(lake)
    result = lake("run", "db.sick")
    assert result.exit_code == 3
    assert lake.engine.batches == []
    assert (
        "lake.db.sick: ICM-109 Apache Spark (application nightly) rewrote files of the table" in result.stderr
    )
    assert "Fix: stop it, or set foreign_maintainers.mode" in result.stderr


def test_why_reports_by_whom_and_until_when(lake: Lake) -> None:
    rewritten_by_others(lake)
    document = lake.json("why", "db.sick")
    assert (document["verdict"], document["reason"]) == ("REFUSE", "foreign_maintainer")
    assert (
        "Apache Spark (application nightly) rewrote files of the table in snapshot 4711" in document["truth"]
    )
    assert document["truth"].endswith("The refusal ends at 2027-01-17 07:59:55 UTC.")
    assert document["change"].startswith("stop the other maintainer")
    due = [p["reason"] for p in document["partitions"] if p["verdict"] == "REFUSE"]
    assert due == ["foreign_maintainer"] * 2


def test_table_that_needs_nothing_is_not_refused(lake: Lake) -> None:
    rewritten_by_others(lake)
    lake.configure("defaults: {rewrite_data_files: {min_input_files: 100}}\n")
    assert lake("run", "db.sick").exit_code == 0


@pytest.mark.parametrize(
    ("age_ms", "settings"),
    [
        (2 * DAY_MS, ""),
        (5000, "defaults: {foreign_maintainers: {mode: ignore}}\n"),
    ],
)
def test_what_is_long_past_or_ignored_stops_nothing(lake: Lake, age_ms: int, settings: str) -> None:
    rewritten_by_others(lake, age_ms)
    lake.configure(settings)
    assert lake("run", "db.sick").exit_code == 0
    assert lake.engine.batches


def test_coexistence_waits_until_partitions_are_cold_then_runs(lake: Lake) -> None:
    rewritten_by_others(lake)
    lake.configure("defaults: {foreign_maintainers: {mode: coexist}}\n")
    partitions: dict[str, Any] = {p["partition"]: p for p in lake.json("why", "db.sick")["partitions"]}
    assert {p["reason"] for p in partitions.values() if p["verdict"] == "DEFER"} == {"recently_changed"}
    assert lake("run", "db.sick").exit_code == 0
    assert lake.engine.batches == []
    lake.clock.ms += 3_600_000
    assert lake("run", "db.sick").exit_code == 0
    assert lake.engine.batches


def test_what_is_left_to_the_other_in_coexistence_is_no_refusal(lake: Lake) -> None:
    table = lake.catalog.content[SICK]
    (file, *_) = table.live_files
    marks = [
        LiveFile(f"file:///mem/mark-{i}", FileKind.POSITION_DELETES, 0, "day=3", 1, 10, 1, "parquet")
        for i in range(40)
    ]
    healthy = [replace(file, path="file:///mem/one", partition="day=3", size_bytes=TARGET_BYTES)]
    lake.catalog.put(replace(table, live_files=(*healthy, *marks)))
    rewritten_by_others(lake)
    lake.configure("defaults: {foreign_maintainers: {mode: coexist}}\n")
    lake.clock.ms += 3_600_000
    operations = lake.json("run", "db.sick")["tables"][0]["operations"]
    found = {o["operation"]: (o["outcome"], o["reason"]) for o in operations}
    assert found["rewrite_position_delete_files"] == ("NO_OP", "foreign_maintainer")


def test_advice_is_not_refused_and_its_plan_shows_the_result_of_acting(lake: Lake) -> None:
    rewritten_by_others(lake)
    lake.configure("defaults: {mode: advise}\n")
    assert lake("run", "db.sick").exit_code == 0
    _, rewrite, *_rest = lake.json("plan", "db.sick")["operations"]
    assert (rewrite["decision"]["verdict"], rewrite["decision"]["reason"]) == ("REFUSE", "foreign_maintainer")
    assert rewrite["plan"]["batches"] == []
