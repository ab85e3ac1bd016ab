"""Work on the fleet as an asset or a sensor: the page of the report, its numbers, its files, its schedule."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from iceberg_maint.config import load_config
from iceberg_maint.config.sections import ReportConfig
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.code_location import CodeLocation
from iceberg_maint.defs.load_definitions import build_definitions
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import ConfigurationError
from iceberg_maint.integrations import reports
from iceberg_maint.integrations.reports import report_work, write_fleet_report
from iceberg_maint.wiring.integrations import FleetWork, WorkReport
from iceberg_maint_tests.defs.conftest import World

pytestmark = pytest.mark.slow

T = TableId.parse("lake.db.t")
KEY = IcebergTranslator().get_fleet_key("fleet_report")


def definitions(world: World, *work: FleetWork, shard: tuple[int, int] = (0, 1)) -> dg.Definitions:
    return build_definitions(world.context, CodeLocation([T], world.table_list, shard), fleet_work=work)


def report(world: World, config: ReportConfig) -> FleetWork:
    loaded = replace(load_config(None, {}), report=config)
    return report_work(loaded, world.context)


def materialized(world: World, work: FleetWork) -> dg.ExecuteInProcessResult:
    key = IcebergTranslator().get_fleet_key(work.name)
    job = definitions(world, work).resolve_implicit_job_def_def_for_assets([key])
    assert job is not None
    return job.execute_in_process(instance=world.instance, asset_selection=[key], raise_on_error=False)


def test_work_without_a_schedule_is_a_sensor_with_its_summary_and_warnings(world: World) -> None:
    report = WorkReport("1 open alerts; receivers that took messages: 0", warnings=("ICM-151 down",))
    made = definitions(world, FleetWork("alerts", "Sends.", lambda: report))
    sensor = made.resolve_sensor_def("alerts")
    with dg.build_sensor_context(instance=world.instance) as context:
        skip = sensor.evaluate_tick(context)
    assert (sensor.minimum_interval_seconds, skip.skip_message) == (60, report.summary)
    assert "alerts" not in {key.to_user_string() for key in made.resolve_all_asset_keys()}


def test_report_has_the_page_the_numbers_and_its_files(world: World, tmp_path: Path) -> None:
    world.catalog.create("db.t").add("d1", 8)
    world.observe()
    config = ReportConfig(folder=tmp_path / "reports")
    for _ in range(2):  # the files of a day are replaced
        assert materialized(world, report(world, config)).success
    event = world.instance.get_latest_materialization_event(KEY)
    assert event is not None
    assert event.asset_materialization is not None
    metadata = {name: value.value for name, value in event.asset_materialization.metadata.items()}
    assert metadata["report"].startswith("# Fleet report")
    assert (metadata["tables"], metadata["tables_due"], metadata["small_files"]) == (1, 1, 8)
    names = [f"fleet-2027-01-15.{ending}" for ending in ("html", "json", "md")]
    assert sorted(file.name for file in config.folder.iterdir()) == names if config.folder else False
    assert (metadata["file_md"], metadata["report"]) == (
        str(tmp_path / "reports" / names[2]),
        (tmp_path / "reports" / names[2]).read_text("utf-8"),
    )
    document = json.loads((tmp_path / "reports" / names[1]).read_text("utf-8"))
    assert [table["table"] for table in document["tables"]] == ["lake.db.t"]


def test_reports_beyond_the_newest_are_deleted(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report of the day is 2027-01-15."""
    days = ("2026-12-31", "2027-01-01", "2027-01-08")
    for name in (
        *(f"fleet-{day}.{ending}" for day in days for ending in ("html", "md", "json")),
        "fleet-notes.md",
    ):
        (tmp_path / name).touch()
    write_fleet_report(world.context, ReportConfig(folder=tmp_path))
    assert len(list(tmp_path.iterdir())) == 4 * 3 + 1
    monkeypatch.setattr(reports, "KEPT_REPORTS", 2)
    write_fleet_report(world.context, ReportConfig(folder=tmp_path))
    kept = [
        f"fleet-{day}.{ending}" for day in ("2027-01-08", "2027-01-15") for ending in ("html", "json", "md")
    ]
    assert sorted(file.name for file in tmp_path.iterdir()) == [*kept, "fleet-notes.md"]


def test_report_without_a_folder_writes_no_file(world: World) -> None:
    written = write_fleet_report(world.context, ReportConfig())
    assert (written.files, written.report.rows) == ((), ())


def test_report_into_a_folder_that_cannot_be_made_is_an_error_with_its_setting(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        ConfigurationError, match=r"ICM-100 report\.folder: .* cannot be written: .* Fix: name a folder"
    ):
        write_fleet_report(world.context, ReportConfig(folder=tmp_path / "file" / "reports"))


def test_first_shard_only_has_the_report_and_its_schedule(world: World) -> None:
    config = replace(ReportConfig(), schedule="30 6 1 * *")
    first, second = (definitions(world, report(world, config), shard=(number, 2)) for number in range(2))
    assert KEY in first.resolve_all_asset_keys()
    assert KEY not in second.resolve_all_asset_keys()
    assert first.resolve_schedule_def("fleet_report_schedule").cron_schedule == "30 6 1 * *"


def test_schedule_that_is_no_cron_expression_is_an_error_with_its_fix(world: World) -> None:
    with pytest.raises(ConfigurationError, match=r"report\.schedule is '61 \* \* \* \*'"):
        definitions(world, report(world, replace(ReportConfig(), schedule="61 * * * *")))
