"""Dagster's own command line `dg` takes the component into a new project that has Dagster alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from iceberg_maint_tests.conftest import PROJECT
from iceberg_maint_tests.support.component.project import Project
from iceberg_maint_tests.support.e2e.lake import make_lake, make_table

_TYPE = "iceberg_maint.component.IcebergMaintenanceComponent"
_DG = "import sys; from dagster_dg_cli.cli import main; sys.argv[0] = 'dg'; main()"


def differences(folder: Path, apart: Path) -> list[str]:
    """What differs from the expected. `apart` is the folder of the packages of `dg`."""
    lake = folder / "lake"
    lake.mkdir()
    config = make_lake(lake)
    make_table(lake, "db.events", 1)
    python = Path(sys.base_prefix) / "bin" / "python3"
    project = Project(folder / "project", python, config, sys.executable)
    project.yaml.unlink()
    project.yaml.parent.rmdir()
    packages = [apart, package(folder / "package"), project.folder / "src"]
    environ = {
        **project.environ(),
        "PYTHONPATH": os.pathsep.join(map(str, packages)),
        "HOME": str(folder),
        "DO_NOT_TRACK": "1",
    }

    def dg(*arguments: str, says: Sequence[str], code: int = 0) -> list[str]:
        done = subprocess.run(
            [python, "-c", _DG, *arguments],
            cwd=project.folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        missing = [text for text in says if text not in done.stdout]
        if done.returncode != code or missing:
            return [
                f"dg {' '.join(arguments)}: exit code {done.returncode}, not said {missing}: {done.stdout[-2000:]}"
            ]
        return []

    options = ("--config", str(config), "--python", sys.executable)
    different = [
        *dg("list", "components", says=["iceberg_maint.component"]),
        *dg("scaffold", "defs", _TYPE, "maintenance", *options, says=["Creating defs"]),
        *dg("utils", "refresh-defs-state", says=["1 components refreshed successfully"]),
        *dg("check", "defs", says=["All definitions loaded successfully"]),
        *dg("list", "defs", "--json", says=[json.dumps("iceberg_maint/lake/db/events")]),
    ]
    project.yaml.write_text(f"{project.yaml.read_text('utf-8')}  thresholds: 3\n", "utf-8")
    return [*different, *dg("check", "yaml", says=["thresholds"], code=1)]


def package(folder: Path) -> Path:
    """This package, as if it were installed without its extra."""
    name = "iceberg_maint"
    facts = folder / f"{name}-0.1.0.dist-info"
    facts.mkdir(parents=True)
    (folder / name).symlink_to(PROJECT / name)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: iceberg-maint\nVersion: 0.1.0\n", "utf-8")
    entry_points = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    lines = [
        f"[{group}]\n{key} = {value}\n" for group, own in entry_points.items() for key, value in own.items()
    ]
    (facts / "entry_points.txt").write_text("".join(lines), "utf-8")
    return folder
