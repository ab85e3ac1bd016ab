"""A project of Dagster with an executor and a resource `pyspark` of its own, to which the component is added in ten lines."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RUN = Path(__file__).with_name("host_run.py")
_PROJECT = """\
[project]
name = "host"
version = "0.1"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "host"
"""
_ASSETS = """\
import dagster as dg


@dg.asset(metadata={"dagster/table_name": "lake.db.events"})
def raw_events() -> None: ...


@dg.definitions
def defs() -> dg.Definitions:
    return dg.Definitions(assets=[raw_events], resources={"pyspark": "its own"}, executor=dg.in_process_executor)
"""
_DEFINITIONS = """\
from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
_DEFS = """\
type: iceberg_maint.component.IcebergMaintenanceComponent
attributes:
  config: {config}
  python: {python}
"""
_HIDDEN = ("PYTHON", "ICEBERG_MAINT_", "DAGSTER_")


class Project:
    """The project in a folder. `python` is that of its environment, `maintenance` that of the other one."""

    def __init__(self, folder: Path, python: Path, config: Path, maintenance: str) -> None:
        self.folder, self.python = folder, python
        host = folder / "src" / "host"
        (host / "defs" / "maintenance").mkdir(parents=True)
        for package in (host, host / "defs"):
            (package / "__init__.py").touch()
        (folder / "pyproject.toml").write_text(_PROJECT, "utf-8")
        (host / "definitions.py").write_text(_DEFINITIONS, "utf-8")
        (host / "defs" / "assets.py").write_text(_ASSETS, "utf-8")
        self.yaml = host / "defs" / "maintenance" / "defs.yaml"
        self.yaml.write_text(_DEFS.format(config=config, python=maintenance), "utf-8")
        (folder / "dagster_home").mkdir()
        # Nothing that this package asks for: what every new project has.
        (folder / "dagster_home" / "dagster.yaml").touch()

    def environ(self) -> Mapping[str, str]:
        """The variables of its processes."""
        own = {"DAGSTER_HOME": str(self.folder / "dagster_home"), "PYTHONPATH": str(self.folder / "src")}
        return {**{k: v for k, v in os.environ.items() if not k.startswith(_HIDDEN)}, **own}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A run that is under way."""
        return subprocess.Popen(
            [self.python, str(RUN), str(self.folder), *arguments],
            env=self.environ(),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> dict[str, Any]:
        """A run to its end: what the project's Dagster has of it."""
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
        document: dict[str, Any] = json.loads(out.splitlines()[-1])
        return document
