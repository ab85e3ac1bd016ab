"""Orphan scans by clocks that disagree: nothing is set aside and no trash is swept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint_tests.support.loop.world import SetClock
from iceberg_maint_tests.support.removal.layouts import DAY_MS, LAYOUTS, ORPHANS, ShiftedStore
from iceberg_maint_tests.support.removal.passes import DAILY, Passes

pytestmark = pytest.mark.seconds

ALL = ORPHANS + 1
HOLD_MS = DAILY.delete_after_seconds * 1000 + 60_000
REFUSED = (OutcomeStatus.UNSUPPORTED, Reason.CLOCK_SKEW)


@pytest.fixture
def passes(tmp_path: Path) -> Passes:
    return Passes(LAYOUTS[0].build(tmp_path))


def test_machine_and_store_a_month_ahead_of_the_ledger_set_nothing_aside(passes: Passes) -> None:
    right = SetClock(ShiftedStore().local_now_ms())
    ahead = replace(passes, store=ShiftedStore(30 * DAY_MS), ledger_clock=right)
    outcome = ahead.run(force=True)
    assert (outcome.outcome, outcome.reason, outcome.batches) == (*REFUSED, ())
    assert outcome.message.startswith("ICM-115 lake.db.t: the clocks of this machine and of the ledger are ")
    assert (passes.lake.lost(), passes.lake.trashed()) == ([], 0)
    assert passes.run().outcome is OutcomeStatus.IMPROVED


def test_machine_and_store_ahead_of_the_ledger_sweep_no_trash(passes: Passes) -> None:
    passes.run()
    right = SetClock(ShiftedStore().local_now_ms())
    outcome = replace(passes, store=ShiftedStore(HOLD_MS), ledger_clock=right).run(force=True)
    assert (outcome.outcome, outcome.reason) == REFUSED
    assert passes.lake.trashed() == ALL


def test_clock_set_while_files_are_moved_stops_the_pass(passes: Passes) -> None:
    class Jumping(ShiftedStore):
        moved = 0

        def move(self, source: str, target: str) -> None:
            super().move(source, target)
            self.moved += 1
            if self.moved == 3:
                self.ahead_ms = 30 * DAY_MS

    right = SetClock(ShiftedStore().local_now_ms())
    outcome = replace(passes, store=Jumping(), ledger_clock=right).run()
    assert (outcome.outcome, outcome.reason) == REFUSED
    assert outcome.batches[0].counts["trashed_files"] == 3
    assert (passes.lake.lost(), passes.lake.trashed()) == ([], 3)
