"""The servers of the suites: S3, PostgreSQL, a REST catalog and a Spark cluster, and what a suite does with them."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg2

from iceberg_maint.engines.spark.session.jars import environment_fetch, parse_jars, resolve_jars
from iceberg_maint.engines.spark.session.java import find_java
from iceberg_maint_tests.qualification.cluster import store as s3
from iceberg_maint_tests.qualification.cluster.configuration import ENVIRONMENT, Addresses, catalog_properties
from iceberg_maint_tests.qualification.cluster.dependencies import write_archive
from iceberg_maint_tests.qualification.cluster.processes import adopt_orphans, cpu_seconds
from iceberg_maint_tests.qualification.cluster.spark_cluster import Cluster, spark_cluster
from iceberg_maint_tests.qualification.vended.runs import BUNDLE
from iceberg_maint_tests.support import jvm
from iceberg_maint_tests.support.servers.postgres import free_port, postgres
from iceberg_maint_tests.support.servers.programs import process

EXECUTOR, WORKER, PYTHON_WORKER = "CoarseGrainedExecutorBackend", "deploy.worker.Worker", "pyspark.daemon"
START_SECONDS = 300.0
"""A run writes its first file within this time."""


class Suite:
    """The servers of one suite, its folder of logs and configuration, and what was checked."""

    def __init__(
        self,
        folder: Path,
        java: Path,
        store: s3.Store,
        cluster: Cluster,
        addresses: Addresses,
        started: float,
    ) -> None:
        self.folder, self.java, self.store = folder, java, store
        self.cluster, self.addresses = cluster, addresses
        self.config = folder / "iceberg_maint.yaml"
        self.failures: list[str] = []
        self._started = started

    def say(self, text: str) -> None:
        """Prints a line with the seconds and the CPU seconds since the start."""
        print(f"[{time.monotonic() - self._started:4.0f} s, {cpu_seconds():4.0f} CPU s] {text}", flush=True)

    def check(self, holds: bool, claim: str) -> None:
        """Prints a claim and whether it holds."""
        self.say(f"{'ok  ' if holds else 'FAIL'} {claim}")
        if not holds:
            self.failures.append(claim)

    def program(self, *arguments: str, config: Path | None = None) -> subprocess.Popen[str]:
        """Starts the command line; its log has the name of the command."""
        log = (self.folder / f"{'-'.join(a for a in arguments[:2] if a.isidentifier())}.log").open("a")
        command = [sys.executable, "-m", "iceberg_maint", *arguments, "--config", str(config or self.config)]
        return subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=log, text=True)

    def document(self, *arguments: str, config: Path | None = None) -> tuple[int, Any]:
        """Runs the command line. Returns its exit code and its JSON document."""
        return document_of(self.program(*arguments, config=config))

    def end(self) -> int:
        """Prints the result. Returns the exit code."""
        self.say("FAILED: " + "; ".join(self.failures) if self.failures else "good")
        return int(bool(self.failures))


def document_of(program: subprocess.Popen[str]) -> tuple[int, Any]:
    """Waits for a command line. Returns its exit code and its JSON document."""
    out, _ = program.communicate()
    return program.returncode, json.loads(out or "{}")


def table_folder(table: str) -> str:
    """The prefix of a table's objects."""
    return f"wh/demo/{table}/"


def data_file_of(table: str) -> Callable[[str], bool]:
    """Whether a path is a data file of this table."""
    return lambda path: f"/{table_folder(table)}data/" in path and path.endswith(".parquet")


def committed(table: str) -> list[str]:
    """The metadata files of a table."""
    return [k for k in s3.keys(f"{table_folder(table)}metadata/") if k.endswith(".metadata.json")]


@contextmanager
def servers(
    folder: Path,
    cache: Path,
    configure: Callable[[Path, Addresses, str], None],
    packages: Path | None = None,
) -> Iterator[Suite]:
    """Starts the servers, each a process of its own but the store, and writes the configuration by `configure`.
    `packages` is an archive for the executors; None: it is made of this environment's packages."""
    started = time.monotonic()
    adopt_orphans()
    java = find_java(os.environ, shim_dir=cache / "java")
    (bundle,) = resolve_jars(parse_jars([BUNDLE]), cache / "jars", environment_fetch(java, os.environ))
    os.environ.update(ENVIRONMENT)
    os.environ["SPARK_SUBMIT_OPTS"] = jvm.environment()["SPARK_SUBMIT_OPTS"]
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
        cluster = stack.enter_context(spark_cluster(folder, java.executable))
        configure(folder, addresses, cluster.master)
        properties = [f"{k}={v}" for k, v in catalog_properties(addresses).items()]
        module = "iceberg_maint_tests.qualification.chaos.rest_catalog"
        rest = [sys.executable, "-m", module, str(folder / "backend.yaml"), str(port)]
        rest += [f"{addresses.database}/catalog", f"s3://{s3.BUCKET}/wh", *properties]
        stack.enter_context(process(rest, folder / "rest.log"))
        if packages is None:
            write_archive(folder / "dependencies.tar.gz")
        else:
            shutil.copy(packages, folder / "dependencies.tar.gz")
        s3.wait_for(lambda: _listens(port), 300, "the REST catalog does not listen")
        yield Suite(folder, java.executable, store, cluster, addresses, started)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _create_database(server: str, name: str) -> None:
    connection = psycopg2.connect(f"{server.replace('+psycopg2', '')}/postgres")
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
    finally:
        connection.close()
