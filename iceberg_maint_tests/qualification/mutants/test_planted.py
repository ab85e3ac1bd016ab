"""A planted mutant is the product, in this process and in the programs that a test starts."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from iceberg_maint.engines.spark.session.process_tree import WORKER_PARENT, child_pids
from iceberg_maint_tests.qualification.mutants.mutant import planted

pytestmark = pytest.mark.seconds

MODULE = "iceberg_maint.columnar.read.leaves"
PROGRAM = f"import {MODULE} as module; print(module.__dict__.get('MARK'))"


def mark_of_a_program() -> str:
    """What a new process finds in the module."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_program_that_a_test_starts_has_the_mutant() -> None:
    with planted({MODULE: "MARK = 7"}):
        inside = mark_of_a_program()
    assert (inside, mark_of_a_program()) == ("7", "None")


def test_parent_of_workers_ends_with_the_mutant_that_started_it() -> None:
    before = child_pids(WORKER_PARENT)
    with planted({}):
        importlib.import_module("iceberg_maint.engines.spark.rewrite.columnar.workers").PARENT.start()
        # A process has no command line for a moment.
        while not (started := set(child_pids(WORKER_PARENT)) - set(before)):
            pass
        assert len(started) == 1
    assert child_pids(WORKER_PARENT) == before
