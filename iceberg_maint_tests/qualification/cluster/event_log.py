"""The event logs of the trials, read by Spark's history server."""

from __future__ import annotations

import json
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from iceberg_maint_tests.qualification.cluster import store as s3
from iceberg_maint_tests.qualification.cluster.servers import Suite
from iceberg_maint_tests.qualification.cluster.spark_cluster import spark_class
from iceberg_maint_tests.support.servers.programs import free_port


def check_event_logs(suite: Suite, folder: Path, killed: int) -> None:
    """Checks that the history server shows every session, and that no secret is in the logs. `killed` JVMs of drivers
    were killed: their sessions have no end."""
    logs = sorted(p for p in folder.iterdir() if not p.name.startswith("."))
    port = free_port()
    options = (f"-Dspark.history.fs.logDirectory=file://{folder}", f"-Dspark.history.ui.port={port}")
    server = spark_class(
        suite.java, "deploy.history.HistoryServer", (), suite.folder / "history-server.log", options
    )
    try:
        s3.wait_for(
            lambda: len(_get(port, "applications")) == len(logs), 120, "the history server shows no logs"
        )
        applications = _get(port, "applications")
        ended = [a for a in applications if a["attempts"][-1]["completed"]]
        suite.check(
            len(applications) - len(ended) == killed,
            f"the history server shows {len(applications)} sessions, {len(ended)} ended in order",
        )
        jobs = [_get(port, f"applications/{a['id']}/jobs") for a in ended]
        executors = [_get(port, f"applications/{a['id']}/allexecutors") for a in ended]
        succeeded = sum(j["status"] == "SUCCEEDED" for of_one in jobs for j in of_one)
        suite.check(
            all(jobs) and all(len(of_one) > 1 for of_one in executors),
            f"… with {sum(map(len, jobs))} jobs, {succeeded} of them succeeded, and the executors of each",
        )
        settings = [_get(port, f"applications/{a['id']}/environment")["sparkProperties"] for a in ended]
        text = json.dumps(settings)
        suite.check(
            s3.SECRET not in text and "s3.secret-access-key" in text,
            "the settings of the sessions are in the logs, without the secret of the store",
        )
    finally:
        server.terminate()
        server.wait()


def _get(port: int, path: str) -> Any:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}") as answer:
        return json.load(answer)
    return []
