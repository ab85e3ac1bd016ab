"""dbt on Spark appends to a model; what it wrote is maintained, and its test of small files passes then."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from iceberg_maint_tests.nightly.suites import PROJECT
from iceberg_maint_tests.qualification.platform.lake import Lake, expected, open_lake

_FILES = PROJECT / "deploy" / "dbt"
_APPENDS = 5
_MODEL = """\
{{ config(materialized="incremental", incremental_strategy="append", file_format="iceberg") }}
select id, 'x' as v from range(0, 4, 1, 1)
"""
_SCHEMA = """\
models:
  - name: events
    data_tests: [{few_small_files: {max_files: 3}}]
"""


def differences(folder: Path, packages: Path) -> list[str]:
    """Builds the model by several runs of dbt, then maintains what the last one wrote."""
    with open_lake(folder) as lake:
        return _differences(folder, packages, lake)


def _differences(folder: Path, packages: Path, lake: Lake) -> list[str]:
    lake.append("db.other", 8)
    project = _project(folder / "project", lake)
    environ = os.environ | {"PYTHONPATH": str(packages), "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}

    def dbt(*arguments: str) -> int:
        command = [sys.executable, "-m", "dbt.cli.main", *arguments, "--profiles-dir", str(project)]
        done = subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, check=False)
        return done.returncode

    codes = [dbt("run") for _ in range(_APPENDS)]
    before = lake.content("dbt.events")
    red = dbt("test")
    codes.append(dbt("run"))
    written = _written(project)
    lake.call("run", *written, config=lake.config())
    after, green = lake.content("dbt.events"), dbt("test")
    shown: dict[str, tuple[object, object]] = {
        "runs of dbt": (codes, [0] * (_APPENDS + 1)),
        "before": (before, (_APPENDS, 4 * _APPENDS)),
        "test before": (red, 1),
        "written": (written, ["lake.dbt.events"]),
        "after": (after, (1, 4 * _APPENDS + 4)),
        "test after": (green, 0),
        "other": (lake.content("db.other"), (8, 16)),
    }
    return expected(shown)


def _written(project: Path) -> list[str]:
    script = [sys.executable, str(_FILES / "written_tables.py"), str(project / "target"), "--catalog", "lake"]
    return subprocess.run(script, capture_output=True, text=True, check=True).stdout.split()


def _project(folder: Path, lake: Lake) -> Path:
    """A project of one model, with the test and a profile of the lake's catalog. Session jars are those of the program."""
    (folder / "models").mkdir(parents=True)
    shutil.copytree(_FILES / "macros", folder / "macros")
    (folder / "models" / "events.sql").write_text(_MODEL, "utf-8")
    (folder / "models" / "schema.yml").write_text(_SCHEMA, "utf-8")
    project = {
        "name": "lake",
        "version": "1.0",
        "profile": "lake",
        "model-paths": ["models"],
        "macro-paths": ["macros"],
    }
    (folder / "dbt_project.yml").write_text(json.dumps(project), "utf-8")
    jars = subprocess.run(
        [
            sys.executable,
            "-m",
            "iceberg_maint.engines.spark.session.jars",
            "--cache",
            str(PROJECT / ".cache"),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    spark = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "jdbc",
        "spark.sql.catalog.lake.uri": lake.jdbc,
        "spark.sql.catalog.lake.jdbc.schema-version": "V1",
        "spark.sql.catalog.lake.warehouse": f"file://{lake.folder}/warehouse",
        "spark.sql.defaultCatalog": "lake",
        "spark.sql.warehouse.dir": f"{lake.folder}/spark-warehouse",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
    }
    output = {
        "type": "spark",
        "method": "session",
        "host": "NA",
        "schema": "dbt",
        "threads": 1,
        "server_side_parameters": spark,
    }
    profiles = {"lake": {"target": "session", "outputs": {"session": output}}}
    (folder / "profiles.yml").write_text(json.dumps(profiles), "utf-8")
    return folder
