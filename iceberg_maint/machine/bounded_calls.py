"""Calls on threads of their own, each waited for a limited time: one that hangs holds no other.

Python cannot interrupt a thread inside a call of the operating system, as the opening of a file on a network file system
that does not answer. Such a thread is left behind. The threads are daemons: the end of the process does not wait for them.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

MOST_LOST = 8
"""Threads of a group that hang. Beyond it no further call of the group begins."""
_IDLE_SECONDS = 60.0
"""A thread without a call ends after this time."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """How many calls run at once, seconds of one call, and seconds of all calls together."""

    at_once: int = 8
    call_seconds: float = 600.0
    all_seconds: float = 3600.0

    def within(self, seconds: float | None) -> CallLimits:
        """Returns the limits of a caller that has only so many seconds; these limits for None."""
        if seconds is None:
            return self
        return CallLimits(self.at_once, min(self.call_seconds, seconds), min(self.all_seconds, seconds))


class Limit(StrEnum):
    """Which limit a call did not meet."""

    CALL = "call"
    ALL = "all"
    LOST = "lost"
    """Too many calls of the group hang; this one did not begin."""


class LateError(Exception):
    """A call did not end, or did not begin, within its limit."""

    def __init__(self, limit: Limit, seconds: float) -> None:
        super().__init__(limit, seconds)
        self.limit, self.seconds = limit, seconds


class Threads:
    """Daemon threads that take one call after another: clients keep connections per thread."""

    def __init__(self) -> None:
        # The operations of a list that are used here are atomic.
        self._idle: list[queue.SimpleQueue[Callable[[], None]]] = []

    def start(self, work: Callable[[], None]) -> None:
        """Starts `work`, which raises nothing, on an idle thread or a new one."""
        try:
            inbox = self._idle.pop()
        except IndexError:
            inbox = queue.SimpleQueue()
            threading.Thread(target=self._serve, args=(inbox,), name="bounded call", daemon=True).start()
        inbox.put(work)

    def call(self, work: Callable[[], T], seconds: float | None) -> T:
        """Returns what `work` returns, and raises what it raises. Raises LateError after this time. A signal interrupts
        the wait, whatever the call does."""
        ended = threading.Event()
        call = _Call(None, work, lambda _call: ended.set())
        self.start(call.run)
        if not ended.wait(seconds):
            raise LateError(Limit.CALL, seconds or 0.0)
        if call.error is not None:
            raise call.error
        return cast("T", call.value)

    def _serve(self, inbox: queue.SimpleQueue[Callable[[], None]]) -> None:
        while True:
            try:
                work = inbox.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                try:
                    self._idle.remove(inbox)
                except ValueError:
                    continue  # A call is on its way to this thread.
                return
            work()
            del work
            self._idle.append(inbox)


class _Call:
    """One call, and its value or error."""

    def __init__(self, key: Any, work: Callable[[], Any], on_end: Callable[[_Call], None]) -> None:
        self.key, self._work, self._on_end = key, work, on_end
        self.started = time.monotonic()
        self.has_ended = self.is_late = False
        self.value: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.value = self._work()
        except BaseException as error:  # noqa: BLE001 - raised again where the call is waited for
            self.error = error
        self.has_ended = True
        self._on_end(self)


class CallGroup(Generic[K]):
    """Calls that share limits. The time of all begins with the group."""

    def __init__(
        self, threads: Threads, limits: CallLimits, ended: queue.SimpleQueue[tuple[CallGroup[K], _Call]]
    ) -> None:
        self._threads, self._ended, self.limits = threads, ended, limits
        self._until = time.monotonic() + limits.all_seconds
        self._waiting: deque[tuple[K, Callable[[], Any]]] = deque()
        self._running: set[_Call] = set()
        self._lost = 0

    def add(self, key: K, work: Callable[[], Any]) -> None:
        """Adds a call."""
        self._waiting.append((key, work))

    def drop_waiting(self) -> list[K]:
        """Removes the calls that have not begun, and returns their keys."""
        dropped = [key for key, _ in self._waiting]
        self._waiting.clear()
        return dropped

    def begin(self) -> None:
        """Begins calls, as many as may run at once. Some more may have ended and wait to be taken."""
        while self._waiting and self._lost < MOST_LOST and len(self._running) < 4 * self.limits.at_once:
            if sum(not call.has_ended for call in self._running) >= self.limits.at_once:
                return
            key, work = self._waiting.popleft()
            call = _Call(key, work, lambda call: self._ended.put((self, call)))
            self._running.add(call)
            self._threads.start(call.run)

    def take(self, call: _Call) -> bool:
        """Whether the ended call was still waited for."""
        if call.is_late:
            self._lost -= 1
            return False
        self._running.remove(call)
        return True

    def next_late(self) -> float | None:
        """The time at which a call is late; None if the group has no call."""
        if not self._running:
            return self._until if self._waiting else None
        return min(self._until, min(call.started for call in self._running) + self.limits.call_seconds)

    def late(self, now: float) -> Iterator[tuple[K, LateError]]:
        """Yields the calls that are late, and no longer waits for them."""
        is_over = now >= self._until
        for call in list(self._running):
            if not call.has_ended and (is_over or now >= call.started + self.limits.call_seconds):
                self._running.remove(call)
                call.is_late = True
                self._lost += 1
                yield call.key, self._error(Limit.ALL if is_over else Limit.CALL)
        if is_over or self._lost >= MOST_LOST:
            for key in self.drop_waiting():
                yield key, self._error(Limit.ALL if is_over else Limit.LOST)

    def _error(self, limit: Limit) -> LateError:
        return LateError(limit, self.limits.all_seconds if limit is Limit.ALL else self.limits.call_seconds)


class BoundedCalls(Generic[K]):
    """Calls in groups, taken in the order in which they end.

    Iterating yields the key of a call with its value, its exception, or a LateError, until no call is left. Calls may be
    added while it iterates.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._ended: queue.SimpleQueue[tuple[CallGroup[K], _Call]] = queue.SimpleQueue()
        self._groups: list[CallGroup[K]] = []

    def group(self, limits: CallLimits) -> CallGroup[K]:
        """Returns a new group."""
        group = CallGroup[K](self._threads, limits, self._ended)
        self._groups.append(group)
        return group

    def __iter__(self) -> Iterator[tuple[K, Any]]:
        while True:
            for group in self._groups:
                group.begin()
            times = [at for group in self._groups if (at := group.next_late()) is not None]
            if not times:
                return
            try:
                # What has ended is no longer late.
                group, call = self._ended.get(timeout=max(0.0, min(times) - time.monotonic()))
            except queue.Empty:
                now = time.monotonic()
                for group in self._groups:
                    yield from group.late(now)
                continue
            if group.take(call):
                if call.error is not None and not isinstance(call.error, Exception):
                    raise call.error
                yield call.key, call.value if call.error is None else call.error
