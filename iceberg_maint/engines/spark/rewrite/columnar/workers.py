"""The workers of this process: calls of functions in processes of this machine, and their results."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from iceberg_maint.core.outcomes.failures import WORKER_KILLED
from iceberg_maint.engines.spark.rewrite.columnar import worker_process

ENVIRONMENT = {
    "MIMALLOC_PURGE_DELAY": "60000",
    "MALLOC_MMAP_THRESHOLD_": str(32 * 1024 * 1024),
    "MALLOC_TRIM_THRESHOLD_": str(64 * 1024 * 1024),
    "MALLOC_ARENA_MAX": "1",
}
"""The workers keep freed memory for their next task. By default it is returned and faulted in again, which costs a fifth of
the CPU of a task of tiny files. With an arena for each thread a task needs 64 MiB more of the address space that
`spark.executor.pyspark.memory` bounds."""
CRASHED = "a worker process has ended in a task by itself"
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

    def has_ended(self) -> bool:
        """Whether an idle worker has ended. It sends nothing."""
        return self.calls.poll()

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
        return WorkerLostError(f"{CRASHED} (signal {signals[0]})")


class WorkerParent:
    """The parent of this process's workers, with those that are idle. It starts with the first worker, or by `start` before it
    is needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the parent, unless it runs. Raises OSError."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return
            self._close_idle()
            self._control, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", worker_process.__name__],
                    stdin=theirs.fileno(),
                    stdout=2,  # the output of a command belongs to its caller
                    env={**ENVIRONMENT, **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                    process_group=0,
                )

    def stop(self) -> None:
        """Ends the parent and waits for it. A later worker starts another."""
        with self._lock:
            self._close_idle()
            if self._process is not None and self._control is not None:
                self._control.close()
                self._process.wait()
                self._process = self._control = None

    def keep(self, workers: Sequence[_Worker]) -> None:
        """Takes workers that have answered all calls."""
        with self._lock:
            self._idle += workers

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def connect(self) -> _Worker:
        """An idle worker or a new one. Raises OSError, WorkerLostError if the parent has ended just now."""
        self.start()
        with self._lock:
            while self._idle:
                if not (worker := self._idle.pop()).has_ended():
                    return worker
                worker.close()
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
    """Calls the function with each of the arguments, in workers of this process, and returns the results in order. The calls
    begin in order. A worker has `memory_bytes` of address space, as much as it gets if 0.

    Raises what a call raises, or `check`, which is called several times a second, WorkerLostError and OSError. None of these
    workers is left then.
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
    except BaseException:
        for worker in started:
            worker.close()
        raise
    PARENT.keep(started)
    return results
