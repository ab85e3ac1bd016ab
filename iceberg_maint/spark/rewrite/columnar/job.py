"""The Spark job of a columnar batch: runs tasks in Spark's Python workers and returns their results.

Tasks and results are JSON texts. A worker imports `iceberg_maint.columnar`. The workers of a local master are programs
of this machine and use this process's interpreter. The workers of a cluster get the package as a zip file; their
interpreter must have the other packages that it imports.
"""

from __future__ import annotations

import heapq
import sys
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from zipimport import zipimporter

import iceberg_maint
from iceberg_maint.spark.jvm.bridge import JVM_ERRORS, Bridge, one_line

Worker = Callable[[str, int], str]
"""Runs one task, given as JSON, in the given attempt of its Spark task. Returns the result as JSON."""

SPARK_TASK_BYTES = 32 * 1024 * 1024
"""The input bytes from which one task is a Spark task of its own. Smaller tasks share one."""

WORKER_ENVIRONMENT = {
    "MIMALLOC_PURGE_DELAY": "10000",
    "MALLOC_MMAP_THRESHOLD_": str(32 * 1024 * 1024),
    "MALLOC_TRIM_THRESHOLD_": str(64 * 1024 * 1024),
}
"""The workers keep freed memory between columns and pages. By default it is returned and faulted in again, which costs
CPU. The end of a Spark task returns it."""

WORKER_PYTHON = "spark.pyspark.python"

DEFAULT_TASK_BYTES = 1024 * 1024 * 1024
LEAST_TASK_BYTES = 256 * 1024 * 1024
"""The interpreter and its libraries take half of it."""


def bins(sizes: Sequence[int], parallelism: int) -> list[list[int]]:
    """The tasks of each Spark task, as indexes of `sizes` (input bytes), the largest Spark task first.

    A Spark task costs about as much CPU as the rewrite of a megabyte, so small tasks share one. There are enough
    Spark tasks for `parallelism`.
    """
    count = min(len(sizes), max(2 * parallelism, -(-sum(sizes) // SPARK_TASK_BYTES)))
    loads: list[tuple[int, int]] = [(0, number) for number in range(count)]
    chosen: list[list[int]] = [[] for _ in range(count)]
    for index in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        load, number = heapq.heappop(loads)
        chosen[number].append(index)
        heapq.heappush(loads, (load + sizes[index], number))
    # Tasks without bytes share one bin and leave others empty.
    return sorted(filter(None, chosen), key=lambda members: -sum(sizes[i] for i in members))


def run_tasks(
    bridge: Bridge,
    worker: Callable[..., str],
    tasks: Sequence[str],
    sizes: Sequence[int],
    io: Mapping[str, str] | None = None,
) -> list[str]:
    """Runs the tasks in one Spark job and returns their results in order. `sizes` are their input bytes. `io`, the
    properties of a FileIO with its credentials, is broadcast: it is in no task, whose text may be logged. With it the
    worker takes them as a third argument.

    Raises what Spark raises for a task that fails or is cancelled.
    """
    if not tasks:
        return []
    context = bridge.spark.sparkContext
    members = bins(sizes, int(context.defaultParallelism))
    parts = [[(index, tasks[index]) for index in indexes] for indexes in members]
    shared = context.broadcast(dict(io)) if io else None
    try:
        run = worker if shared is None else WithFileIO(worker, shared)
        results = dict(_rdd(bridge, parts, Runner(run)).collect())
    finally:
        if shared is not None:
            shared.destroy()
    return [results[index] for index in range(len(tasks))]


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
        for part in parts:
            for index, task in part:
                yield index, self._worker(task, attempt)
        _release_memory()
        _forget_zip_importers()


def _release_memory() -> None:
    """Returns freed memory to the operating system. An idle worker lives for a minute."""
    if pyarrow := sys.modules.get("pyarrow"):
        pyarrow.default_memory_pool().release_unused()


def _forget_zip_importers() -> None:
    """PySpark invalidates all importers of a worker before each Spark task. An importer of a zip file then reads the
    whole directory of `pyspark.zip` again, and there is one for each of its folders: 0.1 s of CPU per Spark task. An
    import makes a new importer, for which Python keeps the directory."""
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            sys.path_importer_cache.pop(path, None)


def worker_python(master: str, configured: str | None, default: str) -> str:
    """The interpreter of the Python workers. A cluster's `configured` path may be relative to an executor's folder,
    into which `spark.archives` are unpacked."""
    return sys.executable if master.startswith("local") else configured or default


_worker_lock = threading.Lock()


def _rdd(bridge: Bridge, parts: Sequence[list[tuple[int, str]]], runner: Runner) -> Any:
    """The job's RDD. Its workers have WORKER_ENVIRONMENT. On a local master they run this process's interpreter, on a
    cluster that of `spark.pyspark.python`, which PySpark itself reads only in `spark-submit`. By default they run the
    `python3` of the path, which may not have this program."""
    context = bridge.spark.sparkContext
    with _worker_lock:
        before, environment = context.pythonExec, context.environment
        try:
            context.environment = {**WORKER_ENVIRONMENT, **environment}
            context.pythonExec = worker_python(
                str(context.master), context.getConf().get(WORKER_PYTHON), before
            )
            rdd = context.parallelize(parts, len(parts)).mapPartitions(runner)
            rdd.id()  # PySpark reads both when it makes the Java object.
        finally:
            context.pythonExec, context.environment = before, environment
    return rdd


def task_memory_bytes(bridge: Bridge) -> int:
    """The memory of one task: the share of a core in `spark.executor.pyspark.memory`, which Spark enforces on Python
    workers, and 1 GiB without that setting."""
    context = bridge.spark.sparkContext
    conf = context._jsc.sc().conf()
    declared = int(conf.getSizeAsBytes("spark.executor.pyspark.memory", "0"))
    if not declared:
        return DEFAULT_TASK_BYTES
    local = str(context.master).startswith("local")
    cores = int(context.defaultParallelism) if local else int(conf.getInt("spark.executor.cores", 1))
    return max(LEAST_TASK_BYTES, declared // max(1, cores))


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
        context = self._bridge.spark.sparkContext
        if str(context.master).startswith("local"):
            return ""
        try:
            context.addPyFile(str(_shipped_package()))
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
