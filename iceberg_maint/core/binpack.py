"""The packer: weighted items into bins under a cap, in order.

The algorithm is Iceberg's `BinPacking.ListPacker` with one open bin (lookback 1) and
`largestBinFirst=false`, as `BinPackRewriteFilePlanner` uses it: an item that does not fit closes
the open bin; an item above the cap gets a bin of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def pack(items: Iterable[T], cap: int, weight: Callable[[T], int]) -> list[list[T]]:
    """Bins of items, both in input order; no bin but a one-item one weighs more than `cap`."""
    bins: list[list[T]] = []
    open_weight = 0
    for item in items:
        w = weight(item)
        if bins and open_weight + w <= cap:
            bins[-1].append(item)
            open_weight += w
        else:
            bins.append([item])
            open_weight = w
    return bins
