"""Calls that hang: what is waited for, what is given up, what goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from iceberg_maint.machine.bounded_calls import MOST_LOST, BoundedCalls, CallLimits, LateError, Limit, Threads

NEVER = 300.0


@pytest.fixture
def hang() -> Iterator[Callable[[], None]]:
    """A call that hangs until the end of the test."""
    end = threading.Event()

    def wait() -> None:
        end.wait(NEVER)

    yield wait
    end.set()


def ends(calls: BoundedCalls[Any]) -> dict[Any, Any]:
    return {k: (v.limit, v.seconds) if isinstance(v, LateError) else v for k, v in calls}


def test_call_returns_the_value_or_raises_the_error_of_another_thread() -> None:
    threads = Threads()
    assert threads.call(threading.get_ident, NEVER) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        threads.call(lambda: 1 / 0, NEVER)


def test_thread_is_used_again_after_its_call() -> None:
    threads = Threads()
    started = {threads.call(threading.get_ident, NEVER) for _ in range(3)}
    assert len(started) <= 2  # The next call may begin before the thread is idle again.


def test_call_that_hangs_is_late_and_another_one_is_not(hang: Callable[[], None]) -> None:
    threads = Threads()
    with pytest.raises(LateError) as late:
        threads.call(hang, 0.05)
    assert (late.value.limit, late.value.seconds) == (Limit.CALL, 0.05)
    assert threads.call(lambda: 7, NEVER) == 7


def test_group_with_one_hanging_call_ends_the_others(hang: Callable[[], None]) -> None:
    calls = BoundedCalls[int](Threads())
    group = calls.group(CallLimits(2, 0.3, NEVER))
    group.add(0, hang)
    for n in range(1, 20):
        group.add(n, lambda n=n: n * n)
    assert ends(calls) == {0: (Limit.CALL, 0.3)} | {n: n * n for n in range(1, 20)}


def test_group_whose_threads_hang_is_given_up_and_another_group_goes_on(hang: Callable[[], None]) -> None:
    calls = BoundedCalls[tuple[str, int]](Threads())
    dead, alive = calls.group(CallLimits(1, 0.05, NEVER)), calls.group(CallLimits(1, NEVER, NEVER))
    for n in range(MOST_LOST + 2):
        dead.add(("dead", n), hang)
        alive.add(("alive", n), lambda n=n: n)
    found = ends(calls)
    assert [found["alive", n] for n in range(MOST_LOST + 2)] == list(range(MOST_LOST + 2))
    limits = [found["dead", n][0] for n in range(MOST_LOST + 2)]
    assert limits == [Limit.CALL] * MOST_LOST + [Limit.LOST] * 2


def test_group_ends_with_its_time(hang: Callable[[], None]) -> None:
    calls = BoundedCalls[int](Threads())
    group = calls.group(CallLimits(1, NEVER, 0.1))
    group.add(1, hang)
    group.add(2, hang)
    assert ends(calls) == {1: (Limit.ALL, 0.1), 2: (Limit.ALL, 0.1)}


def test_group_runs_no_more_calls_at_once_than_it_may() -> None:
    lock, now, most = threading.Lock(), 0, 0

    def work() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        threading.Event().wait(0.002)
        with lock:
            now -= 1

    calls = BoundedCalls[int](Threads())
    group = calls.group(CallLimits(3, NEVER, NEVER))
    for n in range(40):
        group.add(n, work)
    assert len(ends(calls)) == 40
    assert most <= 3


def test_calls_that_are_added_while_others_are_taken_are_made() -> None:
    calls = BoundedCalls[int](Threads())
    group = calls.group(CallLimits())
    group.add(3, lambda: 3)
    seen = []
    for key, value in calls:
        seen.append(value)
        if key:
            group.add(key - 1, lambda key=key: key - 1)
    assert seen == [3, 2, 1, 0]


def test_error_of_a_call_is_given_and_an_interrupt_is_raised() -> None:
    calls = BoundedCalls[int](Threads())
    group = calls.group(CallLimits())
    group.add(1, lambda: {}["x"])
    [(key, error)] = calls
    assert (key, type(error)) == (1, KeyError)

    def interrupted() -> None:
        raise KeyboardInterrupt

    group.add(2, interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(calls)


def test_limits_of_a_caller_in_a_hurry_are_shorter() -> None:
    assert CallLimits(4, 600, 3600).within(15) == CallLimits(4, 15, 15)
    assert CallLimits(4, 5, 3600).within(15) == CallLimits(4, 5, 15)
    assert CallLimits(4, 5, 3600).within(None) == CallLimits(4, 5, 3600)
