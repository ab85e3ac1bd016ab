"""Fibers: threads of which exactly one runs at a time, in an order that the caller chooses. What runs in them
is ordinary code; it gives way wherever it calls `Fibers.pause`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def _closed() -> threading.Lock:
    """A gate that lets one through for each `release`."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class Fiber:
    """One thread of a process. It can run unless it waits for a time or for a condition."""

    def __init__(self, fibers: Fibers, process: Any, body: Callable[[], None]) -> None:
        self.process = process
        self.done = False
        self.wakes_ms: int | None = None
        self.condition: Callable[[], bool] | None = None
        self._fibers = fibers
        self._body = body
        self._turn = _closed()
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    def can_run(self, now_ms: int) -> bool:
        if self.wakes_ms is None and self.condition is None:
            return True
        woken = self.wakes_ms is not None and self.wakes_ms <= now_ms
        return woken or (self.condition is not None and self.condition())

    def resume(self) -> None:
        """Runs it until it pauses or ends."""
        self.wakes_ms = self.condition = None
        self._fibers.current = self
        self._turn.release()
        self._fibers.back.acquire()
        self._fibers.current = None
        if self.done:
            self._thread.join()

    def give_way(self) -> None:
        self._fibers.back.release()
        self._turn.acquire()

    def _main(self) -> None:
        self._turn.acquire()
        try:
            self._body()
        finally:
            self.done = True
            self._fibers.back.release()


class Fibers:
    """All fibers of a world, in the order they were started."""

    def __init__(self) -> None:
        self.all: list[Fiber] = []
        self.current: Fiber | None = None
        self.back = _closed()

    def start(self, process: Any, body: Callable[[], None]) -> Fiber:
        fiber = Fiber(self, process, body)
        self.all.append(fiber)
        return fiber

    def pause(self, *, until_ms: int | None = None, condition: Callable[[], bool] | None = None) -> None:
        """Gives way to the others; called in a fiber."""
        fiber = self.current
        assert fiber is not None, "only a fiber can give way"
        fiber.wakes_ms, fiber.condition = until_ms, condition
        fiber.give_way()

    def living(self) -> list[Fiber]:
        self.all = [f for f in self.all if not f.done]
        return self.all
