"""The processes of this machine that run columnar tasks: one parent, and a worker for each task that runs at a time.

The parent imports once what each worker needs, then forks a worker for every socket that it receives. A worker reads calls
from its socket and writes their results or exceptions, until the other end is closed: it then ends at once, also in a task.
All of them end when the process ends that has started the parent.
"""

from __future__ import annotations

import gc
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import Any, NoReturn

ENVIRONMENT = {
    "MIMALLOC_PURGE_DELAY": "60000",
    "MALLOC_MMAP_THRESHOLD_": str(32 * 1024 * 1024),
    "MALLOC_TRIM_THRESHOLD_": str(64 * 1024 * 1024),
}
"""The workers keep freed memory for their next task. By default it is returned and faulted in again, which costs a fifth of
the CPU of a task of tiny files."""
NEW_OBJECTS = 20_000
"""New objects after which Python looks for garbage during a task. After 700, which is the default, it looks 30 times as
often at the metadata that the task holds: 4 % of its CPU. The rows are no such objects."""


class WorkerLostError(Exception):
    """A worker has ended without an answer."""


class WorkerParent:
    """The parent of this process's workers. It starts with the first worker, or by `start` before it is needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the parent, unless it runs. Raises OSError."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return
            self._control, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", __name__],
                    stdin=theirs.fileno(),
                    stdout=2,  # the output of a command belongs to its caller
                    env={**ENVIRONMENT, **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                    process_group=0,
                )

    def connect(self) -> Connection:
        """A connection to a new worker. Raises OSError."""
        self.start()
        assert self._control is not None
        ours, theirs = socket.socketpair()
        with ours, theirs:
            socket.send_fds(self._control, [b"."], [theirs.fileno()])
            return Connection(ours.detach())


PARENT = WorkerParent()
POLL_SECONDS = 0.2


def run_calls(
    function: Callable[..., str],
    calls: Sequence[tuple[Any, ...]],
    workers: int,
    memory_bytes: int,
    check: Callable[[], None],
) -> list[str]:
    """Calls the function with each of the arguments, in new workers of this process, and returns the results in order. The
    calls begin in order. A worker has `memory_bytes` of address space, as much as it gets if 0.

    Raises what a call raises, or `check`, which is called several times a second, WorkerLostError and OSError. No worker is
    left then.
    """
    from pyspark import cloudpickle  # a function may be defined within another one

    results, begun, running = [""] * len(calls), 0, dict[Connection, int]()
    connections = []

    def begin(connection: Connection) -> None:
        nonlocal begun
        if begun < len(calls):
            request = memory_bytes, function, calls[begun]
            connection.send_bytes(cloudpickle.dumps(request))  # type: ignore[no-untyped-call]
            running[connection] = begun
            begun += 1

    try:
        for _ in range(min(workers, len(calls))):
            connections.append(PARENT.connect())
            begin(connections[-1])
        while running:
            check()
            for connection in wait(list(running), POLL_SECONDS):
                assert isinstance(connection, Connection)
                is_result, answer = connection.recv()
                if not is_result:
                    raise answer
                results[running.pop(connection)] = answer
                begin(connection)
    except (EOFError, ConnectionError) as why:
        raise WorkerLostError(
            "a worker process has ended in a task; the system may have taken its memory"
        ) from why
    finally:
        for connection in connections:
            connection.close()
    return results


def main() -> None:
    """Runs the parent."""
    signal.signal(signal.SIGCHLD, _reap)
    control = socket.socket(fileno=0)
    # Without Arrow, the task says so.
    with suppress(ImportError):
        import iceberg_maint.columnar.deleted_positions
        import iceberg_maint.columnar.rewrite
        import iceberg_maint.engines.spark.rewrite.columnar.worker  # noqa: F401
    # Workers share the pages of objects that are not looked at.
    gc.collect()
    gc.freeze()
    while True:
        _, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not descriptors:
            return
        if os.fork() == 0:
            control.close()
            _serve(Connection(descriptors[0]))
        os.close(descriptors[0])


def _reap(*_: object) -> None:
    """Waits for workers that have ended, so that their CPU seconds are counted as this process's."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _serve(connection: Connection) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
    requests: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_receive, args=(connection, requests), daemon=True).start()
    while True:
        memory_bytes, function, arguments = requests.get()
        if memory_bytes:
            resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        try:
            answer = True, function(*arguments)
        except BaseException as why:  # noqa: BLE001 - the process that waits raises it
            answer = False, _portable(why)
        connection.send(answer)


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
