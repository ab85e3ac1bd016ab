"""Executors of a session: whether one runs, the memory of each, and the peak use of its tasks.

Spark waits for executors without end, and a cluster that stops an application says why only in its workers' logs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from iceberg_maint.core.outcomes.failures import JVM_DIED
from iceberg_maint.core.planning.spark_memory import ExecutorMemory, memory_of_heap
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.functions import OBJECT, MethodHandles
from iceberg_maint.engines.spark.jvm.java_errors import (
    DEAD_JVM_ERRORS,
    JVM_ERRORS,
    causes,
    one_line,
)
from iceberg_maint.engines.spark.jvm.jobs import new_job_group
from iceberg_maint.errors import IcebergMaintError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_SETTING = "spark.scheduler.maxRegisteredResourcesWaitingTime"
"""Spark's setting for the wait for executors. Its default of 30 seconds is short for clusters that start machines."""
_DEFAULT_WAIT = "300s"
QUIET_SECONDS = 15.0
"""Seconds of a wait for executors after which it is logged."""

_log = logging.getLogger(__name__)


def is_local(master: str) -> bool:
    """Whether the tasks of this master run on this machine."""
    return master.startswith("local")


def check_executors(spark: SparkSession) -> None:
    """Runs a job of one row on a cluster. Does nothing on a local master. Raises IcebergMaintError ICM-132 if the
    job fails or does not end in time."""
    context = spark.sparkContext
    master = str(context.master)
    if is_local(master):
        return
    bridge, job_group = Bridge(spark), new_job_group()

    def run_job() -> None:
        bridge.activate()
        context.setJobGroup(job_group, "iceberg-maint: wait for an executor", interruptOnCancel=True)
        bridge.session.range(1).count()

    wait_seconds = int(bridge.scala_context.conf().getTimeAsSeconds(WAIT_SETTING, _DEFAULT_WAIT))
    require_executor(run_job, lambda: context.cancelJobGroup(job_group), master, wait_seconds)


def require_executor(
    run_job: Callable[[], None], cancel: Callable[[], None], master: str, wait_seconds: float
) -> None:
    """Calls `run_job` on a thread. Raises IcebergMaintError ICM-132 if it raises an error of the JVM, or if it does
    not return within `wait_seconds`: then calls `cancel`. Warns of a long wait."""
    pool = ThreadPoolExecutor(1, "iceberg-maint-executors")
    job = pool.submit(run_job)
    quiet_seconds = min(QUIET_SECONDS, wait_seconds)
    try:
        done, _ = wait([job], quiet_seconds)
        if not done and wait_seconds > quiet_seconds:
            _log.warning(
                "%s has run no executor for %g seconds; waiting up to %g seconds (%s)",
                master,
                quiet_seconds,
                wait_seconds,
                WAIT_SETTING,
            )
        job.result(wait_seconds - quiet_seconds)
    except JVM_ERRORS as why:
        raise no_executor(master, one_line(why)) from why
    except BaseException as why:
        cancel()
        if isinstance(why, TimeoutError):
            raise no_executor(master, f"no executor ran a job within {wait_seconds:g} seconds") from why
        raise
    finally:
        pool.shutdown(wait=False)


def no_executor(master: str, why: str) -> IcebergMaintError:
    """The error for a cluster that runs no job."""
    return IcebergMaintError(
        "ICM-132",
        f"the Spark cluster {master} runs no executor: {why}.",
        "read the logs of the cluster's master and of its workers; compare spark.executor.memory and "
        "spark.executor.cores with what the workers offer. Executors must reach this machine at "
        f"spark.driver.host. If they start slowly, raise {WAIT_SETTING}.",
    )


_JOB_GROUP = "spark.jobGroup.id"
_ARRAY = "[Ljava.lang.Object;"
_OUT_OF_MEMORY = ("OutOfMemoryError", "ExecutorLostFailure", "SparkContext was shut down", JVM_DIED)
"""Signs in an error of Spark. A local master whose heap is full shuts its context down while the error is on its way."""


