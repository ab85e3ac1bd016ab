"""The steps of the demo on a cluster, and what each must show."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg2

from iceberg_maint.core.model.reasons import Verdict
from iceberg_maint.core.removal.orphans import TRASH
from iceberg_maint.demo.store import ORPHAN_AGE_SECONDS, ORPHANS
from iceberg_maint.demo.tables import CONTROL
from iceberg_maint.spark.session.jars import environment_fetch, parse_jars, resolve_jars
from iceberg_maint.spark.session.java import find_java
from iceberg_maint_tests.cluster import store as s3
from iceberg_maint_tests.cluster.configuration import (
    ENVIRONMENT,
    Addresses,
    catalog_properties,
    write_configuration,
)
from iceberg_maint_tests.cluster.dependencies import write_archive
from iceberg_maint_tests.cluster.lake import COLUMNAR, HOUSEKEPT, LAKE, NATIVE
from iceberg_maint_tests.cluster.processes import Process
from iceberg_maint_tests.cluster.rows import Rows
from iceberg_maint_tests.cluster.spark_cluster import Cluster, spark_cluster
from iceberg_maint_tests.support.servers.postgres import free_port, postgres
from iceberg_maint_tests.support.servers.programs import process
from iceberg_maint_tests.vended.runs import BUNDLE

EXECUTOR, WORKER, PYTHON_WORKER = "CoarseGrainedExecutorBackend", "deploy.worker.Worker", "pyspark.daemon"
START_SECONDS = 300.0
"""A run writes its first file within this time."""


class Demo:
    """The lake, and what was checked."""

    def __init__(self, folder: Path, store: s3.Store, cluster: Cluster) -> None:
        self.folder, self.store, self.cluster = folder, store, cluster
        self.config = folder / "iceberg_maint.yaml"
        self.failures: list[str] = []
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._started:4.0f} s] {text}", flush=True)

    def check(self, holds: bool, claim: str) -> None:
        self.say(f"{'ok  ' if holds else 'FAIL'} {claim}")
        if not holds:
            self.failures.append(claim)

    def program(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts the command line; its log has the name of the command."""
        log = (self.folder / f"{'-'.join(a for a in arguments[:2] if a.isidentifier())}.log").open("a")
        command = [sys.executable, "-m", "iceberg_maint", *arguments, "--config", str(self.config), "--json"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)

    def document(self, *arguments: str) -> tuple[int, Any]:
        """Runs the command line. Returns its exit code and its JSON document."""
        return _document(self.program(*arguments))


def _document(program: subprocess.Popen[str]) -> tuple[int, Any]:
    out, _ = program.communicate()
    return program.returncode, json.loads(out or "{}")


def run(folder: Path, cache: Path) -> int:
    """Runs the demo in a folder. Returns 1 if a check failed."""
    java = find_java(os.environ, shim_dir=cache / "java")
    (bundle,) = resolve_jars(parse_jars([BUNDLE]), cache / "jars", environment_fetch(java, os.environ))
    os.environ.update(ENVIRONMENT)
    with ExitStack() as stack:
        store = s3.Store()
        addresses = Addresses(
            store=stack.enter_context(s3.serving(store)),
            database=stack.enter_context(postgres()).rpartition("/")[0],
            catalog=f"http://127.0.0.1:{(port := free_port())}",
            bundle=bundle.resolve(),
        )
        for name in ("ledger", "catalog", "dagster"):
            _create_database(addresses.database, name)
        write_archive(folder / "dependencies.tar.gz")
        cluster = stack.enter_context(spark_cluster(folder, java.executable))
        write_configuration(folder, addresses, cluster.master)
        properties = [f"{k}={v}" for k, v in catalog_properties(addresses).items()]
        rest = [
            sys.executable,
            "-m",
            "iceberg_maint_tests.chaos.rest_catalog",
            str(folder / "backend.yaml"),
            str(port),
        ]
        rest += [f"{addresses.database}/catalog", f"s3://{s3.BUCKET}/wh", *properties]
        stack.enter_context(process(rest, folder / "rest.log"))
        s3.wait_for(lambda: _listens(port), 300, "the REST catalog does not listen")
        demo = Demo(folder, store, cluster)
        _steps(demo)
    demo.say("FAILED: " + "; ".join(demo.failures) if demo.failures else "good")
    return int(bool(demo.failures))


