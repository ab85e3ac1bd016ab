"""CPU seconds of a process's children, found by the threads that started them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from iceberg_maint.engines.spark.session.process_tree import _children, _seconds, _tree, tree_cpu_seconds

pytestmark = pytest.mark.skipif(tree_cpu_seconds() is None, reason="the system has no /proc")

BUSY = "import time\nwhile time.process_time() < 0.3: pass\nprint('used', flush=True)\ntime.sleep(60)"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    """A process that another thread has started, which has used 0.3 CPU seconds."""
    started: list[subprocess.Popen[str]] = []

    def start() -> None:
        command = [sys.executable, "-c", BUSY]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        ended.wait(60)

    ended = threading.Event()
    thread = threading.Thread(target=start)
    thread.start()
    while not started:
        time.sleep(0.01)
    [process] = started
    assert process.stdout is not None
    assert process.stdout.readline() == "used\n"
    yield process
    process.kill()
    process.communicate()
    ended.set()
    thread.join()


def test_child_of_another_thread_is_found_and_counted(child: subprocess.Popen[str]) -> None:
    assert child.pid in _children(os.getpid())
    assert sum(_seconds(child.pid)) >= 0.29
    own = sum(_seconds(os.getpid()))
    # The clock of processes has steps of 10 ms.
    assert _tree(os.getpid()) - own >= 0.28


def test_thread_that_ends_during_the_look_hides_no_child_of_others(
    child: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = os.listdir(f"/proc/{os.getpid()}/task")  # noqa: PTH208
    monkeypatch.setattr(os, "listdir", lambda _: ["4194305", *threads])
    assert child.pid in _children(os.getpid())


def test_process_that_ended_has_no_children_and_no_seconds(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.wait()
    assert (_children(child.pid), _seconds(child.pid)) == ([], (0.0, 0.0))
