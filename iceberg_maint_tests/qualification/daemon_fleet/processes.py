"""`dagster dev` over the shards of a fleet: its web server, daemon, code servers and run workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from iceberg_maint_tests.support.servers.programs import free_port

_LOCKED = "database is locked"


class Dagster:
    """`dagster dev` with a DAGSTER_HOME that has a workspace file."""

    def __init__(self, home: Path, environ: dict[str, str], postgres: Path | None) -> None:
        self._home, self._log, self._postgres = home, home / "dagster.log", postgres
        command = [str(Path(sys.executable).parent / "dagster"), "dev", "-w", str(home / "workspace.yaml")]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "-h", "127.0.0.1", "-p", str(free_port())],
                env={**os.environ, **environ, "DAGSTER_HOME": str(home)},
                cwd=home,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def cpu_seconds(self) -> float:
        """CPU of all its processes, of those that ended and were waited for, and of PostgreSQL."""
        total = 0.0
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if self._is_ours(process):
                    total += sum(process.cpu_times()[:4])
        return total

    def _is_ours(self, process: psutil.Process) -> bool:
        if process.pid == os.getpid():
            return False
        if self._postgres is not None and "postgres" in process.name():
            return str(self._postgres) in " ".join(
                (process.parent() or process).cmdline() + process.cmdline()
            )
        return process.environ().get("DAGSTER_HOME") == str(self._home)

    def faults(self) -> list[str]:
        """Whether a process of it met a locked database."""
        text = self._log.read_text("utf-8", "replace")
        count = text.count(_LOCKED)
        return [f"'{_LOCKED}' {count} times in {self._log}"] if count else []

    def last_lines(self) -> str:
        """The end of its output."""
        return self._log.read_text("utf-8", "replace")[-3000:]

    def stop(self) -> None:
        """Ends its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.pid != os.getpid() and process.environ().get("DAGSTER_HOME") == str(self._home):
                    process.kill()
