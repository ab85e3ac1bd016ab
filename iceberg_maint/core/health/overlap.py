"""Layout: how far the ranges of a partition's files overlap, and which files to sort anew.

The overlap depth of a file is the number of files whose half-open range [lower, upper) holds its
lower bound, itself included. Half-open, because neighbours in a sorted run share a value where it
was cut, and because files of one single value each cannot be told apart by sorting: what is
counted is what a sort can change. 1 is perfectly sorted.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from iceberg_maint.core.health.bin_packing import pack
from iceberg_maint.core.model.column_bounds import Bound, Range

_HEAD_BYTES = 7
"""Bytes of text, after what all of it shares, that place it on a line: as many as a float holds."""

_Line = tuple[tuple[float, float], ...]
"""Ranges of the measured columns of one file, placed on lines."""
_AS_BAD = 0.5
"""Share of what the last file needed covers per byte, from which others come along."""
_FAR = 1e300
"""Where infinite bounds lie on a line."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """How ranges overlap: over `ranges` of them, the sum and the greatest of their depths."""

    ranges: int = 0
    depth_sum: int = 0
    max_depth: int = 0

    @property
    def depth(self) -> float:
        """The average depth; 0 of nothing."""
        return self.depth_sum / self.ranges if self.ranges else 0.0

    def plus(self, other: Overlap) -> Overlap:
        """Both together, of different columns or partitions."""
        return Overlap(
            self.ranges + other.ranges,
            self.depth_sum + other.depth_sum,
            max(self.max_depth, other.max_depth),
        )


def overlap(ranges: Sequence[tuple[Any, Any]]) -> Overlap:
    """How these ranges overlap, by a sweep over their sorted ends."""
    starts, ends = sorted(r[0] for r in ranges), sorted(r[1] for r in ranges)
    depths = [
        bisect_right(starts, low) - bisect_right(ends, low) + (low == high)  # an empty range holds itself
        for low, high in ranges
    ]
    return Overlap(len(depths), sum(depths), max(depths, default=0))


def ideal_depth(files: int, columns: int) -> float:
    """The depth, per column, of so many files sorted by so many columns at once: 1 for one column;
    a z-order cuts each of n columns into the n-th root of the number of files."""
    return files ** (1 - 1 / columns) if files and columns else 1.0


@dataclass(frozen=True, slots=True)
class SortFile:
    """A data file that may be sorted anew. `ranges` are those of the measured columns, None where
    there are no bounds; with `fixed` it stays as it is and only counts."""

    ranges: tuple[Range | None, ...]
    size_bytes: int
    fixed: bool = False

    @property
    def is_bounded(self) -> bool:
        """Whether every measured column has bounds."""
        return None not in self.ranges


@dataclass(frozen=True, slots=True)
class SortLimits:
    """What bounds the choice: the multiple of the ideal depth to come down to and the least share of
    it to gain, bytes and files of a group sorted together, and the files that so many bytes become."""

    goal: float
    min_gain_ratio: float
    max_group_bytes: int
    max_group_files: int
    output_files: Callable[[int], int]


@dataclass(frozen=True, slots=True)
class SortGroup:
    """Files to sort together, as indices into the files given, in the order of their ranges; how they
    overlap among themselves, and how what they become should."""

    files: tuple[int, ...]
    before: Overlap
    after: Overlap


@dataclass(frozen=True, slots=True)
class SortChoice:
    """Groups of files to sort; the depth of all files before, and the one predicted afterwards."""

    groups: tuple[SortGroup, ...]
    before: Overlap
    after: Overlap


def overlap_of(files: Iterable[SortFile]) -> Overlap:
    """How bounded files overlap, over all their measured columns."""
    bounded = [f.ranges for f in files if f.is_bounded]
    total = Overlap()
    for column in zip(*bounded, strict=True):
        total = total.plus(overlap(column))
    return total


def choose(files: Sequence[SortFile], limits: SortLimits) -> SortChoice:
    """The smallest set of files, by bytes, whose rewrite should bring the depth to the goal, and
    where none can, the set of all if that gains enough; nothing where it does not.

    Taken first are files that cover the starts of many others per byte of theirs; those about as
    bad as the last one needed come along.
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
    found = min((predicted(many), predicted(max(many, as_bad))), key=lambda c: c.after.depth)
    most = (1 - limits.min_gain_ratio) * before.depth
    gains = found.after.depth < before.depth and found.after.depth <= most
    return found if gains else SortChoice((), before, before)


