"""A batch that runs out of memory teaches the next attempt at it."""

from __future__ import annotations

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.planning.batch_memory import DeclaredBytes, MemoryNeed, MemoryUse, preflight
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.ports.engine import MemoryExceededError
from iceberg_maint_tests.loop.test_conversion import captured_changes

MIB = 1024**2


def test_batch_that_ran_out_of_memory_is_estimated_higher_at_each_attempt() -> None:
    world = captured_changes()
    tried: list[float] = []

    def run_out(batch: Batch) -> None:
        if batch.operation != Operation.CONVERT_EQUALITY_DELETES:
            return
        assert batch.work.memory is not None
        tried.append(batch.work.memory.correction)
        use = MemoryUse(64 * MIB, 50 * MIB, 2, 1, batch.work.memory.correction, exceeded=True)
        raise MemoryExceededError("Spark ran out of memory", use)

    world.before_write = run_out
    for _ in range(2):
        found = world.run(operations=(Operation.CONVERT_EQUALITY_DELETES,))
        assert [(b.outcome, b.reason) for b in found.batches] == [(OutcomeStatus.FAILED, Reason.MEMORY)]
        assert found.batches[0].memory is not None
        assert found.batches[0].message.startswith("ICM-124 Spark ran out of memory")
        world.clock.ms += 3_600_000
    assert tried == [1.0, 2.0]
    (last, first) = world.ledger.records.memory_uses(world.now.state.uuid)
    assert (first.correction, last.correction, last.peak_bytes) == (1.0, 2.0, 50 * MIB)
    planned: list[Batch] = []
    world.before_write = planned.append
    assert world.run(operations=(Operation.CONVERT_EQUALITY_DELETES,)).outcome is OutcomeStatus.IMPROVED
    assert [b.work.memory.correction for b in planned if b.work.memory] == [4.0]


def test_higher_estimate_makes_smaller_tasks() -> None:
    def fit(correction: float) -> tuple[int, int]:
        need = MemoryNeed(5_000_000, 24, 1_000_000, correction)
        found = preflight(
            need, DeclaredBytes(memory_bytes=96 * MIB, scratch_bytes=None, slots=2, page_bytes=2 * MIB)
        )
        return found.partitions, found.passes

    one, two, eight = fit(1.0), fit(2.0), fit(8.0)
    assert one[0] * one[1] < two[0] * two[1] < eight[0] * eight[1]
