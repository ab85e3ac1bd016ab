"""The racing writer, in its own process: upserts the tables of one strategy after the other on request.

    python -m bench.race.writer FOLDER

Reads lines `WAY SECONDS` and answers each with a line at its end. It writes the result of each commit to the
journal before the next commit begins.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from bench.race.place import RacePlace
from bench.race.stream import KEY, NUMBER_PROPERTY, RaceTable, only_deletes, rows_of, tables_of
from iceberg_maint.demo.equality_deletes import append_upserts
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.java_errors import JVM_ERRORS, cause_classes
from iceberg_maint.wiring.adapters import load

READY = "ready"
DONE = "done"
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The writer's work on one table: acknowledged commits, failed commits, and for each evolution of the
    table's spec the number of the first commit after it."""

    commits: int
    failed: int
    evolved_at: tuple[int, ...] = ()


class Upserter:
    """Commits to tables in turn. The next round repeats a failed commit."""

    def __init__(self, session: Any, tables: Iterable[RaceTable], journal: TextIO) -> None:
        self._session = session
        self._journal = journal
        self._numbers = dict.fromkeys(tables, 0)
        self._evolved = dict.fromkeys(self._numbers, 0)

    def round(self, passed: float) -> None:
        """Commits to each table once. `passed` is the elapsed share of the time (0 to 1), over which the
        evolutions of a table are spread evenly."""
        for table, number in self._numbers.items():
            kind, done = table.kind, self._evolved[table]
            if done < kind.evolutions and passed * (kind.evolutions + 1) > done + 1:
                if _failure(_evolve, self._session, table, done) is not None:
                    continue
                self._evolved[table] += 1
                self._record(table=table.name, evolved_at=number)
            failure = _failure(_upsert, self._session, table, number)
            self._record(table=table.name, commit=number, failed=failure)
            self._numbers[table] += failure is None

    def _record(self, **line: object) -> None:
        self._journal.write(json.dumps(line) + "\n")
        self._journal.flush()


def race(session: Any, way: str, seconds: float, journal: Path) -> None:
    """Repeats rounds for this time."""
    began = time.monotonic()
    with journal.open("a", encoding="utf-8") as file:
        upserter = Upserter(session, tables_of(way), file)
        while (passed := (time.monotonic() - began) / seconds) < 1:
            upserter.round(passed)
            time.sleep(_PAUSE_SECONDS)


def _evolve(session: Any, table: RaceTable, done: int) -> None:
    update = Bridge(session).load_table(table.full_name).updateSpec()
    (update.addField if done % 2 == 0 else update.removeField)("region")
    update.commit()


def _upsert(session: Any, table: RaceTable, number: int) -> None:
    rows = rows_of(number)
    added, gone = ([], rows) if only_deletes(number) else (rows, [])
    summary = {NUMBER_PROPERTY: str(number)}
    append_upserts(session, table.full_name, KEY, added, gone=gone, summary=summary)


def _failure(commit: Callable[..., None], *args: object) -> str | None:
    """None for an acknowledged commit; the error of a commit that certainly failed. Raises other errors."""
    try:
        commit(*args)
    except JVM_ERRORS as error:
        names = [name.rpartition(".")[2] for name in cause_classes(error)]
        if "CommitStateUnknownException" in names or "CommitFailedException" not in names:
            raise
        return "CommitFailedException"
    return None


def acknowledged(journal: Path, tables: Iterable[RaceTable]) -> Mapping[str, Acknowledged]:
    """The journal's results for these tables, by name."""
    commits: dict[str, int] = {table.name: 0 for table in tables}
    failed = dict(commits)
    evolved: dict[str, tuple[int, ...]] = dict.fromkeys(commits, ())
    for line in map(json.loads, journal.read_text(encoding="utf-8").splitlines()):
        name = line["table"]
        if name not in commits:
            continue
        if "evolved_at" in line:
            evolved[name] += (line["evolved_at"],)
        elif line["failed"] is None:
            commits[name] = line["commit"] + 1
        else:
            failed[name] += 1
    return {name: Acknowledged(commits[name], failed[name], evolved[name]) for name in commits}


def main(folder: str) -> None:
    """Reads requests from stdin and upserts until stdin ends."""
    place = RacePlace(Path(folder))
    session = load(place.config).engine.spark.session()
    print(READY, flush=True)
    for line in sys.stdin:
        way, seconds = line.split()
        race(session, way, float(seconds), place.journal)
        print(DONE, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
