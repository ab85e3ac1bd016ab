from __future__ import annotations

from iceberg_maint.demo.race.stream import expected, keys_of, only_deletes, rows_of


def replayed(commits: int, evolved_at: int | None) -> list[tuple[str, int, int]]:
    """The rows, one commit after the other; those written before the table evolved are out of reach."""
    reachable: dict[int, tuple[str, int, int]] = {}
    kept: list[tuple[str, int, int]] = []
    for number in range(commits):
        if number == evolved_at:
            kept, reachable = list(reachable.values()), {}
        for row in rows_of(number):
            reachable.pop(int(str(row["id"])), None)
            if not only_deletes(number):
                reachable[int(str(row["id"]))] = (str(row["region"]), int(str(row["id"])), number)
    return sorted([*kept, *reachable.values()])


def test_expected_rows_are_those_of_the_commits_one_after_the_other() -> None:
    for commits, evolved_at in ((0, None), (1, None), (3, None), (200, None), (200, 77), (50, 50), (40, 90)):
        assert expected(commits, evolved_at) == replayed(commits, evolved_at)


def test_every_third_commit_only_deletes_and_keys_come_again() -> None:
    assert [only_deletes(n) for n in range(4)] == [False, False, True, False]
    assert set(keys_of(0)) & set(keys_of(43))
