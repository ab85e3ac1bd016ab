"""The input bytes of one output file."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint.engines.spark.rewrite.bin_pack import split_bytes
from iceberg_maint_tests.support.ledger.values import make_batch

TARGET = 100_000
POLICY = RewriteDataFilesPolicy()


@pytest.mark.parametrize(
    ("input_bytes", "files", "expected"),
    [
        (50_000, 1, TARGET),
        (TARGET, 1, TARGET + 5 * 1024),
        (330_000, 3, 110_000 + 5 * 1024),
        (1_000_000, 1, 180_000),
    ],
)
def test_split_is_an_equal_share_with_overhead_between_the_target_and_a_large_file(
    input_bytes: int, files: int, expected: int
) -> None:
    """Without the overhead the bytes that remain would become a tiny file more (Iceberg's `inputSplitSize`)."""
    batch = replace(make_batch("day=1"), target_file_size_bytes=TARGET)
    [group] = batch.groups
    first = replace(group.files[0], size_bytes=input_bytes)
    group = replace(group, files=(first,), expected_output_files=files)
    assert split_bytes(batch, group, POLICY) == expected
