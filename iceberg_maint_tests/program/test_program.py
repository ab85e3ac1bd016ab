"""Random programs of writers and maintenance: 300 steps here, as many as asked for by `make test-deep`."""

from __future__ import annotations

import os
import sys

import pytest

from iceberg_maint_tests.spark.equality.maintainer import Maintainer
from iceberg_maint_tests.spark.equality.program import run_programs

pytestmark = pytest.mark.spark

STEPS = int(os.environ.get("ICEBERG_MAINT_TEST_STEPS", "300"))
SEED = int(os.environ.get("ICEBERG_MAINT_TEST_SEED", "1"))


HALVES = 2
"""Each takes half the steps, on a session of its own when there are two workers."""


def tell(line: str) -> None:
    """Progress; of several workers only what they write here is seen, and by `-s` alone."""
    print(line, file=sys.stderr)


@pytest.mark.timeout(max(900, 3 * STEPS))
@pytest.mark.parametrize("half", range(HALVES))
def test_program_of_writers_and_maintenance_leaves_the_rows_of_its_model(
    maintainer: Maintainer, half: int
) -> None:
    steps = -(-STEPS // HALVES)
    tally = run_programs(maintainer, steps, SEED + half, tell, every=HALVES)
    tell(f"seeds from {SEED + half}, {tally.steps} steps, {len(tally.differences)} differences")
    for name, count in sorted(tally.counts.items()):
        tell(f"  {count:6} {name}")
    assert [d.seed for d in tally.differences] == []
    assert tally.steps >= steps
    done = {name for name, count in tally.counts.items() if count}
    assert {f"batch {strategy} IMPROVED" for strategy in ("convert", "anti-join", "native")} <= done
