"""A catalog that answers a swap in every wrong way, against every kind of commit: what is told is what is in the
table, one effect, and all is in order within two more runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from iceberg_maint.core.outcomes.outcome import SUCCESSFUL, BatchOutcome, OutcomeStatus
from iceberg_maint_tests.qualification.simulation.faults import LANDS, LANDS_LATER, Answer
from iceberg_maint_tests.qualification.simulation.lake import Lake
from iceberg_maint_tests.qualification.simulation.life import Life
from iceberg_maint_tests.qualification.simulation.sim_table import SimTable
from iceberg_maint_tests.qualification.simulation.tables import WORK
from iceberg_maint_tests.qualification.simulation.world import NAMES, World, calm

pytestmark = [pytest.mark.slow, pytest.mark.drawn(8)]

TABLE = NAMES[0]
LIES = tuple(a for a in Answer if a is not Answer.OK)


@pytest.mark.parametrize("work", WORK, ids=lambda w: w.__name__)
@pytest.mark.parametrize("answer", LIES, ids=lambda a: a.name)
def test_catalog_that_lies_is_found_out(answer: Answer, work: Callable[[Lake, SimTable], None]) -> None:
    faults = calm()
    faults.answer_script = [answer]
    with World(0, faults, tables=0).alive() as world:
        table = world.lake.create(TABLE)
        work(world.lake, table)
        world.late_ms = 5_000
        rows = table.rows()
        first = world.start(TABLE)
        world.run_until_idle()
        (told,) = _of(first.outcomes)
        in_table = {one.batch_id for one in table.landed}
        committed = told.outcome in SUCCESSFUL
        if answer is Answer.CONFLICT:
            # The second try of the same run wins.
            assert committed
        elif answer in LANDS_LATER:
            assert told.outcome is OutcomeStatus.UNKNOWN
        else:
            assert (told.batch_id in in_table) == (answer in LANDS)
        if committed:
            assert told.batch_id in in_table
        world.pass_time(60_000)
        Life(world).end_of(table)
        assert table.rows()[: len(rows)] == rows
        effects = [one.batch_id for one in table.landed if one.operation == WORK[work]]
        assert len(effects) == len(set(effects))


def _of(outcomes) -> list[BatchOutcome]:
    return [b for o in outcomes for b in o.batches]
