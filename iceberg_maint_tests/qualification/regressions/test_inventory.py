"""The inventory matches the tests and the product. `make qualify SUITE=regressions` runs the regressions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint_tests.qualification.mutants.lists import LISTS
from iceberg_maint_tests.qualification.mutants.mutant import PROJECT, fault_of, missing_tests_of
from iceberg_maint_tests.qualification.mutants.run import left_to_variants, unknown_cases
from iceberg_maint_tests.qualification.regressions.inventory import INVENTORY
from iceberg_maint_tests.qualification.regressions.page import page
from iceberg_maint_tests.qualification.regressions.regression import Regression

EVERY = [regression for found in INVENTORY.values() for regression in found]
MUTANTS = [m for mutants in LISTS.values() for m in mutants] + [replace(r.off, name=r.key) for r in EVERY]


def test_there_are_enough_and_each_has_its_own_name() -> None:
    assert len({r.key for r in EVERY}) == len(EVERY) >= 40


def faults_of(regression: Regression) -> list[str]:
    """The faults of an entry: its guard is not in the source, or one of its tests does not exist."""
    missing = [f"{regression.key}: no {test}" for test in missing_tests_of(regression.off)]
    fault = fault_of(regression.off)
    return [*missing, f"{regression.key}: {fault}"] if fault else missing


def test_every_guard_stands_in_the_source_and_its_tests_exist() -> None:
    assert [fault for regression in EVERY for fault in faults_of(regression)] == []


@pytest.mark.seconds  # it collects tests that import Spark
def test_make_test_runs_a_test_of_each_mutant_and_regression() -> None:
    assert left_to_variants(MUTANTS) == []


@pytest.mark.seconds
def test_every_case_that_a_mutant_or_regression_names_exists() -> None:
    assert unknown_cases(MUTANTS) == []


def test_page_is_what_the_inventory_says() -> None:
    text = (PROJECT / "docs" / "project" / "regressions.md").read_text("utf-8")
    assert text == page(), "run 'make reference'"
    assert len(text.split()) <= 3000
