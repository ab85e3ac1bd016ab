"""The stream that the racing writer upserts. Each commit follows from its number, so the expected rows are
known without reading a table."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iceberg_maint.demo.workspace import CATALOG, NAMESPACE

NUMBER_PROPERTY = "race.commit"
"""Snapshot summary key that carries the number of the writer's commit."""
KEY = ("region", "id")
LOADED_ROWS = 200_000
"""Rows of a table before the stream begins, with the ids 0, 1, …. Their rewrite takes some seconds."""
HOT_KEYS = 600
"""The stream sets and deletes this many of the first ids. The other ids stay."""
_KEYS_PER_COMMIT = 8
_STEP = 13
_REGIONS = 2
_ONLY_DELETES = 3
_LOADED = -1

Row = Mapping[str, object]
RowTuple = tuple[str, int, int, str]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of table. It begins without partitions. Its spec evolves this many times, to region and back in
    turn."""

    name: str
    format_version: int
    evolutions: int = 0


KINDS = (Kind("v2", 2), Kind("v3", 3), Kind("evolving", 2, evolutions=3))


@dataclass(frozen=True, slots=True)
class RaceTable:
    """A table of one kind, for one strategy of maintenance."""

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
        """Spark's statement that creates it with `loaded` rows."""
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
    """Whether a commit deletes its keys and adds no row: every third commit."""
    return number % _ONLY_DELETES == _ONLY_DELETES - 1


def rows_of(number: int) -> list[Row]:
    """A commit's keys with the values it sets."""
    return [
        dict(zip(("region", "id", "v", "note"), _row(key, number), strict=True)) for key in keys_of(number)
    ]


def hot_rows(commits: int, evolved_at: Sequence[int] = ()) -> list[RowTuple]:
    """The rows (region, id, v, note) of the hot keys after the load and the first `commits` commits. At each
    commit in `evolved_at` the table's spec changed.

    Each row has the spec that it was written with. A delete of the partitioned spec applies to rows of
    its own spec and partition; a delete of the unpartitioned spec applies to all (Iceberg spec, Scan
    Planning).
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
    """All expected rows, as a DuckDB query."""
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
