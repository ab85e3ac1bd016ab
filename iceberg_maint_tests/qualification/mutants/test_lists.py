"""The hand-written mutants are of the product as it is; `make qualify SUITE=mutants` runs them."""

from __future__ import annotations

import pytest

from iceberg_maint_tests.qualification.mutants.lists import LISTS
from iceberg_maint_tests.qualification.mutants.mutant import fault_of, missing_tests_of

pytestmark = pytest.mark.seconds


def test_every_mutant_changes_what_stands_in_the_source_once() -> None:
    faults = [
        (name, number, fault)
        for name, mutants in LISTS.items()
        for number, mutant in enumerate(mutants)
        if (fault := fault_of(mutant))
    ]
    assert faults == []


def test_names_are_distinguished_and_there_are_enough() -> None:
    for mutants in LISTS.values():
        assert len({m.name for m in mutants}) == len(mutants) >= 25


def test_tests_of_a_mutant_exist() -> None:
    assert [test for mutants in LISTS.values() for m in mutants for test in missing_tests_of(m)] == []