def executor_memory(bridge: Bridge) -> ExecutorMemory:
    """The memory of the live executors, or of the driver if it runs the tasks itself."""
    if not bridge.has_spark:
        fraction = float(bridge.conf().get("spark.memory.fraction", 0.6))
        return memory_of_heap(driver_memory_bytes(bridge, 0), fraction, bridge.parallelism)
    store = bridge.scala_context.statusStore()
    sequence = store.executorList(True)
    executors = [sequence.apply(i) for i in range(sequence.size())]
    limits = [(int(e.maxMemory()), int(e.maxTasks())) for e in executors if e.maxTasks() > 0]
    if not limits:
        conf = bridge.scala_context.conf()
        heap_bytes = int(conf.getSizeAsBytes("spark.executor.memory", "1g"))
        cores = int(conf.getInt("spark.executor.cores", 1)) // int(conf.getInt("spark.task.cpus", 1))
        return memory_of_heap(heap_bytes, float(conf.getDouble("spark.memory.fraction", 0.6)), cores)
    return ExecutorMemory(min(m for m, _ in limits), max(s for _, s in limits))


def driver_memory_bytes(bridge: Bridge, tasks_bytes: int) -> int:
    """The driver's heap. If the driver runs the tasks itself, `tasks_bytes` are subtracted."""
    heap_bytes = int(bridge.jvm.java.lang.Runtime.getRuntime().maxMemory())
    return heap_bytes - (tasks_bytes if bridge.is_local else 0)


@contextmanager
def measured(bridge: Bridge, job_group: str) -> Iterator[Callable[[], int]]:
    """Measures the jobs of one job group inside the block.

    The block gets a function that returns the peak execution memory in bytes, also after the block. The peak is
    the largest sum over tasks that ran at the same time on one executor, where each task counts with its
    own maximum.
    """
    context = bridge.scala_context
    events = bridge.jvm.java.util.Vector()
    listener = _listener(bridge, events)
    context.addSparkListener(listener)
    try:
        yield lambda: _peak_bytes(bridge, context, events, job_group)
    finally:
        # The error of a JVM that has died must not replace the exception of the block.
        with suppress(*DEAD_JVM_ERRORS):
            context.listenerBus().waitUntilEmpty()
            context.removeSparkListener(listener)


def ran_out(error: BaseException) -> bool:
    """Whether Spark ended because memory ran out: a task got no memory, or the JVM has died. Spark's JVM dies if
    its heap is full."""
    texts = [f"{name} {message}" for name, message in causes(error)]
    return any(sign in text for text in texts for sign in _OUT_OF_MEMORY)


def _listener(bridge: Bridge, events: Any) -> Any:
    """A Spark listener that adds every event, as a one-element array, to a Java list."""
    handles = MethodHandles(bridge)
    # Java: (proxy, method, arguments) -> events.add(arguments)
    add = handles.bound(events, "java.util.Vector", "add", "boolean", OBJECT)
    add = add.asType(handles.type_of(OBJECT, _ARRAY))
    add = handles.drop_arguments(add, OBJECT, "java.lang.reflect.Method")
    return handles.as_proxy("org.apache.spark.scheduler.SparkListenerInterface", add)


def _peak_bytes(bridge: Bridge, context: Any, events: Any, job_group: str) -> int:
    context.listenerBus().waitUntilEmpty()
    is_spark_3 = bridge.is_spark_3  # one call, not one per task
    stages: set[int] = set()
    tasks: list[tuple[str, int, int, int]] = []
    for event in [arguments[0] for arguments in bridge.iterate(bridge.jvm.java.util.ArrayList(events))]:
        event_name = str(event.getClass().getSimpleName())
        if event_name == "SparkListenerJobStart" and event.properties().getProperty(_JOB_GROUP) == job_group:
            ids = event.stageIds()
            stages.update(int(ids.apply(i)) for i in range(ids.size()))
        elif event_name == "SparkListenerTaskEnd" and event.stageId() in stages:
            info, metrics = event.taskInfo(), event.taskMetrics()
            if metrics is None:
                continue
            # The end is computed, because the driver may receive it after the start of the next task.
            duration = metrics.executorDeserializeTime() + metrics.executorRunTime()
            start = int(info.launchTime())
            peak = int(metrics.peakExecutionMemory())
            if not is_spark_3:
                # The older figure omits hash relations. The newer on-heap figure omits memory off the heap.
                on_heap, off_heap = metrics.peakOnHeapExecutionMemory(), metrics.peakOffHeapExecutionMemory()
                peak = max(peak, int(on_heap) + int(off_heap))
            tasks.append((str(info.executorId()), start, start + int(duration), peak))
    return max((_at_once(tasks, executor, start) for executor, start, _, _ in tasks), default=0)


def _at_once(tasks: list[tuple[str, int, int, int]], executor: str, start: int) -> int:
    """The sum of the peaks of an executor's tasks that run when one of its tasks starts."""
    return sum(peak for e, begin, end, peak in tasks if e == executor and begin <= start < end)
