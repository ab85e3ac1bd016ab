"""CPU seconds of this process, its JVM and Spark's Python workers, read often: a walk by psutil costs too much."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import process_time
from typing import NamedTuple

WORKER_PARENT = b"iceberg_maint.engines.spark.rewrite.columnar.worker_process"
"""An argument of the parent of the workers of this process."""


class Used(NamedTuple):
    """CPU seconds of the driver's Python, of the JVM, and of Python workers, of this process and of Spark."""

    driver: float
    jvm: float
    workers: float


def used() -> Used:
    """Returns what this process, its JVM and the workers have used so far, dead workers included. Without /proc
    raises FileNotFoundError."""
    jvm = workers = 0.0
    for pid in _jvms():
        own, waited = _seconds(pid)
        jvm += own
        # Waited for by the JVM: daemons that ended. A daemon has waited for its workers.
        workers += waited + sum(map(_tree, _daemons(pid)))
    workers += sum(map(_tree, child_pids(WORKER_PARENT)))
    return Used(process_time(), jvm, workers)


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
_known: dict[int, list[int]] = {}


def _jvms() -> list[int]:
    return _once(os.getpid(), lambda pid: [c for c in _children(pid) if _name(c) == "java"])


def _daemons(jvm: int) -> list[int]:
    return _once(jvm, lambda pid: [c for c in _children(pid) if "python" in _name(c)])


def _once(pid: int, list_children: Callable[[int], list[int]]) -> list[int]:
    """The children that `list_children` finds. It has hundreds of threads to look at, so it is not called again while they live."""
    known = _known.get(pid, [])
    if not known or not all(Path(f"/proc/{child}").exists() for child in known):
        _known[pid] = known = list_children(pid)
    return known


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
