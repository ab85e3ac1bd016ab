"""What a test that does not end was doing: the stacks of its threads, and of the threads of its JVM, in a file.

pytest-timeout writes the stacks of Python to the output of its process. That of a worker of pytest-xdist nobody reads.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_timeout

FOLDER = Path(__file__).resolve().parents[2] / ".cache" / "tests" / "hangs"
JVM_SECONDS = 5.0
"""How long a JVM may take to write its stacks."""


def set_timer(item: Any, settings: Any, folder: Path = FOLDER) -> bool:
    """The timer of pytest-timeout, which writes the file before it ends the process."""

    def end() -> None:
        with suppress(Exception):  # the process must end
            if not pytest_timeout.is_debugging():
                write(item.nodeid, folder)
        pytest_timeout.timeout_timer(item, settings)

    timer = threading.Timer(settings.timeout, end)
    timer.name = f"timeout {item.nodeid}"

    def cancel() -> None:
        timer.cancel()
        timer.join()

    item.cancel_timeout = cancel
    timer.start()
    return True


def write(nodeid: str, folder: Path) -> Path:
    """The file of this process."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{os.getpid()}.txt"
    with path.open("w") as file:
        file.write(f"{nodeid} did not end\n\n")
        file.flush()
        faulthandler.dump_traceback(file, all_threads=True)
        process = _jvm()
        if process is not None:
            file.write(f"\nJVM {process.pid}\n{_stacks_of_jvm(process.pid)}")
    return path


def report(terminal: pytest.TerminalReporter, since: float, folder: Path = FOLDER) -> None:
    """Shows the files written since that time."""
    for path in sorted(folder.glob("*.txt")):
        if path.stat().st_mtime >= since:
            terminal.write_sep("=", f"stacks at a timeout: {path}")
            terminal.write_line(path.read_text(errors="replace"))


def _jvm() -> subprocess.Popen[bytes] | None:
    """The JVM of this process's Spark, if there is one. Asks nothing of it: it may be the one that does not answer."""
    pyspark = sys.modules.get("pyspark")
    gateway = pyspark.SparkContext._gateway if pyspark else None
    process: subprocess.Popen[bytes] | None = gateway and gateway.proc
    return process


def _stacks_of_jvm(pid: int) -> str:
    """A JVM writes the stacks of its threads to its output on SIGQUIT. This is a file of pytest's capture, deleted but open."""
    output = Path(f"/proc/{pid}/fd/1")
    begin = output.stat().st_size if output.is_file() else None
    os.kill(pid, signal.SIGQUIT)
    if begin is None:
        return "its stacks are in its output\n"
    end, deadline = begin, time.monotonic() + JVM_SECONDS
    while time.monotonic() < deadline:
        time.sleep(0.5)
        size = output.stat().st_size
        if begin < end == size:
            break
        end = size
    with output.open("rb") as file:
        file.seek(begin)
        return file.read().decode(errors="replace")
