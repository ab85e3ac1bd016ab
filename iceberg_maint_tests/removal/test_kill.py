"""Passes killed at each step: nothing live is lost, the next pass does the rest, the records tell it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint_tests.support.forked import CONTEXT
from iceberg_maint_tests.support.removal.killed_pass import HALF, POINTS, run
from iceberg_maint_tests.support.removal.layouts import DAY_MS, LAYOUTS, ORPHANS, ShiftedStore
from iceberg_maint_tests.support.removal.passes import OPERATION, Passes

pytestmark = [pytest.mark.slow, pytest.mark.drawn(3)]

ALL = ORPHANS + 1
AFTER_HOLD_MS = 4 * DAY_MS


# Point → files in the trash after the kill, and whether it is a sweep that is killed.
STATES = {
    "listed": 0,
    "manifest_written": 0,
    "half_moved": HALF,
    "moved": ALL,
    "half_swept": ALL - HALF,
    "swept": 0,
}


@pytest.mark.parametrize("point", POINTS)
def test_killed_pass_is_resumed_with_the_right_state(point: str, tmp_path: Path) -> None:
    lake = LAYOUTS[0].build(tmp_path)
    passes = Passes(lake)
    sweeps = point.endswith("swept")
    if sweeps:
        passes.run()
    ahead_ms = AFTER_HOLD_MS if sweeps else 0
    killed = CONTEXT.Process(target=run, args=(str(lake.folder), point, ahead_ms))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert lake.trashed() == STATES[point]
    assert lake.lost() == []

    passes.expire_leases()
    passes.store = ShiftedStore(ahead_ms + DAY_MS)  # past the back-off of a process that died
    next_run = passes.run()
    assert (lake.lost(), lake.remaining()) == ([], [])
    assert lake.trashed() == (0 if sweeps else ALL)
    [batch] = next_run.batches
    left = 0 if point in ("moved", "swept") else 1
    assert batch.outcome is (OutcomeStatus.IMPROVED if left else OutcomeStatus.NO_OP)

    uuid = lake.catalog.pin(lake.target().state.table).uuid
    assert passes.ledger.work.open_attempts(uuid) == ()
    assert passes.ledger.work.open_batches(uuid, OPERATION) == ()
    records = passes.ledger.records.newest(None, 10)
    told = [r for r in records if "without a record" in r.outcome.message]
    assert [r.outcome.outcome for r in told] == [OutcomeStatus.FAILED]
    passes.store = ShiftedStore(ahead_ms + 2 * AFTER_HOLD_MS)
    passes.run(force=True)
    assert (lake.lost(), lake.trashed()) == ([], 0)
