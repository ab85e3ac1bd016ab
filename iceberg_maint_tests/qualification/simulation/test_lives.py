"""Lives of random worlds: every step is followed by all invariants, and no life may end with work left open.

`ICEBERG_MAINT_SIMULATION_STEPS` sets how many steps (5,000), `ICEBERG_MAINT_SIMULATION_SEED` the first seed.
"""

from __future__ import annotations

import os
import time
from collections import Counter

import pytest

from iceberg_maint_tests.qualification.simulation.faults import Answer, At
from iceberg_maint_tests.qualification.simulation.life import live
from iceberg_maint_tests.support.damaged_memo import WAYS

pytestmark = pytest.mark.slow

STEPS = int(os.environ.get("ICEBERG_MAINT_SIMULATION_STEPS", "5000"))
SEED = int(os.environ.get("ICEBERG_MAINT_SIMULATION_SEED", "0"))
ENOUGH = 100_000
"""Steps in which everything that may happen should have."""


def test_no_invariant_is_broken_in_any_life(capsys) -> None:
    started = time.process_time()
    steps, lives, found = 0, 0, Counter[str]()
    while steps < STEPS:
        lived = live(SEED + lives)
        steps, lives, found = steps + lived.steps, lives + 1, found + lived.found
    seconds = time.process_time() - started
    with capsys.disabled():
        print(f"\n{steps:,} steps in {lives} lives (seeds {SEED} to {SEED + lives - 1}), {seconds:.0f} CPU s")
        for what, times in sorted(found.items()):
            print(f"  {times:7,} {what}")
    if steps < ENOUGH:
        return
    # What never happened has not been tested.
    seen = {what for what, times in found.items() if times}
    assert {str(a) for a in At} <= seen
    assert {str(a) for a in Answer} <= seen
    assert {"settled DONE", "settled FAILED", "settled UNKNOWN", "late swap won", "late swap lost"} <= seen
    assert {"adopted", "expiries", "orphans moved", "orphans deleted"} <= seen
    assert {"files registered again", "files put back", "deletes taken back", "second catalogs"} <= seen
    assert {"pointers restored", "clocks that jumped", "checkpoints", "gate: identity"} <= seen
    assert {f"memo damaged: {way}" for way in WAYS} <= seen
    assert found["manifests read"] < found["manifests listed"] / 2, "the memo is used"


@pytest.mark.variant
def test_same_seed_is_the_same_life() -> None:
    assert live(7).digest == live(7).digest
