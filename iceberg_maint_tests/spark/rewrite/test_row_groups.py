"""How large row groups are made, so that a scan of what a rewrite leaves keeps its tasks."""

from __future__ import annotations

import pytest

from iceberg_maint.engines.spark.rewrite.bin_pack import row_group_bytes

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("input_mib", "parallelism", "table_mib", "wanted_mib"),
    [
        (1024, 4, 128, 128),  # enough row groups of the table's own size
        (256, 4, 128, 64),
        (60, 4, 128, 15),
        (20, 8, 128, 8),  # smaller ones would only be read together
        (60, 4, 4, 4),  # never above the table's
        (60, 0, 128, 60),
    ],
)
def test_row_groups_are_a_share_for_every_task(
    input_mib: int, parallelism: int, table_mib: int, wanted_mib: int
) -> None:
    assert row_group_bytes(input_mib * MIB, parallelism, table_mib * MIB) == wanted_mib * MIB
