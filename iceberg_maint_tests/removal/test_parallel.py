"""Changes of many files at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from iceberg_maint.errors import FenceLostError
from iceberg_maint.removal.store_requests import changed

pytestmark = pytest.mark.seconds


def no_check() -> None:
    pass


@pytest.mark.parametrize("at_once", [1, 4])
def test_results_come_in_order_of_the_items(at_once: int) -> None:
    assert list(changed(range(10), lambda n: n * n, at_once, no_check)) == [(n, n * n) for n in range(10)]


def test_items_of_a_group_run_together() -> None:
    together = threading.Barrier(4, timeout=10)
    assert len(list(changed(range(8), lambda _: together.wait(), 4, no_check))) == 8


def test_group_has_items_of_one_stage_and_waits_for_the_stage_before() -> None:
    running: list[str] = []
    seen: list[set[str]] = []

    def change(item: str) -> None:
        running.append(item)
        seen.append(set(running))

    groups: list[int] = []
    items = ["a1", "a2", "a3", "b1", "b2"]
    list(changed(items, change, 4, lambda: groups.append(len(running)), lambda item: item[0]))
    assert groups == [0, 3]
    assert all(set(items[:3]) <= earlier for earlier in seen[3:])


def test_lost_lease_stops_before_the_next_group() -> None:
    done: list[int] = []
    checks = iter((True, True, False))

    def require() -> None:
        if not next(checks):
            raise FenceLostError("lost")

    with pytest.raises(FenceLostError):
        list(changed(range(100), done.append, 4, require))
    assert sorted(done) == list(range(8))


def test_error_of_a_change_comes_after_the_results_of_its_group() -> None:
    done: list[int] = []

    def change(item: int) -> int:
        if item == 1:
            raise PermissionError(item)
        return item

    def take(results: Iterator[tuple[int, int]]) -> None:
        for item, _ in results:
            done.append(item)

    with pytest.raises(PermissionError):
        take(changed(range(8), change, 4, no_check))
    assert done == [0, 2, 3]
