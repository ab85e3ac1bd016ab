"""The stream that the racing writer upserts: what each commit does follows from its number, so every row that
must be in a table is known without reading it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iceberg_maint.demo.workspace import CATALOG, NAMESPACE

NUMBER_PROPERTY = "race.commit"
"""Snapshot summary key that carries the number of the writer's commit."""
KEY = ("region", "id")
LOADED_ROWS = 200_000
"""Rows that a table holds before the stream begins, under the ids 0, 1, …: so many that rewriting them
takes some seconds."""
HOT_KEYS = 600
"""The stream sets and deletes the first so many ids, as often as time allows; the others stay."""
_KEYS_PER_COMMIT = 8
_STEP = 13
_REGIONS = 2
_ONLY_DELETES = 3
_LOADED = -1

Row = Mapping[str, object]
RowTuple = tuple[str, int, int, str]


@dataclass(frozen=True, slots=True)
class Kind:
    """What sort of table is raced on. It begins without partitions; its spec evolves so many times, to
    region and back in turn."""

    name: str
    format_version: int
    evolutions: int = 0


KINDS = (Kind("v2", 2), Kind("v3", 3), Kind("evolving", 2, evolutions=3))


@dataclass(frozen=True, slots=True)
class RaceTable:
    """A table of one kind, for one way of maintenance."""

    way: str
    kind: Kind

    @property
    def name(self) -> str:
        """Its name in the namespace."""
        return f"{self.way}_{self.kind.name}"

    @property
    def full_name(self) -> str:
        """With catalog and namespace."""
        return f"{CATALOG}.{NAMESPACE}.{self.name}"

    def create_sql(self, loaded: int = LOADED_ROWS) -> str:
        """Spark's statement that makes it, with so many rows in it."""
        columns = (
            f"concat('r', cast(id % {_REGIONS} AS string)) AS region, cast(id AS int) AS id, {_LOADED} AS v, "
            f"sha2(concat(cast(id AS string), ':{_LOADED}'), 256) AS note"
        )
        return (
            f"CREATE TABLE {self.full_name} USING iceberg "
            f"TBLPROPERTIES ('format-version' = '{self.kind.format_version}') "
            f"AS SELECT {columns} FROM range({loaded})"
        )


def tables_of(way: str) -> tuple[RaceTable, ...]:
    """One table of each kind."""
    return tuple(RaceTable(way, kind) for kind in KINDS)


def keys_of(number: int) -> Sequence[int]:
    """Ids that a commit sets or deletes."""
    return [(number * _STEP + j) % HOT_KEYS for j in range(_KEYS_PER_COMMIT)]


def only_deletes(number: int) -> bool:
    """Whether a commit deletes its keys and adds nothing: every third does."""
    return number % _ONLY_DELETES == _ONLY_DELETES - 1


def rows_of(number: int) -> list[Row]:
    """A commit's keys with the values it sets."""
    return [
        dict(zip(("region", "id", "v", "note"), _row(key, number), strict=True)) for key in keys_of(number)
    ]


def hot_rows(commits: int, evolved_at: Sequence[int] = ()) -> list[RowTuple]:
    """The rows (region, id, v, note) under the hot keys that the load and the commits 0, 1, … before
    `commits` leave. From each commit in `evolved_at` on the table had the other spec.

    Each row is of the spec it was written in. A delete of the partitioned spec reaches the rows of its
    own spec and partition, one of the unpartitioned spec reaches all (Iceberg spec, Scan Planning).
    """
    plain = dict.fromkeys(range(HOT_KEYS), _LOADED)
    by_region: dict[int, int] = {}
    for number in range(commits):
        partitioned = sum(at <= number for at in evolved_at) % 2 == 1
        for key in keys_of(number):
            by_region.pop(key, None)
            if not partitioned:
                plain.pop(key, None)
            if not only_deletes(number):
                (by_region if partitioned else plain)[key] = number
    return sorted(_row(key, number) for key, number in [*plain.items(), *by_region.items()])


def expected_sql(loaded: int, commits: int, evolved_at: Sequence[int] = ()) -> str:
    """All rows that must be there, as a query of DuckDB's."""
    cold = (
        f"SELECT 'r' || (id % {_REGIONS}) AS region, CAST(id AS INTEGER) AS id, {_LOADED} AS v, "
        f"sha256(id || ':{_LOADED}') AS note FROM range({HOT_KEYS}, {loaded}) AS r(id)"
    )
    hot = ", ".join(
        f"('{region}', {key}, {v}, '{note}')" for region, key, v, note in hot_rows(commits, evolved_at)
    )
    return f"SELECT * FROM ({cold} UNION ALL VALUES {hot})"


def _row(key: int, number: int) -> RowTuple:
    return f"r{key % _REGIONS}", key, number, hashlib.sha256(f"{key}:{number}".encode()).hexdigest()
