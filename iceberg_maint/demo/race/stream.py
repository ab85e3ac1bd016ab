"""The stream that the racing writer upserts: what each commit does follows from its number, so every row that
must be in a table is known without reading it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iceberg_maint.demo.place import CATALOG, NAMESPACE

NUMBER_PROPERTY = "race.commit"
"""Snapshot summary key that carries the number of the writer's commit."""
KEY = ("region", "id")
_KEYS = 300
_KEYS_PER_COMMIT = 4
_STEP = 7
_REGIONS = 2
_ONLY_DELETES = 3

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Kind:
    """What sort of table is raced on. One that `evolves` begins without partitions and is partitioned
    by region half-way."""

    name: str
    format_version: int
    evolves: bool = False


KINDS = (Kind("v2", 2), Kind("v3", 3), Kind("evolving", 2, evolves=True))


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

    def create_sql(self) -> str:
        """Spark's statement that makes it."""
        return (
            f"CREATE TABLE {self.full_name} (region string, id int, v int) USING iceberg "
            f"TBLPROPERTIES ('format-version' = '{self.kind.format_version}')"
        )


def tables_of(way: str) -> tuple[RaceTable, ...]:
    """One table of each kind."""
    return tuple(RaceTable(way, kind) for kind in KINDS)


def keys_of(number: int) -> Sequence[int]:
    """Ids that a commit sets or deletes."""
    return [(number * _STEP + j) % _KEYS for j in range(_KEYS_PER_COMMIT)]


def only_deletes(number: int) -> bool:
    """Whether a commit deletes its keys and adds nothing: every third does."""
    return number % _ONLY_DELETES == _ONLY_DELETES - 1


def rows_of(number: int) -> list[Row]:
    """A commit's keys with the values it sets."""
    return [{"region": _region(key), "id": key, "v": number} for key in keys_of(number)]


def expected(commits: int, evolved_at: int | None = None) -> list[tuple[str, int, int]]:
    """The rows (region, id, v) that the commits 0, 1, … before `commits` leave.

    From commit `evolved_at` on the table was partitioned, and a delete reaches the rows of its own
    partition and spec (Iceberg spec, Scan Planning), as with any streaming writer: those written before
    stay as they were.
    """
    middle = commits if evolved_at is None else min(evolved_at, commits)
    return sorted([*_alive(0, middle), *_alive(middle, commits)])


def _alive(first: int, last: int) -> list[tuple[str, int, int]]:
    newest = {key: number for number in range(first, last) for key in keys_of(number)}
    return [(_region(key), key, number) for key, number in newest.items() if not only_deletes(number)]


def _region(key: int) -> str:
    return f"r{key % _REGIONS}"
