"""Dagster's daemon with its code server and run workers, as a supervisor sees it: started, found, killed, started again."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import psutil

from iceberg_maint_tests.conftest import PROJECT
from iceberg_maint_tests.support.defs import quick_dagster

DEFINITIONS = "iceberg_maint_tests.qualification.daemon_kills.definitions"
_DEAF_SECONDS = 30
"""A daemon without code server for so long is started again, as a supervisor with a probe would."""
_PROBE_SECONDS = 2


class Victim(StrEnum):
    """What is killed."""

    DAEMON = "daemon"
    CODE_SERVER = "code server"
    WORKER = "run worker"
    JVM = "its JVM"
    ALL = "all of them"


@dataclass
class Daemon:
    """`dagster-daemon run` on an instance. Its processes are told by the DAGSTER_HOME they have; they
    may outlive the daemon that started them."""

    home: Path
    environ: dict[str, str]
    starts: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _heard: float = field(default_factory=time.monotonic)
    _probed: float = 0.0

    def start(self) -> None:
        """Starts a daemon, whatever is left of the one before."""
        command = [*quick_dagster.command("daemon"), "run", "-m", DEFINITIONS]
        environ = {**os.environ, **self.environ, "DAGSTER_HOME": str(self.home), "PYTHONPATH": str(PROJECT)}
        with (self.home / "daemon.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, env=environ, cwd=self.home, stdout=log, stderr=log, start_new_session=True
            )
        self.starts += 1
        self._heard = time.monotonic()

    def supervise(self) -> None:
        """Starts the daemon again where it is gone or deaf; looks every other second at most."""
        if time.monotonic() - self._probed < _PROBE_SECONDS:
            return
        self._probed = time.monotonic()
        if self._process is None or self._process.poll() is not None:
            self.start()
        elif self._found(Victim.CODE_SERVER):
            self._heard = time.monotonic()
        elif time.monotonic() - self._heard > _DEAF_SECONDS:
            self.kill(Victim.DAEMON)
            self.start()

    def kill(self, victim: Victim) -> int:
        """Kills all processes of the kind with SIGKILL; how many there were."""
        found = self._found(victim)
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        if self._process is not None and self._process.pid in {p.pid for p in found}:
            self._process.wait()
        return len(found)

    def suspend(self, *victims: Victim) -> list[psutil.Process]:
        """Stops all processes of these kinds with SIGSTOP; returns them."""
        found = [process for victim in victims for process in self._found(victim)]
        for process in found:
            process.suspend()
        return found

    def _found(self, victim: Victim) -> list[psutil.Process]:
        return [p for p, kind in self._processes() if victim in (kind, Victim.ALL)]

    def _processes(self) -> list[tuple[psutil.Process, Victim]]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                if process.environ().get("DAGSTER_HOME") == str(self.home) and process.pid != os.getpid():
                    found.append((process, _kind(process.cmdline())))
        return found


def _kind(command: list[str]) -> Victim:
    text = " ".join(command)
    if "java" in Path(command[0]).name:
        return Victim.JVM
    if "spawn_main" in text:
        return Victim.WORKER
    return Victim.CODE_SERVER if " api grpc" in text or "code-server" in text else Victim.DAEMON
