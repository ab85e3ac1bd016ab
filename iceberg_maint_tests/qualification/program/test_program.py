"""Random programs of all writers and all of maintenance: a short life in `make test`, one of 40 steps among the variants, and
as many as asked for by `make qualify SUITE=program`, which keeps every life on record and goes on where it was interrupted."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from iceberg_maint_tests.qualification.program.maintainer import Keeper
from iceberg_maint_tests.qualification.program.program import run_programs
from iceberg_maint_tests.qualification.program.random_runs import RECORD, Lives, tally

pytestmark = [pytest.mark.spark, pytest.mark.split]

SHORT_SEED, SHORT_STEPS = 4, 8
"""A life that has all that `DONE` names."""
ASKED = os.environ.get("ICEBERG_MAINT_TEST_STEPS")
STEPS = int(ASKED or "40")
ORDINARY_SEED = "3059"
"""A seed whose life of 40 steps has all that `DONE` and `HAZARDS` name."""
ASKED_SEED = os.environ.get("ICEBERG_MAINT_TEST_SEED")
SEED = int(ASKED_SEED or ORDINARY_SEED)

HALVES = 2 if ASKED else 1
"""Each takes an equal part of the steps, on a session of its own when there are two workers."""
LONG = [] if ASKED or ASKED_SEED else [pytest.mark.variant]
"""`make test` leaves the ordinary life to the variants. One that is asked for runs wherever it is named."""
DONE = {
    "batch columnar IMPROVED",
    "batch convert IMPROVED",
    "batch anti-join IMPROVED",
    "batch native IMPROVED",
    "rewrite_manifests IMPROVED",
    "expire_snapshots IMPROVED",
    "remove_orphan_files IMPROVED",
}
"""What every run sees happen."""
HAZARDS = {
    "registered beside a batch",
    "registered again after key",
    "write roll_back",
    "second catalog",
    "remove_orphan_files UNSUPPORTED",
}
"""What the life of the ordinary seed and every run of thousands of steps see as well: an equality delete between the
removal of files and their registration, beside a batch as well, a rollback, a table in a second catalog, and the orphan
pass refused there."""
SELDOM = {
    "batch sorted IMPROVED",
    "batch merge IMPROVED",
    "planted orphans swept",
    "refs expired",
    "registered again after position",
    "write put_back",
    "pointer restored",
    "delete by struct key",
    "head with struct keys compared",
    *HAZARDS,
}
"""What a run of thousands of steps sees as well."""


def tell(line: str) -> None:
    """Progress; of several workers only what they write here is seen, and by `-s` alone."""
    print(line, file=sys.stderr, flush=True)


def run(keeper: Keeper, steps: int, seed: int, record: Path | None = None) -> set[str]:
    """Names what the lives did that were counted; none of them may differ from its model."""
    lives = run_programs(keeper, steps, seed, tell, every=HALVES, lives=Lives(record))
    for line in tally(lives):
        tell(line)
    assert [life.seed for life in lives if life.why is not None] == []
    assert sum(life.steps for life in lives) >= steps
    return {name for life in lives for name, count in life.counts.items() if count}


def test_short_program_leaves_the_rows_of_its_model(keeper: Keeper) -> None:
    assert DONE - run(keeper, SHORT_STEPS, SHORT_SEED) == set()


@pytest.mark.long(260)
@pytest.mark.timeout(max(900, 3 * STEPS))
@pytest.mark.parametrize("half", [pytest.param(half, marks=LONG) for half in range(HALVES)])
def test_program_of_writers_and_maintenance_leaves_the_rows_of_its_model(keeper: Keeper, half: int) -> None:
    steps = -(-STEPS // HALVES)
    seen = run(keeper, steps, SEED + half, RECORD if ASKED else None)
    expected: set[str] = set()
    if ASKED:
        expected = DONE | SELDOM if steps >= 1000 else DONE
    elif str(SEED) == ORDINARY_SEED:
        expected = DONE | HAZARDS
    assert expected - seen == set()
