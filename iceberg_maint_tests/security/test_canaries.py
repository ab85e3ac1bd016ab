"""Secrets go where they are needed and nowhere else; nothing listens to other machines.

One child process works through Dagster and through every command on a real lake, with a web server
beside it; what it leaves anywhere is searched for the secrets it was given.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import MetaData, create_engine, text

from iceberg_maint_tests.conftest import PROJECT
from iceberg_maint_tests.security.canaries import (
    all_canaries,
    configuration,
    environment,
    files_below,
    found_in,
)
from iceberg_maint_tests.support.servers.postgres import free_port

pytestmark = [
    pytest.mark.seconds,
    pytest.mark.spark,
    pytest.mark.postgres,
    pytest.mark.timeout(600),
    pytest.mark.together("daemons"),
    pytest.mark.long(300),
]

TABLE = "lake.db.events"
RESOURCES_AND_RUNS = """
query Everything {
  runsOrError { ... on Runs { results { runId runConfigYaml tags { key value }
    eventConnection(limit: 1000) { events { __typename ... on MessageEvent { message } } } } } }
  repositoriesOrError { ... on RepositoryConnection { nodes {
    allTopLevelResourceDetails { name configuredValues { key value } } } } }
}
"""


@dataclass
class Seen:
    """What the child and the web server showed while they ran: their arguments, and who listens."""

    arguments: set[str] = field(default_factory=set)
    listeners: set[tuple[str, str]] = field(default_factory=set)

    def look(self, *processes: subprocess.Popen[bytes]) -> None:
        for started in processes:
            try:
                parent = psutil.Process(started.pid)
                family = [parent, *parent.children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
            for process in family:
                try:
                    self.arguments.add(" ".join(process.cmdline()))
                    listening = [c for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN]
                    self.listeners |= {(process.name(), c.laddr.ip) for c in listening}
                except psutil.Error:
                    continue


@dataclass(frozen=True)
class Traces:
    """Everything that was left, by sink."""

    seen: Seen
    sinks: dict[str, dict[str, bytes]]
    exit_code: int


@contextmanager
def database(server: str, name: str) -> Iterator[str]:
    """A database of its own; gives an address with a place for a password."""
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as admin:
        admin.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    yield server.replace("postgres@", "postgres:{password}@").removesuffix("/postgres") + f"/{name}"


def dump(url: str) -> bytes:
    engine = create_engine(url)
    tables = MetaData()
    tables.reflect(engine)
    with engine.connect() as connection:
        rows = [tuple(map(str, r)) for t in tables.sorted_tables for r in connection.execute(t.select())]
    engine.dispose()
    assert rows
    return repr(rows).encode()


def make_table(catalog_url: str, warehouse: Path) -> None:
    catalog = SqlCatalog("lake", uri=catalog_url, warehouse=warehouse.as_uri())
    catalog.create_namespace("db")
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    table = catalog.create_table("db.events", rows.schema)
    for _ in range(6):
        table.append(rows)
    catalog.close()


def asked(port: int) -> bytes:
    """What the web server tells of runs, their events and resources, once it is there."""
    body = json.dumps({"query": RESOURCES_AND_RUNS}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/graphql", body, {"Content-Type": "application/json"}
    )
    until = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return bytes(answer.read())
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory, jars: list[Path], postgres_url: str) -> Traces:
    folder = tmp_path_factory.mktemp("canaries")
    for name in ("wh", "home", "dagster", "tmp"):
        (folder / name).mkdir()
    (folder / "maint.yaml").write_text(configuration(folder / "wh"), "utf-8")
    (folder / "dagster" / "dagster.yaml").write_text((PROJECT / "dagster.yaml").read_text("utf-8"), "utf-8")
    with database(postgres_url, "c_ledger") as ledger, database(postgres_url, "c_catalog") as catalog:
        make_table(catalog.format(password="x"), folder / "wh")
        environ = {
            **os.environ,
            **environment(ledger, catalog),
            "ICEBERG_MAINT_CONFIG": str(folder / "maint.yaml"),
            "ICEBERG_MAINT_HOME": str(folder / "home"),
            "DAGSTER_HOME": str(folder / "dagster"),
            "TMPDIR": str(folder / "tmp"),
            "PYTHONPATH": str(PROJECT),
        }
        seen = Seen()
        with (folder / "web.log").open("wb") as web_log, (folder / "told.log").open("wb") as told_log:
            child = subprocess.Popen(
                [sys.executable, "-m", "iceberg_maint_tests.security.everything", TABLE],
                env=environ, cwd=folder, stdout=told_log, stderr=told_log,
            )  # fmt: skip
            # What the program made is what the server shows: two must not make the storage at once.
            while not (folder / "home" / "tables.json").exists() and child.poll() is None:
                time.sleep(0.1)
            port = free_port()
            web = subprocess.Popen(
                [str(Path(sys.executable).parent / "dagster-webserver"), "-m", "iceberg_maint.definitions",
                 "-h", "127.0.0.1", "-p", str(port)],
                env=environ, cwd=folder, stdout=web_log, stderr=web_log,
            )  # fmt: skip
            try:
                while child.poll() is None:
                    seen.look(child, web)
                    time.sleep(1)
                answer = asked(port)
            finally:
                child.kill()
                for process in psutil.Process(web.pid).children(recursive=True):
                    process.terminate()
                web.terminate()
                web.wait(30)
        ledger_rows = dump(ledger.format(password="x"))
    sinks = {
        "stdout and stderr": {"told": (folder / "told.log").read_bytes()},
        "process arguments": {line[:80]: line.encode() for line in seen.arguments},
        "ledger": {"rows": ledger_rows},
        "dagster's storage": files_below(folder / "dagster"),
        "dagster's web server": {"answer": answer},
        "web server's log": {"log": (folder / "web.log").read_bytes()},
        "files of tables": files_below(folder / "wh"),
        "home": files_below(folder / "home"),
        "temporary files": files_below(folder / "tmp"),
        "configuration": {"file": (folder / "maint.yaml").read_bytes()},
    }
    return Traces(seen, sinks, int(child.returncode))


def test_everything_was_done(traces: Traces) -> None:
    told = traces.sinks["stdout and stderr"]["told"].decode()
    assert traces.exit_code == 0, told[-4000:]
    assert "Traceback" in told
    assert "login failed with ***" in told
    assert b"login failed with ***" in traces.sinks["dagster's web server"]["answer"]
    assert any(line.endswith("pyspark-shell") for line in traces.seen.arguments)


@pytest.mark.parametrize(
    "sink",
    [
        "stdout and stderr",
        "process arguments",
        "ledger",
        "dagster's storage",
        "dagster's web server",
        "web server's log",
        "files of tables",
        "home",
        "temporary files",
        "configuration",
    ],
)
def test_secret_is_in_no_sink(traces: Traces, sink: str) -> None:
    # Temporary files are gone by the end, if all went well.
    assert traces.sinks[sink] or sink == "temporary files"
    assert found_in(traces.sinks[sink], all_canaries().values()) == []


def test_nothing_listens_to_other_machines(traces: Traces) -> None:
    assert traces.seen.listeners
    assert {name for name, _ in traces.seen.listeners} >= {"java"}
    assert [(name, ip) for name, ip in traces.seen.listeners if not is_loopback(ip)] == []


def is_loopback(address: str) -> bool:
    found = ip_address(address)
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.0.0.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("0.0.0.0", False), ("::", False)],
)
def test_address_of_this_machine_only_is_recognised(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback
