"""The number of a z-order: the bits of the ranks of all columns, one of each column in turn."""

from __future__ import annotations

import pytest

from iceberg_maint.engines.spark.rewrite.sort import _interleaved


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ((0b11, 0b00), 0b0101),
        ((0b00, 0b11), 0b1010),
        ((0b10, 0b01), 0b0110),
        ((0b1, 0b0, 0b1), 0b000101),
        ((0b10, 0b00, 0b10), 0b101000),
    ],
)
def test_interleaved_takes_a_bit_of_each_rank_in_turn_lowest_first(
    ranks: tuple[int, ...], expected: int
) -> None:
    assert _interleaved(ranks, 2) == expected
