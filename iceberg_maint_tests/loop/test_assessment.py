"""One assessment for the operations that find nothing to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.model.ids import ALL_OPERATIONS, Operation
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.policy.data import Mode
from iceberg_maint.loop import assess as assess_module
from iceberg_maint.loop.assess import Assessment, assess
from iceberg_maint_tests.support.loop.housekeeping import HousekeepingWorld
from iceberg_maint_tests.support.loop.world import Killed, Process, World


@pytest.fixture
def assessed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Operation, ...]]:
    """The operations of each assessment that `maintain` makes."""
    calls: list[tuple[Operation, ...]] = []

    def note(table: object, context: object, operations: tuple[Operation, ...], **rest: object) -> Assessment:
        calls.append(tuple(operations))
        return assess(table, context, operations, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(assess_module, "assess", note)
    return calls


DATA = ALL_OPERATIONS[:3]
HOUSEKEEPING = ALL_OPERATIONS[3:]


@pytest.mark.parametrize(("make", "operations"), [(World, DATA), (HousekeepingWorld, HOUSEKEEPING)])
def test_operations_that_find_nothing_share_one_assessment(
    make: type[World], operations: tuple[Operation, ...], assessed: list[tuple[Operation, ...]]
) -> None:
    world = make()
    while world.run(operations=operations).batches:
        pass
    assessed.clear()
    world.run(operations=operations)
    assert assessed == [operations]


def test_data_and_housekeeping_are_assessed_apart(assessed: list[tuple[Operation, ...]]) -> None:
    """A clock or a store that only housekeeping reads must not stop the work on data."""
    world = World()
    world.policy = replace(world.policy, mode=Mode.ADVISE)
    world.run(operations=ALL_OPERATIONS)
    assert assessed == [DATA, HOUSEKEEPING]


def test_operation_after_work_is_assessed_again(assessed: list[tuple[Operation, ...]]) -> None:
    world = World()
    outcome = world.run(operations=DATA)
    assert outcome.outcome is OutcomeStatus.IMPROVED
    assert DATA[1] is Operation.REWRITE_DATA_FILES
    assert assessed == [DATA, (DATA[1],), DATA]


def test_work_left_open_is_settled_although_the_table_has_become_healthy() -> None:
    world = World("a")
    with pytest.raises(Killed):
        world.run(Process(dies="after:swap"), operations=DATA)
    world.expire_leases()
    outcome = world.run(operations=DATA)
    assert outcome.outcome is OutcomeStatus.NO_OP
    assert world.open_work() == (0, 0)
