"""The crew: the processes of a run, and what the run accumulates."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from iceberg_maint_tests.qualification.chaos.journal import Attempt, Reader
from iceberg_maint_tests.qualification.chaos.lake import Place
from iceberg_maint_tests.support import jvm

WRITERS = ("appender", "upserter", "merger", "changer")
MAINTAINERS = ("first", "second")
KILLS = ("python", "jvm", "both")


@dataclass(slots=True)
class Member:
    """One of our processes; `lives` counts its starts."""

    name: str
    arguments: Sequence[str]
    said: Path
    process: subprocess.Popen[bytes]
    started: float
    lives: int = 1

    def processes(self) -> list[psutil.Process]:
        """Itself and its JVM, as far as they live."""
        with suppress(psutil.NoSuchProcess):
            own = psutil.Process(self.process.pid)
            return [own, *own.children(recursive=True)]
        return []


@dataclass(slots=True)
class Run:
    """What a run accumulates."""

    place: Place
    seed: int
    rng: random.Random
    members: dict[str, Member] = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    readers: dict[str, Reader] = field(default_factory=dict)
    checked: int = 0
    lost: int = 0
    back: int = 0
    missed: list[str] = field(default_factory=list)
    orphans: list[psutil.Process] = field(default_factory=list)
    cpu: dict[int, float] = field(default_factory=dict)

    def start(self, name: str, module: str, *arguments: str) -> Member:
        """A process of this package."""
        command = [sys.executable, "-m", f"iceberg_maint_tests.qualification.chaos.{module}", *arguments]
        lives = self.members[name].lives + 1 if name in self.members else 1
        with self.place.said(name).open("ab") as said:
            process = subprocess.Popen(
                command, stdout=said, stderr=said, env={**os.environ, **jvm.environment()}
            )
        member = Member(name, (module, *arguments), self.place.said(name), process, time.monotonic(), lives)
        self.members[name] = member
        return member

    def again(self, name: str) -> None:
        """Starts a member again that has ended."""
        module, *arguments = self.members[name].arguments
        self.start(name, module, *arguments)

    def attempts(self) -> dict[str, Attempt]:
        """Every foreign attempt up to now, by token."""
        found: dict[str, Attempt] = {}
        for role in WRITERS:
            reader = self.readers.setdefault(role, Reader(self.place.journal(role)))
            reader.read()
            found.update(reader.attempts)
        return found

    def count_cpu(self) -> None:
        """CPU seconds of every process there is; what one used since it was last looked at is not seen."""
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
            with suppress(psutil.Error):
                times = process.cpu_times()
                self.cpu[process.pid] = times.user + times.system

    def kill(self, name: str, how: str) -> None:
        """SIGKILL of a maintainer's Python, of its JVM, or of both."""
        own, *rest = self.members[name].processes()
        # Of a Python that is killed alone the JVM goes on for a moment: it may still commit.
        self.orphans += rest
        victims = {"python": [own], "jvm": rest, "both": [*rest, own]}[how]
        for victim in victims:
            with suppress(psutil.NoSuchProcess):
                victim.send_signal(signal.SIGKILL)
        self.kills[how] += 1
