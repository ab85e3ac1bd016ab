"""What the program does on a store that fails now and then, and on one that always fails.

    python -m iceberg_maint_tests.qualification.surroundings.unreliable --cache .cache [--fault cut]... [--kind data]...

A proxy in front of moto fails every n-th request of one kind by one fault. Every call has a new table of small files.
Now and then (every third request): the call must succeed; after an answer that ends early it may end with a code. Always:
the call must end with a code. After both, PyIceberg reads the same rows past the proxy, and after a failure the same call
succeeds on the store that serves again.
Exits with 1 if a call ends otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
from click.testing import CliRunner
from pyiceberg.catalog.sql import SqlCatalog

from iceberg_maint.cli import iceberg_maint
from iceberg_maint.cli.context import Session
from iceberg_maint.wiring import adapters
from iceberg_maint_tests.qualification.surroundings.catalogs import sqlite
from iceberg_maint_tests.qualification.surroundings.cell import ahead, later
from iceberg_maint_tests.qualification.surroundings.parts import Parts
from iceberg_maint_tests.qualification.surroundings.stores import BUCKET, moto
from iceberg_maint_tests.qualification.surroundings.unreliable_store import (
    CUTS,
    FAULTS,
    TIMEOUT_SECONDS,
    Rule,
    unreliable_store,
)
from iceberg_maint_tests.support import jvm

OK = "ok"
NOW_AND_THEN, ALWAYS = 3, 1
FILES, ROWS = 6, 500
AT_ONCE = 4
"""Processes, each with a share of the cases: clients spend most of the time in waits for a timeout or before a retry."""
ORPHANS = 3
CODES = frozenset({"ICM-133", "environment"})
"""How a call ends whose store never serves."""
DAMAGED = "error"
"""How a run ends whose files cannot be read. It counts against the partition."""
TIMEOUTS = {
    "s3.connect-timeout": str(TIMEOUT_SECONDS),
    "s3.request-timeout": str(TIMEOUT_SECONDS),
    "http-client.apache.socket-timeout-ms": str(TIMEOUT_SECONDS * 1000),
    "s3.retry.num-retries": "5",
    "s3.retry.min-wait-ms": "100",
}
_RUN = (
    "run",
    "{table}",
    "--operation",
    "rewrite_data_files",
    "--set",
    "rewrite_data_files.min_input_files=2",
)
_STRATEGY = ("--set", "rewrite_data_files.strategy={}")
_SHARE = ("--set", "remove_orphan_files.max_orphan_ratio=1.0")
CALLS: Mapping[str, tuple[str, ...]] = {
    "observe": ("observe", "{table}"),
    "scan": ("orphans", "scan", "{table}", *_SHARE),
    "columnar": (*_RUN, *_STRATEGY[:1], _STRATEGY[1].format("columnar")),
    "native": (*_RUN, *_STRATEGY[:1], _STRATEGY[1].format("native")),
    "trash": ("orphans", "trash", "{table}", *_SHARE),
    "sweep": ("orphans", "sweep", "{table}", *_SHARE),
}
DAYS = {"scan": 8, "trash": 8, "sweep": 16}
"""How far ahead the clocks are."""
CASES: Mapping[str, tuple[str, ...]] = {
    "metadata": ("observe", "columnar", "native", "scan"),
    "data": ("columnar", "native"),
    "list": ("scan",),
    "write": ("columnar", "native", "trash"),
    "delete": ("trash", "sweep"),
}
"""The calls that make requests of each kind."""


class Unreliable:
    """A lake whose program reaches its store through the proxy."""

    def __init__(self, config: Path, rule: Rule, direct: SqlCatalog, client: Any) -> None:
        self._config, self._rule, self._direct, self._client = config, rule, direct, client
        self._tables = 0

    def word(self, kind: str, fault: str, call: str, every: int) -> str:
        """How the call ends on a new table. After "always", how it ends and what is wrong with the repetition."""
        # The clocks of the calls differ by days.
        for file in self._config.parent.glob("ledger.db*"):
            file.unlink()
        table = self._table()
        if call in ("scan", "trash", "sweep"):
            self._plant(table)
        if call == "sweep":
            trashed = self._call("trash", table)
            assert trashed == OK, trashed
        self._rule.set(kind, fault, every)
        try:
            word = self._call(call, table)
            failed = self._rule.failed
        finally:
            self._rule.set("", "", 0)
        if not failed:
            return f"no request failed; {word}"
        if not self._rows_are_there(table):
            return f"ROWS DIFFER; {word}"
        # A failure that counts against the partition delays the next attempt.
        force = ("--force",) if word == DAMAGED else ()
        if word != OK and (again := self._call(call, table, *force)) != OK:
            return f"{word}; then {again}"
        return word if self._rows_are_there(table) else f"ROWS DIFFER LATER; {word}"

    def _table(self) -> str:
        self._tables += 1
        name = f"db.t{self._tables}"
        rows = pa.table({"id": pa.array(range(ROWS), pa.int64()), "v": [f"value {n}" for n in range(ROWS)]})
        table = self._direct.create_table(name, rows.schema)
        for _ in range(FILES):
            table.append(rows)
        return name

    def _plant(self, table: str) -> None:
        prefix = self._direct.load_table(table).location().partition(f"{BUCKET}/")[2]
        for number in range(ORPHANS):
            self._client.put_object(
                Bucket=BUCKET, Key=f"{prefix}/data/orphan-{number}.parquet", Body=b"x" * 100
            )

    def _rows_are_there(self, table: str) -> bool:
        ids = self._direct.load_table(table).scan().to_arrow().column("id").to_pylist()
        return sorted(ids) == sorted(list(range(ROWS)) * FILES)

    def _call(self, call: str, table: str, *more: str) -> str:
        days = DAYS.get(call, 0)
        session = Session(build=lambda config: later(config, days) if days else adapters.build(config))
        arguments = [*(a.format(table=f"lake.{table}") for a in CALLS[call]), *more]
        with ahead(days):
            result = CliRunner().invoke(
                iceberg_maint, [*arguments, "--json", "--config", str(self._config)], obj=session
            )
        if call in ("columnar", "native"):
            return outcome_of(result.stdout, result.stderr)
        return code_of(result.exit_code, result.stdout, result.stderr)


def code_of(exit_code: int, stdout: str, stderr: str) -> str:
    """`ok` or the codes of a call that is no run, or the end of what it wrote."""
    codes = sorted(set(re.findall(r"ICM-[0-9]{3}", stdout)))
    if "Traceback" in stderr or (exit_code and not codes):
        return f"exit {exit_code}: {' '.join((stderr or stdout).split())[-300:]}"
    return ", ".join(codes) if exit_code else OK


def outcome_of(stdout: str, stderr: str) -> str:
    """`ok` or the reason of a run of one operation."""
    if "Traceback" in stderr or not stdout.startswith("{"):
        return f"a stack: {' '.join(stderr.split())[-300:]}"
    document = json.loads(stdout)
    if "error" in document:
        return str(document["error"]["code"])
    operations = [o for t in document["tables"] for o in t.get("operations", ())]
    if not operations:
        return ", ".join(sorted(set(re.findall(r"ICM-[0-9]{3}", stdout)))) or stdout[:300]
    (done,) = operations
    if done["outcome"] == "IMPROVED":
        return OK
    texts = {done["message"], *(b["message"] for b in done.get("batches", ()))} - {""}
    sys.stderr.write(f"{done['outcome']} {done['reason']}: {'; '.join(texts)[:400]}\n")
    return str(done["reason"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints one row per fault and kind of request."""
    parser = argparse.ArgumentParser(
        prog="python -m iceberg_maint_tests.qualification.surroundings.unreliable"
    )
    parser.add_argument("--cache", type=Path, default=Path(".cache"))
    parser.add_argument("--fault", action="append", choices=FAULTS)
    parser.add_argument("--kind", action="append", choices=list(CASES))
    parser.add_argument("--call", action="append", choices=list(CALLS))
    given = parser.parse_args(arguments)
    print(
        "| Fault | Requests | Call | Every third request fails | Every request fails |\n|---|---|---|---|---|",
        flush=True,
    )
    cases = _cases(given.kind, given.fault, given.call)
    # Processes and no threads: a call replaces the clocks and stores of its process.
    shares = [cases[number::AT_ONCE] for number in range(AT_ONCE)]
    with ProcessPoolExecutor(AT_ONCE, get_context("spawn")) as pool:
        words = pool.map(partial(_wrong, given.cache.absolute()), filter(None, shares))
        wrong = [word for share in words for word in share]
    print("\n".join(wrong))
    return int(bool(wrong))


