"""The lists of `support/scheduling.py` name modules and folders that exist."""

from __future__ import annotations

from pathlib import Path

from iceberg_maint_tests.support.scheduling import LONG, PROCESSES, SLOW, SPLIT, is_slow

PROJECT = Path(__file__).resolve().parent.parent


def test_scheduling_every_path_exists() -> None:
    assert [path for path in (*PROCESSES, *SPLIT, *LONG, *SLOW) if not (PROJECT / path).exists()] == []


def test_scheduling_slow_folder_makes_its_tests_slow() -> None:
    assert is_slow("iceberg_maint_tests/simulation/test_lives.py::test_same_seed_is_the_same_life")
    assert not is_slow("iceberg_maint_tests/core/commits/test_gate.py::test_gate")
