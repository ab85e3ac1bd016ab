"""What guards a run: the lease of its table, heartbeats, the time of the table, and answers to signals."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from types import FrameType
from typing import NoReturn

from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.loop.context import Context, End
from iceberg_maint.ports.ledger import Leases
from iceberg_maint.ports.stored import Lease

_log = logging.getLogger(__name__)

LEASE_TTL_SECONDS = 45
_HEARTBEATS_PER_TTL = 4
RUN_BEAT_SECONDS = 10
"""Seconds between two heartbeats of a run."""
_LAST_BEAT_SECONDS = 5


@contextmanager
def leased(
    context: Context, state: TableState, owner: str, wait_seconds: float = 0.0
) -> Iterator[Lease | None]:
    """Holds the table's lease while the body runs; a thread renews it. None if another owner keeps it.

    `wait_seconds` is how long to wait for the lease of a dead owner to expire. A live owner renews its
    lease, so a wait longer than the time to live has no use. A wait is logged with its owner and its end.
    """
    leases, table, min_fence = context.ledger.leases, str(state.table), state.newest_fence()
    lease = None
    waited_seconds = 0.0
    while lease is None:
        lease = leases.acquire(state.uuid, table, owner, LEASE_TTL_SECONDS, min_fence)
        if lease is None:
            if waited_seconds >= wait_seconds:
                yield None
                return
            if not waited_seconds and (holder := leases.owner(state.uuid)):
                until = datetime.fromtimestamp(holder[1] / 1000, UTC)
                _log.warning(
                    "%s: waits for run %s, whose lease ends at %s UTC unless it still works.",
                    table,
                    holder[0],
                    until.strftime("%H:%M:%S"),
                )
            context.clock.sleep(1.0)
            waited_seconds += 1.0
    try:
        with _heartbeat_thread(
            f"heartbeat {table}",
            LEASE_TTL_SECONDS / _HEARTBEATS_PER_TTL,
            lambda: leases.heartbeat(lease),
        ):
            yield lease
    finally:
        # If another owner has the lease or the ledger does not answer, the lease expires by itself. A
        # failure here must not replace the exception of the body.
        with suppress(Exception):
            leases.release(lease)


@contextmanager
def run_heartbeat(leases: Leases, run_id: str) -> Iterator[None]:
    """Records heartbeats of a Dagster run in the ledger until the body ends.

    A ledger that does not answer does not end the run: the lease guards the work on a table.
    """

    def record() -> bool:
        leases.record_run_heartbeat(run_id)
        return True

    with suppress(Exception):
        record()
    try:
        with _heartbeat_thread(f"heartbeat of run {run_id}", RUN_BEAT_SECONDS, record):
            yield
    finally:
        with suppress(Exception):
            leases.end_run(run_id)


@contextmanager
def _heartbeat_thread(name: str, every_seconds: float, record: Callable[[], bool]) -> Iterator[None]:
    """Runs a thread that records heartbeats until the body ends or `record` returns False."""
    stop = threading.Event()

    def record_until_stopped() -> None:
        while not stop.wait(every_seconds):
            try:
                if not record():
                    return
            except Exception:  # noqa: BLE001, S112 - the next heartbeat tries again; expiry is the limit
                continue

    thread = threading.Thread(target=record_until_stopped, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        # A ledger that does not answer can block a heartbeat. The end of the body must not wait for it.
        thread.join(_LAST_BEAT_SECONDS)


GRACE_SECONDS = 60.0
"""Time for an orderly end after an interrupt: open work goes back, the record is stored, the lease becomes free."""


@contextmanager
def ended_after(seconds: float, end: End | None, why: Callable[[], str]) -> Iterator[None]:
    """Calls `end` from a thread of its own if the body lasts longer than this. None: nothing ends the process."""
    if end is None:
        yield
        return
    over = threading.Event()

    def wait() -> None:
        if not over.wait(seconds):
            end(why())

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
    with (
        ended_after(seconds + GRACE_SECONDS, end, lambda: _hanging(table, seconds)),
        _interrupted_after(table, seconds, cancel),
    ):
        yield


def _hanging(table: str, seconds: int) -> str:
    return f"{TableTimeout(table, seconds)} A call that cannot be interrupted did not return, so this process ends."


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
