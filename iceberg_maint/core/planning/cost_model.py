"""The seconds of a batch from what it works on: a part per batch, per file group, per file, per byte, and one for a cold session.

The parts are learned from recent batches by least absolute relative deviations, so that one odd batch changes little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

SWEEPS = 20
"""Rounds over the parts. Each sets one part to its optimum, given the others."""
TRUST = 0.5
"""Weight of the parts before any batch, in batches."""
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
    for _ in range(SWEEPS):
        before = tuple(parts)
        for n in range(len(parts)):
            points = []
            for amounts, seconds in known:
                if amounts[n] > 0:
                    rest = sum(a * p for m, (a, p) in enumerate(zip(amounts, parts, strict=True)) if m != n)
                    points.append(((seconds - rest) / amounts[n], amounts[n] / seconds))
            weight = sum(w for _, w in points) / len(points) * TRUST if points else 1.0
            parts[n] = max(0.0, _weighted_median([*points, (first[n], weight)]))
        if tuple(parts) == before:
            break
    return tuple(parts)


def _weighted_median(points: Sequence[tuple[float, float]]) -> float:
    ordered = sorted(points)
    half, passed = sum(w for _, w in ordered) / 2, 0.0
    for value, weight in ordered:
        passed += weight
        if passed >= half:
            return value
    return ordered[-1][0]
