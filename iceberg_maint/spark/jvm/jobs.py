"""Spark jobs on threads, under job groups by which they can be cancelled."""

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
    """A job group that no other work has."""
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
        """`work` of each item, up to `max_threads` at once; items come with a description.

        When one fails, or this thread is interrupted, no other starts, the running ones are
        cancelled and waited for, and it is raised.
        """
        stopped = threading.Event()

        def one(item: tuple[str, _Item]) -> _Result | None:
            if stopped.is_set():
                return None
            # Each Python thread has its own thread in the JVM: its session and job group are set here.
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
            futures += [pool.submit(one, item) for item in items]
            wait(futures, return_when=FIRST_EXCEPTION)
            failed = next((f.exception() for f in futures if f.done() and f.exception()), None)
            if failed is not None:
                raise failed
            return [r for r in (f.result() for f in futures) if r is not None]
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            # Spark cancels the jobs there are: who is between two of them would begin the next.
            while not all(f.done() for f in futures):
                self.cancel(bridge)
                wait(futures, _BETWEEN_CANCELS_SECONDS)
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            self._running.discard(job_group)

    def cancel(self, bridge: Bridge) -> None:
        """Cancels the running jobs. Safe in a signal handler: it talks to the JVM on a thread of
        its own, since the interrupted one may be in the middle of a call.
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
