"""The seconds of a batch from what it works on: a part per batch, per file group, per file, per byte, and one for a cold session.

The parts are learned from recent batches of the fleet by least absolute relative deviations, so that one odd batch changes little. A
table corrects them by one factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

SWEEPS = 20
"""Rounds over the parts at most. Each sets one part to its optimum, given the others."""
SETTLED = 0.0001
"""The share by which a round changes no part if the parts are settled: far below the error of a prediction."""
TRUST = 0.5
"""Weight of the parts before any batch, in batches."""
UNCORRECTED = 2
"""Batches without a correction that a table's own batches are weighed against."""
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class WorkSize:
    """What a batch works on. `earlier` counts the batches that the session ran before, None if not known."""

    groups: int
    files: int
    input_bytes: int
    delete_files: int = 0
    earlier: int | None = None

    def amounts(self) -> tuple[float, ...]:
        """Returns how much of each part the batch has."""
        cold = 0.0 if self.earlier is None else 1 / (1 + self.earlier)
        return 1.0, float(self.groups), float(self.files + self.delete_files), self.input_bytes / _MIB, cold


Parts = tuple[float, ...]
"""Seconds per batch, file group, file, MiB of input, and of a cold session."""


def predicted_seconds(size: WorkSize, parts: Parts) -> float:
    """Returns the seconds of a batch of this size."""
    return sum(amount * part for amount, part in zip(size.amounts(), parts, strict=True))


def learned_parts(assumed: Parts, batches: Sequence[tuple[WorkSize, float]]) -> Parts:
    """Returns the parts that recent batches (size and seconds) took; the assumed ones without batches.

    Minimizes the sum of |predicted / measured - 1|, part by part: the best value of one part, given the others, is a
    weighted median. The assumed parts, scaled to the batches, count as `TRUST` batches. No part is negative.
    """
    known = [(size.amounts(), seconds) for size, seconds in batches if seconds > 0]
    if not known:
        return assumed
    scale = median(seconds / predicted_seconds(size, assumed) for size, seconds in batches if seconds > 0)
    parts = [part * scale for part in assumed]
    first = tuple(parts)
    totals = [sum(a * p for a, p in zip(amounts, parts, strict=True)) for amounts, _ in known]
    for _ in range(SWEEPS):
        before = tuple(parts)
        for n, part in enumerate(before):
            points = [
                (part + (seconds - total) / amounts[n], amounts[n] / seconds)
                for (amounts, seconds), total in zip(known, totals, strict=True)
                if amounts[n] > 0
            ]
            weight = sum(w for _, w in points) / len(points) * TRUST if points else 1.0
            parts[n] = max(0.0, _weighted_median([*points, (first[n], weight)]))
            change = parts[n] - part
            totals = [total + change * amounts[n] for (amounts, _), total in zip(known, totals, strict=True)]
        if all(abs(new - old) <= SETTLED * old for new, old in zip(parts, before, strict=True)):
            break
    return tuple(parts)


def correction(parts: Parts, batches: Sequence[tuple[WorkSize, float]]) -> float:
    """Returns the factor by which a table's batches differ from the fleet's: the median of measured to predicted seconds,
    with `UNCORRECTED` ones beside it."""
    ratios = [
        seconds / predicted
        for size, seconds in batches
        if seconds > 0 and (predicted := predicted_seconds(size, parts)) > 0
    ]
    return median([*ratios, *[1.0] * UNCORRECTED])


def _weighted_median(points: Sequence[tuple[float, float]]) -> float:
    ordered = sorted(points)
    half, passed = sum(w for _, w in ordered) / 2, 0.0
    for value, weight in ordered:
        passed += weight
        if passed >= half:
            return value
    return ordered[-1][0]
