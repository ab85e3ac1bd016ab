"""`doctor`: one line per check, and the exit code of the first that fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iceberg_maint.cli.doctor import _probe
from iceberg_maint.errors import ConfigurationError, RefusedError
from iceberg_maint_tests.cli.conftest import NOW_MS, Lake


@pytest.fixture(autouse=True)
def still_clock_no_dagster_no_jvm(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setattr(lake.app.ledger, "now_ms", lambda: NOW_MS)
    monkeypatch.setattr(lake.app, "spark_versions", lake.engine.versions)


def checks(lake: Lake, *arguments: str, exit_code: int = 0) -> dict[str, tuple[str, str]]:
    document = lake.json("doctor", *arguments, exit_code=exit_code)
    return {c["check"]: (c["status"], c["detail"]) for c in document["checks"]}


def test_sound_lake_passes_every_check(lake: Lake) -> None:
    found = checks(lake)
    assert {status for status, _ in found.values()} == {"ok"}
    assert list(found) == [
        "python",
        "packages",
        "configuration",
        "java",
        "jars",
        "catalog lake",
        "metadata of lake.db.healthy",
        "warehouse of lake",
        "ledger",
        "clock",
        "spark",
    ]
    assert found["catalog lake"][1].endswith("2 tables")
    assert found["spark"][1] == "iceberg 1.12.0, spark 4.1.4"


def test_spark_can_be_left_out(lake: Lake) -> None:
    assert "spark" not in checks(lake, "--no-spark")


def test_unreachable_catalog_fails_with_its_exit_code_and_the_rest_is_checked(lake: Lake) -> None:
    lake.catalog.unreachable = True
    found = checks(lake, "--no-spark", exit_code=2)
    assert found["catalog lake"][0] == "failed"
    assert found["catalog lake"][1].startswith("ICM-104")
    assert found["ledger"][0] == "ok"


def test_pattern_that_matches_no_table_is_a_warning(lake: Lake) -> None:
    lake.configure("tables: {'db.sik': {paused: true}, 'db.si*': {paused: true}}\n")
    result = lake.json("doctor", "--no-spark")
    warnings = [c["detail"] for c in result["checks"] if c["status"] == "warning"]
    assert warnings == ["tables.'db.sik' matches no table"]


def test_wrong_configuration_is_the_check_that_fails(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_self: object) -> Any:
        raise ConfigurationError("ICM-100", "catalogs is missing.", "write it.")

    monkeypatch.setattr("iceberg_maint.cli.session.Session.app", broken)
    found = checks(lake, exit_code=2)
    assert found["configuration"] == ("failed", "ICM-100 catalogs is missing. Fix: write it.")
    assert list(found) == ["python", "packages", "configuration"]


def test_clock_far_from_the_ledger_s_is_a_warning(lake: Lake) -> None:
    lake.clock.ms += 3_600_000
    assert checks(lake, "--no-spark")["clock"] == ("warning", "3600.0 s between this machine and the ledger")


def test_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    assert _probe(tmp_path.as_uri()) == f"{tmp_path}: written, read, deleted"
    assert list(tmp_path.iterdir()) == []
    file = tmp_path / "a file"
    file.touch()
    with pytest.raises(RefusedError, match="ICM-125"):
        _probe(file.as_uri())
    assert _probe("s3://bucket/x") == "s3://bucket/x: not probed, Spark's own file system reaches it"


@pytest.mark.parametrize(
    ("text", "status", "exit_code"),
    [
        ("defaults: {mode: advise}\n", "warning", 0),
        ("defaults: {mode: advise}\ntables: {'db.healthy': {mode: act}}\n", "failed", 3),
    ],
)
def test_warehouse_that_cannot_be_written_is_enough_to_advise(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, text: str, status: str, exit_code: int
) -> None:
    def denied(_warehouse: str) -> str:
        raise RefusedError(
            "ICM-125", "/lake cannot be written: Permission denied.", "let the user write there."
        )

    lake.configure(text)
    monkeypatch.setattr("iceberg_maint.cli.doctor._probe", denied)
    assert checks(lake, "--no-spark", exit_code=exit_code)["warehouse of lake"][0] == status


def test_dagster_instance_without_run_monitoring_is_refused(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\nrun_monitoring: {enabled: false}\n")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    status, detail = checks(lake, "--no-spark", exit_code=3)["dagster"]
    assert (status, detail[:7]) == ("failed", "ICM-117")


def test_spark_that_does_not_start_is_one_failed_check(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise OSError("no space left")

    monkeypatch.setattr(lake.app, "spark_versions", broken)
    (failed,) = (c for c in lake.json("doctor", exit_code=1)["checks"] if c["status"] == "failed")
    assert (failed["check"], failed["detail"], failed["code"]) == ("spark", "OSError: no space left", None)
