"""What measured memory teaches the next estimate."""

from __future__ import annotations

import pytest

from iceberg_maint.core.planning.batch_memory import MemoryUse, learned_correction


def used(ratio: float, correction: float = 1.0, *, exceeded: bool = False) -> MemoryUse:
    return MemoryUse(1000, int(1000 * ratio), 4, 1, correction, exceeded)


@pytest.mark.parametrize(
    ("ratios", "correction"),
    [((), 1.0), ((1.2,), 1.2), ((0.9, 1.1, 5.0), 1.1), ((0.01,), 0.25), ((99.0, 99.0), 8.0)],
)
def test_correction_is_the_median_within_bounds(ratios: tuple[float, ...], correction: float) -> None:
    assert learned_correction([used(r) for r in ratios]) == correction


def test_correction_is_of_the_estimate_before_it_was_corrected() -> None:
    """Else a correction that hits the mark would be taken back by the next plan."""
    assert learned_correction([used(1.5), used(1.0, 1.5)]) == 1.5


def test_use_that_measured_nothing_teaches_nothing() -> None:
    nothing = (MemoryUse(0, 0, 1, 1), MemoryUse(100, 0, 1, 1))
    assert learned_correction([*nothing, MemoryUse(100, 50, 1, 1)]) == 0.5


@pytest.mark.parametrize(
    ("uses", "correction"),
    [
        # What a task that got no memory had by then is less than it needed.
        ((used(0.6, exceeded=True),), 2.0),
        ((used(0.0, exceeded=True),), 2.0),
        ((used(3.0, exceeded=True),), 3.0),
        ((used(1.0, 2.0, exceeded=True), used(0.7, exceeded=True)), 4.0),
        # Those that did finish needed less; the next batch may be of the other kind.
        ((used(0.5, 2.0), used(0.9), used(0.9, exceeded=True)), 2.0),
        ((used(0.9, 8.0, exceeded=True),), 8.0),
    ],
)
def test_correction_is_no_less_than_what_ran_out_of_memory_needed(
    uses: tuple[MemoryUse, ...], correction: float
) -> None:
    assert learned_correction(uses) == correction


def test_use_of_the_smallest_estimate_teaches() -> None:
    assert learned_correction([MemoryUse(1, 2, 1, 1)]) == 2.0