def _wrong(cache: Path, cases: Sequence[tuple[str, str, str]]) -> list[str]:
    """Prints a row per case. Returns the calls that ended otherwise than they must."""
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="unreliable-") as scratch, ExitStack() as stack:
        lake = _lake(stack, Path(scratch), Parts(cache))
        for kind, fault, call in cases:
            words, seconds = [], []
            # No client repeats a request whose answer is complete by its header. S3FileIO does not repeat one whose
            # answer ends early; the tasks of a cluster do.
            failures = CODES | {DAMAGED} if fault == "short" else CODES
            survives = failures | {OK} if fault in CUTS else {OK}
            for every, accepted in ((NOW_AND_THEN, survives), (ALWAYS, failures)):
                begin = time.monotonic()
                words.append(lake.word(kind, fault, call, every))
                seconds.append(time.monotonic() - begin)
                if words[-1] not in accepted:
                    wrong.append(f"WRONG: {fault}, {kind}, {call}, every {every}: {words[-1]}")
            took = " and ".join(f"{s:.0f} s" for s in seconds)
            print(f"| {fault} | {kind} | {call} | {words[0]} | {words[1]} | {took}", flush=True)
    return wrong


def _cases(
    kinds: Iterable[str] | None, faults: Iterable[str] | None, calls: Sequence[str] | None
) -> list[tuple[str, str, str]]:
    return [
        (kind, fault, call)
        for fault in faults or FAULTS
        for kind in kinds or CASES
        for call in CASES[kind]
        # A body that is cut needs a body.
        if (fault not in CUTS or kind in ("metadata", "data", "list")) and (not calls or call in calls)
    ]


def _lake(stack: ExitStack, folder: Path, parts: Parts) -> Unreliable:
    store = stack.enter_context(moto(folder))
    address, rule = stack.enter_context(unreliable_store(str(store.endpoint)))
    surrounding = stack.enter_context(sqlite(folder, store, parts))
    os.environ.update(store.secrets)
    os.environ.update(jvm.environment())
    config = folder / "iceberg_maint.yaml"
    config.write_text(
        surrounding.configuration(folder, **{"s3.endpoint": address}, **TIMEOUTS), encoding="utf-8"
    )
    direct = SqlCatalog(
        "lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=store.warehouse, **store.resolved()
    )
    direct.create_namespace("db")
    return Unreliable(config, rule, direct, store.client())


if __name__ == "__main__":
    sys.exit(main())
