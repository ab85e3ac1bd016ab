"""The screen of `run` over many tables: one line for a table that is left alone, one for all healthy ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iceberg_maint.core.decisions.fleet_budget import FleetBudget
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.ports.storage import OrphanWork
from iceberg_maint_tests.cli.conftest import FAILED, REJECTED, Lake, lake_of
from iceberg_maint_tests.support.context import changed
from iceberg_maint_tests.support.fakes.orphan_scan import FakeOrphanFiles

pytestmark = pytest.mark.seconds

SEARCHED = "searched for orphan files without one"


@pytest.fixture
def many(tmp_path: Path) -> Lake:
    """A sick table and 30 healthy ones."""
    healthy = {f"lake.db.h{n:02}": {"1": 2} for n in range(30)}
    return lake_of(tmp_path, {"lake.db.sick": {"1": 10}, **healthy})


def lines(lake: Lake, *arguments: str) -> list[str]:
    return lake("run", *arguments).stdout.splitlines()


def test_healthy_tables_are_one_line_beside_the_work(many: Lake) -> None:
    shown = lines(many)
    assert shown[0].startswith("lake.db.sick rewrite_data_files: IMPROVED small_files - ")
    assert shown[3:] == [f"30 tables with nothing due; 31 tables {SEARCHED} (--json names each)"]
    assert len(shown) == 4


def test_paused_table_is_one_line_and_reasons_of_several_operations_are_named(many: Lake) -> None:
    many.configure("tables: {lake.db.sick: {paused: true}, lake.db.h00: {mode: advise}}\n")
    shown = lines(many)
    assert shown[:2] == [
        "lake.db.h00: NO_OP advise - the policy's mode is advise: work is planned and reported, not executed",
        "lake.db.sick: NO_OP paused - paused by policy or by an operator",
    ]
    assert len(shown) == 3


def test_one_table_shows_its_search(many: Lake) -> None:
    assert lines(many, "lake.db.h01") == [
        "lake.db.h01 remove_orphan_files: NO_OP orphan_files - storage was searched for orphan files",
        "  no orphan among 10 files, 0.0 s",
    ]


def test_operation_that_the_policy_turns_off_is_named_and_is_no_state_of_the_table(many: Lake) -> None:
    many.configure("defaults: {rewrite_data_files: {enabled: false}}\n")
    search = "lake.db.sick remove_orphan_files: NO_OP orphan_files - storage was searched for orphan files"
    assert lines(many, "db.sick") == [search, "  no orphan among 10 files, 0.0 s"]
    two = ("--operation", "rewrite_data_files", "--operation", "expire_snapshots")
    off = "disabled (rewrite_data_files) - the policy turns this operation off"
    fine = "healthy (expire_snapshots) - every metric is within its threshold, or there are no live files"
    assert lines(many, "db.sick", *two) == [f"lake.db.sick: NO_OP {off}; {fine}"]
    assert lines(many, *two) == ["31 tables with nothing due (--json names each)"]


def test_last_line_of_a_table_is_its_outcome_and_forced_work_without_a_plan_is_none(many: Lake) -> None:
    shown = lines(many, "db.sick", "--force")
    assert shown[0].startswith("lake.db.sick rewrite_data_files: IMPROVED small_files - ")
    assert shown[-1] == "lake.db.sick: IMPROVED small_files - enough small files to gain from a rewrite"
    assert not any("NO_OP forced" in line for line in shown)
    again = lines(many, "db.sick", "--force")
    assert again[0].startswith("lake.db.sick rewrite_data_files: COMMITTED forced - ")
    assert again[-1] == "lake.db.sick: COMMITTED forced - requested by a person, healthy or not"


def test_lost_race_is_deferred_and_the_run_exits_0(many: Lake) -> None:
    many.engine.results = [REJECTED]
    document = many.json("run", "db.sick", exit_code=0)
    (rewrite,) = [o for o in document["tables"][0]["operations"] if o["operation"] == "rewrite_data_files"]
    assert (rewrite["outcome"], rewrite["reason"]) == ("DEFERRED", "conflict")
    assert [b["outcome"] for b in rewrite["batches"]] == ["DEFERRED"]
    shown = many("history", "db.sick", "--limit", "10").stdout
    assert "DEFERRED conflict" in shown
    assert "1 batch lost to other writers" in shown
    assert "FAILED" not in shown


def test_failure_is_drawn_whole_among_healthy_tables(many: Lake) -> None:
    many.engine.results = [FAILED]
    shown = lines(many)
    assert shown[0].startswith("lake.db.sick rewrite_data_files: FAILED error - ")
    assert shown[-1].startswith("30 tables with nothing due; 31 tables ")


def test_tables_after_a_run_show_what_it_left_for_the_budget_as_waiting(tmp_path: Path) -> None:
    # The ledger notes real times; the clock of the lake is weeks ahead.
    lake = lake_of(tmp_path, {"lake.db.a": {"1": 10}, "lake.db.b": {"1": 10}})
    lake.context = changed(lake.context, fleet_budget=FleetBudget(max_commits=1, period_seconds=10_000_000))
    done, left = (t["operations"] for t in lake.json("run")["tables"])
    assert [o["reason"] for o in done if o["operation"] == "rewrite_data_files"] == ["small_files"]
    assert [o["reason"] for o in left if o["operation"] == "rewrite_data_files"] == ["fleet_budget"]
    shown = [(t["status"], t["reason"], t["due_partitions"]) for t in lake.json("tables")["tables"]]
    assert shown == [("healthy", "healthy", 0), ("waiting", "fleet_budget", 1)]


class _GoneCatalog(FakeOrphanFiles):
    def run(self, *_: Any, **__: Any) -> OrphanWork:
        raise IcebergMaintError("ICM-104", "catalog 'gone' cannot be reached.", "start it.")


@pytest.fixture
def gone(many: Lake) -> Lake:
    many.context = changed(many.context, orphan_files=lambda _table: _GoneCatalog())
    return many


def test_failure_that_tables_share_is_one_entry(gone: Lake) -> None:
    shown = gone("run").stdout.splitlines()
    assert shown[0].startswith("lake.db.sick rewrite_data_files: IMPROVED small_files - ")
    assert shown[3].startswith("31 tables remove_orphan_files: FAILED environment - ")
    assert shown[3].endswith(" (--json names each)")
    assert shown[4:] == ["  ICM-104 catalog 'gone' cannot be reached. Fix: start it."]
