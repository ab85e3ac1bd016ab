"""Housekeeping under a catalog that lies, and by processes that are stopped past their lease: what is told is what
is so, nothing in use goes, and all is in order within two more runs.

One case of each kind here; all of them by `make qualify SUITE=sim`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.model.ids import ALL_OPERATIONS, HOUSEKEEPING_OPERATIONS, Operation
from iceberg_maint.core.outcomes.outcome import SUCCESSFUL, OutcomeStatus
from iceberg_maint_tests.qualification.simulation.faults import LANDS, LANDS_LATER, Answer, At
from iceberg_maint_tests.qualification.simulation.sim_table import SimTable
from iceberg_maint_tests.qualification.simulation.test_lives import ENOUGH, STEPS
from iceberg_maint_tests.qualification.simulation.test_lying_catalog import LIES
from iceberg_maint_tests.qualification.simulation.world import NAMES, World, calm

pytestmark = pytest.mark.slow

TABLE = NAMES[0]
HOUR_MS = 3_600_000
EXPIRE, REGROUP = Operation.EXPIRE_SNAPSHOTS, Operation.REWRITE_MANIFESTS
ANSWERS = LIES if STEPS >= ENOUGH else LIES[:1]
CALLS = ("start_attempt", "load", "holds", "record_try", "swap", "read back", "finish_attempt")
STORE_CALLS = ("list", "reach", "create", "move", "delete")
SEEDS = range(5 if STEPS >= ENOUGH else 1)
STOPS = [(call, op) for op in (EXPIRE, REGROUP) for call in CALLS]
STOPS += [(call, Operation.REMOVE_ORPHAN_FILES) for call in STORE_CALLS]
STOPS = STOPS if STEPS >= ENOUGH else STOPS[-2:]


def aged(world: World) -> SimTable:
    """A table with old snapshots, many manifests, and orphans of which some are in the trash for long."""
    (table,) = world.lake.tables.values()
    for _ in range(8):
        world.lake.append(table, "p=b", 1)
    for _ in range(2):
        world.lake.new_file(table, "p=a", [world.lake.new_key()], 0)
        world.pass_time(26 * HOUR_MS)
        if not world.lake.disk.origin:
            world.start(TABLE, operations=(Operation.REMOVE_ORPHAN_FILES,))
            world.run_until_idle()
            world.pass_time(26 * HOUR_MS)
    return table


def check_in_order(world: World, table: SimTable, rows: list[int]) -> None:
    for _ in range(2):
        world.pass_time(26 * HOUR_MS)
        world.start(TABLE, operations=ALL_OPERATIONS)
        world.run_until_idle()
    assert world.ledger.work.open_attempts(table.uuid) == ()
    assert [b for o in ALL_OPERATIONS for b in world.ledger.work.open_batches(table.uuid, o)] == []
    assert table.rows() == rows
    assert table.reach() <= set(world.lake.disk.files)


@pytest.mark.parametrize("operation", [EXPIRE, REGROUP])
@pytest.mark.parametrize("answer", ANSWERS, ids=lambda a: a.name)
def test_catalog_that_lies_about_housekeeping_is_found_out(answer: Answer, operation: Operation) -> None:
    faults = calm()
    with World(0, faults).alive() as world:
        table = aged(world)
        rows, before = table.rows(), table.state
        faults.answer_script = [answer]
        world.late_ms = 5_000
        process = world.start(TABLE, operations=(operation,))
        world.run_until_idle()
        (told,) = (b for o in process.outcomes for b in o.batches)
        changed = table.state != before
        if answer in LANDS_LATER:
            assert told.outcome is OutcomeStatus.UNKNOWN
        elif told.outcome in SUCCESSFUL:
            assert changed
        else:
            assert changed == (answer in LANDS)
        world.pass_time(60_000)
        check_in_order(world, table, rows)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("call", "operation"), STOPS)
def test_housekeeping_stopped_past_its_lease_does_no_harm(call: str, operation: Operation, seed: int) -> None:
    faults = calm()
    with World(seed, faults).alive() as world:
        table = aged(world)
        rows = table.rows()
        if call == "delete":
            # Else the trash waits for an expiry.
            left_to_others = replace(world.policy.expire_snapshots, enabled=False)
            world.policy = replace(world.policy, expire_snapshots=left_to_others)
        faults.script = [(call, At.STOP)]
        zombie = world.start(TABLE, operations=(operation,))
        world.run_until_idle()
        assert zombie.stopped
        if seed > 2:
            world.lake.append(table, "p=c", 1)
            rows = table.rows()
        world.pass_time(60_000 if seed % 2 else 30 * HOUR_MS)
        world.start(TABLE, operations=HOUSEKEEPING_OPERATIONS if seed != 1 else ALL_OPERATIONS)
        if seed == 4:
            world.step_until(lambda: "acquire" in world.last_line())
        else:
            world.run_until_idle()
        zombie.stopped = False
        world.run_until_idle()
        assert zombie.ended
        check_in_order(world, table, rows)
