"""The prediction of a rewrite: parts of the fleet, the factor of the table, bytes without deleted rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.planning.batch_trials import (
    BatchPrediction,
    BatchSize,
    CommitTrial,
    batch_cost,
    predict_batch,
)
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint_tests.support.core.values import plan, policy_of, small, table_of

POLICY = policy_of()
BATCH = plan(table_of(small(6)), POLICY).batches[0]
MIB = 1024 * 1024


def trial(cpu: float, *, strategy: str | None = None, landed: bool = True, mib: int = 0) -> CommitTrial:
    """A batch of the files of `BATCH`, in a warm session, that took twice the CPU seconds in time."""
    cost = replace(batch_cost(BATCH, 10**6, cpu), strategy=strategy or BATCH.strategy.value)
    size = BatchSize(BATCH.input_files, BATCH.input_bytes + mib * MIB, 1)
    return CommitTrial("r", size, landed, 2 * cpu, BATCH.input_bytes // 2, cost)


def predicted(own: list[CommitTrial], fleet: list[CommitTrial], batch: Batch = BATCH) -> BatchPrediction:
    prediction = predict_batch(batch, POLICY.rewrite_data_files, own, 10**6, fleet)
    assert prediction is not None
    return prediction


def test_first_batch_of_a_table_costs_what_batches_of_the_fleet_cost() -> None:
    prediction = predicted([], [trial(4.0)] * 5)
    assert (prediction.cpu_seconds, prediction.seconds) == pytest.approx((4.0, 8.0))
    assert prediction.learned_from == 5


def test_batches_of_the_table_correct_those_of_the_fleet_by_a_factor() -> None:
    assert predicted([trial(6.0)] * 3, [trial(2.0)] * 9).cpu_seconds == pytest.approx(6.0)


def test_batches_of_another_strategy_or_lost_ones_teach_nothing() -> None:
    assumed = predicted([], [])
    other = [trial(50.0, strategy="anti-join"), trial(50.0, landed=False)]
    assert predicted(other, other) == assumed
    assert assumed.learned_from == 0


def test_table_teaches_its_parts_without_batches_of_the_fleet() -> None:
    assert predicted([trial(3.0)] * 4, []).cpu_seconds == pytest.approx(3.0)


def test_bytes_are_those_of_the_table_alone() -> None:
    assert predicted([trial(1.0)], [trial(1.0)] * 9).output_bytes == BATCH.input_bytes // 2
    assert predicted([], [trial(1.0)] * 9).output_bytes == BATCH.input_bytes
