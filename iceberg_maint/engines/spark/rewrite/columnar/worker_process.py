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
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import Any, NoReturn

from iceberg_maint.core.outcomes.failures import WORKER_KILLED
from iceberg_maint.machine.without_pandas import hide_pandas

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


_END_SECONDS = 2.0
"""How long the parent takes to say how a worker has ended."""


class WorkerLostError(Exception):
    """A worker has ended without an answer."""


@dataclass(frozen=True, slots=True)
class _Worker:
    """A worker: its calls and answers, and the signal that has ended it."""

    calls: Connection
    end: socket.socket

    def close(self) -> None:
        self.calls.close()
        self.end.close()

    def send(self, request: bytes) -> None:
        """Sends a call. Raises WorkerLostError."""
        try:
            self.calls.send_bytes(request)
        except ConnectionError as why:
            raise self._loss() from why

    def receive(self) -> tuple[bool, Any]:
        """Whether the answer is a result, and the answer. Raises WorkerLostError."""
        try:
            is_result, answer = self.calls.recv()
        except (EOFError, ConnectionError) as why:
            raise self._loss() from why
        return is_result, answer

    def _loss(self) -> WorkerLostError:
        """The error of a worker that has ended. A signal of the system says nothing of the task; one of its own may."""
        self.end.settimeout(_END_SECONDS)
        signals = b""
        with suppress(OSError):
            signals = self.end.recv(1)
        # Without an answer the parent was killed, too.
        if signals in (b"", bytes([signal.SIGKILL]), bytes([signal.SIGTERM])):
            return WorkerLostError(WORKER_KILLED)
        return WorkerLostError(f"a worker process has ended in a task by itself (signal {signals[0]})")


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

    def stop(self) -> None:
        """Ends the parent and waits for it. A later worker starts another."""
        with self._lock:
            if self._process is not None and self._control is not None:
                self._control.close()
                self._process.wait()
                self._process = self._control = None

    def connect(self) -> _Worker:
        """A new worker. Raises OSError, WorkerLostError if the parent has ended just now."""
        self.start()
        assert self._control is not None
        ours, theirs = socket.socketpair()
        end, their_end = socket.socketpair()
        with ours, theirs, their_end:
            worker = _Worker(Connection(ours.detach()), end)
            try:
                socket.send_fds(self._control, [b"."], [theirs.fileno(), their_end.fileno()])
            except ConnectionError as why:
                worker.close()
                raise WorkerLostError(WORKER_KILLED) from why
            return worker


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
    started = list[_Worker]()

    def begin(worker: _Worker) -> None:
        nonlocal begun
        if begun < len(calls):
            request = memory_bytes, function, calls[begun]
            worker.send(cloudpickle.dumps(request))  # type: ignore[no-untyped-call]
            running[worker.calls] = begun
            begun += 1

    try:
        for _ in range(min(workers, len(calls))):
            started.append(worker := PARENT.connect())
            begin(worker)
        while running:
            check()
            ready = wait(list(running), POLL_SECONDS)
            for worker in (w for w in started if w.calls in ready):
                is_result, answer = worker.receive()
                if not is_result:
                    raise answer
                results[running.pop(worker.calls)] = answer
                begin(worker)
    finally:
        for worker in started:
            worker.close()
    return results


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
