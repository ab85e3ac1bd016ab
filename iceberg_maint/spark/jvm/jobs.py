"""Runs Spark jobs on threads, in job groups that can be cancelled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TypeVar
from uuid import uuid4

from iceberg_maint.spark.jvm.bridge import Bridge

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_BETWEEN_CANCELS_SECONDS = 0.5


def new_job_group() -> str:
    """The name of a new job group, which no other work uses."""
    return f"iceberg-maint-{uuid4()}"


class Jobs:
    """The running job groups of one session."""

    def __init__(self) -> None:
        self._running: set[str] = set()

    def run(
        self,
        bridge: Bridge,
        job_group: str,
        work: Callable[[_Item], _Result],
        items: Sequence[tuple[str, _Item]],
        max_threads: int,
    ) -> list[_Result]:
        """Calls `work` for each (description, item), up to `max_threads` at once, and returns the results.

        If a call fails or this thread is interrupted, no further call starts. The running jobs are cancelled. When
        all calls have ended, the failure is raised.
        """
        stopped = threading.Event()

        def run_item(item: tuple[str, _Item]) -> _Result | None:
            if stopped.is_set():
                return None
            # Each Python thread has its own thread in the JVM. Its session and job group are set here.
            bridge.activate()
            bridge.spark.sparkContext.setJobGroup(job_group, item[0], interruptOnCancel=True)
            try:
                return work(item[1])
            except BaseException:
                stopped.set()
                raise

        self._running.add(job_group)
        pool = ThreadPoolExecutor(max_threads, "iceberg-maint-job")
        futures: list[Future[_Result | None]] = []
        try:
            futures += [pool.submit(run_item, item) for item in items]
            wait(futures, return_when=FIRST_EXCEPTION)
            failure = next((f.exception() for f in futures if f.done() and f.exception()), None)
            if failure is not None:
                raise failure
            return [r for r in (f.result() for f in futures) if r is not None]
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            # Spark cancels running jobs only. A thread between two jobs would start the next one, so cancel again.
            while not all(f.done() for f in futures):
                self.cancel(bridge)
                wait(futures, _BETWEEN_CANCELS_SECONDS)
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            self._running.discard(job_group)

    def cancel(self, bridge: Bridge) -> None:
        """Cancels the running jobs. A signal handler may call it: it calls the JVM on a separate thread, because
        the interrupted thread may be in the middle of a call.
        """
        groups = tuple(self._running)
        if not groups:
            return

        def stop() -> None:
            for group in groups:
                bridge.spark.sparkContext.cancelJobGroup(group)

        worker = threading.Thread(target=stop, name="iceberg-maint-cancel", daemon=True)
        worker.start()
        worker.join(30)
