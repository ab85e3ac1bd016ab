"""Orderly termination: the first SIGTERM or SIGINT stops the engine and raises."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from iceberg_maint.loop.context import End
from iceberg_maint.loop.guards import answered_signals


class Terminated(BaseException):
    """A signal terminates the process. No `Exception`: no handler may treat it as a failure."""


@contextlib.contextmanager
def terminated_by_signals(cancel: Callable[[], None], end: End | None = None) -> Iterator[None]:
    """Within the body the first SIGTERM or SIGINT calls `cancel` and raises Terminated.

    Later signals are ignored, so that they do not interrupt the orderly end. If the body has not ended
    `watchdog.GRACE_SECONDS` later, `end` ends the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stopping = False

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        if stopping:
            return
        stopping = True
        # In another thread: the main thread may be inside the call that must be cancelled.
        threading.Thread(target=_quietly(cancel), name="cancel", daemon=True).start()
        _terminate(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with answered_signals(end):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _terminate(number: int) -> NoReturn:
    raise Terminated(signal.Signals(number).name)


def _quietly(cancel: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        with contextlib.suppress(Exception):
            cancel()

    return call
