"""Catalogs that are services: what several threads may do with one client."""

from __future__ import annotations

import threading

import pytest

from iceberg_maint.catalog.listing import ServiceListing
from iceberg_maint.catalog.service_calls import CallBudget

WAIT_SECONDS = 0.3


class Meeting:
    """A catalog without tables. Two calls at one time meet in it."""

    def __init__(self) -> None:
        self.met = 0
        self._barrier = threading.Barrier(2)

    def list_namespaces(self, _parent: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
        try:
            self._barrier.wait(WAIT_SECONDS)
        except threading.BrokenBarrierError:
            return []
        self.met += 1
        return []


@pytest.mark.parametrize(("kind", "met"), [("hive", 0), ("glue", 2)])
def test_calls_of_two_threads_to_hive_take_turns(kind: str, met: int) -> None:
    listing = ServiceListing("lake", {"type": kind, "uri": "thrift://127.0.0.1:1"}, CallBudget())
    catalog = listing._client = Meeting()  # type: ignore[assignment]
    threads = [threading.Thread(target=listing.tables) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert catalog.met == met


class Family:
    """A catalog that lists other namespaces than children, too. No table is in them."""

    def list_namespaces(self, parent: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
        return {
            (): [("a",)],
            ("a",): [("a",), ("b",), ("b", "c"), ("a", "d")],
        }.get(parent, [])


def test_namespaces_are_those_whose_names_begin_with_their_parents() -> None:
    listing = ServiceListing("lake", {"type": "glue"}, CallBudget())
    assert list(listing._namespaces(Family())) == [("a",), ("a", "d")]  # type: ignore[arg-type]
