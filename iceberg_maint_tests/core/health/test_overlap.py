"""Overlap depth against counting it file by file, the choice of files, and what a sort of them is predicted to bring."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_maint.core.health.layout import (
    Overlap,
    SortChoice,
    SortFile,
    SortLimits,
    choose,
    ideal_depth,
    overlap,
    overlap_of,
    predicted_ranges,
)

TARGET = 100


def output_files(size_bytes: int) -> int:
    return max(1, size_bytes // TARGET)


def limits(**keys: object) -> SortLimits:
    values = {"goal": 1.5, "min_gain_ratio": 0.2, "max_group_bytes": 10**9, "max_group_files": 1000}
    return SortLimits(**{**values, "output_files": output_files, **keys})  # type: ignore[arg-type]


def file(*ends: int, size: int = TARGET, fixed: bool = False) -> SortFile:
    return SortFile(tuple(zip(ends[::2], ends[1::2], strict=True)), size, fixed)


def chosen(found: SortChoice) -> tuple[tuple[int, ...], ...]:
    return tuple(g.files for g in found.groups)


def by_counting(ranges: list[tuple[int, int]]) -> Overlap:
    depths = [
        1 + sum(low <= at < high for k, (low, high) in enumerate(ranges) if k != i)
        for i, (at, _) in enumerate(ranges)
    ]
    return Overlap(len(ranges), sum(depths), max(depths, default=0))


RANGES = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)).map(lambda r: (r[0], r[0] + r[1])))


@given(RANGES)
def test_overlap_is_what_counting_finds(ranges: list[tuple[int, int]]) -> None:
    assert overlap(ranges) == by_counting(ranges)


@pytest.mark.parametrize(
    ("ranges", "depth", "deepest"),
    [
        ([], 0, 0),
        ([(1, 5), (5, 9), (9, 12)], 1, 1),  # neighbours of a sorted run share the value of the cut
        ([(0, 9)] * 4, 4, 4),
        ([(3, 3)] * 4, 1, 1),  # files of one value cannot be sorted apart
        ([(0, 9), (3, 3)], Fraction(3, 2), 2),
        ([(0, 10), (1, 2), (3, 4), (5, 6)], Fraction(7, 4), 2),
    ],
)
def test_overlap_depth(ranges: list[tuple[int, int]], depth: Fraction, deepest: int) -> None:
    found = overlap(ranges)
    assert (found.depth, found.max_depth) == (depth, deepest)


def test_ideal_depth_of_a_z_order_is_between_a_sort_and_none() -> None:
    assert (ideal_depth(64, 1), ideal_depth(64, 2), round(ideal_depth(64, 3))) == (1, 8, 16)
    assert ideal_depth(0, 2) == 1


def test_overlap_of_files_leaves_out_those_without_bounds_and_adds_up_columns() -> None:
    files = [file(0, 9, 0, 1), file(0, 9, 5, 6), SortFile((None, (0, 9)), 10)]
    assert overlap_of(files) == Overlap(4, 6, 2)


def test_predicted_ranges_have_equal_weight_and_meet() -> None:
    assert predicted_ranges([(0, 10), (0, 10)], [100, 100], 4) == [(0, 2.5), (2.5, 5), (5, 7.5), (7.5, 10)]
    assert predicted_ranges([(0, 10), (10, 20)], [300, 100], 2) == [
        (0, pytest.approx(20 / 3)),
        (pytest.approx(20 / 3), 20),
    ]
    # Half of everything is the value 5.
    assert predicted_ranges([(0, 10), (5, 5)], [100, 100], 4) == [(0, 5), (5, 5), (5, 5), (5, 10)]


@given(RANGES.filter(bool), st.integers(1, 9))
def test_predicted_ranges_cover_all_in_order(ranges: list[tuple[int, int]], pieces: int) -> None:
    found = predicted_ranges(ranges, [7] * len(ranges), pieces)
    assert len(found) == pieces
    assert (found[0][0], found[-1][1]) == (min(r[0] for r in ranges), max(r[1] for r in ranges))
    assert all(a[1] == b[0] for a, b in pairwise(found))
    assert all(low <= high for low, high in found)


def test_choice_of_a_sorted_partition_is_nothing() -> None:
    sorted_run = [file(i * 10, i * 10 + 10) for i in range(20)]
    assert choose(sorted_run, limits()).groups == ()


def test_choice_takes_the_wide_files_and_leaves_the_narrow() -> None:
    narrow = [file(i * 10, i * 10 + 10) for i in range(20)]
    wide = [file(0, 200, size=20) for _ in range(5)]
    found = choose([*narrow, *wide], limits(goal=2.0))
    assert chosen(found) == ((20, 21, 22, 23, 24),)
    assert (found.before.depth, found.after.depth) == (6, 2)


def test_choice_of_files_that_all_overlap_sorts_all_of_them() -> None:
    found = choose([file(0, 100)] * 8, limits())
    assert chosen(found) == (tuple(range(8)),)
    assert (found.before, found.after) == (Overlap(8, 64, 8), Overlap(8, 8, 1))


def test_choice_never_takes_a_fixed_file_and_counts_it() -> None:
    files = [file(0, 100, fixed=i < 2) for i in range(8)]
    found = choose(files, limits(goal=3.0))
    assert chosen(found) == (tuple(range(2, 8)),)
    assert found.after == Overlap(8, 6 * 3 + 2 * 3, 3)


def test_choice_sorts_groups_apart_that_exceed_the_cap() -> None:
    found = choose([file(0, 100)] * 8, limits(max_group_bytes=4 * TARGET, goal=2.0))
    assert [len(g) for g in chosen(found)] == [4, 4]
    assert found.after == Overlap(8, 16, 2)


def test_choice_groups_neighbours() -> None:
    files = [file(k * 100, k * 100 + 100) for _ in range(4) for k in range(2)]
    found = choose(files, limits(max_group_files=4, goal=1.0))
    assert chosen(found) == ((0, 2, 4, 6), (1, 3, 5, 7))
    assert found.after.depth == 1


def test_choice_that_gains_exactly_the_least_share_is_made() -> None:
    found = choose([file(0, 100)] * 2, limits(min_gain_ratio=0.5))
    assert (found.before.depth, found.after.depth) == (2, 1)
    assert chosen(found) == ((0, 1),)
    assert choose([file(0, 100)] * 2, limits(min_gain_ratio=0.51)).groups == ()


def test_choice_that_would_gain_too_little_is_nothing() -> None:
    # Of nine files that all overlap two may be sorted: from a depth of nine to one of eight.
    files = [file(0, 100, fixed=i > 1) for i in range(9)]
    assert choose(files, limits()).groups == ()
    assert chosen(choose(files, limits(min_gain_ratio=0.1))) == ((0, 1),)


def test_choice_splits_a_wide_file_of_several_targets() -> None:
    files = [file(i * 10, i * 10 + 10, fixed=True) for i in range(20)]
    wide = file(0, 200, size=20 * TARGET)
    found = choose([*files, wide], limits(goal=1.0, min_gain_ratio=0.0))
    assert chosen(found) == ()  # as deep as before: each piece still covers its part
    assert found.before.max_depth == 2


def test_choice_for_a_z_order_predicts_slabs() -> None:
    found = choose([file(0, 100, 0, 100)] * 16, limits(goal=1.0, min_gain_ratio=0.5))
    assert chosen(found) == (tuple(range(16)),)
    assert found.before.depth == 16
    assert found.after.depth == 4 == ideal_depth(16, 2)


def test_choice_orders_text_by_what_follows_the_shared_prefix() -> None:
    def named(low: str, high: str) -> SortFile:
        return SortFile((((low.encode()), (high.encode())),), TARGET)

    prefix = "a-prefix-longer-than-a-float/"
    files = [named(prefix + "a", prefix + "z") for _ in range(6)]
    found = choose(files, limits())
    assert (len(chosen(found)), found.after.depth) == (1, 1)


@given(RANGES.filter(bool), st.integers(1, 4))
def test_choice_is_of_free_files_once_each_and_never_predicts_worse(
    ranges: list[tuple[int, int]], goal: int
) -> None:
    files = [file(low, high, fixed=n % 3 == 0) for n, (low, high) in enumerate(ranges)]
    found = choose(files, limits(goal=float(goal)))
    taken = [i for g in chosen(found) for i in g]
    assert len(taken) == len(set(taken))
    assert not any(files[i].fixed for i in taken)
    assert all(g.after.depth < g.before.depth for g in found.groups)
    assert found.before == overlap_of(files)
    assert found.after.depth <= found.before.depth


def test_predicted_ranges_of_points_have_the_weight_of_the_points() -> None:
    points = [(0, 0), (1, 1), (2, 2)]
    assert predicted_ranges(points, [1, 1, 1], 3) == [(0, 0), (0, 1), (1, 2)]


def test_one_file_alone_is_not_sorted() -> None:
    assert choose([file(0, 100)], limits()).groups == ()
