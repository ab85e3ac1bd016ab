"""What counts as better, and which batch outcome an operation reports."""

from __future__ import annotations

import itertools

import pytest

from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import (
    BatchOutcome,
    OperationOutcome,
    OutcomeStatus,
    combine_outcomes,
    gained,
    operation_status,
)
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint_tests.support.core.values import data, delete, plan, policy_of, small, table_of

LARGE = 180


def batch_of(*sizes: int) -> Batch:
    files = [data(str(i), size) for i, size in enumerate(sizes)]
    deletes = [delete(f"d{i}", of=str(i), records=9) for i in range(len(sizes))]
    (batch,) = plan(table_of([*files, *deletes]), policy_of()).batches
    return batch


def ended(outcome: OutcomeStatus, reason: Reason = Reason.SMALL_FILES) -> BatchOutcome:
    return BatchOutcome("id", ("p=a",), outcome, reason, 1, 1, 1, 1, 0, 0.0, 1)


def test_gained_fewer_files() -> None:
    batch = plan(table_of(small(6)), policy_of()).batches[0]
    assert gained(batch, [60], 0, 0, LARGE)
    assert gained(batch, [10] * 5, 0, 0, LARGE)
    assert not gained(batch, [10] * 6, 0, 0, LARGE)


def test_gained_deletes_applied() -> None:
    batch = batch_of(100, 100)
    assert not gained(batch, [100, 100], 0, 0, LARGE)
    assert gained(batch, [90, 90], 1, 0, LARGE)
    assert gained(batch, [90, 90], 0, 1, LARGE)


def test_gained_large_file_split() -> None:
    batch = batch_of(500)
    assert gained(batch, [100] * 5, 0, 0, LARGE)
    assert not gained(batch, [500], 0, 0, LARGE)
    assert gained(batch, [LARGE] * 3, 0, 0, LARGE)
    assert not gained(batch, [LARGE + 1] * 3, 0, 0, LARGE)


def test_operation_without_batches_is_no_op_or_unsupported() -> None:
    assert operation_status((), unsupported=False) == (OutcomeStatus.NO_OP, None)
    assert operation_status((), unsupported=True) == (OutcomeStatus.UNSUPPORTED, Reason.UNSUPPORTED_KEY)


GRAVITY = (
    OutcomeStatus.UNKNOWN,
    OutcomeStatus.FAILED,
    OutcomeStatus.IMPROVED,
    OutcomeStatus.UNSUPPORTED,
    OutcomeStatus.DEFERRED,
    OutcomeStatus.NO_OP,
)


@pytest.mark.parametrize(("graver", "lighter"), list(itertools.combinations(GRAVITY, 2)))
def test_operation_reports_the_gravest_batch(graver: OutcomeStatus, lighter: OutcomeStatus) -> None:
    batches = (ended(lighter), ended(graver, Reason.CONFLICT), ended(graver, Reason.ERROR))
    assert operation_status(batches, unsupported=False) == (graver, Reason.CONFLICT)


def test_operation_with_something_unsupported_beside_work_that_gained_nothing() -> None:
    unsupported = (OutcomeStatus.UNSUPPORTED, Reason.UNSUPPORTED_KEY)
    assert operation_status((ended(OutcomeStatus.NO_OP),), unsupported=True) == unsupported
    assert operation_status((ended(OutcomeStatus.IMPROVED),), unsupported=True)[0] is OutcomeStatus.IMPROVED


def test_operation_of_an_unsupported_batch_is_unsupported() -> None:
    batches = (ended(OutcomeStatus.UNSUPPORTED, Reason.UNSUPPORTED_KEY),)
    assert operation_status(batches, unsupported=False) == (
        OutcomeStatus.UNSUPPORTED,
        Reason.UNSUPPORTED_KEY,
    )


def operation(
    outcome: OutcomeStatus, reason: Reason, *partitions: tuple[str, OutcomeStatus, Reason]
) -> OperationOutcome:
    return OperationOutcome("lake.db.t", "op", outcome, reason, 1, 2, (), partitions, reason.value)


def test_operations_together_have_the_gravest_outcome_and_all_partitions() -> None:
    healthy = ("p=a", OutcomeStatus.NO_OP, Reason.HEALTHY)
    left = ("p=a", OutcomeStatus.NO_OP, Reason.RUN_BUDGET)
    improved = ("p=b", OutcomeStatus.IMPROVED, Reason.SMALL_FILES)
    found = combine_outcomes(
        [
            operation(OutcomeStatus.NO_OP, Reason.HEALTHY, healthy),
            operation(OutcomeStatus.IMPROVED, Reason.SMALL_FILES, left, improved),
        ]
    )
    assert (found.outcome, found.reason) == (OutcomeStatus.IMPROVED, Reason.SMALL_FILES)
    assert found.partitions == (left, improved)
    assert found.message == "healthy; small_files"


def test_operations_together_prefer_what_is_left_to_what_another_operation_does() -> None:
    found = combine_outcomes(
        [
            operation(OutcomeStatus.NO_OP, Reason.OTHER_OPERATION),
            operation(OutcomeStatus.NO_OP, Reason.NO_GAIN),
        ]
    )
    assert found.reason is Reason.NO_GAIN


def test_no_operations_together_are_refused() -> None:
    with pytest.raises(ValueError, match="no outcomes to combine"):
        combine_outcomes([])
