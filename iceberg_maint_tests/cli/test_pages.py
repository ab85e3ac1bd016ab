"""`assess`, and the pages of `report`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.model.ids import PartitionKey, TableId
from iceberg_maint.core.model.table_state import Snapshot
from iceberg_maint.errors import ConfigurationError, IcebergMaintError
from iceberg_maint.integrations.reports import write_fleet_report
from iceberg_maint.ledger import health_days, table_health
from iceberg_maint.loop.assess import assess
from iceberg_maint.machine import files as own_files
from iceberg_maint.ports.stored import HealthDay
from iceberg_maint_tests.cli.conftest import NOW_MS, TARGET_BYTES, Lake
from iceberg_maint_tests.support.context import changed
from iceberg_maint_tests.support.fakes.catalog import FakeCatalog
from iceberg_maint_tests.support.loop.world import SetClock


def test_assess_says_what_is_sick_and_stores_nothing(lake: Lake):
    before = lake.catalog.content[TableId.parse("lake.db.sick")].state
    document = lake.json("assess")
    assert document["summary"]["tables"] == 2
    assert document["summary"]["sick"] == 1
    (sick, healthy) = document["tables"]
    assert (sick["table"], sick["due_partitions"], sick["reasons"]) == ("lake.db.sick", 2, ["small_files"])
    # 18 small files in two due days become one each; the two files of the third day stay.
    assert (sick["reads_before"], sick["reads_after"]) == (20, 4)
    assert (healthy["due_partitions"], healthy["reads_after"]) == (0, 2)
    assert lake.engine.batches == []
    assert lake.catalog.content[TableId.parse("lake.db.sick")].state == before


def test_assess_in_mode_advise_says_the_same(lake: Lake):
    lake.configure("defaults: {mode: advise}\n")
    assert lake.json("assess")["summary"]["sick"] == 1


def test_assess_of_one_table_and_its_page_fit_80_columns(lake: Lake, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    result = lake("assess", "db.sick")
    assert result.exit_code == 0
    assert result.stdout.startswith("1 of 1 table needs maintenance.\n")
    assert max(map(len, result.stdout.splitlines())) <= 80


class Unreachable(FakeCatalog):
    """A catalog that cannot be listed."""

    def tables(self) -> tuple[TableId, ...]:
        raise ConfigurationError("ICM-104", f"catalog '{self.name}' cannot be reached.", "start it.")


def test_assess_shows_a_catalog_that_cannot_be_reached_beside_the_others(lake: Lake):
    lake.context = changed(lake.context, catalogs={"dead": Unreachable("dead"), **lake.context.catalogs})
    result = lake("assess", "--json")
    assert result.exit_code == 2
    document = json.loads(result.stdout)
    assert document["summary"]["tables"] == 2
    assert document["errors"] == {"dead": "ICM-104 catalog 'dead' cannot be reached. Fix: start it."}
    lake.context = changed(lake.context, catalogs={"dead": Unreachable("dead")})
    assert "ICM-104" in lake("assess").stderr


def test_observe_goes_on_where_one_catalog_cannot_be_reached(lake: Lake):
    lake.context = changed(lake.context, catalogs={"dead": Unreachable("dead"), **lake.context.catalogs})
    result = lake("observe", "--json")
    assert result.exit_code == 2
    assert "ICM-104 catalog 'dead' cannot be reached." in result.stderr
    assert len(json.loads(result.stdout)["tables"]) == 2


@pytest.mark.parametrize("command", ["tables", "run", "reconcile", "release"])
def test_command_goes_on_where_one_catalog_cannot_be_reached(lake: Lake, command: str):
    lake.context = changed(lake.context, catalogs={"dead": Unreachable("dead"), **lake.context.catalogs})
    result = lake(command, "--json")
    assert result.exit_code == 2
    assert "ICM-104 catalog 'dead' cannot be reached." in result.stderr
    assert json.loads(result.stdout)
    lake.context = changed(lake.context, catalogs={"dead": Unreachable("dead")})
    assert lake(command, "--json").exit_code == 2


def test_observe_forgets_tables_that_were_dropped_and_none_of_a_catalog_that_is_down(lake: Lake):
    """Else the alert `not_observed` of a dropped table has no end."""
    lake("observe")
    assert [str(k.table) for k in lake.context.ledger.health.known_tables()] == [
        "lake.db.healthy",
        "lake.db.sick",
    ]
    lake.catalog.content.pop(TableId.parse("lake.db.healthy"))
    lake("observe", "db.sick")
    assert len(lake.context.ledger.health.known_tables()) == 2
    working = lake.context
    lake.context = changed(working, catalogs={"lake": Unreachable("lake"), "other": FakeCatalog("other")})
    lake("observe")
    assert len(lake.context.ledger.health.known_tables()) == 2
    lake.context = working
    lake("observe")
    assert [str(k.table) for k in lake.context.ledger.health.known_tables()] == ["lake.db.sick"]


def test_assess_of_an_unknown_table_is_refused(lake: Lake):
    assert lake("assess", "db.nothing").exit_code == 2


def test_report_writes_its_page_in_both_forms(lake: Lake, tmp_path: Path):
    for table in lake.catalog.content:
        assess(table, lake.context)
    lake("run")
    html, markdown = tmp_path / "r.html", tmp_path / "r.md"
    result = lake("report", "--html", str(html), "--markdown", str(markdown))
    assert result.exit_code == 0, result.output
    assert "<h1>Fleet report</h1>" in html.read_text("utf-8")
    assert markdown.read_text("utf-8").startswith("# Fleet report\n")
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith((".r", "r."))) == ["r.html", "r.md"]


def test_page_that_cannot_be_written_is_refused_and_leaves_nothing(lake: Lake, tmp_path: Path):
    result = lake("assess", "--html", str(tmp_path / "none" / "a.html"))
    assert result.exit_code == 2
    assert "ICM-100 --html" in result.stderr
    assert not (tmp_path / "none").exists()


def test_prices_of_the_configuration_are_in_the_page(lake: Lake, tmp_path: Path):
    lake.configure("report: {currency: EUR, run_hour_price: 2.0, stored_gib_month_price: 0.02}\n")
    lake("run")
    page = tmp_path / "r.md"
    lake("report", "--markdown", str(page))
    assert "EUR at 2 an hour." in page.read_text("utf-8")
    assert "EUR a month at 0.02 a GiB." in page.read_text("utf-8")


def test_negative_price_is_refused(lake: Lake, tmp_path: Path):
    with pytest.raises(
        ConfigurationError, match=r"ICM-100 report.run_hour_price is -1.0. It must be at least 0"
    ):
        lake.configure("report: {run_hour_price: -1.0}\n")


def test_stored_days_are_drawn_in_the_page_and_listed_in_json(lake: Lake, tmp_path: Path):
    table = TableId.parse("lake.db.healthy")
    assess(table, lake.context)
    ledger = lake.context.ledger
    measured = ledger.health.get(table)
    (today,) = ledger.health.health_days([measured.table_uuid])[measured.table_uuid]
    database = ledger.work._database
    now_ms = lake.clock.now_ms()
    with database.write(measured.table_uuid) as conn:
        health_days.drop_days(conn, measured.table_uuid)
        for days, small_files in ((3, 1), (2, 2), (1, 3), (0, 4)):
            part = PartitionHealth(data_files=small_files, small_files=small_files)
            day = replace(measured, partitions={PartitionKey("a"): part})
            health_days.put_day(conn, day, now_ms - days * 86_400_000)
    page = tmp_path / "r.html"
    lake("report", "--html", str(page))
    assert page.read_text("utf-8").count("<polyline") == 1
    trends = {t["table"]: t for t in lake.json("report")["trends"]}
    assert [d["small_files"] for d in trends["lake.db.healthy"]["days"]] == [1, 2, 3, 4]
    forecast = trends["lake.db.healthy"]["forecast"]
    assert (forecast["per_day"], forecast["in_days"]) == (1, forecast["threshold"] - 4)
    assert set(today.metrics) == {name for name in trends["lake.db.healthy"]["days"][0] if name != "day"}


def test_why_has_one_line_on_a_threshold_ahead_and_none_for_a_partition(lake: Lake, monkeypatch):
    today = lake.clock.now_ms() // 86_400_000
    days = tuple(HealthDay(today - n, {"most_small_files": 1.1 - n / 10}) for n in (3, 2, 1, 0))
    monkeypatch.setattr(table_health.SqlHealth, "health_days", lambda _, uuids: dict.fromkeys(uuids, days))
    monkeypatch.setenv("COLUMNS", "200")
    document = lake.json("why", "db.healthy")
    in_days = document["trend"]["forecast"]["in_days"]
    (line,) = (text for text in lake("why", "db.healthy").stdout.splitlines() if "trend:" in text)
    assert line.strip().endswith(
        f"(rewrite_data_files.min_input_files) in about {round(in_days)} days, by the median slope of 4 measured days"
    )
    partition = document["partitions"][0]["partition"]
    assert lake.json("why", "db.healthy", "--partition", partition)["trend"] is None


def appends(first: int, mean_bytes: int, commits: int, app: str) -> list[Snapshot]:
    """Commits of one file each."""
    size = {"added-data-files": "1", "added-files-size": str(mean_bytes)}
    writer = {"engine-name": "spark", "app-name": app}
    ids = range(first, first + commits)
    return [Snapshot(n, n - 1, 1, NOW_MS - 3_600_000 + n * 1000, "append", writer | size, "l") for n in ids]


def with_writers(lake: Lake) -> None:
    """Two writers of `db.sick` began to write small files: `many` eight commits ago, `late` five commits ago."""
    table = lake.catalog.content[TableId.parse("lake.db.sick")]
    head = table.state.snapshot
    assert head is not None
    history = [
        *appends(100, 4 * TARGET_BYTES, 5, "many"),
        *appends(200, TARGET_BYTES // 10, 8, "many"),
        *appends(300, 4 * TARGET_BYTES, 5, "late"),
        *appends(400, TARGET_BYTES // 10, 5, "late"),
    ]
    lake.catalog.put(replace(table, state=replace(table.state, snapshots=(*history, head))))


def test_observe_stores_writers_that_began_to_write_small_files_and_why_names_them(lake: Lake, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with_writers(lake)
    assert lake("observe").exit_code == 0
    stored = lake.context.ledger.health.get(TableId.parse("lake.db.sick")).writer_changes
    assert [(c.writer, c.snapshot_id, c.commits) for c in stored] == [
        ("Apache Spark (application late)", 400, 5),
        ("Apache Spark (application many)", 200, 8),
    ]
    lines = [text for text in lake("why", "db.sick").stdout.splitlines() if "smaller files:" in text]
    assert [text.split("(snapshot ")[1] for text in lines] == [
        "400, 5 commits); earlier files had 3.8 MiB",
        "200, 8 commits); earlier files had 3.8 MiB",
    ]


def test_report_has_the_writer_with_the_most_small_commits_first(lake: Lake, tmp_path: Path):
    with_writers(lake)
    lake("observe")
    page = tmp_path / "r.md"
    text = " ".join(lake("report", "--markdown", str(page)).stdout.split())
    assert text.index("(snapshot 200, 8 commits)") < text.index("(snapshot 400, 5 commits)")
    assert "Writers that began to write small files" in page.read_text("utf-8")
    stored = lake.json("report")["writer_changes"]
    assert [(c["table"], c["snapshot_id"]) for c in stored] == [("lake.db.sick", 200), ("lake.db.sick", 400)]


def test_report_counts_tables_that_another_version_measured(lake: Lake, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    lake("observe")
    assert lake.json("report")["outdated_tables"] == 0
    monkeypatch.setattr(table_health, "_FORM", "another")
    page = tmp_path / "r.md"
    sentence = "2 tables measured by another version of the program not counted: run iceberg-maint observe"
    assert sentence in lake("report", "--markdown", str(page)).stdout
    assert sentence in page.read_text("utf-8")
    assert lake.json("report")["outdated_tables"] == 2
    lake("observe")
    assert lake.json("report")["outdated_tables"] == 0


def test_report_takes_its_time_from_the_ledger_and_not_from_a_clock_that_is_wrong(lake: Lake, tmp_path: Path):
    lake("observe")
    pages = []
    for ahead_ms in (0, 400 * 86_400_000):
        pages.append(page := tmp_path / f"{ahead_ms}.md")
        context = changed(lake.context, clock=SetClock(NOW_MS + ahead_ms))
        lake.context, usual = context, lake.context
        assert lake("report", "--markdown", str(page)).exit_code == 0
        lake.context = usual
    first, second = (page.read_text("utf-8") for page in pages)
    assert first == second
    assert "2027-01-15 08:00:00 UTC" in first


def test_report_of_a_schedule_on_a_full_disk_is_refused_and_leaves_the_earlier_files(
    lake: Lake, tmp_path: Path
):
    lake("observe")
    config = replace(lake.config.report, folder=tmp_path / "reports")
    (first, *_) = files = write_fleet_report(lake.context, config).files
    before = first.read_bytes()

    def full(path: str, _flags: int) -> int:
        Path(path).touch()
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own_files, "private_opener", full)
        with pytest.raises(ConfigurationError, match=r"ICM-100 report.folder: .*: No space left on device"):
            write_fleet_report(lake.context, config)
    assert sorted(first.parent.iterdir()) == sorted(files)
    assert first.read_bytes() == before


def test_report_lists_tables_that_were_never_observed(lake: Lake, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    lake("observe", "lake.db.sick")
    page = tmp_path / "r.md"
    text = lake("report", "--markdown", str(page)).stdout
    sentence = "1 table never observed, not counted: run iceberg-maint observe"
    assert (sentence in text, sentence in page.read_text("utf-8")) == (True, True)
    assert [line.split()[:3] for line in text.splitlines() if line.startswith("db.healthy")] == [
        ["db.healthy", "never", "observed"]
    ]
    assert "| lake.db.healthy | never observed |" in page.read_text("utf-8")
    shown = lake.json("report")
    assert (shown["never_observed"], [t["table"] for t in shown["tables"]]) == (
        ["lake.db.healthy"],
        ["lake.db.sick"],
    )
    lake("observe")
    assert lake.json("report")["never_observed"] == []


def test_table_that_another_version_measured_was_observed(lake: Lake, monkeypatch):
    lake("observe", "lake.db.sick")
    monkeypatch.setattr(table_health, "_FORM", "another")
    shown = lake.json("report")
    assert (shown["outdated_tables"], shown["never_observed"]) == (1, ["lake.db.healthy"])


def test_report_names_a_catalog_that_does_not_answer_and_is_written(lake: Lake, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    lake("observe")

    def refused() -> tuple[TableId, ...]:
        raise IcebergMaintError("ICM-112", "catalog 'lake' does not answer.", "start it.")

    monkeypatch.setattr(lake.catalog, "tables", refused)
    shown = lake.json("report")
    assert [(c["catalog"], c["code"]) for c in shown["unlisted_catalogs"]] == [("lake", "ICM-112")]
    assert len(shown["tables"]) == 2
    result = lake("report")
    sentence = "tables of catalog 'lake' that were never observed are missing: ICM-112 catalog 'lake' does not answer. Fix: start it"
    assert (result.exit_code, result.stderr, sentence in result.stdout) == (0, "", True)
