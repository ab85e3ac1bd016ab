"""A test that does not end says where it stood."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).resolve().parent.parent

CONFTEST = """
from pathlib import Path
from iceberg_maint_tests.support import hangs

FOLDER = Path(__file__).parent / "hangs"

def pytest_timeout_set_timer(item, settings):
    return hangs.set_timer(item, settings, FOLDER)

def pytest_terminal_summary(terminalreporter):
    hangs.report(terminalreporter, 0, FOLDER)
"""

HANGS = """
import signal, subprocess, sys, time, types

JVM = "import signal, time; signal.signal(signal.SIGQUIT, lambda *_: print('Full thread dump', flush=True)); " \\
      "print('ready', file=sys.stderr, flush=True); time.sleep(60)"

def waits_for_ever():
    time.sleep(60)

def test_hangs():
    process = subprocess.Popen([sys.executable, "-c", "import sys; " + JVM], stderr=subprocess.PIPE)
    process.stderr.readline()
    pyspark = types.ModuleType("pyspark")
    pyspark.SparkContext = types.SimpleNamespace(_gateway=types.SimpleNamespace(proc=process))
    sys.modules["pyspark"] = pyspark
    waits_for_ever()
"""


def test_hanging_test_of_a_worker_leaves_its_stacks_and_those_of_its_jvm(tmp_path: Path) -> None:
    """A process that answers SIGQUIT as a JVM does stands for it."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_hangs.py").write_text(HANGS)
    plugins = ["-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:hypothesispytest"]
    timeout = ["--timeout", "2", "--timeout-method", "thread", "--max-worker-restart", "0"]
    folder = ["--rootdir", str(tmp_path), str(tmp_path)]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "1", "-q", *plugins, *timeout, *folder],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "test_hangs.py::test_hangs did not end" in result.stdout, result.stdout
    assert "in waits_for_ever" in result.stdout
    assert "Full thread dump" in result.stdout
