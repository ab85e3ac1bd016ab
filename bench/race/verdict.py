"""The verdict on a table of the race: DuckDB compares the rows before and after every maintenance commit."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from bench.race.strategies import Way
from bench.race.stream import LOADED_ROWS, NUMBER_PROPERTY, RaceTable, expected_sql
from bench.race.writer import Acknowledged
from iceberg_maint.core.model.table_state import Snapshot, TableState
from iceberg_maint.demo.duckdb_reader import DuckDBReader, scan


@dataclass(frozen=True, slots=True)
class Raced:
    """One table with one strategy.

    `lost` and `back` are the rows that its maintenance commits removed and added. `kept`: all
    acknowledged commits are ancestors of the head, in order. `missing` and `unexpected` compare the rows
    at the end with the stream.
    """

    way: Way
    table: RaceTable
    writer: Acknowledged
    tried: int
    landed: int
    lost: int
    back: int
    kept: bool
    missing: int
    unexpected: int
    failure: str = ""

    @property
    def safe(self) -> bool:
        """Whether no row was lost or resurrected, and no commit of the writer was lost."""
        return self.kept and not (self.lost or self.back or self.missing or self.unexpected)


def judge(
    way: Way,
    table: RaceTable,
    state: TableState,
    writer: Acknowledged,
    tried: tuple[int, str],
    reader: DuckDBReader,
    loaded: int = LOADED_ROWS,
) -> Raced:
    """Reads every maintenance commit and the snapshot before it. No snapshot may have expired."""
    chain = tuple(reversed(state.ancestors()))
    lost = back = landed = 0
    for before, after in itertools.pairwise(chain):
        if number_of(after) is not None:
            continue
        landed += 1
        reader.take(state.metadata_location, after.snapshot_id)
        rows = f"SELECT * FROM {scan(state.metadata_location, before.snapshot_id)}"
        change = reader.compare_taken(rows)
        lost, back = lost + change.missing, back + change.unexpected
    reader.take(state.metadata_location, chain[-1].snapshot_id)
    at_end = reader.compare_taken(expected_sql(loaded, writer.commits, writer.evolved_at))
    numbers = [n for n in map(number_of, chain) if n is not None]
    return Raced(
        way,
        table,
        writer,
        tried[0],
        landed,
        lost,
        back,
        numbers == list(range(writer.commits)),
        at_end.missing,
        at_end.unexpected,
        tried[1],
    )


def number_of(snapshot: Snapshot) -> int | None:
    """The number of the writer's commit; None for a commit of another writer."""
    number = snapshot.summary.get(NUMBER_PROPERTY)
    return None if number is None else int(number)
