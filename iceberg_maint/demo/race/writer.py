"""The racing writer, a process of its own: upserts the tables of one way after the other as it is told.

    python -m iceberg_maint.demo.race.writer FOLDER

Reads lines `WAY SECONDS` and answers each with a line when it is done. What is acknowledged is written to the
journal before the next commit begins.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from iceberg_maint.demo.equality import append_upserts
from iceberg_maint.demo.race.place import RacePlace
from iceberg_maint.demo.race.stream import KEY, NUMBER_PROPERTY, RaceTable, only_deletes, rows_of, tables_of
from iceberg_maint.spark.bridge import JVM_ERRORS, Bridge, cause_classes
from iceberg_maint.wiring import load

READY = "ready"
DONE = "done"
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What the writer did to one table: commits acknowledged, those that failed, and the number of the
    first commit after the table was partitioned."""

    commits: int
    failed: int
    evolved_at: int | None


class Upserter:
    """Commits to tables in turn; a commit that failed is tried again in the next round."""

    def __init__(self, session: Any, tables: Iterable[RaceTable], journal: TextIO) -> None:
        self._session = session
        self._journal = journal
        self._numbers = dict.fromkeys(tables, 0)
        self._evolving = {table for table in self._numbers if table.kind.evolves}

    def round(self, *, evolve: bool) -> None:
        """One commit to each table. With `evolve` a table that evolves has been partitioned before it."""
        for table, number in self._numbers.items():
            if evolve and table in self._evolving:
                Bridge(self._session).load_table(table.full_name).updateSpec().addField("region").commit()
                self._evolving.remove(table)
                self._tell(table=table.name, evolved_at=number)
            failure = _commit(self._session, table, number)
            self._tell(table=table.name, commit=number, failed=failure)
            self._numbers[table] += failure is None

    def _tell(self, **line: object) -> None:
        self._journal.write(json.dumps(line) + "\n")
        self._journal.flush()


def upsert(session: Any, way: str, seconds: float, journal: Path) -> None:
    """Round after round for so long, the spec evolving half-way."""
    began = time.monotonic()
    with journal.open("a", encoding="utf-8") as file:
        upserter = Upserter(session, tables_of(way), file)
        while (passed := time.monotonic() - began) < seconds:
            upserter.round(evolve=passed > seconds / 2)
            time.sleep(_PAUSE_SECONDS)


def _commit(session: Any, table: RaceTable, number: int) -> str | None:
    """None when it was acknowledged, else why it certainly failed. Raises what leaves that open."""
    rows = rows_of(number)
    added, gone = ([], rows) if only_deletes(number) else (rows, [])
    try:
        append_upserts(
            session, table.full_name, KEY, added, gone=gone, summary={NUMBER_PROPERTY: str(number)}
        )
    except JVM_ERRORS as error:
        names = [name.rpartition(".")[2] for name in cause_classes(error)]
        if "CommitStateUnknownException" in names or "CommitFailedException" not in names:
            raise
        return "CommitFailedException"
    return None


def acknowledged(journal: Path, tables: Iterable[RaceTable]) -> Mapping[str, Acknowledged]:
    """What the journal tells of these tables, by name."""
    commits: dict[str, int] = {table.name: 0 for table in tables}
    failed, evolved = dict(commits), dict.fromkeys(commits)
    for line in map(json.loads, journal.read_text(encoding="utf-8").splitlines()):
        name = line["table"]
        if name not in commits:
            continue
        if "evolved_at" in line:
            evolved[name] = line["evolved_at"]
        elif line["failed"] is None:
            commits[name] = line["commit"] + 1
        else:
            failed[name] += 1
    return {name: Acknowledged(commits[name], failed[name], evolved[name]) for name in commits}


def main(folder: str) -> None:
    """Upserts as it is told until there is nothing more to read."""
    place = RacePlace(Path(folder))
    session = load(place.config).session()
    print(READY, flush=True)
    for line in sys.stdin:
        way, seconds = line.split()
        upsert(session, way, float(seconds), place.journal)
        print(DONE, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
