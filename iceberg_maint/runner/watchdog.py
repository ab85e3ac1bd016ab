"""The last resort: ends the process if something does not end in time.

Python runs the handler of a signal between two of its own instructions in the main thread. Inside a call of the operating
system or of a library that does not return, the main thread answers neither a timer nor SIGTERM. A thread ends the process
then. The next run settles what was open, as after SIGKILL.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

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
