"""Fifty processes that are stopped on their way to a commit, past the end of their lease, and go on after another
has taken it: refused, or committed as the same proved batch and recognised; never two effects."""

from __future__ import annotations

import pytest

from iceberg_maint_tests.qualification.simulation.faults import At
from iceberg_maint_tests.qualification.simulation.life import Life
from iceberg_maint_tests.qualification.simulation.world import NAMES, World, calm

pytestmark = [pytest.mark.slow, pytest.mark.drawn(6)]

TABLE = NAMES[0]
STEPS = (
    "start_attempt",
    "write",
    "record_intent",
    "load",
    "holds",
    "record_try",
    "swap",
    "read back",
    "finish_attempt",
    "append",
)
"""Calls before which the process is stopped."""


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("step", STEPS)
def test_process_stopped_past_its_lease_does_nothing_twice(step: str, seed: int) -> None:
    faults = calm()
    faults.script = [(step, At.STOP)]
    faults.spares = seed % 2 if step != "append" else 0
    with World(seed, faults).alive() as world:
        (table,) = world.lake.tables.values()
        zombie = world.start(TABLE)
        world.run_until_idle()
        assert zombie.stopped
        if seed > 2:
            world.lake.write(table)
        world.pass_time(60_000)
        other = world.start(TABLE, settles=seed == 1)
        if seed == 4:
            # It comes back while the other is at work.
            world.step_until(lambda: "acquire" in world.last_line())
        else:
            world.run_until_idle()
            assert other.ended
        zombie.stopped = False
        world.run_until_idle()
        assert zombie.ended
        Life(world).end_of(table)
        effects = [one.batch_id for one in table.landed]
        assert len(effects) == len(set(effects))
