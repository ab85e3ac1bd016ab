"""Execution memory of Spark's executors: how much there is, and what tasks took at most."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from iceberg_maint.spark.jvm.bridge import JVM_ERRORS, Bridge, causes, connection_lost
from iceberg_maint.spark.jvm.method_handles import MethodHandles

_JOB_GROUP = "spark.jobGroup.id"
_ANYTHING, _ARRAY = "java.lang.Object", "[Ljava.lang.Object;"
_OUT_OF_MEMORY = ("OutOfMemoryError", "ExecutorLostFailure")


@dataclass(frozen=True, slots=True)
class ExecutorMemory:
    """Of the executors the smallest memory that execution and storage share, in bytes, and the
    most tasks that one runs at once; `page_bytes` is what their hash maps grow by."""

    unified_bytes: int
    slots: int

    @property
    def page_bytes(self) -> int:
        """As Spark's `MemoryManager.pageSizeBytes` where `spark.buffer.pageSize` is not set."""
        share = max(1, self.unified_bytes // 2 // self.slots // 16)
        return min(max(1 << (share - 1).bit_length(), 1024**2), 64 * 1024**2)


def executor_memory(bridge: Bridge) -> ExecutorMemory:
    """What the live executors have (the driver where it runs the tasks itself)."""
    store = bridge.spark.sparkContext._jsc.sc().statusStore()
    executors = store.executorList(True)
    found = [executors.apply(i) for i in range(executors.size())]
    running = [(int(e.maxMemory()), int(e.maxTasks())) for e in found if e.maxTasks() > 0]
    if not running:
        conf = bridge.spark.sparkContext._jsc.sc().conf()
        heap = int(conf.getSizeAsBytes("spark.executor.memory", "1g")) - 300 * 1024**2
        cores = int(conf.getInt("spark.executor.cores", 1)) // int(conf.getInt("spark.task.cpus", 1))
        return ExecutorMemory(int(heap * float(conf.getDouble("spark.memory.fraction", 0.6))), max(1, cores))
    return ExecutorMemory(min(m for m, _ in running), max(s for _, s in running))


def default_budget_bytes(memory: ExecutorMemory) -> int:
    """What applying equality deletes may take where policy does not say: half of what there is."""
    return memory.unified_bytes // 2


def driver_memory_bytes(bridge: Bridge, tasks_bytes: int) -> int:
    """The driver's heap; where it runs the tasks itself, without what these hold."""
    heap_bytes = int(bridge.jvm.java.lang.Runtime.getRuntime().maxMemory())
    runs_tasks = str(bridge.spark.sparkContext.master).startswith("local")
    return heap_bytes - (tasks_bytes if runs_tasks else 0)


@contextmanager
def measured(bridge: Bridge, job_group: str) -> Iterator[Callable[[], int]]:
    """Measures the jobs of one job group inside the block.

    The function it gives returns, also after the block, the most execution memory in bytes that
    tasks running at the same time on one executor took, each counted with its own maximum.
    """
    context = bridge.spark.sparkContext._jsc.sc()
    events = bridge.jvm.java.util.Vector()
    listener = _listener(bridge, events)
    context.addSparkListener(listener)
    try:
        yield lambda: _peak_bytes(bridge, context, events, job_group)
    finally:
        # What was raised is told, not that a JVM which has died has no listeners.
        with suppress(*JVM_ERRORS, OSError, EOFError):
            context.listenerBus().waitUntilEmpty()
            context.removeSparkListener(listener)


def ran_out(error: BaseException) -> bool:
    """Whether Spark ended for want of memory: a task that got none, or a JVM that is gone, which is
    how Spark ends where the heap is full."""
    said = (f"{name} {message}" for name, message in causes(error))
    return connection_lost(error) or any(sign in text for text in said for sign in _OUT_OF_MEMORY)


def _listener(bridge: Bridge, events: Any) -> Any:
    """A listener of Spark's that adds every event, as a one-element array, to a Java list."""
    handles = MethodHandles(bridge)
    # Java: (proxy, method, arguments) -> events.add(arguments)
    add = handles.bound(events, "java.util.Vector", "add", "boolean", _ANYTHING)
    add = add.asType(handles.type_of(_ANYTHING, _ARRAY))
    add = handles.drop_arguments(add, _ANYTHING, "java.lang.reflect.Method")
    return handles.as_proxy("org.apache.spark.scheduler.SparkListenerInterface", add)


def _peak_bytes(bridge: Bridge, context: Any, events: Any, job_group: str) -> int:
    context.listenerBus().waitUntilEmpty()
    is_spark_3 = bridge.is_spark_3  # asked once, not for every task
    stages: set[int] = set()
    tasks: list[tuple[str, int, int, int]] = []
    for event in [arguments[0] for arguments in bridge.iterate(bridge.jvm.java.util.ArrayList(events))]:
        kind = str(event.getClass().getSimpleName())
        if kind == "SparkListenerJobStart" and event.properties().getProperty(_JOB_GROUP) == job_group:
            ids = event.stageIds()
            stages.update(int(ids.apply(i)) for i in range(ids.size()))
        elif kind == "SparkListenerTaskEnd" and event.stageId() in stages and event.taskMetrics() is not None:
            info, metrics = event.taskInfo(), event.taskMetrics()
            # The driver hears of the end of a task after the next one may have begun.
            spent = metrics.executorDeserializeTime() + metrics.executorRunTime()
            begun = int(info.launchTime())
            peak = int(metrics.peakExecutionMemory())
            if not is_spark_3:
                # The older figure leaves out hash relations, the newer one memory off the heap.
                on_heap, off_heap = metrics.peakOnHeapExecutionMemory(), metrics.peakOffHeapExecutionMemory()
                peak = max(peak, int(on_heap) + int(off_heap))
            tasks.append((str(info.executorId()), begun, begun + int(spent), peak))
    return max((_at_once(tasks, executor, start) for executor, start, _, _ in tasks), default=0)


def _at_once(tasks: list[tuple[str, int, int, int]], executor: str, start: int) -> int:
    return sum(peak for e, begun, ended, peak in tasks if e == executor and begun <= start < ended)
