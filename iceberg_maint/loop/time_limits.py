"""Time limits: of a table's run, of calls that do not answer, and of a process that does not end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.machine.bounded_calls import MOST_LOST, LateError, Limit

_STAYS = "What is known of it stays as it is."


def late_table(table: TableId, late: LateError, within: float | None = None) -> IcebergMaintError:
    """Returns the error of a table that was not looked at in time. `within` are the seconds that the caller had."""
    name = table.catalog
    time = _time(name, late, within)
    match late.limit:
        case Limit.CALL:
            what = f"{table}: catalog '{name}' or the store of the table gave no answer within {time}."
        case Limit.ALL:
            what = f"{table}: the pass over catalog '{name}' did not come to it within {time}."
        case Limit.LOST:
            what = (
                f"{table}: {MOST_LOST} other tables of catalog '{name}' gave no answer within {time}, so the pass leaves "
                "out the rest."
            )
    return IcebergMaintError("ICM-179", f"{what} {_STAYS}", _fix(name, late))


def late_catalog(name: str, late: LateError, within: float | None = None) -> IcebergMaintError:
    """Returns the error of a catalog that did not list its tables in time."""
    what = f"catalog '{name}' did not list its tables within {_time(name, late, within)}."
    return IcebergMaintError("ICM-179", f"{what} {_STAYS}", _fix(name, late))


def late_warehouse(name: str, late: LateError, within: float | None = None) -> IcebergMaintError:
    """Returns the error of a catalog whose warehouse did not answer in time."""
    what = f"the warehouse of catalog '{name}' gave no answer within {_time(name, late, within)}."
    return IcebergMaintError("ICM-179", what, _fix(name, late))


def _setting(name: str, late: LateError) -> str:
    return f"catalogs.{name}.{'pass_seconds' if late.limit is Limit.ALL else 'look_seconds'}"


def _time(name: str, late: LateError, within: float | None) -> str:
    if within is not None and late.seconds == within:
        return f"{late.seconds:g} seconds, the time of a tick"
    return f"{late.seconds:g} seconds ({_setting(name, late)})"


def _fix(name: str, late: LateError) -> str:
    return (
        "look for what does not answer: the catalog, the store, a network file system; or raise "
        f"{_setting(name, late)}."
    )


GRACE_SECONDS = 60.0
"""Time for an orderly end after an interrupt: open work goes back, the record is stored, the lease becomes free."""

End = Callable[[str], object]
"""Ends the process, after it has said why. It returns in tests only."""


@contextmanager
def ended_after(seconds: float, end: End | None, why: str) -> Iterator[None]:
    """Calls `end` from a thread of its own if the body lasts longer than this. None: nothing ends the process."""
    if end is None:
        yield
        return
    over = threading.Event()

    def wait() -> None:
        if not over.wait(seconds):
            end(why)

    threading.Thread(target=wait, name="watchdog", daemon=True).start()
    try:
        yield
    finally:
        over.set()


@contextmanager
def answered_signals(end: End | None) -> Iterator[None]:
    """Calls `end` if the body has not ended `GRACE_SECONDS` after SIGTERM or SIGINT.

    It needs handlers of these signals that are Python's. The interpreter notes each of its signals in a pipe at once,
    whatever the main thread does. Off the main thread, or if another program reads these notes, it does nothing.
    """
    if end is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    notes, pipe = os.pipe()
    os.set_blocking(pipe, False)
    before = signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)
    if before != -1:
        signal.set_wakeup_fd(before)
        os.close(notes)
        os.close(pipe)
        yield
        return
    over = threading.Event()

    def wait() -> None:
        with suppress(OSError):
            while noted := os.read(notes, 1):
                if noted[0] in (signal.SIGTERM, signal.SIGINT):
                    if not over.wait(GRACE_SECONDS):
                        name = signal.Signals(noted[0]).name
                        end(f"{name} was not answered within {GRACE_SECONDS:g} seconds.")
                    return

    thread = threading.Thread(target=wait, name="signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(-1)
        os.close(pipe)
        thread.join()
        os.close(notes)


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
    with ended_after(seconds + GRACE_SECONDS, end, why), _interrupted_after(table, seconds, cancel):
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
