"""Tables and catalogs that never answer, before the real program: a named pipe stands for a file of a hung file system."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.wiring.adapters import load
from iceberg_maint_tests.support.catalog.table_files import TableFiles
from iceberg_maint_tests.support.servers.rest_server import RestServer, serving

pytestmark = pytest.mark.seconds

NEVER_SECONDS = 240
"""A process that hangs is ended after this time, and its test fails."""
ALONE_SECONDS = 60
"""The same for a process that has no work but the call that hangs."""
TABLES = ("a", "b", "c", "d")
_UNINTERRUPTIBLE = """
import sys
from pyarrow.fs import LocalFileSystem
from iceberg_maint.cli.command import Terminated, terminated_by_signals
from iceberg_maint.loop import guards
from iceberg_maint.loop.guards import TableTimeout, table_deadline
from iceberg_maint.wiring.adapters import end_process

guards.GRACE_SECONDS = 1.0
seconds = int(sys.argv[2]) or None
with terminated_by_signals(lambda: None, end_process), table_deadline("lake.db.b", seconds, lambda: None, end_process):
    print("hangs", flush=True)
    while True:
        try:
            LocalFileSystem().open_input_file(sys.argv[1])
        except (Terminated, TableTimeout):
            continue
"""
_RUN_THAT_SAYS_WHEN_IT_HANGS = """
import sys
from iceberg_maint.catalog import adapter
from iceberg_maint.cli import main

read_bytes = adapter.read_bytes

def read(io, location, what):
    if location.endswith("pipe.metadata.json"):
        print("hangs", file=sys.stderr, flush=True)
    return read_bytes(io, location, what)

adapter.read_bytes = read
main(["run", "--json"])
"""


class HangingLake:
    """A catalog in SQLite with the tables `TABLES`, and the program's configuration of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.database = folder, folder / "catalog.db"
        schema = Schema(NestedField(1, "id", LongType(), required=False))
        for name in TABLES:
            TableFiles(folder / name, schema, [PartitionSpec()]).register(self.database, f"db.{name}")
        self.configure()

    def configure(self, more: str = "", catalogs: Sequence[str] = (), read_timeout_seconds: int = 4) -> None:
        lake = (
            f"lake: {{type: jdbc, uri: 'sqlite:///{self.database}', warehouse: 'file://{self.folder}', "
            f"read_timeout_seconds: {read_timeout_seconds}}}"
        )
        lines = ["catalogs:", *(f"  {c}" for c in (lake, *catalogs)), more]
        (self.folder / "maint.yaml").write_text("\n".join(lines))

    def hang(self, name: str) -> Path:
        """Moves the pointer of a table to a pipe that nobody writes."""
        pipe = self.folder / f"{name}.pipe.metadata.json"
        os.mkfifo(pipe)
        with closing(sqlite3.connect(self.database)) as connection, connection:
            connection.execute(
                "UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = ?",
                (f"file://{pipe}", name),
            )
        return pipe

    def start(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "ICEBERG_MAINT_HOME": str(self.folder),
                "ICEBERG_MAINT_CONFIG": str(self.folder / "maint.yaml"),
            },
        )

    def program(self, *arguments: str) -> tuple[int, str, str]:
        return ended(self.start("-m", "iceberg_maint", *arguments))

    def measured(self, name: str) -> str | None:
        health = load(self.folder / "maint.yaml").ledger.health.get(TableId.parse(f"lake.db.{name}"))
        return None if health is None else health.metadata_location


