"""The lists of `support/scheduling.py` name modules and folders that exist."""

from __future__ import annotations

from pathlib import Path

from iceberg_maint_tests.support.scheduling import LONG, PROCESSES, SLOW, SPLIT, is_slow, order_of

PROJECT = Path(__file__).resolve().parent.parent


def test_scheduling_every_path_exists() -> None:
    assert [path for path in (*PROCESSES, *SPLIT, *LONG, *SLOW) if not (PROJECT / path).exists()] == []


def test_scheduling_slow_folder_makes_its_tests_slow() -> None:
    assert is_slow("iceberg_maint_tests/simulation/test_lives.py::test_same_seed_is_the_same_life")
    assert not is_slow("iceberg_maint_tests/core/commits/test_gate.py::test_gate")


def test_scheduling_long_modules_come_first_and_short_ones_last() -> None:
    of_processes = order_of(f"{PROCESSES[-1]}::test", spark=True)
    of_long = order_of(f"{LONG[-1]}::test", spark=True)
    of_spark = order_of("iceberg_maint_tests/spark/test_engine.py::test", spark=True)
    of_sweep = order_of("iceberg_maint_tests/simulation/test_lives.py::test", spark=False)
    of_unit = order_of("iceberg_maint_tests/core/commits/test_gate.py::test", spark=False)

    assert of_processes == 0 < of_long < of_spark < of_sweep < of_unit
