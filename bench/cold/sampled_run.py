"""One command as a user starts it: its wall time, and the CPU and memory of all its processes.

`getrusage` and `wait4` miss Spark's Python workers, which are children of a daemon that the JVM does not wait for. Here /proc is
read ten times a second, and this process adopts what its children leave (PR_SET_CHILD_SUBREAPER).
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_SAMPLE_SECONDS = 0.1
_SAMPLES_PER_MEMORY = 5
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cost:
    """`peak_mb` is the sum of the proportional set sizes of all processes at the worst of two samples a second."""

    wall_seconds: float
    cpu_seconds: float
    peak_mb: float


def run_sampled(command: Sequence[str], environ: Mapping[str, str], log: Path) -> Cost:
    """Runs a command to its end, also that of the processes it leaves. Raises CalledProcessError with its log if it fails."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    sampler = _Sampler()
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=dict(environ), stdout=output, stderr=output)
        with sampler:
            code = process.wait()
            wall = time.monotonic() - began
            _reap(20)
    if code:
        raise subprocess.CalledProcessError(code, command, log.read_text("utf-8", "replace")[-3000:])
    return Cost(round(wall, 2), round(sampler.cpu_seconds(), 2), round(sampler.peak_kb / 1024))


def _reap(seconds: float) -> None:
    """Waits for adopted processes."""
    end = time.monotonic() + seconds
    with suppress(ChildProcessError):
        while time.monotonic() < end:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.05)


class _Sampler:
    """Samples the descendants of this process while it is entered."""

    def __init__(self) -> None:
        self.peak_kb = 0
        self._ticks: dict[tuple[int, str], int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def cpu_seconds(self) -> float:
        return sum(self._ticks.values()) / _TICKS

    def _watch(self) -> None:
        number = 0
        while not self._ended.wait(_SAMPLE_SECONDS):
            pids = self._sample()
            number += 1
            if number % _SAMPLES_PER_MEMORY == 0:
                self.peak_kb = max(self.peak_kb, sum(map(_pss_kb, pids)))

    def _sample(self) -> list[int]:
        children: dict[int, list[int]] = {}
        found: dict[int, tuple[str, int]] = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                fields = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                pid = int(entry.name)
                children.setdefault(int(fields[1]), []).append(pid)
                found[pid] = fields[19], int(fields[11]) + int(fields[12])
        pids, queue = [], list(children.get(os.getpid(), ()))
        while queue:
            pid = queue.pop()
            pids.append(pid)
            queue += children.get(pid, ())
            started, ticks = found[pid]
            self._ticks[pid, started] = ticks
        return pids


def _pss_kb(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0