def ended(process: subprocess.Popen[str], seconds: float = NEVER_SECONDS) -> tuple[int, str, str]:
    """The exit code and the output."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"the process hangs:\n{out}\n{err}") from None
    return process.returncode, out, err


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HangingLake:
    monkeypatch.setenv("ICEBERG_MAINT_HOME", str(tmp_path))
    return HangingLake(tmp_path)


def test_metadata_file_that_hangs_holds_no_other_table_of_observe_and_its_health_stays(
    lake: HangingLake,
) -> None:
    assert lake.program("observe")[0] == 0
    before = lake.measured("b")
    lake.hang("b")
    code, out, err = lake.program("observe", "--json")
    tables = json.loads(out)["tables"]
    assert [t["table"] for t in tables] == [f"lake.db.{name}" for name in TABLES]
    assert [("error" in t) for t in tables] == [False, True, False, False]
    assert tables[1]["error"]["code"] == "ICM-179"
    assert tables[1]["error"]["message"] == (
        "lake.db.b: catalog 'lake' or the store of the table gave no answer within 4 seconds (catalogs.lake.read_timeout_seconds). "
        "What is known of it stays as it is."
    )
    assert (code, lake.measured("b")) == (1, before)
    assert "ICM-179 lake.db.b" in err


@pytest.mark.variant
def test_metadata_file_that_hangs_holds_no_other_table_of_tables(lake: HangingLake) -> None:
    lake.hang("a")
    code, out, _ = lake.program("tables", "--json")
    assert [(t["table"], "error" in t) for t in json.loads(out)["tables"]] == [
        (f"lake.db.{name}", name == "a") for name in TABLES
    ]
    assert code == 1


@pytest.mark.variant
def test_metadata_file_that_hangs_fails_the_checks_of_doctor_that_read_it_and_the_rest_is_checked(
    lake: HangingLake,
) -> None:
    late = (
        "ICM-179 lake.db.b: catalog 'lake' or the store of the table gave no answer within 4 seconds "
        "(catalogs.lake.read_timeout_seconds)."
    )
    lake.hang("b")
    code, out, _ = lake.program("doctor", "--no-spark", "--json")
    checks = {c["check"]: c for c in json.loads(out)["checks"]}
    assert {name: c["code"] for name, c in checks.items() if late in c["detail"]} == {
        "policies": "ICM-179",
        "owner of lake.db.b": "ICM-179",
    }
    assert (checks["policies"]["status"], checks["clock"]["status"], code) == ("failed", "ok", 1)


def test_doctor_shows_each_check_as_it_ends(lake: HangingLake) -> None:
    lake.configure(read_timeout_seconds=600)
    lake.hang("a")
    process = lake.start("-m", "iceberg_maint", "doctor", "--no-spark")
    assert process.stdout is not None
    end = threading.Timer(NEVER_SECONDS, process.kill)
    end.start()
    shown = any("catalog lake: jdbc" in line for line in iter(process.stdout.readline, ""))
    end.cancel()
    process.kill()
    ended(process)
    assert shown


def test_catalog_that_never_answers_is_one_failed_check_of_doctor(lake: HangingLake) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        lake.configure(catalogs=[f"dead: {{type: rest, uri: '{uri}', read_timeout_seconds: 1}}"])
        code, out, _ = lake.program("doctor", "--no-spark", "--json")
    failed = [c for c in json.loads(out)["checks"] if c["status"] == "failed"]
    assert [(c["check"], c["code"]) for c in failed] == [("catalog dead", "ICM-179")]
    assert "catalog 'dead' did not list its tables within 1 seconds" in failed[0]["detail"]
    assert code == 1


@pytest.mark.variant
def test_table_that_a_catalog_never_answers_for_is_unknown_and_its_health_stays(lake: HangingLake) -> None:
    server = RestServer(lake.database)
    with serving(server) as url:
        rest = f"catalogs: {{lake: {{type: rest, uri: '{url}', read_timeout_seconds: 4}}}}"
        (lake.folder / "maint.yaml").write_text(rest)
        assert lake.program("observe")[0] == 0
        before = lake.measured("c")
        server.silent = frozenset({"c"})
        code, out, _ = lake.program("observe", "--json")
    assert [(t["table"], t.get("error", {}).get("code")) for t in json.loads(out)["tables"]] == [
        ("lake.db.a", None),
        ("lake.db.b", None),
        ("lake.db.c", "ICM-179"),
        ("lake.db.d", None),
    ]
    assert (code, lake.measured("c")) == (1, before)


def test_table_that_hangs_in_a_run_is_given_up_and_the_next_one_goes_on(lake: HangingLake) -> None:
    lake.configure("defaults: {table_timeout_seconds: 1}")
    lake.hang("b")
    code, out, _ = lake.program("run", "--json")
    tables = json.loads(out)["tables"]
    assert [(t["table"], t.get("error", {}).get("code")) for t in tables] == [
        ("lake.db.a", None),
        ("lake.db.b", "ICM-171"),
        ("lake.db.c", None),
        ("lake.db.d", None),
    ]
    assert code == 1


def test_run_that_waits_for_a_file_that_hangs_answers_sigterm(lake: HangingLake) -> None:
    lake.configure("defaults: {mode: act}")
    (lake.folder / "maint.yaml").write_text(
        (lake.folder / "maint.yaml")
        .read_text()
        .replace("read_timeout_seconds: 4", "read_timeout_seconds: 600")
    )
    lake.hang("a")
    process = lake.start("-c", _RUN_THAT_SAYS_WHEN_IT_HANGS)
    assert process.stderr is not None
    # The table is read by the thread that prepares it, and then by the run itself.
    lines = iter(process.stderr.readline, "")
    assert sum(1 for _ in islice((line for line in lines if "hangs" in line), 2)) == 2
    _wait_until_asleep(process.pid)
    process.send_signal(signal.SIGTERM)
    code, out, err = ended(process)
    assert "terminated by SIGTERM; finished batches stay, and the next run continues" in err
    assert json.loads(out)["tables"][0]["error"]["message"] == "terminated by SIGTERM"
    assert code == 1


def test_call_that_nothing_interrupts_ends_the_process_after_the_time_of_the_table(lake: HangingLake) -> None:
    process = lake.start("-c", _UNINTERRUPTIBLE, str(lake.hang("b")), "1")
    code, out, err = ended(process, ALONE_SECONDS)
    assert (code, out) == (1, "hangs\n")
    assert err == (
        "ICM-171 lake.db.b used up its time: table_timeout_seconds = 1. Fix: look for what did not answer, or raise the "
        "setting. A call that cannot be interrupted did not return, so this process ends.\n"
    )


def _wait_until_asleep(pid: int) -> None:
    """Waits until the main thread sleeps in the call that hangs: a signal before it is answered by Python."""
    asleep = 0
    while asleep < 5:
        state = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        asleep = asleep + 1 if state == "S" else 0
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_call_that_nothing_interrupts_ends_the_process_after_a_signal(
    lake: HangingLake, number: signal.Signals
) -> None:
    process = lake.start("-c", _UNINTERRUPTIBLE, str(lake.hang("b")), "0")
    assert process.stdout is not None
    assert process.stdout.readline() == "hangs\n"
    _wait_until_asleep(process.pid)
    process.send_signal(number)
    code, _, err = ended(process, ALONE_SECONDS)
    assert (code, err) == (1, f"{number.name} was not answered within 1 seconds.\n")
