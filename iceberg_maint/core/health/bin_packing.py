"""Packs weighted items into bins under a cap, in order.

The algorithm is Iceberg's `BinPacking.ListPacker(cap, 1, false, max_items)`, as
`SizeBasedFileRewritePlanner` uses it. One bin is open. An item that does not fit closes it. An item above
the cap gets a bin of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

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
