"""Runs the tasks of a batch: in the driver's process if the batch is small, else in processes of this machine, or by the
executors of a cluster.

A worker process costs a few hundredths of a second of CPU, a Spark job a tenth, beside the start of Spark.
"""

from __future__ import annotations

import gc
import heapq
import sys
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from zipimport import zipimporter

import iceberg_maint
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.java_errors import (
    JVM_ERRORS,
    CancelledError,
    WorkerFailedError,
    one_line,
)
from iceberg_maint.engines.spark.rewrite.columnar.worker_process import NEW_OBJECTS
from iceberg_maint.engines.spark.rewrite.columnar.workers import ENVIRONMENT, run_calls

MOST_BYTES = 1024 * 1024
"""Input bytes of a batch whose tasks run here."""
MOST_VALUES = 1_000_000
"""Values of its rows, those in lists and maps aside: few bytes may hold many equal ones."""
MOST_DECODED_BYTES = 64 * 1024 * 1024
"""Decoded bytes of a task that runs here. Its input's size and rows do not bound them: texts and lists may be long."""
_POLL_SECONDS = 0.2


def is_small(input_bytes: int, values: int) -> bool:
    """Whether the tasks of a batch of this size may run in the driver's process."""
    return input_bytes <= MOST_BYTES and values <= MOST_VALUES


def run_in_driver(bridge: Bridge, worker: Callable[..., str], tasks: Sequence[str]) -> list[str] | None:
    """Returns the results of the tasks in order. None: a task raised an error; run all of them by Spark, whose errors
    the callers know.

    The tasks run on a thread of their own, because a read of a file system that does not answer cannot be interrupted. Raises
    CancelledError when the session's jobs are cancelled. A task that is left behind then ends later, and no
    metadata name what it writes.
    """
    results: list[str] = []
    ended = threading.Event()
    before = bridge.cancellations

    def run() -> None:
        try:
            for task in tasks:
                if bridge.cancellations != before:
                    return
                results.append(worker(task, 0))
        except Exception:  # noqa: BLE001 - Spark runs the tasks again and raises its own error
            results.clear()
        finally:
            ended.set()

    threading.Thread(target=run, name="iceberg-maint-task", daemon=True).start()
    while not ended.wait(_POLL_SECONDS):
        if bridge.cancellations != before:
            break
    if bridge.cancellations != before:
        raise CancelledError("the tasks of the batch were cancelled")
    return results if len(results) == len(tasks) else None


Worker = Callable[[str, int], str]
"""Runs one task, given as JSON, in the given attempt of its Spark task. Returns the result as JSON."""

SPARK_TASK_BYTES = 32 * 1024 * 1024
"""The input bytes from which one task is a Spark task of its own. Smaller tasks share one."""
LEAST_SPARK_TASK_BYTES = 1024 * 1024
"""A Spark task costs about as much CPU as the rewrite of a megabyte: no core gets a smaller one."""

WORKER_PYTHON = "spark.pyspark.python"

MEMORY_SETTING = "spark.executor.pyspark.memory"
_MIB = 1024 * 1024
DEFAULT_TASK_BYTES = 512 * _MIB
LEAST_TASK_BYTES = 128 * _MIB
INTERPRETER_BYTES = 384 * _MIB
"""Address space of a worker without a task: the interpreter and its libraries, of which 90 MB are resident. Spark limits
address space."""


