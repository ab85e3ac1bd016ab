"""The program with a kill of one of its processes, as a child process of the tests.

    python -m iceberg_maint_tests.support.e2e.killed_process POINT ARGUMENTS…

The points: the JVM dies `planned` (before the first batch is written), in a `task` of a worker, `written` (the files are proved
and no commit was tried), once with a `session` in it, `in_swap` (before the catalog is asked), `swapped` (before anybody took note);
or a `worker` dies in its task. The seams are wrapped here, in the test: the product holds no failpoint.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from pyspark import SparkContext

from iceberg_maint.cli import main
from iceberg_maint.engines.spark.commit import gate
from iceberg_maint.engines.spark.engine import SparkEngine
from iceberg_maint.engines.spark.rewrite.columnar import job, strategy

POINT = sys.argv.pop(1)


def kill_jvm() -> None:
    """Kills it once, and waits for its end."""
    process = SparkContext._gateway.proc
    if process.poll() is None:
        process.kill()
        process.wait()


@cache
def kill_session() -> None:
    """Kills the first JVM, which has a session."""
    assert SparkContext._active_spark_context is not None
    kill_jvm()


def before(call: Callable[..., Any], kill: Callable[[], None] = kill_jvm) -> Callable[..., Any]:
    """The call, after a kill."""

    def wrapped(*arguments: Any, **more: Any) -> Any:
        kill()
        return call(*arguments, **more)

    return wrapped


def after(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call, before a kill."""

    def wrapped(*arguments: Any, **more: Any) -> Any:
        result = call(*arguments, **more)
        kill_jvm()
        return result

    return wrapped


def killing(pid: int, worker: Callable[..., str]) -> Callable[..., str]:
    """A worker that kills a process, 0 for its own, before its task."""

    def call(*arguments: Any, **more: Any) -> str:
        os.kill(pid or os.getpid(), signal.SIGKILL)
        return worker(*arguments, **more)

    return call


def run_tasks(bridge: Any, worker: Any, *arguments: Any) -> list[str]:
    pid = 0 if POINT == "worker" else SparkContext._gateway.proc.pid
    return real_tasks(bridge, killing(pid, worker), *arguments)


def write(engine: SparkEngine, *arguments: Any) -> Any:
    engine._start_bridge()
    kill_jvm()
    return real_write(engine, *arguments)


real_tasks, real_write = job.run_tasks, SparkEngine._write
match POINT:
    case "planned":
        SparkEngine._write = write  # type: ignore[method-assign]
    case "task" | "worker":
        strategy.run_tasks = run_tasks
    case "session":
        SparkEngine.commit = before(SparkEngine.commit, kill_session)  # type: ignore[method-assign]
    case "written":
        SparkEngine.commit = before(SparkEngine.commit)  # type: ignore[method-assign]
    case "in_swap":
        gate.commit_with_requirements = before(gate.commit_with_requirements)  # type: ignore[assignment]
    case "swapped":
        gate.commit_with_requirements = after(gate.commit_with_requirements)  # type: ignore[assignment]
main()
