"""Processes of this machine by Linux's /proc: who owns a port, and by whom a process was started."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


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
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])
