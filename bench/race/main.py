"""Runs the race: one strategy of maintenance after the other beside the same writer."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from bench.race.place import RacePlace
from bench.race.show import ending, results
from bench.race.strategies import WAYS, Way
from bench.race.stream import RaceTable, tables_of
from bench.race.verdict import Raced, judge
from bench.race.writer import DONE, READY, Acknowledged, acknowledged
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.demo import report as general
from iceberg_maint.demo.duckdb_reader import DuckDBReader
from iceberg_maint.demo.main import make_catalog
from iceberg_maint.demo.store import LOCAL, LakeStore
from iceberg_maint.demo.workspace import CATALOG, NAMESPACE
from iceberg_maint.loop.context import Context
from iceberg_maint.wiring.adapters import build

_PAUSE_SECONDS = 1.0
_STOP_SECONDS = 30


@dataclass(frozen=True, slots=True)
class RaceReport:
    """The results of the race."""

    raced: tuple[Raced, ...]
    seconds: float

    @property
    def faults(self) -> tuple[str, ...]:
        """The faults of this project, one sentence each. The faults of other strategies are in the table."""
        faults = []
        for result in (r for r in self.raced if r.way.name == "ours"):
            if not result.safe:
                faults.append(f"{result.table.name}: rows or commits are not those of the stream")
            if not result.landed:
                faults.append(f"{result.table.name}: no maintenance was committed")
            if result.writer.failed:
                faults.append(f"{result.table.name}: {result.writer.failed} commits of the writer failed")
        return tuple(faults)


def run(
    root: Path, seconds: float, console: Console, ways: Sequence[Way] = WAYS, store: LakeStore = LOCAL
) -> RaceReport:
    """Runs each strategy for this time on its own tables in this store.

    Raises ConfigurationError ICM-100 for a folder with other content, RefusedError ICM-103 without a Java.
    """
    began = time.monotonic()
    place = RacePlace(root.absolute())
    config = place.prepare(os.environ, store)
    context = build(config)
    # Created here, so that two processes do not create it at the same time.
    make_catalog(config)
    raced: list[Raced] = []
    with _writing(place) as writer:
        session = context.engine.spark.session()
        # Spark logs a page for every refused commit. The table shows it in one line.
        session.sparkContext.setLogLevel("OFF")
        for way in ways:
            for table in tables_of(way.name):
                session.sql(table.create_sql())
        _expect(writer, READY)
        for way in ways:
            general.heading(console, way.title, f"beside a writer of equality deletes, for {seconds:g} s")
            tried = _race(context, way, writer, seconds)
            written = acknowledged(place.journal, tables_of(way.name))
            raced += _judge(context, way, tried, written, store)
    general.heading(console, "After", "DuckDB has read every maintenance commit")
    results(console, raced)
    report = RaceReport(tuple(raced), time.monotonic() - began)
    ending(console, report.faults, report.seconds)
    return report


def _race(
    context: Context, way: Way, writer: subprocess.Popen[str], seconds: float
) -> dict[RaceTable, tuple[int, str]]:
    """Maintains the tables in turn while the writer writes. Returns the commits tried on each table."""
    tables = tables_of(way.name)
    tried = dict.fromkeys(tables, (0, ""))
    assert writer.stdin is not None, "a pipe"
    writer.stdin.write(f"{way.name} {seconds}\n")
    writer.stdin.flush()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for table in tables:
            attempt = way.maintain(context, table)
            commits, failure = tried[table]
            tried[table] = (commits + attempt.commits, attempt.failure or failure)
            time.sleep(_PAUSE_SECONDS)
    _expect(writer, DONE)
    return tried


def _judge(
    context: Context,
    way: Way,
    tried: dict[RaceTable, tuple[int, str]],
    written: Mapping[str, Acknowledged],
    store: LakeStore,
) -> list[Raced]:
    reader = DuckDBReader(store.file_system)
    try:
        return [
            judge(
                way,
                table,
                context.catalogs[CATALOG].pin(_id(table)),
                written[table.name],
                tried[table],
                reader,
            )
            for table in tables_of(way.name)
        ]
    finally:
        reader.close()


def _id(table: RaceTable) -> TableId:
    return TableId(CATALOG, (NAMESPACE,), table.name)


@contextmanager
def _writing(place: RacePlace) -> Iterator[subprocess.Popen[str]]:
    """The writer's process, for the time of the block."""
    command = [sys.executable, "-m", "bench.race.writer", str(place.root)]
    with place.said.open("wb") as said:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True
        )
    try:
        yield process
    finally:
        assert process.stdin is not None, "a pipe"
        assert process.stdout is not None, "a pipe"
        process.stdin.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _expect(writer: subprocess.Popen[str], word: str) -> None:
    assert writer.stdout is not None, "a pipe"
    for line in writer.stdout:
        if line.strip() == word:
            return
    raise RuntimeError("The writer has ended. Its output is in writer.log.")
