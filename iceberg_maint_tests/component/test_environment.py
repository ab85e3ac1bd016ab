"""The other environment: its tables, and everything that can be wrong with it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from iceberg_maint import __version__
from iceberg_maint.component import Environment
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import ConfigurationError
from iceberg_maint_tests.support.e2e.lake import make_lake, make_table

pytestmark = pytest.mark.slow

INSTALL = f"Fix: run `pip install 'iceberg-maint[spark]=={__version__}'` in that environment, or name another one in `python`."


def python_that(folder: Path, script: str) -> str:
    """A program in the place of Python."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    program.chmod(0o755)
    return str(program)


def refusal(environment: Environment) -> str:
    with pytest.raises(ConfigurationError) as refused:
        environment.tables()
    return str(refused.value)


def test_tables_are_those_of_the_configured_catalogs(tmp_path: Path) -> None:
    config = make_lake(tmp_path)
    make_table(tmp_path, "db.events", 1)
    make_table(tmp_path, "db.users", 1)
    tables = Environment(sys.executable, str(config)).tables()
    assert tables == (TableId.parse("lake.db.events"), TableId.parse("lake.db.users"))


def test_missing_python_is_refused(tmp_path: Path) -> None:
    assert refusal(Environment(str(tmp_path / "none"))) == (
        f"ICM-184 `python` of the component, {tmp_path}/none, cannot be started: No such file or directory. {INSTALL}"
    )


def test_python_without_the_package_is_refused(tmp_path: Path) -> None:
    python = python_that(tmp_path, "echo 'python: No module named iceberg_maint' >&2; exit 1")
    assert refusal(Environment(python)) == (
        f"ICM-184 `{python} -m iceberg_maint` ended with exit code 1: python: No module named iceberg_maint. {INSTALL}"
    )


def test_python_without_the_extra_is_refused_as_the_program_says(tmp_path: Path) -> None:
    python = python_that(tmp_path, "echo 'ICM-184 no PyIceberg. Fix: install it.' >&2; exit 2")
    assert refusal(Environment(python)) == "ICM-184 no PyIceberg. Fix: install it."


def test_other_version_is_refused(tmp_path: Path) -> None:
    python = python_that(tmp_path, "echo 'iceberg-maint, version 0.0.9'")
    assert refusal(Environment(python)) == (
        f"ICM-184 {python} has iceberg-maint 0.0.9, this environment has {__version__}. {INSTALL}"
    )


def test_tables_are_not_read_while_a_catalog_does_not_answer(tmp_path: Path) -> None:
    unlisted = {
        "catalog": "other",
        "code": "ICM-104",
        "message": "other does not answer.",
        "fix": "start it.",
    }
    document = {"tables": [{"table": "lake.db.events"}], "unlisted_catalogs": [unlisted]}
    (tmp_path / "tables.json").write_text(json.dumps(document), "utf-8")
    version = f"echo 'iceberg-maint, version {__version__}'"
    python = python_that(
        tmp_path, f'case "$*" in *--version) {version};; *) cat {tmp_path}/tables.json;; esac'
    )
    assert refusal(Environment(python)) == "ICM-104 other does not answer. Fix: start it."


def test_variables_of_this_python_are_not_those_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    assert "PYTHONPATH" in Environment(sys.executable).variables()
    assert "PYTHONPATH" not in Environment("/another/python").variables()
