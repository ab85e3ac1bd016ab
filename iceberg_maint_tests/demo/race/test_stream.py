from __future__ import annotations

import duckdb
import pytest

from bench.race.stream import HOT_KEYS, expected_sql, hot_rows, keys_of, only_deletes, rows_of

pytestmark = pytest.mark.slow

LAP = 46
"""Commits until the first keys come again."""


def versions(key: int, commits: int, *evolved_at: int) -> list[int]:
    """The values of v under a key, -1 for what was loaded."""
    return [row[2] for row in hot_rows(commits, evolved_at) if row[1] == key]


def test_every_third_commit_only_deletes_and_keys_come_again() -> None:
    assert [only_deletes(n) for n in range(4)] == [False, False, True, False]
    assert {0, 1} <= set(keys_of(0)) & set(keys_of(LAP))
    assert {13, 14} <= set(keys_of(1)) & set(keys_of(LAP + 1))


@pytest.mark.parametrize(
    ("commits", "evolved_at", "of_0", "of_13"),
    [
        (0, (), [-1], [-1]),
        (2, (), [0], [1]),
        (LAP + 1, (), [LAP], [1]),
        # Commit 47 only deletes.
        (LAP + 2, (), [LAP], []),
        # What was written before the table was partitioned is out of reach.
        (2, (1,), [0], [-1, 1]),
        (LAP + 2, (1,), [0, LAP], [-1]),
        (LAP + 2, (LAP,), [0, LAP], [1]),
        # Deletes of the unpartitioned spec reach every row.
        (LAP + 2, (1, 2), [LAP], []),
        (LAP + 2, (1, LAP + 1), [0, LAP], []),
        (LAP + 2, (0, 1, 2), [-1, LAP], [1]),
    ],
)
def test_rows_are_those_of_the_load_and_the_commits(
    commits: int, evolved_at: tuple[int, ...], of_0: list[int], of_13: list[int]
) -> None:
    assert (versions(0, commits, *evolved_at), versions(13, commits, *evolved_at)) == (of_0, of_13)


def test_expected_rows_are_all_of_them() -> None:
    with duckdb.connect() as db:
        loaded = db.execute(f"SELECT * FROM ({expected_sql(HOT_KEYS + 2, 1)}) ORDER BY id").fetchall()
    assert [row[1] for row in loaded] == list(range(HOT_KEYS + 2))
    assert loaded[:8] == [tuple(row.values()) for row in rows_of(0)]
    assert {(row[0], row[2]) for row in loaded[8:]} == {("r0", -1), ("r1", -1)}
