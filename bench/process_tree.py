"""CPU seconds of this process, its JVM and Spark's Python workers, read often: a walk by psutil costs too much."""

from __future__ import annotations

import os
from pathlib import Path
from time import process_time
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")


class Used(NamedTuple):
    """CPU seconds of the driver's Python, of the JVM, and of Spark's Python workers."""

    driver: float
    jvm: float
    workers: float

    def since(self, before: Used) -> Used:
        """Returns what was used after `before`."""
        return Used(*(now - then for now, then in zip(self, before, strict=True)))

    def plus(self, other: Used) -> Used:
        """Returns the sum of both."""
        return Used(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def total(self) -> float:
        """Returns the seconds of all processes."""
        return sum(self)


NOTHING = Used(0.0, 0.0, 0.0)


def used() -> Used:
    """Returns what this process, its JVM and the workers have used so far, dead workers included. Other children
    count as driver. Without /proc raises FileNotFoundError."""
    jvm = workers = others = 0.0
    for child in _children(os.getpid()):
        if _name(child) != "java":
            others += _tree(child)
            continue
        jvm += _seconds(child)[0]
        # Waited for by the JVM: its launcher's helpers, and daemons that ended.
        workers += _seconds(child)[1] + sum(map(_tree, _children(child)))
    return Used(process_time() + others, jvm, workers)


def _tree(pid: int) -> float:
    return sum(_seconds(pid)) + sum(map(_tree, _children(pid)))


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    except (FileNotFoundError, ProcessLookupError):
        pass
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
    user, system, waited_user, waited_system = map(int, fields[11:15])
    return (user + system) / _TICKS, (waited_user + waited_system) / _TICKS
