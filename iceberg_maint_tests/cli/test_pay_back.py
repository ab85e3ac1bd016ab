"""Work that does not pay back, on the screens before any pass over the fleet: plan, why, tables and run agree."""

from __future__ import annotations

import pytest

from iceberg_maint.core.decisions.fleet_budget import FleetBudget
from iceberg_maint_tests.cli.conftest import REWRITE, Lake
from iceberg_maint_tests.support.context import changed

READS = "defaults: {windows: {reads_per_day: 0.1}}\n"
PLAN_ROW = (
    "left alone: the work costs about 1 s of CPU to read 9.8 KiB; 0.1 reads a day (windows.reads_per_day), each with 9 fewer "
    "to open, save 0.3 s in 30 d (fleet_budget.pay_back_seconds)"
)
TRUTH = (
    "2 of 3 partitions are left alone: the work costs about 2 s of CPU to read 17.6 KiB; 0.1 reads a day "
    "(windows.reads_per_day) save 0.5 s in 30 d (fleet_budget.pay_back_seconds)."
)


@pytest.fixture
def judged(lake: Lake) -> Lake:
    lake.configure(READS)
    lake.context = changed(lake.context, fleet_budget=FleetBudget(max_commits=5))
    return lake


def text(lake: Lake, *arguments: str) -> str:
    result = lake(*arguments)
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


def test_plan_before_a_pass_leaves_work_alone_that_does_not_pay_and_gives_the_numbers(judged: Lake) -> None:
    shown = judged.json("plan", "lake.db.sick")["operations"][REWRITE]
    partitions = {p["partition"]: p for p in shown["decision"]["partitions"]}
    assert shown["plan"]["batches"] == []
    assert {k: p["reason"] for k, p in partitions.items()} == {
        "day=1": "no_pay_back",
        "day=2": "no_pay_back",
        "day=3": "healthy",
    }
    assert partitions["day=3"]["pay_back"] is None
    numbers = {k: round(v, 4) for k, v in partitions["day=1"]["pay_back"].items()}
    assert numbers == {
        "reads_per_day": 0.1,
        "fewer_files": 9,
        "read_seconds": 0.09,
        "period_seconds": 2_592_000,
        "ends_with_data": 0,
        "cost_seconds": 1.1005,
        "cost_bytes": 10_000,
    }
    assert PLAN_ROW in text(judged, "plan", "lake.db.sick")


def test_why_before_a_pass_says_what_the_work_costs_and_which_reads_would_pay(judged: Lake) -> None:
    shown = judged.json("why", "lake.db.sick")
    assert (shown["reason"], shown["truth"]) == ("no_pay_back", f"Nothing to do now: {TRUTH}")
    first = shown["partitions"][0]
    assert (first["partition"], first["pay_back"]["fewer_files"]) == ("day=1", 9)
    assert first["change"] == (
        "windows.reads_per_day of 0.41 or more, a higher fleet_budget.pay_back_seconds, more files or deletes, or at once: "
        "iceberg-maint run lake.db.sick --partition day=1"
    )
    for arguments in ((), ("--all",), ("--partition", "day=1")):
        assert PLAN_ROW in text(judged, "why", "lake.db.sick", *arguments)


def test_advice_before_a_pass_leaves_out_work_that_does_not_pay(judged: Lake) -> None:
    judged.configure("defaults: {mode: advise, windows: {reads_per_day: 0.41}}\n")
    shown = judged.json("why", "lake.db.sick")
    assert (shown["reason"], shown["advice"]["due_partitions"]) == ("advise", 1)
    assert (
        "1 of 3 partitions is left alone: the work costs about 1 s of CPU to read 7.8 KiB" in shown["truth"]
    )


def test_run_of_a_table_before_a_pass_does_what_plan_shows(judged: Lake) -> None:
    outcomes = judged.json("run", "lake.db.sick")["tables"][0]["operations"]
    assert (outcomes[REWRITE]["batches"], outcomes[REWRITE]["reason"]) == ([], "no_pay_back")
    judged.configure("defaults: {windows: {reads_per_day: 0.41}}\n")
    planned = judged.json("plan", "lake.db.sick")["operations"][REWRITE]["plan"]["batches"]
    outcomes = judged.json("run", "lake.db.sick")["tables"][0]["operations"]
    done = [b["batch_id"] for b in outcomes[REWRITE]["batches"]]
    assert done == [b["batch_id"] for b in planned]
    assert [b["partitions"] for b in planned] == [["day=1"]]


def test_tables_show_work_that_does_not_pay_before_a_pass(judged: Lake) -> None:
    _, sick = judged.json("tables")["tables"]
    assert (sick["table"], sick["reason"], sick["due_partitions"]) == ("lake.db.sick", "no_pay_back", 0)
    assert judged.context.ledger.registry.fleet_waits() == {}


def test_report_before_a_pass_counts_no_work_that_does_not_pay(judged: Lake) -> None:
    judged.json("tables")
    summary = judged.json("report")["summary"]
    assert (summary["due"], summary["backlog_bytes"]) == (0, 0)
    judged.configure("defaults: {windows: {reads_per_day: 100}}\n")
    summary = judged.json("report")["summary"]
    assert (summary["due"], summary["backlog_bytes"]) == (1, 18_000)


def test_plan_of_work_that_is_left_alone_does_not_say_that_no_threshold_is_crossed(judged: Lake) -> None:
    shown = text(judged, "plan", "lake.db.sick", "--set", "remove_orphan_files.enabled=false")
    sentence = shown.partition(" not in this plan")[0]
    assert sentence == (
        "lake.db.sick: nothing to do: left alone: the reads of the table are predicted to save less than the work costs, "
        "before the data is replaced or fleet_budget.pay_back_seconds have passed; the policy turns this operation off"
    )
