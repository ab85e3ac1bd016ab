"""Workers of this machine: what they return and raise, and that none is left."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from iceberg_maint.engines.spark.rewrite.columnar.workers import PARENT, WorkerLostError, run_calls

MEMORY = 1 << 30


def nothing() -> None:
    """No check."""


def named(name: str, number: int) -> str:
    return f"{os.getpid()} {name}{number}"


def is_gone(pid: str) -> bool:
    """Whether the process ends within half a minute."""
    before = time.monotonic()
    while (Path("/proc") / pid).exists() and time.monotonic() - before < 30:
        time.sleep(0.01)
    return not (Path("/proc") / pid).exists()


def test_results_have_the_order_of_the_calls_and_a_job_uses_the_workers_of_the_last_one() -> None:
    jobs = [run_calls(named, [("a", 1), ("b", 2), ("c", 3)], 2, 0, nothing) for _ in range(2)]
    assert [[text.split()[1] for text in found] for found in jobs] == [["a1", "b2", "c3"]] * 2
    pids = [{text.split()[0] for text in found} for found in jobs]
    assert (len(pids[0]), pids[1]) == (2, pids[0])
    PARENT.stop()
    assert all(map(is_gone, pids[0]))


def test_idle_worker_that_ended_is_replaced() -> None:
    [first] = run_calls(named, [("a", 1)], 1, 0, nothing)
    os.kill(int(first.split()[0]), signal.SIGKILL)
    assert is_gone(first.split()[0])
    [second] = run_calls(named, [("a", 1)], 1, 0, nothing)
    assert second.split()[0] != first.split()[0]


def test_worker_maps_memory_only_above_the_highest_threshold_of_the_manual() -> None:
    """The manual of mallopt allows at most this M_MMAP_THRESHOLD on 64 bits. A lower one maps large buffers anew."""
    [threshold] = run_calls(os.getenv, [("MALLOC_MMAP_THRESHOLD_",)], 1, 0, nothing)
    assert int(threshold) == 4 * 1024 * 1024 * ctypes.sizeof(ctypes.c_long)


def test_thread_of_a_worker_shares_the_memory_that_the_process_has() -> None:
    """By default glibc reserves 64 MiB of address space for the memory of a thread."""

    def call() -> str:
        import threading

        def size_kib() -> int:
            lines = Path("/proc/self/status").read_text().splitlines()
            return int(next(line.split()[1] for line in lines if line.startswith("VmSize")))

        sizes = [size_kib()]
        kept = list[bytes]()
        thread = threading.Thread(target=lambda: (kept.append(bytes(100_000)), sizes.append(size_kib())))
        thread.start()
        thread.join()
        return str(sizes[1] - sizes[0])

    [more_kib] = run_calls(call, [()], 1, 0, nothing)
    assert int(more_kib) < 32 * 1024


def test_idle_worker_returns_the_memory_of_its_last_call() -> None:
    def call() -> str:
        import pyarrow as pa

        memoryview(pa.allocate_buffer(MEMORY // 2)).cast("B")[::4096] = bytes(MEMORY // 2 // 4096)
        return str(os.getpid())

    [pid] = run_calls(call, [()], 1, 0, nothing)
    statm, before = Path("/proc") / pid / "statm", time.monotonic()
    while int(statm.read_text().split()[1]) * 4096 > MEMORY // 4 and time.monotonic() - before < 30:
        time.sleep(0.01)
    assert int(statm.read_text().split()[1]) * 4096 < MEMORY // 4


def test_worker_that_converts_values_loads_no_pandas() -> None:
    def loads(value: int) -> str:
        import pyarrow as pa

        pa.array([value])
        return str("pandas" in sys.modules)

    assert run_calls(loads, [(1,)], 1, 0, nothing) == ["False"]


def test_no_calls_start_no_worker() -> None:
    assert run_calls(named, [], 2, 0, nothing) == []


def test_error_of_a_call_is_raised_and_the_other_worker_ends(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    def call(fails: bool) -> str:
        if not fails:
            pid.write_text(str(os.getpid()))
            time.sleep(60)
        while not pid.exists():
            time.sleep(0.01)
        raise FileNotFoundError(2, "no such file", "here")

    with pytest.raises(FileNotFoundError) as failed:
        run_calls(call, [(False,), (True,)], 2, 0, nothing)
    assert failed.value.filename == "here"
    assert is_gone(pid.read_text())


def test_error_that_cannot_be_sent_is_a_runtime_error_of_its_text() -> None:
    class Unsendable(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(f"{one} and {two}")

    def call() -> str:
        raise Unsendable(1, 2)

    with pytest.raises(RuntimeError, match=r"^Unsendable: 1 and 2$"):
        run_calls(call, [()], 1, 0, nothing)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (signal.SIGKILL, "a worker process was killed in a task"),
        (signal.SIGSEGV, "a worker process has ended in a task by itself (signal 11)"),
    ],
)
def test_worker_that_is_lost_says_whether_the_system_has_killed_it(
    number: signal.Signals, message: str
) -> None:
    def call() -> str:
        os.kill(os.getpid(), number)
        return ""

    with pytest.raises(WorkerLostError) as lost:
        run_calls(call, [()], 1, 0, nothing)
    assert str(lost.value) == message
    assert run_calls(named, [("a", 1)], 1, 0, nothing)


def test_lost_connection_of_a_call_is_its_own_error() -> None:
    def call() -> str:
        raise ConnectionResetError("by the store")

    with pytest.raises(ConnectionResetError, match="by the store"):
        run_calls(call, [()], 1, 0, nothing)


def test_limit_of_memory_is_that_of_the_call() -> None:
    def call() -> str:
        return f"{os.getpid()} {resource.getrlimit(resource.RLIMIT_AS)[0]}"

    pids, limits = zip(*(run_calls(call, [()], 1, n, nothing)[0].split() for n in (MEMORY, 0)), strict=True)
    assert (len(set(pids)), limits) == (1, (str(MEMORY), str(resource.getrlimit(resource.RLIMIT_AS)[0])))


@pytest.mark.variant
def test_worker_gets_no_more_memory_than_it_may_have() -> None:
    def call() -> str:
        return str(len(bytearray(2 * MEMORY)))

    with pytest.raises(MemoryError):
        run_calls(call, [()], 1, MEMORY, nothing)
    assert run_calls(call, [()], 1, 0, nothing) == [str(2 * MEMORY)]


def test_workers_end_with_a_process_that_is_killed(tmp_path: Path) -> None:
    program = f"""
import os, time
from pathlib import Path
from iceberg_maint.engines.spark.rewrite.columnar.workers import run_calls
pid = Path({str(tmp_path / "pid")!r})
def call():
    pid.write_text(f"{{os.getpid()}} {{os.getppid()}}")
    time.sleep(60)
def check():
    if pid.exists() and pid.read_text():
        os.kill(os.getpid(), 9)
run_calls(call, [()], 1, 0, check)
"""
    ended = subprocess.run([sys.executable, "-c", program], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert all(map(is_gone, (tmp_path / "pid").read_text().split()))
