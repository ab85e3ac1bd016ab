"""Which equality deletes may apply to which data files."""

from __future__ import annotations

import pytest

from iceberg_maint.engines.spark.deletes.key_files import (
    FILE_SHIFT,
    DataFile,
    DeleteFile,
    DeleteSet,
    Pair,
    pair_of,
)

DATA = [DataFile("1", 1, "0:a", False), DataFile("2", 2, "0:b", False), DataFile("3", 4, "0:a", False)]


def deletes_of(*files: tuple[int, str | None]) -> DeleteSet:
    """Deletes by (sequence number, scope)."""
    made = tuple(
        DeleteFile(f"{n}", number, scope, (1,), frozenset(), {}, "{}")
        for n, (number, scope) in enumerate(files)
    )
    return DeleteSet((1,), files[0][1] is None, made)


def numbers_of(pair: Pair | None) -> tuple[list[tuple[str, int, int]], list[tuple[str, int, int]]]:
    """The paths, limits or numbers, and scopes of the deletes and of the data files."""
    assert pair is not None
    deletes, data = (
        [(file.path, place >> FILE_SHIFT, scope) for file, place, scope in files]
        for files in (pair.deletes, pair.data)
    )
    return deletes, data


@pytest.mark.parametrize(
    ("deletes", "expected", "has_scopes"),
    [
        (((5, "0:a"),), ([("0", 3, 0)], [("1", 0, 0), ("3", 2, 0)]), False),
        (((4, "0:a"), (3, "0:b")), ([("0", 2, 0), ("1", 2, 1)], [("1", 0, 0), ("2", 1, 1)]), True),
        (((3, "0:a"), (2, "0:b")), ([("0", 2, 0)], [("1", 0, 0)]), False),
        (((3, None),), ([("0", 2, 0)], [("1", 0, 0), ("2", 1, 0)]), False),
    ],
    ids=["one", "two", "two deletes", "everywhere"],
)
def test_pair_has_the_data_of_the_scopes_below_the_limits_of_their_deletes(
    deletes: tuple[tuple[int, str | None], ...],
    expected: tuple[list[tuple[str, int, int]], list[tuple[str, int, int]]],
    has_scopes: bool,
) -> None:
    pair = pair_of(deletes_of(*deletes), DATA)
    assert numbers_of(pair) == expected
    assert pair is not None
    assert pair.has_scopes is has_scopes


def test_deletes_that_are_not_newer_than_any_data_have_no_pair() -> None:
    assert pair_of(deletes_of((1, "0:a"), (2, "0:b"), (9, "0:c")), DATA) is None
