"""A JVM without a Spark context commits what one with a context commits, and ends with its process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from iceberg_maint_tests.support.e2e.lake import (
    PARTITIONS,
    catalog_of,
    iceberg_maint,
    make_lake,
    make_table,
    rows_by_duckdb,
)
from iceberg_maint_tests.support.e2e.sessions import ended, in_session

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.together("programs")]

TABLE = "db.t"
COMMITS = 12
OWN_PROCESSES = 4
"""The program, its JVM, the parent of its workers, and a worker."""
OPERATIONS = ("rewrite_data_files", "rewrite_manifests", "expire_snapshots")
_OWN = ("iceberg-maint.", "app-id")
"""Parts of the names of what no two commits share."""
_SIZES = ("size", "kib", "bytes")


def started(folder: Path, start: str) -> Path:
    """The configuration of a lake with a table of many small files."""
    config = make_lake(folder, cores=1)
    text = config.read_text("utf-8").replace("spark:\n", f"spark:\n  start: {start}\n")
    config.write_text(text, "utf-8")
    make_table(folder, TABLE, COMMITS)
    return config


def summaries(folder: Path) -> list[dict[str, str]]:
    """What the snapshots of maintenance say of themselves, without what no two runs share."""
    snapshots = [s.summary for s in catalog_of(folder).load_table(TABLE).snapshots()]
    texts = [{"operation": s.operation.value, **s.additional_properties} for s in snapshots[COMMITS:] if s]
    return [
        {k: v for k, v in text.items() if not k.startswith(_OWN) and not any(part in k for part in _SIZES)}
        for text in texts
    ]


def run(config: Path, *operations: str) -> None:
    chosen = [word for operation in operations for word in ("--operation", operation)]
    done = iceberg_maint(["run", TABLE, *chosen, "--force"], config)
    assert done.returncode == 0, done.stderr[-2000:]


def spark_of_records(config: Path) -> set[str]:
    done = iceberg_maint(["history", TABLE, "--json"], config)
    return {r["versions"]["spark"] for r in json.loads(done.stdout)["records"] if r["versions"]}


@pytest.mark.variant
def test_commits_are_those_of_a_jvm_with_a_spark_context(tmp_path: Path) -> None:
    found = []
    for start in ("when_needed", "always"):
        folder = tmp_path / start
        folder.mkdir()
        config = started(folder, start)
        before = rows_by_duckdb(folder, TABLE)
        run(config, *OPERATIONS)
        assert rows_by_duckdb(folder, TABLE) == before
        files = len(catalog_of(folder).load_table(TABLE).inspect.data_files())
        found.append((files, summaries(folder)))
        [version] = spark_of_records(config)
        assert version.endswith(", not started") == (start == "when_needed")
    (files, plain), (files_always, always) = found
    pairs = zip(plain, always, strict=True)
    different = [{k: (a.get(k), b.get(k)) for k in a | b if a.get(k) != b.get(k)} for a, b in pairs]
    assert different == [{}] * len(plain)
    assert files == files_always == PARTITIONS


def test_jvm_and_its_workers_end_with_a_killed_process(tmp_path: Path) -> None:
    config = started(tmp_path, "when_needed")
    program = f"""
import time
from pathlib import Path
from pyspark import cloudpickle
from iceberg_maint.wiring.adapters import load
engine = load(Path({str(config)!r})).engine()
engine.start()
from pyspark import SparkContext
from iceberg_maint.engines.spark.rewrite.columnar.workers import PARENT
worker = PARENT.connect()
worker.send(cloudpickle.dumps((0, time.sleep, (300,))))
print(SparkContext._active_spark_context, engine.versions()["spark"], flush=True)
time.sleep(300)
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        context, version = process.stdout.readline().strip().split(" ", 1)
        assert (context, version.endswith(", not started")) == ("None", True)
        while len(in_session(process.pid)) < OWN_PROCESSES:
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    assert ended(process.pid)


def test_run_of_dagster_starts_no_spark_context(tmp_path: Path) -> None:
    config = started(tmp_path, "when_needed")
    listed = tmp_path / "tables.json"
    listed.write_text(json.dumps({"version": 1, "tables": [["lake", "db", "t"]]}), "utf-8")
    program = """
import dagster as dg
from iceberg_maint.definitions import defs
job = defs.resolve_job_def("__ASSET_JOB")
assert job.execute_in_process(asset_selection=[dg.AssetKey(["lake", "db", "t"])]).success
"""
    settings = {"ICEBERG_MAINT_CONFIG": str(config), "ICEBERG_MAINT_TABLE_LIST": str(listed)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(catalog_of(tmp_path).load_table(TABLE).inspect.data_files()) == PARTITIONS
    [version] = spark_of_records(config)
    assert version.endswith(", not started")


def test_spark_starts_in_the_same_jvm_when_work_needs_it(tmp_path: Path) -> None:
    config = started(tmp_path, "when_needed")
    text = config.read_text("utf-8").replace(
        "defaults:\n", "defaults:\n  rewrite_data_files: {strategy: native}\n"
    )
    config.write_text(text, "utf-8")
    before = rows_by_duckdb(tmp_path, TABLE)
    run(config, "rewrite_data_files")
    assert rows_by_duckdb(tmp_path, TABLE) == before
    [version] = spark_of_records(config)
    assert not version.endswith("not started")
