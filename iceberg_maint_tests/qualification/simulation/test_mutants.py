"""The simulation must see every planted fault: what it does not see, it does not guard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import pytest

from iceberg_maint_tests.qualification.simulation import test_found, test_lying_catalog
from iceberg_maint_tests.qualification.simulation.faults import Answer
from iceberg_maint_tests.qualification.simulation.hazard_mutants import HAZARD_MUTANTS
from iceberg_maint_tests.qualification.simulation.life import live
from iceberg_maint_tests.qualification.simulation.memo_mutants import MEMO_MUTANTS
from iceberg_maint_tests.qualification.simulation.mutants import MUTANTS, Mutant
from iceberg_maint_tests.qualification.simulation.storage_mutants import STORAGE_MUTANTS
from iceberg_maint_tests.qualification.simulation.tables import small_files
from iceberg_maint_tests.qualification.simulation.violations import ViolationError

pytestmark = [pytest.mark.slow, pytest.mark.drawn(3)]

SEEDS = range(100)
SCENARIOS = [scenario for name, scenario in vars(test_found).items() if name.startswith("test_")]
SCENARIOS.append(partial(test_lying_catalog.test_catalog_that_lies_is_found_out, Answer.OK_LIE, small_files))


@pytest.mark.parametrize("mutant", MUTANTS + MEMO_MUTANTS, ids=lambda m: m.name)
def test_planted_fault_is_seen(mutant: Mutant, monkeypatch, capsys) -> None:
    mutant.plant(monkeypatch)
    known = [mutant.seed] if mutant.seed is not None else []
    seen = _by_life(known) or _by_scenario() or _by_life(SEEDS)
    assert seen, f"'{mutant.rule}' is off and nobody sees it"
    with capsys.disabled():
        print(f"\n| {mutant.rule} | {mutant.name} | {seen} |", end="")


@pytest.mark.parametrize(
    ("mutant", "scenario"), STORAGE_MUTANTS + HAZARD_MUTANTS, ids=lambda m: getattr(m, "name", "")
)
def test_fault_planted_in_adoption_housekeeping_or_beside_a_hazard_is_seen(
    mutant, scenario, monkeypatch, capsys
) -> None:
    mutant.plant(monkeypatch)
    seen = _by_scenario([scenario])
    assert seen, f"'{mutant.rule}' is off and {_name(scenario)} does not see it"
    with capsys.disabled():
        print(f"\n| {mutant.rule} | {mutant.name} | {seen} |", end="")


def _by_scenario(scenarios: Sequence[Callable[[], None]] = SCENARIOS) -> str:
    for scenario in scenarios:
        try:
            scenario()
        except ViolationError as violation:
            return f"{_invariant(violation)}, {_name(scenario)}"
        except (AssertionError, pytest.fail.Exception):
            return _name(scenario)
    return ""


def _by_life(seeds: Iterable[int]) -> str:
    for seed in seeds:
        try:
            live(seed)
        except ViolationError as violation:
            return f"{_invariant(violation)}, seed {seed}"
    return ""


def _name(scenario: Callable[[], None]) -> str:
    return getattr(scenario, "__name__", "a catalog that says ok")


def _invariant(violation: ViolationError) -> str:
    return str(violation).split(":")[0]