def _steps(demo: Demo) -> None:
    _step(demo, "build", "the demo lake is built by writers on the cluster")
    orphans = s3.add_old_copies(_folder_of(HOUSEKEPT), ORPHANS, ORPHAN_AGE_SECONDS)
    rows = Rows(demo.folder)
    rows.copy()
    demo.say(f"{orphans} old orphans added, rows of {len(LAKE)} tables copied by DuckDB")
    code, _ = demo.document("doctor")
    demo.check(code == 0, "doctor finds the configuration, the catalog, the store and the cluster in order")
    _rewrite(demo, NATIVE, "native", EXECUTOR, lambda writer: writer.nearest(EXECUTOR))
    _rewrite(demo, COLUMNAR, "columnar", WORKER, lambda writer: writer.nearest(WORKER))
    (healing,) = _step(demo, "healing", "Dagster maintains the lake on the worker that is left")[-1:]
    document = json.loads(healing)
    demo.check(
        document["settled"] and not document["failed_runs"], f"Dagster is done in {document['ticks']} ticks"
    )
    for name, state in document["tables"].items():
        healthy = state["decision"] == Verdict.SKIP.value and not state["housekeeping"]
        demo.check(healthy or name == CONTROL, f"{name} is healthy ({state['data_files']} data files)")
    killed = [k for k in s3.keys(_folder_of(HOUSEKEPT)) if s3.COPY in k]
    demo.check(
        len(killed) == orphans and all(f"/{TRASH}/" in k for k in killed),
        f"{orphans} orphans are in the trash",
    )
    for name, comparison in rows.compare().items():
        demo.check(comparison.equal, f"{name}: {comparison.rows_after} rows, equal before and after")


def _rewrite(
    demo: Demo, table: str, strategy: str, what: str, victim_of: Callable[[Process], int | None]
) -> None:
    """Rewrites a table by the command line, and kills a process of the cluster while a file is written."""
    pointer = s3.keys(f"{_folder_of(table)}metadata/")
    with demo.store.held(table) as watch:
        program = demo.program("run", f"lake.demo.{table}", "--operation", "rewrite_data_files")
        caught = watch.caught.wait(START_SECONDS)
        writer = watch.writer
        victim = victim_of(writer) if writer else None
        if caught and writer and victim:
            metadata = [k for k in s3.keys(f"{_folder_of(table)}metadata/") if k.endswith(".metadata.json")]
            uncommitted = metadata == [k for k in pointer if k.endswith(".metadata.json")]
            is_python = PYTHON_WORKER in writer.command
            demo.check(
                is_python == (strategy == "columnar") and writer.nearest(EXECUTOR) is not None,
                f"{strategy}: process {writer.pid} ({'Python worker' if is_python else 'JVM'} of executor "
                f"{writer.nearest(EXECUTOR)}, of worker {writer.nearest(WORKER)}) writes a file of {table}",
            )
            os.kill(victim, signal.SIGKILL)
            demo.check(uncommitted, f"process {victim} ({what}) is killed before the commit")
        else:
            demo.check(False, f"a data file of {table} is written by an executor: {writer}")
    code, document = _document(program)
    (demo.folder / f"run-{table}.json").write_text(json.dumps(document, indent=2))
    operations = [o for t in document.get("tables", ()) for o in t["operations"]]
    batches = [b for o in operations for b in o["batches"]]
    proved = bool(batches) and all(b["proof"]["equal"] and not b["message"] for b in batches)
    demo.check(
        code == 0 and proved,
        f"{table}: the run succeeds, {len(batches)} batches committed and proved equal by {strategy}",
    )
    others = {w.nearest(EXECUTOR) for w in demo.store.writers[table]} - {None, victim}
    demo.say(f"     data files of {table} come from executors {sorted(filter(None, others))}")


def _step(demo: Demo, module: str, claim: str) -> list[str]:
    """Runs a program of this package. Returns the lines that it wrote."""
    with (demo.folder / f"{module}.log").open("wb") as log:
        command = [sys.executable, "-m", f"iceberg_maint_tests.cluster.{module}", str(demo.folder)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, check=False)
    demo.check(done.returncode == 0, claim)
    if done.returncode:
        raise SystemExit((demo.folder / f"{module}.log").read_text(errors="replace")[-4000:])
    return done.stdout.splitlines()


def _folder_of(table: str) -> str:
    return f"wh/demo/{table}/"


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _create_database(server: str, name: str) -> None:
    connection = psycopg2.connect(f"{server.replace('+psycopg2', '')}/postgres")
    connection.autocommit = True
    connection.cursor().execute(f"CREATE DATABASE {name}")
    connection.close()
