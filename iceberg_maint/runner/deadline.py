"""The time of a table: its run is interrupted when the time is up, so that the tables after it go on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.runner import watchdog
from iceberg_maint.runner.watchdog import End, ended_after


class TableTimeout(BaseException):
    """The time of a table is up (ICM-171). No `Exception`: no handler may treat it as a failure of one call."""

    def __init__(self, table: str, seconds: int) -> None:
        self.error = IcebergMaintError(
            "ICM-171",
            f"{table} used up its time: table_timeout_seconds = {seconds}.",
            "look for what did not answer, or raise the setting.",
        )
        super().__init__(str(self.error))


@contextmanager
def table_deadline(
    table: str, seconds: int | None, cancel: Callable[[], None], end: End | None = None
) -> Iterator[None]:
    """Raises TableTimeout in the body after this time, once, and calls `cancel` beforehand on a thread of its own.

    Without a time it does nothing. Only the main thread can be interrupted: in another thread it only calls
    `cancel`, which ends the work of the engine. If the body has not ended `GRACE_SECONDS` later, because a call cannot be
    interrupted, `end` ends the process.
    """
    if seconds is None:
        yield
        return
    why = f"{TableTimeout(table, seconds)} A call that cannot be interrupted did not return, so this process ends."
    with ended_after(seconds + watchdog.GRACE_SECONDS, end, why), _interrupted_after(table, seconds, cancel):
        yield


@contextmanager
def _interrupted_after(table: str, seconds: int, cancel: Callable[[], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        timer = threading.Timer(seconds, cancel)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
        return

    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        # In another thread: the main thread may be inside the call that must be cancelled.
        threading.Thread(target=_quietly(cancel), name="cancel", daemon=True).start()
        raise TableTimeout(table, seconds)

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _quietly(cancel: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        with suppress(Exception):
            cancel()

    return call
