"""Calls that cannot be read: one line on stderr, exit code 2, and with --json one document."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from iceberg_maint_tests.cli.conftest import Lake

pytestmark = pytest.mark.seconds


@pytest.mark.parametrize(
    ("line", "code", "message", "fix"),
    [
        ("--json tabels", None, "No such command 'tabels'", "see iceberg-maint --help."),
        ("--json tables --nope", None, "No such option '--nope'", "see iceberg-maint tables --help."),
        ("tables --nope --json", None, "No such option '--nope'", "see iceberg-maint tables --help."),
        ("--nope tables --json", None, "No such option '--nope'", "see iceberg-maint --help."),
        ("plan --json", None, "Missing argument 'TABLE'", "see iceberg-maint plan --help."),
        (
            "release --partition x --json",
            None,
            "--partition needs a TABLE",
            "see iceberg-maint release --help.",
        ),
        (
            "attest db.sick --accept 1 --snapshot 1 --json",
            None,
            "--accept and --snapshot exclude each other.",
            "see iceberg-maint attest --help.",
        ),
        ("--json orphans", None, "Usage: iceberg-maint orphans", "see iceberg-maint orphans --help."),
        (
            "why db.sick --set mode --json",
            "ICM-100",
            "--set mode is not KEY=VALUE.",
            "write a policy key, = and a value.",
        ),
        (
            "--json why db.sick --set =3",
            "ICM-100",
            "--set =3 is not KEY=VALUE.",
            "write a policy key, = and a value.",
        ),
    ],
)
def test_usage_error_is_a_document_where_one_is_asked_for(
    lake: Lake, line: str, code: str | None, message: str, fix: str
) -> None:
    result = lake(*line.split())
    assert result.exit_code == 2
    error = json.loads(result.stdout)["error"]
    assert (error["code"], error["fix"]) == (code, fix)
    assert error["message"].startswith(message)
    assert "\n" not in error["message"]
    assert result.stderr != ""


@pytest.mark.parametrize("line", ["tabels", "plan", "pause -- --json more", "why db.sick --set mode"])
def test_usage_error_prints_no_document_unasked(lake: Lake, line: str) -> None:
    result = lake(*line.split())
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize(
    "line", ["--json readers list db.sick", "readers --json list db.sick", "readers list db.sick --json"]
)
def test_json_may_stand_before_every_name(lake: Lake, line: str) -> None:
    assert json.loads(lake(*line.split()).stdout) == {"table": "lake.db.sick", "readers": []}


def test_config_of_a_group_is_the_one_that_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from iceberg_maint.cli import iceberg_maint

    monkeypatch.setenv("ICEBERG_MAINT_HOME", str(tmp_path))
    result = CliRunner().invoke(
        iceberg_maint, ["orphans", "--config", f"{tmp_path}/none.yaml", "list", "a.b"]
    )
    assert result.exit_code == 2
    assert f"configuration file {tmp_path}/none.yaml cannot be read" in result.stderr


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_reader_that_has_left_is_no_failure(tmp_path: Path, more: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    run = subprocess.run(
        [sys.executable, "-m", "iceberg_maint", "report", *more],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "ICEBERG_MAINT_HOME": str(tmp_path)},
    )
    os.close(writing)
    assert (run.returncode, run.stderr) == (0, "")
