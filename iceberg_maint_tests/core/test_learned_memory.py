"""What measured memory teaches the next estimate."""

from __future__ import annotations

import pytest

from iceberg_maint.core.memory import learned_correction


@pytest.mark.parametrize(
    ("ratios", "correction"),
    [((), 1.0), ((1.2,), 1.2), ((0.9, 1.1, 5.0), 1.1), ((0.01,), 0.25), ((99.0, 99.0), 8.0)],
)
def test_correction_is_the_median_within_bounds(ratios: tuple[float, ...], correction: float) -> None:
    assert learned_correction(ratios) == correction
