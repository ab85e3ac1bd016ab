"""The learned parts of a batch's seconds: exact batches, odd batches, no batches, cold sessions."""

from __future__ import annotations

import pytest

from iceberg_maint.core.planning.batch_trials import WorkSize, correction, learned_parts, predicted_seconds

MIB = 1024 * 1024
ASSUMED = (1.0, 0.1, 0.01, 0.05, 2.0)
TAKEN = (2.0, 0.2, 0.02, 0.1, 4.0)
SIZES = [WorkSize(1, n, n * MIB, earlier=n) for n in (4, 8, 16, 32, 64, 128)]


def test_parts_without_batches_are_the_assumed_ones() -> None:
    assert learned_parts(ASSUMED, ()) == ASSUMED


def test_batches_that_take_twice_the_assumed_parts_double_each_part() -> None:
    batches = tuple((size, predicted_seconds(size, TAKEN)) for size in SIZES)
    assert learned_parts(ASSUMED, batches) == pytest.approx(TAKEN)


def test_batch_of_no_seconds_teaches_nothing() -> None:
    assert learned_parts(ASSUMED, ((SIZES[0], 0.0),)) == ASSUMED


def test_one_odd_batch_of_seven_changes_no_part() -> None:
    batches = tuple((size, predicted_seconds(size, TAKEN)) for size in SIZES)
    odd = (WorkSize(1, 10, 10 * MIB, earlier=10), 500.0)
    assert learned_parts(ASSUMED, (*batches, odd)) == pytest.approx(TAKEN)


def test_bytes_that_cost_four_times_the_assumed_are_learned_within_a_tenth() -> None:
    taken = (1.0, 0.1, 0.01, 0.2, 2.0)
    sizes = [WorkSize(1, 8, n * MIB, earlier=9) for n in (1, 2, 4, 8, 16, 32, 64)]
    parts = learned_parts(ASSUMED, tuple((size, predicted_seconds(size, taken)) for size in sizes))
    new = WorkSize(1, 8, 24 * MIB, earlier=9)
    assert predicted_seconds(new, parts) == pytest.approx(predicted_seconds(new, taken), rel=0.1)


def test_amounts_count_deletes_as_files_and_bytes_in_mib() -> None:
    assert WorkSize(2, 5, 24 * MIB, delete_files=3, earlier=3).amounts() == (1.0, 2.0, 8.0, 24.0, 0.25)


def test_first_batch_of_a_session_has_the_whole_cold_part_and_the_fourth_a_quarter() -> None:
    cold, fourth, unknown = (predicted_seconds(WorkSize(0, 0, 0, earlier=n), ASSUMED) for n in (0, 3, None))
    assert (cold, fourth, unknown) == (3.0, 1.5, 1.0)


def test_table_whose_batches_take_thrice_the_parts_is_corrected_by_three() -> None:
    batches = [(size, 3 * predicted_seconds(size, TAKEN)) for size in SIZES]
    assert correction(TAKEN, batches) == 3.0


def test_two_batches_of_a_table_correct_by_half_of_the_way_and_one_by_nothing() -> None:
    thrice = (SIZES[0], 3 * predicted_seconds(SIZES[0], TAKEN))
    assert [correction(TAKEN, [thrice] * n) for n in (0, 1, 2, 3)] == [1.0, 1.0, 2.0, 3.0]
