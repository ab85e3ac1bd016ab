"""Runs Spark jobs on threads, in job groups that can be cancelled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar
from uuid import uuid4

from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.java_errors import JVM_ERRORS
from iceberg_maint.ports.engine import WorkProgress

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_BETWEEN_CANCELS_SECONDS = 0.5
PROOF = "proof"
"""Word in the description of a job that reads written files again."""


def new_job_group() -> str:
    """The name of a new job group, which no other work uses."""
    return f"iceberg-maint-{uuid4()}"


class Jobs:
    """The running job groups of one session."""

    def __init__(self) -> None:
        self._running: set[str] = set()
        self._items, self._ended = 0, 0
        self._figures: dict[int, list[int]] = {}

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
            bridge.enter_job(job_group, item[0])
            try:
                result = work(item[1])
                self._ended += 1
                return result
            except BaseException:
                stopped.set()
                raise

        self._items, self._ended, self._figures = len(items), 0, {}
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

    def run_one(self, bridge: Bridge, description: str, work: Callable[[], _Result]) -> _Result:
        """Calls `work` on a thread, in a job group of its own, and returns its result."""
        [result] = self.run(bridge, new_job_group(), lambda call: call(), [(description, work)], 1)
        return result

    def progress(self, bridge: Bridge, at_step: WorkProgress) -> WorkProgress:
        """Returns the progress of the running jobs of a step from Spark's figures. Figures of a task that runs are as old as
        the executor's last heartbeat, and those of written files come with the task's end."""
        groups = tuple(self._running)
        if not groups:
            return at_step
        if not bridge.has_spark:
            return replace(at_step, groups_done=self._ended, groups=self._items)
        figures = [0, 0, 0, 0]
        steps = set()
        for job in _jobs_of(bridge, groups):
            is_proof = f" {PROOF} " in str(job.description().getOrElse(None))
            if str(job.status().toString()) == "RUNNING":
                steps.add(PROOF if is_proof else at_step.step)
            if not is_proof:
                figures = [a + b for a, b in zip(figures, self._figures_of(bridge, job), strict=True)]
        read_rows, read_bytes, written_rows, written_bytes = figures
        return WorkProgress(
            names_of(steps, at_step.step),
            at_step.seconds,
            self._ended,
            self._items,
            read_rows,
            read_bytes,
            written_rows,
            written_bytes,
        )

    def _figures_of(self, bridge: Bridge, job: Any) -> list[int]:
        """The figures of a job. Those of an ended job are read once."""
        job_id = int(job.jobId())
        figures = self._figures.get(job_id)
        if figures is None:
            figures = _figures_of(bridge, job)
            if str(job.status().toString()) == "SUCCEEDED":
                self._figures[job_id] = figures
        return figures

    def cancel(self, bridge: Bridge) -> None:
        """Cancels the running jobs. A signal handler may call it: it calls the JVM on a separate thread, because
        the interrupted thread may be in the middle of a call.
        """
        groups = tuple(self._running)
        if not groups:
            return
        bridge.cancellations += 1
        if not bridge.has_spark:
            return

        def stop() -> None:
            for group in groups:
                bridge.spark.sparkContext.cancelJobGroup(group)

        worker = threading.Thread(target=stop, name="iceberg-maint-cancel", daemon=True)
        worker.start()
        worker.join(30)


def _jobs_of(bridge: Bridge, groups: Sequence[str]) -> list[Any]:
    """The `JobData` of the groups' jobs that Spark still keeps."""
    context = bridge.spark.sparkContext
    store = bridge.scala_context.statusStore()
    jobs = []
    for group in groups:
        for job_id in context.statusTracker().getJobIdsForGroup(group):
            with suppress(*JVM_ERRORS):  # Spark has forgotten the job by now.
                jobs.append(store.job(job_id))
    return jobs


def _figures_of(bridge: Bridge, job: Any) -> list[int]:
    """Rows and bytes read, rows and bytes written by the stages of a job."""
    store = bridge.scala_context.statusStore()
    ids = job.stageIds()
    figures = [0, 0, 0, 0]
    for stage_id in (ids.apply(i) for i in range(ids.size())):
        with suppress(*JVM_ERRORS):  # The stage was skipped.
            stage = store.lastStageAttempt(stage_id)
            read = stage.inputRecords(), stage.inputBytes()
            figures = [
                a + int(b)
                for a, b in zip(figures, (*read, stage.outputRecords(), stage.outputBytes()), strict=True)
            ]
    return figures


def names_of(steps: Collection[str], otherwise: str) -> str:
    """The steps that run at the same time, the proof last; `otherwise` if none runs."""
    return " and ".join(sorted(steps, key=lambda step: (step == PROOF, step))) or otherwise
