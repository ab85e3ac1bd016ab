"""`run` on a part of the tables, and within limits of batches and time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iceberg_maint.core.model.ids import TableId, in_shard
from iceberg_maint_tests.cli.conftest import Lake, lake_of

pytestmark = pytest.mark.seconds


@pytest.fixture
def fleet(tmp_path: Path) -> Lake:
    """Four tables, each with two due days; one partition a batch, one batch a run of a table."""
    names = ("lake.sales.orders", "lake.sales.items", "lake.web.clicks", "lake.web.views")
    lake = lake_of(tmp_path, {name: {"1": 9, "2": 8} for name in names})
    lake.configure("defaults: {windows: {max_partitions_per_batch: 1, max_partitions_per_run: 1}}\n")
    return lake


def batches(document: Any) -> dict[str, list[str]]:
    """The rewritten partitions of each table, in order."""
    return {
        t["table"]: [p for o in t["operations"] for b in o["batches"] for p in b["partitions"]]
        for t in document["tables"]
    }


def rewrite(lake: Lake, *options: str, exit_code: int = 0) -> Any:
    return lake.json("run", "--operation", "rewrite_data_files", *options, exit_code=exit_code)


def test_pattern_chooses_tables_as_a_key_of_the_configuration_does(fleet: Lake) -> None:
    assert set(batches(rewrite(fleet, "--table-pattern", "lake.sales.*"))) == {
        "lake.sales.items",
        "lake.sales.orders",
    }
    chosen = rewrite(fleet, "--table-pattern", "web.c*", "--table-pattern", "*.orders")
    assert set(batches(chosen)) == {"lake.sales.orders", "lake.web.clicks"}


def test_pattern_without_a_table_is_refused_by_name(fleet: Lake) -> None:
    result = fleet("run", "--table-pattern", "lake.sale.*", "--table-pattern", "lake.web.*")
    assert result.exit_code == 2
    assert result.stderr == (
        "ICM-126 no table matches --table-pattern 'lake.sale.*'. Fix: list the tables with 'iceberg-maint tables'.\n"
    )
    assert fleet.engine.batches == []


def test_shards_have_each_table_once_and_those_of_dagster_s_code_locations(fleet: Lake) -> None:
    shares = [set(batches(rewrite(fleet, "--shard", f"{i}/3"))) for i in range(3)]
    assert sorted(t for share in shares for t in share) == sorted(map(str, fleet.catalog.content))
    assert shares == [
        {t for t in map(str, fleet.catalog.content) if in_shard(TableId.parse(t), i, 3)} for i in range(3)
    ]


def test_time_over_starts_no_batch_and_no_table_and_names_those_that_wait(fleet: Lake) -> None:
    fleet.configure("defaults: {windows: {max_partitions_per_batch: 1}}\n")
    write = fleet.engine.write

    def write_for_a_minute(batch: Any, policy: Any) -> Any:
        fleet.clock.ms += 60_000
        return write(batch, policy)

    fleet.engine.write = write_for_a_minute  # type: ignore[method-assign]
    result = fleet("run", "--operation", "rewrite_data_files", "--max-seconds", "170")
    assert result.exit_code == 0
    assert "stopped after 170 s; 2 tables wait for the next run" in result.stderr
    assert len(fleet.engine.batches) == 3
    document = rewrite(fleet, "--max-seconds", "60")
    assert len(fleet.engine.batches) == 4
    assert len(document["tables"]) + len(document["not_started"]) == 4
    assert not set(batches(document)) & set(document["not_started"])


def test_until_idle_goes_beyond_the_budget_of_one_run(fleet: Lake) -> None:
    assert {t: len(p) for t, p in batches(rewrite(fleet, "--table-pattern", "*.orders")).items()} == {
        "lake.sales.orders": 1
    }
    document = rewrite(fleet, "--until-idle")
    done = {table: sorted(partitions) for table, partitions in batches(document).items()}
    assert len(done.pop("lake.sales.orders")) == 1
    assert done == {t: ["day=1", "day=2"] for t in ("lake.sales.items", "lake.web.clicks", "lake.web.views")}
    assert document["not_started"] == []
    assert all(not partitions for partitions in batches(rewrite(fleet, "--until-idle")).values())


def test_batches_are_limited_over_all_rounds(fleet: Lake) -> None:
    rewrite(fleet, "--until-idle", "--max-batches", "5")
    assert len(fleet.engine.batches) == 5


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--shard", "3/3"], "3/3 is no share"),
        (["--shard", "x"], "x is no share"),
        (["--shard", "0/0"], "0/0 is no share"),
        (["--max-seconds", "0"], "--max-seconds"),
        (["web.views", "--shard", "0/2"], "a TABLE excludes --table-pattern and --shard"),
        (["web.views", "--table-pattern", "*"], "a TABLE excludes --table-pattern and --shard"),
        (["web.views", "--force", "--until-idle"], "--force with --until-idle would never end"),
    ],
)
def test_options_that_exclude_each_other_exit_2_and_change_nothing(
    fleet: Lake, options: list[str], says: str
) -> None:
    result = fleet("run", *options)
    assert result.exit_code == 2
    assert says in result.stderr
    assert fleet.engine.batches == []


def test_orphan_scan_is_over_when_the_time_of_the_run_is(
    fleet: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    over: list[bool] = []
    scan = fleet.orphans.run

    def scan_for_a_minute(*arguments: Any, **options: Any) -> Any:
        for _ in range(2):
            over.append(options["is_over"]())
            fleet.clock.ms += 60_000
        return scan(*arguments, **options)

    monkeypatch.setattr(fleet.orphans, "run", scan_for_a_minute)
    fleet.configure("defaults: {remove_orphan_files: {enabled: true}}\n")
    only = ("--operation", "remove_orphan_files", "--table-pattern", "*.orders")
    assert fleet.json("run", *only, "--max-seconds", "60")["not_started"] == []
    assert over == [False, True]