def _is_good(found: Overlap, lines: Sequence[_Line], limits: SortLimits) -> bool:
    columns = len(lines[0])
    return found.depth <= limits.goal * ideal_depth(found.ranges // columns, columns)


def predicted_ranges(
    ranges: Sequence[tuple[float, float]], weights: Sequence[int], pieces: int
) -> list[tuple[float, float]]:
    """The ranges of `pieces` files of equal weight that these become when they are sorted, the rows
    of each being spread evenly over its range."""
    # How much lies at a point, and by how much per unit the rest grows from there on.
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
    wanted = iter([total * k / pieces for k in range(1, pieces)])
    target = next(wanted, None)
    filled, slope, at = 0.0, 0.0, places[0]
    for place in places:
        grown = filled + max(0.0, slope) * (place - at)
        while target is not None and target <= grown and slope > 0:
            cuts.append(min(place, at + (target - filled) / slope))
            target = next(wanted, None)
        grown += points.get(place, 0.0)
        while target is not None and target <= grown:
            cuts.append(place)
            target = next(wanted, None)
        filled, at = grown, place
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
    """The depth once these are sorted, in groups of what may be sorted together."""
    in_order = sorted(chosen, key=lambda i: placed[i])
    groups: list[SortGroup] = []
    rest: dict[int, _Line] = dict(placed)
    written: list[_Line] = []
    for packed in pack(
        in_order, limits.max_group_bytes, lambda i: files[i].size_bytes, limits.max_group_files
    ):
        outputs = _outputs([placed[i] for i in packed], [files[i].size_bytes for i in packed], limits)
        group = SortGroup(tuple(packed), overlap_of(files[i] for i in packed), _overlap(outputs))
        if group.after.depth < group.before.depth:
            groups.append(group)
            written += outputs
            for i in packed:
                del rest[i]
    return SortChoice(tuple(groups), before, _overlap((*rest.values(), *written)))


def _outputs(lines: Sequence[_Line], sizes: Sequence[int], limits: SortLimits) -> list[_Line]:
    """What a group becomes: of a z-order every column is cut into slabs, each of which several
    files share."""
    count, columns = limits.output_files(sum(sizes)), len(lines[0])
    slabs = max(1, round(count ** (1 / columns)))
    cut = [predicted_ranges(column, sizes, slabs) for column in zip(*lines, strict=True)]
    return [
        tuple(pieces[at // slabs**place % slabs if columns > 1 else at] for place, pieces in enumerate(cut))
        for at in range(count)
    ]


def _cover_per_byte(files: Sequence[SortFile], placed: dict[int, _Line]) -> dict[int, float]:
    """Of files that may be sorted, the starts of other files in their ranges."""
    cover = dict.fromkeys(placed, 0)
    for column in range(len(next(iter(placed.values()), ()))):
        starts = sorted(line[column][0] for line in placed.values())
        for i, line in placed.items():
            low, high = line[column]
            cover[i] += bisect_left(starts, high) - bisect_left(starts, low) - (low < high)
    free = [i for i, line in placed.items() if not files[i].fixed and any(low < high for low, high in line)]
    return {i: cover[i] / max(1, files[i].size_bytes) for i in free}


def _on_lines(ranges: Sequence[tuple[Range | None, ...]]) -> list[_Line]:
    """Bounds as numbers, column by column; text by the bytes that follow what all of it shares."""
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
