"""Projections of manifests: digests of paths, and the numbers of files that are found by them."""

from __future__ import annotations

from hashlib import blake2b

import pytest

from iceberg_maint.catalog.manifests.projection import path_digests


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_path_digests_are_one_row_of_two_words_for_each_path(count: int) -> None:
    paths = ["a.parquet", "b.parquet", "c\udcff.parquet"][:count]
    digests = path_digests(paths)
    assert digests.shape == (count, 2)
    assert [row.tobytes() for row in digests] == [
        blake2b(path.encode(errors="surrogatepass"), digest_size=16).digest() for path in paths
    ]
