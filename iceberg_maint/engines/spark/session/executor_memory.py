"""Execution memory of Spark's executors: the available memory, and the peak use of tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from iceberg_maint.core.planning.spark_memory import ExecutorMemory, memory_of_heap
from iceberg_maint.engines.spark.jvm.bridge import JVM_ERRORS, Bridge, causes, connection_lost
from iceberg_maint.engines.spark.jvm.method_handles import MethodHandles

_JOB_GROUP = "spark.jobGroup.id"
_ANYTHING, _ARRAY = "java.lang.Object", "[Ljava.lang.Object;"
_OUT_OF_MEMORY = ("OutOfMemoryError", "ExecutorLostFailure", "SparkContext was shut down")
"""Signs in an error of Spark. A local master whose heap is full shuts its context down while the error is on its way."""


def executor_memory(bridge: Bridge) -> ExecutorMemory:
    """The memory of the live executors, or of the driver if it runs the tasks itself."""
    store = bridge.spark.sparkContext._jsc.sc().statusStore()
    sequence = store.executorList(True)
    executors = [sequence.apply(i) for i in range(sequence.size())]
    limits = [(int(e.maxMemory()), int(e.maxTasks())) for e in executors if e.maxTasks() > 0]
    if not limits:
        conf = bridge.spark.sparkContext._jsc.sc().conf()
        heap_bytes = int(conf.getSizeAsBytes("spark.executor.memory", "1g"))
        cores = int(conf.getInt("spark.executor.cores", 1)) // int(conf.getInt("spark.task.cpus", 1))
        return memory_of_heap(heap_bytes, float(conf.getDouble("spark.memory.fraction", 0.6)), cores)
    return ExecutorMemory(min(m for m, _ in limits), max(s for _, s in limits))


def driver_memory_bytes(bridge: Bridge, tasks_bytes: int) -> int:
    """The driver's heap. If the driver runs the tasks itself, `tasks_bytes` are subtracted."""
    heap_bytes = int(bridge.jvm.java.lang.Runtime.getRuntime().maxMemory())
    runs_tasks = str(bridge.spark.sparkContext.master).startswith("local")
    return heap_bytes - (tasks_bytes if runs_tasks else 0)


@contextmanager
def measured(bridge: Bridge, job_group: str) -> Iterator[Callable[[], int]]:
    """Measures the jobs of one job group inside the block.

    The block gets a function that returns the peak execution memory in bytes, also after the block. The peak is
    the largest sum over tasks that ran at the same time on one executor, where each task counts with its
    own maximum.
    """
    context = bridge.spark.sparkContext._jsc.sc()
    events = bridge.jvm.java.util.Vector()
    listener = _listener(bridge, events)
    context.addSparkListener(listener)
    try:
        yield lambda: _peak_bytes(bridge, context, events, job_group)
    finally:
        # The error of a JVM that has died must not replace the exception of the block.
        with suppress(*JVM_ERRORS, OSError, EOFError):
            context.listenerBus().waitUntilEmpty()
            context.removeSparkListener(listener)


def ran_out(error: BaseException) -> bool:
    """Whether Spark ended because memory ran out: a task got no memory, or the JVM has died. Spark's JVM dies if
    its heap is full."""
    if connection_lost(error):
        return True
    try:
        texts = [f"{name} {message}" for name, message in causes(error)]
    except (*JVM_ERRORS, OSError, EOFError):  # the JVM that has the causes has died
        return True
    return any(sign in text for text in texts for sign in _OUT_OF_MEMORY)


def _listener(bridge: Bridge, events: Any) -> Any:
    """A Spark listener that adds every event, as a one-element array, to a Java list."""
    handles = MethodHandles(bridge)
    # Java: (proxy, method, arguments) -> events.add(arguments)
    add = handles.bound(events, "java.util.Vector", "add", "boolean", _ANYTHING)
    add = add.asType(handles.type_of(_ANYTHING, _ARRAY))
    add = handles.drop_arguments(add, _ANYTHING, "java.lang.reflect.Method")
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
