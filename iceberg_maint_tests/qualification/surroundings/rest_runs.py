"""Runs against a REST catalog that asks for tokens and fails: `python -m iceberg_maint_tests.qualification.surroundings --rest`.

Each case has a table of its own, of six small files. The case sets the server, runs `rewrite_data_files`, sets the server
right and runs again. Its words are the outcome and the reason, or the code, and the number of commits of each run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from click.testing import CliRunner
from pyiceberg.catalog.sql import SqlCatalog

from iceberg_maint.cli import iceberg_maint
from iceberg_maint.cli.context import load_configuration
from iceberg_maint.engines.spark.commit.retry import OPERATION_CALLS
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.wiring import spark_session
from iceberg_maint_tests.qualification.chaos.rest_catalog import Handlers
from iceberg_maint_tests.qualification.surroundings.guarded_rest import (
    CLIENT_ID,
    SECRET,
    STATIC,
    GuardedRest,
    Request,
)
from iceberg_maint_tests.qualification.surroundings.rest_cases import CASES, DONE, Case
from iceberg_maint_tests.support import jvm

BACKEND = "rest_backend"
FILES, ROWS = 6, 4
CALLS_PER_SECOND = 5
REWRITE = ("--operation", "rewrite_data_files")
LONG_SECONDS = 3600.0
CATALOGS: Mapping[str, tuple[str, ...]] = {
    "bearer": ("token: {env: REST_TOKEN}",),
    "oauth": ("credential: {env: REST_CREDENTIAL}",),
    "expired": ("token: {env: REST_EXPIRED}",),
    "wrong": ("credential: {env: REST_WRONG}",),
    "anonymous": (),
    "slow": ("token: {env: REST_TOKEN}",),
}
"""The properties of each catalog. All are one server."""


class RestRuns:
    """One server, one configuration and one Spark session, which also answers for the server."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rest = folder, GuardedRest()
        os.environ.update(jvm.environment())
        os.environ.update(
            REST_TOKEN=STATIC,
            REST_EXPIRED="expired-rest-token",
            REST_CREDENTIAL=f"{CLIENT_ID}:{SECRET}",
            REST_WRONG=f"{CLIENT_ID}:not-the-secret",
        )
        self.rest.start()
        self.config = folder / "iceberg_maint.yaml"
        self.config.write_text(self._configuration(), encoding="utf-8")
        uri = f"sqlite:///{folder}/catalog.db"
        self.backend = SqlCatalog(BACKEND, uri=uri, warehouse=f"file://{folder}/warehouse")
        self.backend.create_namespace("db")
        self.bridge = Bridge(spark_session.session(load_configuration(self.config)))
        self.rest.handlers = Handlers(self.bridge, uri, f"file://{folder}/warehouse")

    def _configuration(self) -> str:
        url = f"http://127.0.0.1:{self.rest.port}"
        lines = [f"ledger: sqlite:///{self.folder}/ledger.db", "catalogs:"]
        for name, properties in CATALOGS.items():
            lines += [f"  {name}:", "    type: rest", f"    uri: {url}"]
            if name == "slow":
                lines.append(f"    calls_per_second: {CALLS_PER_SECOND}")
            lines += ["    properties:", f"      oauth2-server-uri: {url}/v1/oauth/tokens"]
            lines += [f"      {line}" for line in properties]
        lines += [f"  {BACKEND}:", "    type: jdbc", f"    uri: sqlite:///{self.folder}/catalog.db"]
        lines += [f"    warehouse: file://{self.folder}/warehouse", "spark:", "  master: local[2]"]
        lines.append("  conf: {spark.driver.memory: 1g, spark.sql.shuffle.partitions: '2'}")
        return "\n".join(lines) + "\n"

    def close(self) -> None:
        """Stops Spark and the server."""
        self.bridge.spark.stop()
        self.rest.stop()

    def make(self, name: str) -> None:
        """A table of six small files."""
        rows = pa.table({"id": pa.array(range(ROWS), pa.int64())})
        table = self.backend.create_table(name, rows.schema)
        for _ in range(FILES):
            table.append(rows)

    def grow(self, name: str) -> None:
        """Six more small files."""
        table = self.backend.load_table(name)
        for _ in range(FILES):
            table.append(pa.table({"id": pa.array(range(ROWS), pa.int64())}))

    def call(self, *arguments: str) -> tuple[int, Any]:
        """The exit code and the document of a call. Raises AssertionError for a stack."""
        result = CliRunner().invoke(iceberg_maint, [*arguments, "--json", "--config", str(self.config)])
        if "Traceback" in result.stderr or not isinstance(result.exception, SystemExit | None):
            raise AssertionError(result.stderr[-400:] or repr(result.exception))
        return result.exit_code, json.loads(result.stdout)

    def run(self, table: str) -> str:
        """The word of a run: outcome and reason, or the code, and the commits that it made."""
        before = self.commits(table.partition(".")[2])
        _, document = self.call("run", table, *REWRITE)
        return f"{_outcome(document)}, {self.commits(table.partition('.')[2]) - before}"

    def commits(self, name: str) -> int:
        """The rewrites of a table."""
        snapshots = self.backend.load_table(name).metadata.snapshots
        return sum(s.summary is not None and s.summary.operation.value == "replace" for s in snapshots)

    def rows(self, name: str) -> int:
        """The rows of a table."""
        return int(self.backend.load_table(name).scan().to_arrow().num_rows)

    def reset(self) -> None:
        """The server answers as it should."""
        self.rest.fault = self.rest.after = _no_fault
        self.rest.life_seconds = LONG_SECONDS
        self.rest.ensure_started()

    def case(self, number: int, case: Case) -> tuple[str, str]:
        """The words of a case. Raises AssertionError if rows changed."""
        name = f"db.case{number}"
        self.make(name)
        self.reset()
        case.prepare(self.rest)
        first = self.run(f"{case.catalog}.{name}")
        self.reset()
        then = self.run(f"{case.catalog}.{name}")
        assert self.rows(name) == FILES * ROWS, name
        return first, then


