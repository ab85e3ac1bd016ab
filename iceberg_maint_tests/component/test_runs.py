"""Real runs: a project with Dagster alone maintains a real table in this environment, by Dagster Pipes and Spark."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from iceberg_maint_tests.support.component.alone import dagster_alone
from iceberg_maint_tests.support.component.project import Project
from iceberg_maint_tests.support.e2e.lake import catalog_of, iceberg_maint, make_lake, make_table

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.in_order,
    pytest.mark.timeout(500),
    pytest.mark.long(60),
]

KEY = "iceberg_maint/lake/db/events"
COMMITS = 6


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    make_lake(folder, more="  remove_orphan_files: {enabled: false}\n")
    make_table(folder, "db.events", COMMITS)
    return folder


@pytest.fixture(scope="module")
def project(lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    python = dagster_alone(tmp_path_factory.mktemp("alone"))
    return Project(tmp_path_factory.mktemp("project"), python, lake / "config.yaml", sys.executable)


@pytest.fixture(scope="module")
def observed(project: Project) -> Project:
    """The project once it knows the partitions: variants run without the tests before them."""
    assert project.run("observe")["success"]
    return project


def files(lake: Path) -> dict[int, int]:
    """Data files of each partition."""
    counts: dict[int, int] = {}
    table = catalog_of(lake).load_table("db.events")
    for task in table.scan().plan_files():
        partition = task.file.partition[0]
        counts[partition] = counts.get(partition, 0) + 1
    return dict(sorted(counts.items()))


def rows(lake: Path) -> list[tuple[int, str]]:
    """All rows, sorted."""
    table = catalog_of(lake).load_table("db.events").scan().to_arrow()
    return sorted(zip(table["p"].to_pylist(), table["v"].to_pylist(), strict=True))


def children(parent: psutil.Process, argument: str) -> list[psutil.Process]:
    """The processes below `parent` with this argument, or with a program of this name."""
    found = []
    for process in parent.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if argument in (process.name(), *process.cmdline()):
                found.append(process)
    return found


def checks(document: dict[str, Any], name: str) -> dict[str | None, bool]:
    """Partition to result of a check of the data, the last one each."""
    return {
        e["partition"]: e["passed"]
        for e in document["events"]
        if e["kind"] == "check" and e["name"] == name and e["asset"] == KEY
    }


def test_observation_reports_partitions_checks_and_what_is_due(project: Project, lake: Path) -> None:
    assert files(lake) == {0: 6, 1: 6, 2: 6}
    said = project.run("observe")
    assert said["success"]
    assert said["partitions"] == ["p=0", "p=1", "p=2"]
    assert said["materialized"] == []
    assert checks(said, "small_files") == {"p=0": False, "p=1": False, "p=2": False}
    assert checks(said, "delete_files") == {"p=0": True, "p=1": True, "p=2": True}
    assert checks(said, "maintenance_due") == {"p=0": False, "p=1": False, "p=2": False}
    assert checks(said, "no_progress") == {None: True}
    assert said["pools"] == {}  # nothing would free the slot of a run that dies
    [table] = [e for e in said["events"] if e["kind"] == "observation" and e["partition"] is None]
    assert {"card", "files", "due_partitions", "policy"} <= set(table["labels"])


def test_materialization_heals_its_partitions_and_reports_each(project: Project, lake: Path) -> None:
    before = rows(lake)
    said = project.run(KEY, "p=0", "p=1")
    assert said["success"], said["events"]
    assert files(lake) == {0: 1, 1: 1, 2: 6}
    assert rows(lake) == before
    assert said["materialized"] == ["p=0", "p=1"]
    done = {e["partition"]: e["metadata"] for e in said["events"] if e["kind"] == "materialization"}
    assert {p: (m["batch_input_files"], m["batch_output_files"]) for p, m in done.items()} == {
        "p=0": (6, 1),
        "p=1": (6, 1),
    }
    assert "card" in done["p=0"]
    assert "proof_certificate" in done["p=1"]
    assert checks(said, "small_files") == {"p=0": True, "p=1": True, "p=2": False}
    assert checks(said, "maintenance_due") == {"p=0": True, "p=1": True, "p=2": False}
    assert any("IMPROVED (small_files)" in e.get("text", "") for e in said["events"] if e["kind"] == "log")
    history = json.loads(iceberg_maint(["history", "db.events", "--json"], lake / "config.yaml").stdout)
    versions = {r["versions"]["spark"] for r in history["records"] if r["versions"]}
    assert versions
    assert all(version.endswith(", not started") for version in versions), versions


@pytest.mark.variant  # defs/test_table_run.py has the refusal
def test_run_of_a_partition_that_never_was_is_refused_with_its_code(observed: Project, lake: Path) -> None:
    make_partition(observed, "p=77")
    before = files(lake)
    said = observed.run(KEY, "p=77")
    [failure] = [e["text"] for e in said["events"] if e["kind"] == "failure"]
    assert failure.startswith("ICM-126 lake.db.events has and had no partition 'p=77'.")
    assert said["partitions"] == ["p=0", "p=1", "p=2"]
    assert files(lake) == before


def make_partition(project: Project, key: str) -> None:
    import dagster as dg

    os.environ["DAGSTER_HOME"] = str(project.folder / "dagster_home")
    try:
        with dg.DagsterInstance.get() as instance:
            instance.add_dynamic_partitions("iceberg/lake.db.events", [key])
    finally:
        del os.environ["DAGSTER_HOME"]


def test_process_elsewhere_ends_with_the_process_of_the_project(project: Project, lake: Path) -> None:
    process = project.start("observe")
    parent = psutil.Process(process.pid)
    until = time.monotonic() + 60
    while not (workers := children(parent, "observe")):
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.02)
    others = [p for p in parent.children(recursive=True) if p not in workers]
    process.kill()
    process.wait(timeout=60)
    _, alive = psutil.wait_procs(workers, timeout=60)
    # What Dagster itself leaves of a killed step: programs that copy its output.
    for other in others:
        with contextlib.suppress(psutil.Error):
            other.kill()
    process.communicate(timeout=60)
    assert alive == []
    assert files(lake) == {0: 1, 1: 1, 2: 6}


def test_terminated_run_stops_the_process_elsewhere_and_the_next_one_continues(
    project: Project, lake: Path
) -> None:
    before = rows(lake)
    process = project.start(KEY, "p=2", "p=2")
    parent = psutil.Process(process.pid)
    until = time.monotonic() + 60
    while not (java := children(parent, "java")):
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.05)
    [worker] = children(parent, "iceberg_maint")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    psutil.wait_procs([worker, *java], timeout=30)
    assert not worker.is_running()
    assert not any(p.is_running() for p in java)
    assert rows(lake) == before
    said = project.run(KEY, "p=2", "p=2")
    assert said["success"], said["events"]
    assert files(lake) == {0: 1, 1: 1, 2: 1}
    assert rows(lake) == before


@pytest.mark.variant  # loop/test_stops.py has a table that another run holds
def test_two_deployments_over_one_table_rewrite_each_partition_once(
    observed: Project, lake: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    table = catalog_of(lake).load_table("db.events")
    for number in range(COMMITS):
        values = {"p": [0, 1, 2], "v": [f"more {number}"] * 3}
        table.append(pa.table(values, schema=table.schema().as_arrow()))
    before, count = rows(lake), len(replaced(lake))
    folder = tmp_path_factory.mktemp("other")
    other = Project(folder, observed.python, lake / "config.yaml", sys.executable)
    assert other.run("observe")["success"]
    both = [one.start(KEY, "p=0", "p=2") for one in (observed, other)]
    said = [json.loads(process.communicate(timeout=400)[0].splitlines()[-1]) for process in both]
    assert [one["success"] for one in said] == [True, True]
    assert [one["materialized"] for one in said] == [["p=0", "p=1", "p=2"]] * 2
    assert files(lake) == {0: 1, 1: 1, 2: 1}
    assert rows(lake) == before
    assert len(replaced(lake)) - count == 3


def replaced(lake: Path) -> list[int]:
    """The snapshots of rewrites."""
    snapshots = catalog_of(lake).load_table("db.events").metadata.snapshots
    return [s.snapshot_id for s in snapshots if s.summary and s.summary.operation.value == "replace"]
