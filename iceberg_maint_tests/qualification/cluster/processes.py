"""Processes of this machine by Linux's /proc: who owns a port, by whom a process was started, and CPU times."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Process:
    """A process and its ancestors, the nearest first, each as process id and command line."""

    pid: int
    command: str
    ancestors: tuple[tuple[int, str], ...]

    def nearest(self, part: str) -> int | None:
        """The process id of the nearest process, itself included, whose command line contains `part`."""
        own = (self.pid, self.command)
        return next((pid for pid, command in (own, *self.ancestors) if part in command), None)


def owner_of_port(port: int) -> Process | None:
    """The process that has opened a TCP connection from this local port."""
    inodes = {
        fields[9]
        for table in ("tcp", "tcp6")
        for line in (_PROC / "net" / table).read_text().splitlines()[1:]
        if (fields := line.split()) and int(fields[1].rpartition(":")[2], 16) == port
    }
    links = {f"socket:[{inode}]" for inode in inodes if inode != "0"}
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and _has_link(entry / "fd", links):
            pid = int(entry.name)
            if pid != os.getpid():
                return Process(pid, command_of(pid), tuple(_ancestors(pid)))
    return None


def command_of(pid: int) -> str:
    """The command line, "" for a process that has ended."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _has_link(folder: Path, links: set[str]) -> bool:
    try:
        return any(str(f.readlink()) in links for f in folder.iterdir())
    except OSError:
        return False


def _ancestors(pid: int) -> list[tuple[int, str]]:
    ancestors = []
    while (pid := _parent(pid)) > 1:
        ancestors.append((pid, command_of(pid)))
    return ancestors


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def adopt_orphans() -> None:
    """Makes this process the parent of the programs whose parent ends, so that `cpu_seconds` counts them."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def cpu_seconds() -> float:
    """The CPU time of this process and of everything that it started, ended programs included."""
    ticks = 0
    for pid in (os.getpid(), *descendants(os.getpid())):
        # Fields 14 to 17 of proc(5): the times of the process and of its ended children.
        ticks += sum(map(int, _stat(pid)[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> list[int]:
    """The processes that this process started, and those that they started."""
    numbers = (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())
    parents = {number: _parent(number) for number in numbers}
    known = {pid}
    while more := {child for child, parent in parents.items() if parent in known} - known:
        known |= more
    return sorted(known - {pid})


def _stat(pid: int) -> list[str]:
    """The fields after the command, [] for a process that has ended."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
