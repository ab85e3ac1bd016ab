"""Layout: measures how far the ranges of a partition's files overlap, and selects files to sort again."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from iceberg_maint.core.model.columns import Bound, Range

T = TypeVar("T")


def pack(items: Iterable[T], cap: int, weight: Callable[[T], int], max_items: int) -> list[list[T]]:
    """Returns bins of items; bins and items keep the input order. No bin has more than `max_items`, and
    only a one-item bin weighs more than `cap`."""
    bins: list[list[T]] = []
    open_weight = 0
    for item in items:
        w = weight(item)
        if bins and open_weight + w <= cap and len(bins[-1]) < max_items:
            bins[-1].append(item)
            open_weight += w
        else:
            bins.append([item])
            open_weight = w
    return bins


_HEAD_BYTES = 7
"""Bytes of a text after the common prefix that place it on a line: as many as a float can represent."""

_Line = tuple[tuple[float, float], ...]
"""Ranges of the measured columns of one file, placed on lines."""
_AS_BAD = 0.5
"""A file is sorted as well if its coverage per byte is at least this share of that of the last file
needed."""
_FAR = 1e300
"""The position of infinite bounds on a line."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """The overlap of ranges: their number, the sum and the maximum of their depths."""

    ranges: int = 0
    depth_sum: int = 0
    max_depth: int = 0

    @property
    def depth(self) -> float:
        """The average depth; 0 without ranges."""
        return self.depth_sum / self.ranges if self.ranges else 0.0

    def plus(self, other: Overlap) -> Overlap:
        """Returns both combined, for different columns or partitions."""
        return Overlap(
            self.ranges + other.ranges,
            self.depth_sum + other.depth_sum,
            max(self.max_depth, other.max_depth),
        )


def overlap(ranges: Sequence[tuple[Any, Any]]) -> Overlap:
    """Returns the overlap of these ranges, computed by a sweep over their sorted ends."""
    starts, ends = sorted(r[0] for r in ranges), sorted(r[1] for r in ranges)
    depths = [
        bisect_right(starts, low) - bisect_right(ends, low) + (low == high)  # an empty range contains itself
        for low, high in ranges
    ]
    return Overlap(len(depths), sum(depths), max(depths, default=0))


def ideal_depth(files: int, columns: int) -> float:
    """Returns the depth, per column, of this many files sorted by this many columns at once. It is 1 for
    one column. A z-order cuts each of n columns into the n-th root of the number of files."""
    return files ** (1 - 1 / columns) if files and columns else 1.0


@dataclass(frozen=True, slots=True)
class SortFile:
    """A data file that may be sorted again. `ranges` are those of the measured columns, None for a column
    without bounds. A `fixed` file is not rewritten, but counts in the depth."""

    ranges: tuple[Range | None, ...]
    size_bytes: int
    fixed: bool = False

    @property
    def is_bounded(self) -> bool:
        """Whether every measured column has bounds."""
        return None not in self.ranges


@dataclass(frozen=True, slots=True)
class SortLimits:
    """The limits of the selection. `goal` is the depth to reach, as a multiple of the ideal one;
    `min_gain_ratio` is the least share of the depth to gain; a group has at most `max_group_bytes` and
    `max_group_files`; `output_files` returns the number of files that so many bytes become."""

    goal: float
    min_gain_ratio: float
    max_group_bytes: int
    max_group_files: int
    output_files: Callable[[int], int]


@dataclass(frozen=True, slots=True)
class SortGroup:
    """Files to sort together, as indices into the input, in the order of their ranges. `before` is their
    overlap, `after` the predicted overlap of their replacements."""

    files: tuple[int, ...]
    before: Overlap
    after: Overlap


@dataclass(frozen=True, slots=True)
class SortChoice:
    """Groups of files to sort; the depth of all files before, and the predicted depth after."""

    groups: tuple[SortGroup, ...]
    before: Overlap
    after: Overlap


def overlap_of(files: Iterable[SortFile]) -> Overlap:
    """Returns the overlap of the bounded files, over all their measured columns."""
    bounded = [f.ranges for f in files if f.is_bounded]
    total = Overlap()
    for column in zip(*bounded, strict=True):
        total = total.plus(overlap(column))
    return total


def choose(files: Sequence[SortFile], limits: SortLimits) -> SortChoice:
    """Returns the smallest set of files, by bytes, whose rewrite is predicted to bring the depth to the
    goal. If no set can, returns the set of all files if it gains enough, else nothing.

    Files that cover the starts of many others per byte come first. Files about as bad as the last one
    needed are included.
    """
    bounded = [i for i, f in enumerate(files) if f.is_bounded]
    lines = _on_lines([files[i].ranges for i in bounded])
    placed = dict(zip(bounded, lines, strict=True))
    before = overlap_of(files)
    cover = _cover_per_byte(files, placed)
    order = sorted(cover, key=lambda i: (-cover[i], i))
    if not order or _is_good(before, lines, limits):
        return SortChoice((), before, before)

    def predicted(count: int) -> SortChoice:
        return _sorted(files, placed, order[:count], limits, before)

    few, many = 1, len(order)
    while few < many:
        middle = (few + many) // 2
        if _is_good(predicted(middle).after, lines, limits):
            many = middle
        else:
            few = middle + 1
    as_bad = bisect_right(order, -cover[order[many - 1]] * _AS_BAD, key=lambda i: -cover[i])
    choice = min((predicted(many), predicted(max(many, as_bad))), key=lambda c: c.after.depth)
    most = (1 - limits.min_gain_ratio) * before.depth
    gains = choice.after.depth < before.depth and choice.after.depth <= most
    return choice if gains else SortChoice((), before, before)


def _is_good(predicted: Overlap, lines: Sequence[_Line], limits: SortLimits) -> bool:
    columns = len(lines[0])
    return predicted.depth <= limits.goal * ideal_depth(predicted.ranges // columns, columns)


def predicted_ranges(
    ranges: Sequence[tuple[float, float]], weights: Sequence[int], pieces: int
) -> list[tuple[float, float]]:
    """Returns the predicted ranges of `pieces` files of equal weight after these are sorted. It assumes that
    the rows of each file are spread evenly over its range."""
    # The weight at a point, and the growth per unit from that point on.
    points: dict[float, float] = {}
    slopes: dict[float, float] = {}
    for (low, high), weight in zip(ranges, weights, strict=True):
        width = high - low
        if width > 0 and weight / width < math.inf:
            slopes[low] = slopes.get(low, 0.0) + weight / width
            slopes[high] = slopes.get(high, 0.0) - weight / width
        else:
            points[low] = points.get(low, 0.0) + weight
    places = sorted({x for r in ranges for x in r})
    total = float(sum(weights))
    cuts = [places[0]]
    targets = iter([total * k / pieces for k in range(1, pieces)])
    target = next(targets, None)
    filled, slope, position = 0.0, 0.0, places[0]
    for place in places:
        reached_weight = filled + max(0.0, slope) * (place - position)
        while target is not None and target <= reached_weight and slope > 0:
            cuts.append(min(place, position + (target - filled) / slope))
            target = next(targets, None)
        reached_weight += points.get(place, 0.0)
        while target is not None and target <= reached_weight:
            cuts.append(place)
            target = next(targets, None)
        filled, position = reached_weight, place
        slope += slopes.get(place, 0.0)
    cuts += [places[-1]] * (pieces + 1 - len(cuts))
    return list(pairwise(cuts))


def _overlap(placed: Iterable[_Line]) -> Overlap:
    total = Overlap()
    for column in zip(*placed, strict=True):
        total = total.plus(overlap(column))
    return total


def _sorted(
    files: Sequence[SortFile],
    placed: dict[int, _Line],
    chosen: Sequence[int],
    limits: SortLimits,
    before: Overlap,
) -> SortChoice:
    """Returns the depth after these files are sorted, in groups of files that may be sorted together."""
    in_order = sorted(chosen, key=lambda i: placed[i])
    groups: list[SortGroup] = []
    remaining: dict[int, _Line] = dict(placed)
    output_lines: list[_Line] = []
    for packed in pack(
        in_order, limits.max_group_bytes, lambda i: files[i].size_bytes, limits.max_group_files
    ):
        outputs = _outputs([placed[i] for i in packed], [files[i].size_bytes for i in packed], limits)
        group = SortGroup(tuple(packed), overlap_of(files[i] for i in packed), _overlap(outputs))
        if group.after.depth < group.before.depth:
            groups.append(group)
            output_lines += outputs
            for i in packed:
                del remaining[i]
    return SortChoice(tuple(groups), before, _overlap((*remaining.values(), *output_lines)))


def _outputs(lines: Sequence[_Line], sizes: Sequence[int], limits: SortLimits) -> list[_Line]:
    """Returns the predicted files of a group. A z-order cuts every column into slabs; several files share
    each slab."""
    count, columns = limits.output_files(sum(sizes)), len(lines[0])
    slabs = max(1, round(count ** (1 / columns)))
    cut = [predicted_ranges(column, sizes, slabs) for column in zip(*lines, strict=True)]
    return [
        tuple(
            pieces[number // slabs**place % slabs if columns > 1 else number]
            for place, pieces in enumerate(cut)
        )
        for number in range(count)
    ]


def _cover_per_byte(files: Sequence[SortFile], placed: dict[int, _Line]) -> dict[int, float]:
    """Returns, for each file that may be sorted, the number of other files' starts in its ranges."""
    cover = dict.fromkeys(placed, 0)
    for column in range(len(next(iter(placed.values()), ()))):
        starts = sorted(line[column][0] for line in placed.values())
        for i, line in placed.items():
            low, high = line[column]
            cover[i] += bisect_left(starts, high) - bisect_left(starts, low) - (low < high)
    free = [i for i, line in placed.items() if not files[i].fixed and any(low < high for low, high in line)]
    return {i: cover[i] / max(1, files[i].size_bytes) for i in free}


def _on_lines(ranges: Sequence[tuple[Range | None, ...]]) -> list[_Line]:
    """Returns bounds as numbers, column by column. A text becomes a number by the bytes after the common
    prefix."""
    columns = [_on_line(column) for column in zip(*ranges, strict=True)]
    return [tuple(line) for line in zip(*columns, strict=True)]


def _on_line(ranges: Sequence[Range]) -> list[tuple[float, float]]:
    ends = [end for r in ranges for end in r]
    texts = [end for end in ends if isinstance(end, bytes)]
    if not texts:
        return [(_finite(low), _finite(high)) for low, high in ranges]
    first, last = min(texts), max(texts)
    shared = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))

    def place(end: Bound) -> float:
        assert isinstance(end, bytes)
        return float(int.from_bytes(end[shared : shared + _HEAD_BYTES].ljust(_HEAD_BYTES, b"\0"), "big"))

    return [(place(low), place(high)) for low, high in ranges]


def _finite(end: Any) -> float:
    return max(-_FAR, min(_FAR, float(end)))