def _no_fault(_request: Request) -> None:
    return None


def _outcome(document: Any) -> str:
    if "error" in document:
        return str(document["error"]["code"])
    (table,) = document["tables"]
    if table.get("error"):
        return str(table["error"]["code"])
    (operation,) = table["operations"]
    return f"{operation['outcome']} {operation['reason']}"


def two_names(runs: RestRuns) -> dict[str, str]:
    """One table by two REST names and by JDBC: the words of the runs under each name."""
    runs.make("db.shared")
    words = {"first name": runs.run("bearer.db.shared")}
    runs.grow("db.shared")
    words["second REST name"] = runs.run("oauth.db.shared")
    words["JDBC name"] = runs.run(f"{BACKEND}.db.shared")
    words["first name again"] = runs.run("bearer.db.shared")
    assert runs.rows("db.shared") == 2 * FILES * ROWS
    return words


TWO_NAMES = {
    "first name": DONE,
    "second REST name": "ICM-162, 0",
    "JDBC name": "ICM-162, 0",
    "first name again": DONE,
}


def budget(runs: RestRuns) -> str:
    """A run on the catalog with a budget: the calls that the record has beyond the server's requests for the table, and
    whether the calls of one second kept the budget. The calls of one commit by Spark are taken together."""
    runs.make("db.slow")
    runs.rest.requests.clear()
    assert (word := runs.run("slow.db.slow")) == DONE, word
    counted = [r for r in runs.rest.requests if r.is_counted]
    of_table = sum("/tables/slow" in r.target for r in counted)
    times = sorted(r.seconds for r in counted)
    most = max(sum(t <= u < t + 1 for u in times) for t in times)
    _, document = runs.call("history", "slow.db.slow")
    beyond = document["records"][0]["catalog_calls"] - of_table
    return f"{beyond:+}, {'kept' if most < CALLS_PER_SECOND + OPERATION_CALLS else f'{most} in a second'}"


BUDGET = "+0, kept"


def rest_answers(folder: Path) -> dict[str, tuple[str, ...]]:
    """The words of every case."""
    folder.mkdir(parents=True)
    runs = RestRuns(folder)
    words: dict[str, tuple[str, ...]] = {}
    try:
        for number, (name, case) in enumerate(CASES.items()):
            words[name] = runs.case(number, case)
        words |= {f"one table, {name}": (word,) for name, word in two_names(runs).items()}
        words["budget of calls"] = (budget(runs),)
    finally:
        runs.close()
    return words


def wrong_answers(words: Mapping[str, tuple[str, ...]]) -> list[str]:
    """What differs from what is expected."""
    expected: dict[str, tuple[str, ...]] = {name: (case.first, case.then) for name, case in CASES.items()}
    expected |= {f"one table, {name}": (word,) for name, word in TWO_NAMES.items()}
    expected["budget of calls"] = (BUDGET,)
    return [
        f"WRONG: {name}: {words.get(name)}; expected {wanted}"
        for name, wanted in expected.items()
        if words.get(name) != wanted
    ]


def rest_page(words: Mapping[str, tuple[str, ...]]) -> str:
    """The table of the cases, in Markdown. A word ends with the commits of the run."""
    rows = [f"| {name} | {' | '.join((*row, '')[:2])} |" for name, row in words.items()]
    return "\n".join(["| The catalog | run | next run |", "|---|---|---|", *rows])