def bins(sizes: Sequence[int], parallelism: int) -> list[list[int]]:
    """The tasks of each Spark task, as indexes of `sizes` (input bytes), the largest Spark task first.

    Small tasks share a Spark task. There are enough Spark tasks for `parallelism`, unless they would have less than
    LEAST_SPARK_TASK_BYTES.
    """
    total = sum(sizes)
    for_all_cores = min(2 * parallelism, -(-total // LEAST_SPARK_TASK_BYTES))
    count = min(len(sizes), max(1, for_all_cores, -(-total // SPARK_TASK_BYTES)))
    loads: list[tuple[int, int]] = [(0, number) for number in range(count)]
    chosen: list[list[int]] = [[] for _ in range(count)]
    for index in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        load, number = heapq.heappop(loads)
        chosen[number].append(index)
        heapq.heappush(loads, (load + sizes[index], number))
    # Tasks without bytes share one bin and leave others empty.
    return sorted(filter(None, chosen), key=lambda members: -sum(sizes[i] for i in members))


@dataclass(frozen=True, slots=True)
class InDriver:
    """Tasks that may run in this process: the number of values that they decode, and the worker of this process if it is
    another. That one raises an error for a task that should not run here."""

    values: int
    worker: Callable[..., str] | None = None


def run_tasks(
    bridge: Bridge,
    worker: Callable[..., str],
    tasks: Sequence[str],
    sizes: Sequence[int],
    io: Mapping[str, str] | None = None,
    in_driver: InDriver | None = None,
) -> list[str]:
    """Runs the tasks in one Spark job and returns their results in order. `sizes` are their input bytes. `io`, the
    properties of a FileIO with its credentials, is broadcast on a cluster: it is in no task, whose text may be logged. With it
    the worker takes them as `io`. With few values `in_driver`, on a local master and a local file system, the tasks
    run in this process, unless `spark.executor.pyspark.memory` declares the memory of the workers. A process does not end
    while Arrow's S3 client waits for an answer. That run is the first attempt of each task.

    Raises what Spark raises for a task that fails or is cancelled, CancelledError for one in this process.
    """
    if not tasks:
        return []
    attempts = 0
    if (
        in_driver is not None
        and not io
        and is_small(sum(sizes), in_driver.values)
        and bridge.is_local
        and not _declared(bridge)[0]
    ):
        if (found := run_in_driver(bridge, in_driver.worker or worker, tasks)) is not None:
            return found
        attempts = 1
    if bridge.is_local:
        return _run_here(bridge, partial(worker, **({"io": dict(io)} if io else {})), tasks, sizes, attempts)
    context = bridge.spark.sparkContext
    members = bins(sizes, bridge.parallelism)
    parts = [[(index, tasks[index]) for index in indexes] for indexes in members]
    shared = context.broadcast(dict(io)) if io else None
    try:
        run = worker if shared is None else WithFileIO(worker, shared)
        results = dict(_rdd(bridge, parts, Runner(run)).collect())
    finally:
        if shared is not None:
            shared.destroy()
    return [results[index] for index in range(len(tasks))]


def _run_here(
    bridge: Bridge, worker: Callable[..., str], tasks: Sequence[str], sizes: Sequence[int], attempt: int
) -> list[str]:
    """Runs the tasks in processes of this machine, the largest first."""
    before = bridge.cancellations

    def check() -> None:
        if bridge.cancellations != before:
            raise CancelledError("the tasks of the batch were cancelled")

    order = sorted(range(len(tasks)), key=lambda index: -sizes[index])
    workers = min(bridge.parallelism, max(1, -(-sum(sizes) // LEAST_SPARK_TASK_BYTES)))
    declared, cores = _declared(bridge)
    try:
        results = run_calls(worker, [(tasks[i], attempt) for i in order], workers, declared // cores, check)
    except CancelledError:
        raise
    except Exception as why:
        raise WorkerFailedError(f"{type(why).__name__}: {why}") from why
    by_index = dict(zip(order, results, strict=True))
    return [by_index[index] for index in range(len(tasks))]


class WithFileIO:
    """A worker that gets the properties of a FileIO from a broadcast."""

    def __init__(self, worker: Callable[..., str], shared: Any) -> None:
        self._worker, self._shared = worker, shared

    def __call__(self, task: str, attempt: int) -> str:
        return self._worker(task, attempt, self._shared.value)


class Runner:
    """The function of a Spark task."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def __call__(self, parts: Iterable[list[tuple[int, str]]]) -> Iterator[tuple[int, str]]:
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = 0 if context is None else context.attemptNumber()
        before = gc.get_threshold()
        gc.set_threshold(NEW_OBJECTS, *before[1:])
        try:
            for part in parts:
                for index, task in part:
                    yield index, self._worker(task, attempt)
        finally:
            gc.set_threshold(*before)
        _forget_zip_importers()
        _freeze_modules()


def _forget_zip_importers() -> None:
    """PySpark invalidates all importers of a worker before each Spark task. An importer of a zip file then reads the
    whole directory of `pyspark.zip` again, and there is one for each of its folders: 0.1 s of CPU per Spark task. An
    import makes a new importer, for which Python keeps the directory."""
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            sys.path_importer_cache.pop(path, None)


def _freeze_modules() -> None:
    """PySpark collects garbage after each Spark task. It would look at all objects of all imported modules, which takes
    0.1 s of CPU, more than the rewrite of a small table. Frozen objects are not looked at."""
    if (modules := len(sys.modules)) != _frozen.get("modules"):
        gc.collect()
        gc.freeze()
        _frozen["modules"] = modules


_frozen: dict[str, int] = {}
"""The number of imported modules when they were frozen."""


def worker_python(configured: str | None, default: str) -> str:
    """The interpreter of a cluster's workers. The path that is `configured` may be relative to an executor's folder, into
    which `spark.archives` are unpacked."""
    return configured or default


_worker_lock = threading.Lock()


def _rdd(bridge: Bridge, parts: Sequence[list[tuple[int, str]]], runner: Runner) -> Any:
    """The job's RDD. Its workers have ENVIRONMENT and run the interpreter of `spark.pyspark.python`, which PySpark itself reads
    only in `spark-submit`. By default they run the `python3` of the path, which may not have this program."""
    context = bridge.spark.sparkContext
    with _worker_lock:
        before, environment = context.pythonExec, context.environment
        try:
            context.environment = {**ENVIRONMENT, **environment}
            context.pythonExec = worker_python(context.getConf().get(WORKER_PYTHON), before)
            rdd = context.parallelize(parts, len(parts)).mapPartitions(runner)
            rdd.id()  # PySpark reads both when it makes the Java object.
        finally:
            context.pythonExec, context.environment = before, environment
    return rdd


def task_memory_bytes(bridge: Bridge) -> int:
    """The memory of one task. `spark.executor.pyspark.memory` declares it, with that of the interpreter."""
    return task_bytes(*_declared(bridge))


def task_bytes(declared: int, cores: int) -> int:
    """The memory of one task of workers with `declared` bytes, which Spark divides among the cores: what the interpreter
    leaves. 512 MiB if 0 are declared."""
    if not declared:
        return DEFAULT_TASK_BYTES
    return max(LEAST_TASK_BYTES, declared // max(1, cores) - INTERPRETER_BYTES)


def declared_memory(bridge: Bridge) -> str:
    """The setting of the workers' memory with its value."""
    declared, cores = _declared(bridge)
    value = f"{declared // _MIB} MiB for {cores} cores" if declared else "not set"
    return f"{MEMORY_SETTING} is {value}"


def _declared(bridge: Bridge) -> tuple[int, int]:
    """The bytes of `spark.executor.pyspark.memory`, 0 without it, and the cores that share them."""
    conf = bridge.conf()
    size_mib = bridge.jvm.org.apache.spark.network.util.JavaUtils.byteStringAsMb
    declared = int(size_mib(conf[MEMORY_SETTING])) * _MIB if MEMORY_SETTING in conf else 0
    cores = bridge.parallelism if bridge.is_local else int(conf.get("spark.executor.cores", 1))
    return declared, cores


class Workers:
    """Whether the Python workers of a session can rewrite files: they import this package and what it needs."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._lock = threading.Lock()
        self._problem: str | None = None

    def problem(self) -> str:
        """Returns why the workers cannot run tasks, "" if they can. The first call on a cluster ships the package
        and runs a job."""
        with self._lock:
            if self._problem is None:
                self._problem = self._check()
            return self._problem

    def _check(self) -> str:
        if self._bridge.is_local:
            return ""
        try:
            self._bridge.spark.sparkContext.addPyFile(str(_shipped_package()))
            [answer] = run_tasks(self._bridge, _import_engine, [""], [0])
        except JVM_ERRORS as why:
            return f"the executors run no Python worker: {one_line(why)}"
        return answer


@cache
def _shipped_package() -> Path:
    """The package as a zip file, the same one for every engine of this process: Spark refuses another file of the name."""
    return package_zip(Path(mkdtemp(prefix="iceberg-maint-")))


def _import_engine(_task: str, _attempt: int) -> str:
    """Imports all that a task may import, some of it late: returns "", or which package is missing."""
    try:
        import pyarrow as pa  # noqa: F401
        import pyroaring  # noqa: F401

        import iceberg_maint.columnar.rewrite
        import iceberg_maint.columnar.storage  # noqa: F401
    except ImportError as why:
        return f"the Python of the executors cannot import {why.name}"
    return ""


def package_zip(folder: Path) -> Path:
    """Writes this package as a zip file that Python imports from. Returns its path."""
    source = Path(iceberg_maint.__file__).parent
    path = folder / "iceberg_maint.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(source.rglob("*.py")):
            archive.write(file, Path("iceberg_maint") / file.relative_to(source))
    return path
