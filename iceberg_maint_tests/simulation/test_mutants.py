"""The simulation must see every planted fault: what it does not see, it does not guard."""

from __future__ import annotations

import pytest

from iceberg_maint_tests.simulation.invariants import ViolationError
from iceberg_maint_tests.simulation.life import live
from iceberg_maint_tests.simulation.mutants import MUTANTS, Mutant

SEEDS = range(60)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_planted_fault_is_seen(mutant: Mutant, monkeypatch, capsys) -> None:
    mutant.plant(monkeypatch)
    for seed in SEEDS:
        try:
            live(seed)
        except ViolationError as seen:
            with capsys.disabled():
                print(f"\n{mutant.name}: seen in seed {seed}: {str(seen).splitlines()[0][:110]}", end="")
            return
    pytest.fail(f"'{mutant.rule}' is off and nobody sees it")
