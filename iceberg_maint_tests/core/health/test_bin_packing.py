"""The packer against a port of Iceberg's `BinPacking.PackingIterator` with all its parameters."""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_maint.core.health.layout import pack
from iceberg_maint_tests.support.examples import examples


class JavaBin:
    def __init__(self, target: int, max_items: int) -> None:
        self.target = target
        self.max_items = max_items
        self.weight = 0
        self.items: list[int] = []

    def can_add(self, weight: int) -> bool:
        return self.weight + weight <= self.target and len(self.items) < self.max_items

    def add(self, item: int) -> None:
        self.weight += item
        self.items.append(item)


def list_packer(items: list[int], target: int, lookback: int, max_items: int) -> list[list[int]]:
    """`ListPacker(target, lookback, largestBinFirst=false, maxItemsPerBin).pack`, method by method."""
    bins: deque[JavaBin] = deque()
    packed: list[list[int]] = []
    for item in items:
        found = next((b for b in bins if b.can_add(item)), None)
        if found is not None:
            found.add(item)
            continue
        new = JavaBin(target, max_items)
        new.add(item)
        bins.append(new)
        if len(bins) > lookback:
            packed.append(bins.popleft().items)
    packed.extend(b.items for b in bins)
    return packed


def identity(item: int) -> int:
    return item


def test_pack_nothing_is_no_bins() -> None:
    assert pack([], 10, identity, 5) == []


def test_pack_exact_fit_closes_at_the_cap() -> None:
    assert pack([4, 6, 1], 10, identity, 9) == [[4, 6], [1]]


def test_pack_item_above_cap_gets_its_own_bin() -> None:
    assert pack([3, 11, 4, 6], 10, identity, 9) == [[3], [11], [4, 6]]


def test_pack_closed_bins_are_not_reopened() -> None:
    assert pack([6, 6, 4], 10, identity, 9) == [[6], [6, 4]]


def test_pack_max_items_starts_the_next_bin() -> None:
    assert pack([1, 1, 1, 1, 1], 10, identity, 2) == [[1, 1], [1, 1], [1]]


@settings(max_examples=examples(500), deadline=None)
@given(
    items=st.lists(st.integers(0, 30), max_size=40),
    cap=st.integers(1, 60),
    max_items=st.integers(1, 10),
)
def test_pack_equals_icebergs_list_packer(items: list[int], cap: int, max_items: int) -> None:
    found = pack(items, cap, identity, max_items)
    assert found == list_packer(items, cap, 1, max_items)
    assert [i for b in found for i in b] == items
    assert all(len(b) == 1 or sum(b) <= cap for b in found)
    assert all(1 <= len(b) <= max_items for b in found)
