"""One verdict per table: every screen says of a table that fails what the others say."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from iceberg_maint.cli.context import Session
from iceberg_maint.cli.pages.orphans_page import draw_marks, mark_document
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.removal.orphan_rules import TrashBatchHeader
from iceberg_maint.errors import RefusedError, UnreadableTableError
from iceberg_maint_tests.cli.conftest import NOW_MS, Lake
from iceberg_maint_tests.support.fakes.orphan_scan import NOTHING_FOUND

SICK = TableId.parse("lake.db.sick")
BROKEN = UnreadableTableError("ICM-101", "manifest m.avro cannot be read.", "restore the file.")
MINUTE_MS = 60_000


@pytest.fixture
def unreadable(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake that was observed before a manifest of `sick` was damaged in place: its pointer is the same."""
    lake.json("observe")
    damage(lake, monkeypatch)
    return lake


def damage(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = lake.catalog.measure

    def measured(state: Any, policy: Any) -> Any:
        if state.table == SICK:
            raise BROKEN
        return measure(state, policy)

    monkeypatch.setattr(lake.catalog, "measure", measured)


def row_of(document: Any, table: TableId = SICK) -> Any:
    return next(row for row in document["tables"] if row["table"] == str(table))


def test_table_that_cannot_be_read_is_refused_on_every_screen(unreadable: Lake) -> None:
    lake = unreadable
    assert lake.json("run", str(SICK), exit_code=3)["tables"][0]["error"]["code"] == "ICM-101"
    codes = {
        command: row_of(lake.json(command, exit_code=3))["error"]["code"] for command in ("tables", "observe")
    }
    codes |= {
        command: lake.json(command, str(SICK), exit_code=3)["error"]["code"] for command in ("why", "plan")
    }
    row = row_of(lake.json("report"))
    codes["report"] = row["failure"]["code"]
    assert codes == dict.fromkeys(("tables", "observe", "why", "plan", "report"), "ICM-101")
    assert (row["status"], row["failed_runs"], row["failure"]["standing"]) == ("failed", 1, "refused")
    [record] = lake.json("history", str(SICK))["records"]
    assert record["message"] == str(BROKEN)


def test_table_that_could_never_be_read_is_failed_in_tables_and_report_until_it_is_read(
    lake: Lake, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        damage(lake, patch)
        assert lake.json("report")["never_observed"] == ["lake.db.healthy", "lake.db.sick"]
        listed, page = lake.json("tables", exit_code=3), tmp_path / "r.md"
        report, text = lake.json("report"), lake("report", "--markdown", str(page)).stdout
        failure = row_of(report)["failure"]
        assert (row_of(listed)["error"]["code"], failure["code"]) == ("ICM-101", "ICM-101")
        assert (report["never_observed"], row_of(report)["status"]) == ([], "failed")
        assert report["summary"] == listed["summary"]
        assert [line.split()[:2] for line in text.splitlines() if line.startswith("db.sick")] == [
            ["db.sick", "failed"]
        ]
        assert (BROKEN.message in text, "| lake.db.sick | failed |" in page.read_text("utf-8")) == (
            True,
            True,
        )
    lake.json("tables")
    assert [t["status"] for t in lake.json("report")["tables"]] == ["due", "healthy"]
    assert row_of(lake.json("report"))["failure"] is None


STATES: dict[str, tuple[str, str, str, int]] = {
    # state → policy, status, reason, exit code of `run` and `tables`
    "paused": ("paused: true", "waiting", "paused", 0),
    "blackout": ("blackout_hours: ['00:00-12:00', '12:00-00:00']", "waiting", "blackout", 0),
    "advise": ("mode: advise", "waiting", "advise", 0),
    "turned off": ("rewrite_data_files: {enabled: false}", "off", "disabled", 0),
    "window": ("windows: {cold_after_seconds: 100000000}", "waiting", "recently_changed", 0),
    "back-off": ("retry: {backoff_seconds: 3600}", "failed", "back_off", 1),
    "quarantined": ("retry: {quarantine_after: 1}", "blocked", "quarantined", 1),
}


@pytest.mark.parametrize("state", STATES)
def test_table_that_is_not_maintained_has_one_story_on_every_screen(
    lake: Lake, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    policy, status, reason, exit_code = STATES[state]
    searched = state != "window"  # with a search the line about it comes before that of the table
    if searched:
        lake("run", "--operation", "remove_orphan_files")
    lake.configure(f"defaults: {{{policy}, remove_orphan_files: {{every_seconds: 100000000}}}}\n")
    lake.json("observe")
    if exit_code:
        lake.engine.errors = [ValueError("a bad row"), ValueError("a bad row")]
        assert lake("run", str(SICK)).exit_code == 1
    records = lake.json("history", str(SICK))["records"]
    listed, report = row_of(lake.json("tables", exit_code=exit_code)), row_of(lake.json("report"))
    why = lake.json("why", str(SICK))
    assert [(row["status"], row["failure"]) for row in (listed, report)] == [(status, why["failure"])] * 2
    assert {listed["reason"], why["reason"], why["next"]["reason"]} == {reason}
    assert listed["due_partitions"] == len(why["next"]["due_partitions"])
    assert (listed["until_ms"], listed["deferred_by"]) == (why["next"]["until_ms"], why["deferred_by"])
    assert (why["failure"] is not None, report["failed_runs"]) == (bool(exit_code), exit_code)
    result = lake("run", str(SICK))
    told = [line for line in result.stdout.splitlines() if line.startswith(f"{SICK}: ")]
    line = f"{SICK}: NO_OP {reason}{' (rewrite_data_files)' if status == 'off' else ''} - "
    assert (result.exit_code, [text[: len(line)] for text in told]) == (exit_code, [line])
    assert ("a bad row" in result.stderr) or state != "back-off"
    rewriting = [r for r in lake.json("history", str(SICK))["records"] if "rewrite" in r["operation"]]
    assert rewriting == [r for r in records if "rewrite" in r["operation"]]
    after = row_of(lake.json("tables", exit_code=exit_code))
    assert (after["status"], after["reason"]) == (status, reason)


def test_table_whose_due_work_is_in_no_plan_has_the_reason_of_the_plan_on_every_screen(lake: Lake) -> None:
    lake("run", "--operation", "remove_orphan_files")
    lake.configure("defaults: {windows: {max_bytes_per_batch: 100}}\n")
    lake.json("observe")
    [line] = [x for x in lake("run", str(SICK)).stdout.splitlines() if x.startswith(f"{SICK}: ")]
    assert line.startswith(f"{SICK}: NO_OP file_too_large - ")
    last = {
        p["history"]["reason"] for p in lake.json("why", str(SICK))["partitions"] if p["reason"] != "healthy"
    }
    assert (last, row_of(lake.json("tables"))["reason"]) == ({"file_too_large"}, "back_off")


def test_partitions_beyond_the_budget_of_a_run_count_in_why_as_in_tables(lake: Lake) -> None:
    lake.configure("defaults: {windows: {max_partitions_per_run: 1}}\n")
    why = lake.json("why", str(SICK))
    assert (row_of(lake.json("tables"))["due_partitions"], why["truth"]) == (
        2,
        "Unhealthy: 1 of 3 partitions is due (enough small files to gain from a rewrite). 1 more waits (run_budget).",
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("ICM-101 cannot load lake.db.sick: metadata file m is missing.", None),
        ("ICM-101 manifest m cannot be read.", "lake.db.sick: ICM-101 manifest m cannot be read."),
        ("ICM-101 lake.db.sick2 is broken.", "lake.db.sick: ICM-101 lake.db.sick2 is broken."),
        ("ICM-101 /lake.db.sick/m is missing.", "lake.db.sick: ICM-101 /lake.db.sick/m is missing."),
    ],
)
def test_line_about_a_table_names_it_once(
    text: str, line: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    Session().say_of(SICK, text)
    assert capsys.readouterr().err == f"{line or text}\n"


def test_table_that_cannot_be_read_waits_longer_after_each_try(unreadable: Lake) -> None:
    lake = unreadable
    waits = []
    for _ in range(3):
        lake.json("run", str(SICK), exit_code=3)
        failure = row_of(lake.json("report"))["failure"]
        waits.append((failure["until_ms"] - lake.clock.now_ms()) // MINUTE_MS)
        lake.clock.ms = failure["until_ms"]
    assert waits == [5, 10, 20]
    assert len(lake.json("history", str(SICK))["records"]) == 3


@pytest.mark.parametrize("names", [(), (str(SICK),)], ids=["fleet", "table"])
def test_table_that_cannot_be_read_is_recorded_once_while_it_waits(
    unreadable: Lake, names: tuple[str, ...]
) -> None:
    for _ in range(3):
        unreadable.json("run", *names, exit_code=3)
    assert len(unreadable.json("history", str(SICK))["records"]) == 1


def test_table_that_was_restored_is_measured_on_every_screen(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.json("observe")
    with monkeypatch.context() as patch:
        damage(lake, patch)
        lake.json("why", str(SICK), exit_code=3)
        assert row_of(lake.json("report"))["status"] == "failed"
    assert row_of(lake.json("tables"))["status"] == "due"
    assert row_of(lake.json("report"))["failure"] is None


def test_catalog_that_cannot_be_reached_is_no_fault_of_its_tables(lake: Lake) -> None:
    lake.json("observe")
    lake.catalog.unreachable = True
    lake.json("why", str(SICK), exit_code=2)
    lake.catalog.unreachable = False
    assert row_of(lake.json("report"))["failure"] is None


def test_failed_batch_is_shown_with_code_file_and_next_try_on_every_screen(lake: Lake) -> None:
    error = RefusedError("ICM-101", "file a.parquet does not exist.", "restore it.")
    lake.engine.errors = [error]
    lake.json("run", str(SICK), "--partition", "day=1", exit_code=1)
    rows = {
        "tables": row_of(lake.json("tables", exit_code=1)),
        "observe": row_of(lake.json("observe", exit_code=1)),
        "report": row_of(lake.json("report")),
        "why": lake.json("why", str(SICK)),
        "plan": lake.json("plan", str(SICK)),
    }
    failure = {
        "standing": "failed",
        "code": "ICM-101",
        "message": str(error),
        "operation": "rewrite_data_files",
        "partition": "day=1",
        "faults": 1,
        "quarantined": False,
        "until_ms": NOW_MS + 5 * MINUTE_MS,
    }
    assert [row["failure"] for row in rows.values()] == [failure] * len(rows)
    assert {rows[name]["status"] for name in ("tables", "report")} == {"failed"}


def test_waiting_partition_counts_as_due_with_its_bytes(lake: Lake) -> None:
    lake.engine.errors = [RefusedError("ICM-101", "file a.parquet does not exist.", "restore it.")]
    lake.json("run", str(SICK), "--partition", "day=1", exit_code=1)
    due = row_of(lake.json("tables", exit_code=1))
    assert (due["due_partitions"], due["backlog_bytes"] > 0) == (2, True)


def test_run_during_the_wait_after_a_failure_exits_1_and_says_why(lake: Lake) -> None:
    lake.engine.errors = [RefusedError("ICM-101", "file a.parquet does not exist.", "restore it.")]
    lake.json("run", str(SICK), "--partition", "day=1", exit_code=1)
    lake.json("run", str(SICK), exit_code=1)
    again = lake("run", str(SICK))
    assert (again.exit_code, "ICM-101 file a.parquet does not exist" in again.stderr) == (1, True)


def test_run_with_a_refused_orphan_pass_exits_3_and_says_the_code(lake: Lake) -> None:
    error = RefusedError("ICM-111", "lake.db.other cannot be read.", "repair it.")
    lake.orphans.work = replace(NOTHING_FOUND, stopped=error)
    result = lake("run", "lake.db.healthy")
    assert (result.exit_code, result.stderr.count("ICM-111")) == (3, 1)
    row = row_of(lake.json("tables", exit_code=3), TableId.parse("lake.db.healthy"))
    assert (row["status"], row["failure"]["code"]) == ("blocked", "ICM-111")
    assert lake.json("why", "lake.db.healthy")["truth"] == (
        "The data is healthy: no threshold is crossed. Waiting after a failure or a refusal: remove_orphan_files."
    )


def test_run_refused_for_clocks_says_so_once(lake: Lake) -> None:
    error = RefusedError("ICM-115", "the clocks are 400 s apart.", "correct the wrong clock by NTP.")
    lake.orphans.work = replace(NOTHING_FOUND, stopped=error)
    result = lake("run", "lake.db.healthy")
    assert (result.exit_code, result.stderr.count("ICM-115")) == (3, 1)
    assert "ICM-115 the clocks are 400 s apart. Fix: correct the wrong clock by NTP." in result.stderr


def test_run_that_an_error_ends_does_not_call_its_table_healthy(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = lake.catalog.live_files

    def unreachable(*arguments: Any) -> Any:
        plans(*arguments)
        raise RefusedError("ICM-104", "catalog 'lake' cannot be reached.", "start it.")

    monkeypatch.setattr(lake.catalog, "live_files", unreachable)
    result = lake("run", str(SICK))
    assert (result.exit_code, "healthy" in result.stdout) == (3, False)


@pytest.mark.parametrize(("released", "source"), [(False, "orphan scan"), (True, "expiry")])
def test_trash_says_whether_a_scan_or_an_expiry_filled_it(released: bool, source: str) -> None:
    header = TrashBatchHeader("m1", str(SICK), "u", "file:///w/t/", NOW_MS, 0, "file:///w/m", "d", released)
    mark = mark_document(header, 2, 10, 60, restored=False)
    console = Console(file=io.StringIO(), width=200)
    draw_marks(console, [mark])
    row = cast("io.StringIO", console.file).getvalue().splitlines()[1]
    assert (mark["released"], source in row) == (released, True)
