"""Airflow's standalone server runs the DAG of `deploy/airflow` once."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

from iceberg_maint_tests.nightly.suites import PROJECT
from iceberg_maint_tests.qualification.platform.lake import PROGRAM, Lake, expected, open_lake

_DAG = PROJECT / "deploy" / "airflow" / "iceberg_maint_dag.py"
_ENDED = ("success", "failed")
_LIMIT_SECONDS = 600


def differences(folder: Path, packages: Path) -> list[str]:
    """Maintains two tables of small files and one that is refused; a healthy one has no task."""
    with open_lake(folder) as lake:
        for table, commits in (("db.a", 20), ("db.b", 12), ("db.healthy", 2), ("db.refused", 8)):
            lake.append(table, commits)
        _damage(lake, "db.refused")
        (folder / "dags").mkdir()
        shutil.copy(_DAG, folder / "dags")
        states = _run(folder, _environ(folder, lake, packages))
        content = {t: lake.content(t) for t in ("db.a", "db.b", "db.healthy")}
    different = expected(
        {
            "tasks": (states, dict.fromkeys((("due", -1), ("maintain", 0), ("maintain", 1)), "success")),
            "files and rows": (content, {"db.a": (1, 40), "db.b": (1, 24), "db.healthy": (2, 4)}),
        }
    )
    if different:
        print((folder / "airflow.log").read_text("utf-8", "replace")[-3000:], file=sys.stderr)
    return different


def _damage(lake: Lake, name: str) -> None:
    snapshot = lake.table(name).current_snapshot()
    assert snapshot is not None
    Path(snapshot.manifest_list.removeprefix("file://")).write_bytes(b"garbage")


def _environ(folder: Path, lake: Lake, packages: Path) -> dict[str, str]:
    """The environment of Airflow. The program runs without Airflow's packages."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    program = folder / "iceberg-maint"
    program.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {PROGRAM} "$@"\n', "utf-8")
    program.chmod(0o755)
    return os.environ | {
        "PYTHONPATH": str(packages),
        "PATH": f"{packages / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__WORKERS": "1",
        "ICEBERG_MAINT_COMMAND": str(program),
        "ICEBERG_MAINT_CONFIG": str(lake.config()),
        "ICEBERG_MAINT_HOME": str(folder / "home"),
    }


def _run(folder: Path, environ: dict[str, str]) -> dict[tuple[str, int], str]:
    """Starts Airflow, waits for the end of the first run of the DAG, stops Airflow. Returns the state of each task."""
    servers: list[subprocess.Popen[bytes]] = []
    with (folder / "airflow.log").open("wb") as log:

        def start(*command: str) -> None:
            servers.append(
                subprocess.Popen(
                    ["airflow", *command], env=environ, stdout=log, stderr=log, start_new_session=True
                )
            )

        subprocess.run(["airflow", "db", "migrate"], env=environ, stdout=log, stderr=log, check=True)
        try:
            start("api-server")
            _wait_for(int(environ["AIRFLOW__API__PORT"]))
            # A task that starts before the server answers fails.
            start("scheduler", "--skip-serve-logs")
            start("dag-processor")
            return _states(folder / "airflow" / "airflow.db")
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):
                for server in servers:
                    with suppress(ProcessLookupError):
                        os.killpg(server.pid, number)
                for server in servers:
                    with suppress(subprocess.TimeoutExpired):
                        server.wait(20)


def _wait_for(port: int) -> None:
    """Waits until a server listens."""
    end = time.monotonic() + _LIMIT_SECONDS
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.5)


def _states(database: Path) -> dict[tuple[str, int], str]:
    end = time.monotonic() + _LIMIT_SECONDS
    while time.monotonic() < end:
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(database)) as read:
            runs = read.execute("select state from dag_run").fetchall()
            if runs and all(state in _ENDED for (state,) in runs):
                tasks = read.execute("select task_id, map_index, state from task_instance").fetchall()
                return {(task, index): state for task, index, state in tasks}
        time.sleep(2)
    return {("no run ended", 0): f"within {_LIMIT_SECONDS} s"}
