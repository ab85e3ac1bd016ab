"""CPU seconds of this process, its JVM and its Python workers, read often: a walk by psutil costs too much."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from time import process_time
from typing import NamedTuple

WORKER_PARENT = b"iceberg_maint.engines.spark.rewrite.columnar.worker_process"
"""An argument of the parent of the workers of this process."""


class Used(NamedTuple):
    """CPU seconds of the driver's Python, of the JVM, and of this process's workers."""

    driver: float
    jvm: float
    workers: float


def used() -> Used:
    """Returns what this process, its JVM and the workers have used so far, dead workers included."""
    # A JVM waits for the commands that Hadoop runs, such as chmod on a local disk.
    jvm = sum(map(sum, map(_seconds, _jvms())))
    return Used(process_time(), jvm, sum(map(_tree, child_pids(WORKER_PARENT))))


def child_pids(argument: bytes) -> list[int]:
    """The children of this process that were started with this argument. Without /proc, none."""
    found = []
    for pid in _children(os.getpid()):
        with suppress(FileNotFoundError, ProcessLookupError):
            if argument in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def tree_cpu_seconds() -> float | None:
    """Returns the CPU seconds of `used`, all processes together. None where the system has no /proc."""
    return sum(used()) if _HAS_PROC else None


_HAS_PROC = Path("/proc/self/stat").exists()
_known: list[int] = []


def _jvms() -> list[int]:
    """The JVMs of this process. They are not searched for again while they live."""
    if not _known or not all(Path(f"/proc/{pid}").exists() for pid in _known):
        _known[:] = [pid for pid in _children(os.getpid()) if _name(pid) == "java"]
    return _known


def _tree(pid: int) -> float:
    return sum(_seconds(pid)) + sum(map(_tree, _children(pid)))


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
    except (FileNotFoundError, ProcessLookupError):
        return found
    for task in tasks:
        # A thread may end before it is read. A JVM has hundreds: a path object and a decoder would cost three times as much.
        with (
            suppress(FileNotFoundError, ProcessLookupError),
            open(f"/proc/{pid}/task/{task}/children", "rb", buffering=0) as children,  # noqa: PTH123
        ):
            found += map(int, children.read().split())
    return found


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _seconds(pid: int) -> tuple[float, float]:
    """CPU seconds of a process, and of the children that it has waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0, 0.0
    ticks = os.sysconf("SC_CLK_TCK")
    user, system, waited_user, waited_system = map(int, fields[11:15])
    return (user + system) / ticks, (waited_user + waited_system) / ticks
