"""Projections of manifests: digests of paths, and the numbers of files that are found by them."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from hashlib import blake2b

import numpy as np
import pytest

from iceberg_maint.catalog.manifests.projection import (
    Projection,
    numbers_of,
    pack,
    path_digests,
    unpack,
)
from iceberg_maint.catalog.manifests.reader import LiveEntries


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_path_digests_are_one_row_of_two_words_for_each_path(count: int) -> None:
    paths = ["a.parquet", "b.parquet", "c\udcff.parquet"][:count]
    digests = path_digests(paths)
    assert digests.shape == (count, 2)
    assert [row.tobytes() for row in digests] == [
        blake2b(path.encode(errors="surrogatepass"), digest_size=16).digest() for path in paths
    ]


def projection_of(*partition: object) -> Projection:
    column = np.zeros(1, np.int64)
    return Projection(LiveEntries(0, (partition,), *[column] * 6, more=()))


def test_partition_values_of_exact_forms_come_back() -> None:
    packed = pack(projection_of(None, True, -1, "a", b"\0"))
    assert packed is not None
    assert unpack(packed).entries.partitions == ((None, True, -1, "a", b"\0"),)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (-300, 300),
        (200, 300),
        (-1, 255),
        (-40_000, 40_000),
        (-(1 << 32), 1 << 32),
        (-(1 << 63), (1 << 63) - 1),
    ],
)
def test_integers_of_a_column_come_back(low: int, high: int) -> None:
    numbers = np.array([low, 0, high])
    entries = replace(projection_of().entries, sequence_number=numbers)
    packed = pack(Projection(entries))
    assert packed is not None
    assert unpack(packed).entries.sequence_number.tolist() == [low, 0, high]


@pytest.mark.parametrize("value", [1.5, Decimal("1.5")])
def test_partition_value_without_an_exact_form_is_not_packed(value: object) -> None:
    assert pack(projection_of("a", value)) is None


def test_sequence_numbers_of_named_files_are_found_in_any_manifest() -> None:
    paths = ["a", "b", "c", "d"]
    named = {row.tobytes(): path for path, row in zip(paths, path_digests(paths), strict=True)}
    manifests = [
        replace(
            projection_of(),
            entries=replace(projection_of().entries, sequence_number=np.array([number, number + 10])),
            paths=path_digests([path, f"not {path}"]),
        )
        for number, path in enumerate(paths)
    ]
    assert numbers_of(manifests, named) == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert numbers_of(manifests, {}) == {}


def test_one_named_file_is_found_among_paths_with_lower_and_higher_digests() -> None:
    paths = ["a", "b", "c", "d", "e", "f"]
    digests = path_digests(paths)
    numbers = replace(projection_of().entries, sequence_number=np.arange(len(paths)))
    manifest = replace(projection_of(), entries=numbers, paths=digests)
    for at, path in enumerate(paths):
        assert numbers_of([manifest], {digests[at].tobytes(): path}) == {path: at}
