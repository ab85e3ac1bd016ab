"""The processes of this machine that run columnar tasks: one parent, and a worker for each task that runs at a time.

The parent imports once what each worker needs, then forks a worker for every socket that it receives. A worker reads calls
from its socket and writes their results or exceptions, until the other end is closed: it then ends at once, also in a task.
The workers of a batch that succeeds serve the next one: a new one would map its memory again, for a tenth of a second of CPU.
All of them end when the process ends that has started the parent.
"""

from __future__ import annotations

import gc
import os
import pickle
import resource
import signal
import socket
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import Any, NoReturn

from iceberg_maint.machine.without_pandas import hide_pandas

NEW_OBJECTS = 20_000
"""New objects after which Python looks for garbage during a task. After 700, which is the default, it looks 30 times as
often at the metadata that the task holds: 4 % of its CPU. The rows are no such objects."""
IDLE_SECONDS = 0.1
"""How long a worker waits for its next call before it returns the memory that Arrow has freed."""


def main() -> None:
    """Runs the parent."""
    signal.signal(signal.SIGCHLD, _reap)
    control = socket.socket(fileno=0)
    hide_pandas()
    # Without Arrow, the task says so.
    with suppress(ImportError):
        import iceberg_maint.columnar.deleted_positions
        import iceberg_maint.columnar.rewrite
        import iceberg_maint.engines.spark.rewrite.columnar.worker  # noqa: F401
    # Workers share the pages of objects that are not looked at.
    gc.collect()
    gc.freeze()
    while True:
        _, descriptors, _, _ = socket.recv_fds(control, 1, 2)
        if not descriptors:
            return
        calls, end = descriptors
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        if (pid := os.fork()) == 0:
            control.close()
            _serve(Connection(calls))
        _ends[pid] = end
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        os.close(calls)


_ends: dict[int, int] = {}
"""Where the parent says how each worker has ended."""


def _reap(*_: object) -> None:
    """Waits for workers that have ended, so that their CPU seconds are counted as this process's. Says by which signal, 0 for
    none."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            end = _ends.pop(ended[0])
            with suppress(OSError):
                os.write(end, bytes([os.WTERMSIG(ended[1])]))
            os.close(end)


def _serve(connection: Connection) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
    requests: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_receive, args=(connection, requests), daemon=True).start()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    while True:
        memory_bytes, function, arguments = _next(requests)
        # A later call may have another limit: the hard one cannot be raised again.
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes or soft, hard))
        try:
            answer = True, function(*arguments)
        except BaseException as why:  # noqa: BLE001 - the process that waits raises it
            answer = False, _portable(why)
        connection.send(answer)


def _next(requests: SimpleQueue[Any]) -> Any:
    """The next call. Without one at once, Arrow returns its memory to the system."""
    try:
        return requests.get(timeout=IDLE_SECONDS)
    except Empty:
        if arrow := sys.modules.get("pyarrow"):
            arrow.default_memory_pool().release_unused()
        return requests.get()


def _receive(connection: Connection, requests: SimpleQueue[Any]) -> None:
    try:
        while True:
            requests.put(pickle.loads(connection.recv_bytes()))  # noqa: S301 - of the process that started this one
    except (EOFError, OSError):
        os._exit(0)


def _portable(error: BaseException) -> BaseException:
    """The exception, or a RuntimeError of it if it cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - of this process
    except Exception:  # noqa: BLE001 - any code of its class may run
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


if __name__ == "__main__":
    main()
