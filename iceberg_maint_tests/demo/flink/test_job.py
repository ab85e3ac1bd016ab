from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from bench.flink.job import FlinkHome, flink_catalog, flink_home, started
from iceberg_maint.demo.workspace import place
from iceberg_maint.errors import ConfigurationError

pytestmark = pytest.mark.slow


def java(folder: Path, body: str) -> FlinkHome:
    """A program in Java's place, which prints and ends as a client of Flink's may."""
    program = folder / "java"
    program.write_text(f"#!{sys.executable}\n{body}\n")
    program.chmod(0o755)
    return FlinkHome(program, (Path("a.jar"), Path("b.jar")))


def test_flinks_catalog_has_the_name_and_the_database_of_ours(tmp_path: Path) -> None:
    config = place(tmp_path / "data").prepare(os.environ)
    assert flink_catalog(config.catalogs["lake"]) == {
        "name": "lake",
        "type": "iceberg",
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{tmp_path}/data/catalog.db?busy_timeout=30000",
        "warehouse": f"file://{tmp_path}/data/warehouse",
        "jdbc.schema-version": "V1",
        "cache-enabled": "false",
    }


def test_folder_without_flink_says_how_to_get_it(tmp_path: Path) -> None:
    config = place(tmp_path / "data").prepare(os.environ)
    with pytest.raises(ConfigurationError, match="make demo DEMO=flink"):
        flink_home(config, tmp_path)


def test_job_gets_its_script_and_binds_to_loopback(tmp_path: Path) -> None:
    home = java(tmp_path, "import os, sys; print(os.environ['FLINK_CONF_DIR'], sys.argv[-2:])")
    folder = tmp_path / "flink"
    with started(home, folder, "SELECT 1;\n") as job:
        job.process.wait(30)
        assert job.succeeded
        assert not job.running
        assert job.said().strip() == f"{folder} ['-f', '{folder}/script.sql']"
    assert (folder / "script.sql").read_text() == "SELECT 1;\n"
    addresses = [
        line
        for line in (folder / "config.yaml").read_text().splitlines()
        if "address" in line or "host" in line
    ]
    assert len(addresses) == 8
    assert all(line.endswith(": 127.0.0.1") for line in addresses)


@pytest.mark.parametrize("body", ["print('[ERROR] Could not execute SQL statement.')", "raise SystemExit(1)"])
def test_failed_statement_is_a_failed_job_although_the_client_ends_well(tmp_path: Path, body: str) -> None:
    with started(java(tmp_path, body), tmp_path / "flink", "") as job:
        job.process.wait(30)
        assert not job.succeeded


def test_job_that_still_runs_is_stopped(tmp_path: Path) -> None:
    with started(java(tmp_path, "import time; time.sleep(600)"), tmp_path / "flink", "") as job:
        assert job.running
        assert not job.succeeded
    assert not job.running
    assert not job.succeeded


def test_flink_and_its_gateway_are_of_one_version() -> None:
    project = Path(__file__).resolve().parents[3]
    [flink] = re.findall(
        r"^apache-flink-libraries==(\S+)", (project / "requirements/flink.txt").read_text(), re.MULTILINE
    )
    lock = json.loads((project / "bench/flink/jars.lock.json").read_text())
    assert lock[0]["coordinate"] == f"org.apache.flink:flink-sql-gateway:{flink}"
    assert lock[1]["coordinate"].startswith(
        f"org.apache.iceberg:iceberg-flink-runtime-{flink.rpartition('.')[0]}:"
    )
