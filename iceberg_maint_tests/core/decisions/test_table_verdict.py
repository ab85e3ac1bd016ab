"""The verdict on a table, from the histories of its operations."""

from __future__ import annotations

import pytest

from iceberg_maint.core.decisions.history import PartitionHistory, faults_of
from iceberg_maint.core.decisions.table_decision import Standing, TableVerdict, verdict_on
from iceberg_maint.core.model.ids import READING, WHOLE_TABLE, Operation, PartitionKey
from iceberg_maint.core.model.reasons import Reason

REWRITE, ORPHANS = Operation.REWRITE_DATA_FILES, Operation.REMOVE_ORPHAN_FILES
DAY = PartitionKey("day=1")
LOST = PartitionHistory(ineffective=1, not_before_ms=9, reason="ICM-101 file a does not exist.")


def verdict_of(*histories: tuple[str, PartitionHistory]) -> TableVerdict:
    """The verdict on a measured table with these histories by operation."""
    return verdict_on(True, faults_of({operation: {DAY: history} for operation, history in histories}))


def test_table_without_stored_health_is_not_read() -> None:
    assert verdict_on(False, ()).standing is Standing.NOT_READ


@pytest.mark.parametrize(
    "history",
    [
        PartitionHistory(),
        PartitionHistory(ineffective=4, not_before_ms=9, reason=Reason.CONFLICT.value),
        PartitionHistory(ineffective=2, not_before_ms=9, reason=Reason.NO_GAIN.value),
        PartitionHistory(crashes=1, not_before_ms=9, reason="an attempt started and has not reported back"),
    ],
    ids=["none", "lost races", "no gain", "one crash"],
)
def test_history_without_a_failure_is_measured(history: PartitionHistory) -> None:
    assert verdict_of((REWRITE, history)) == TableVerdict(Standing.MEASURED)


@pytest.mark.parametrize(
    ("operation", "reason", "standing"),
    [
        (REWRITE, "ICM-101 file a does not exist.", Standing.FAILED),
        (REWRITE, "Job aborted", Standing.FAILED),
        (REWRITE, "ICM-119 the key is a float.", Standing.REFUSED),
        (ORPHANS, "ICM-111 another owner.", Standing.REFUSED),
        (READING, "ICM-101 manifest m is missing.", Standing.REFUSED),
    ],
)
def test_standing_follows_from_the_operation_and_the_code(
    operation: str, reason: str, standing: Standing
) -> None:
    verdict = verdict_of((operation, PartitionHistory(ineffective=1, not_before_ms=9, reason=reason)))
    code = reason[:7] if reason.startswith("ICM") else None
    assert (verdict.standing, verdict.code, verdict.until_ms) == (standing, code, 9)


def test_failure_in_quarantine_waits_for_a_person() -> None:
    held = PartitionHistory(ineffective=4, not_before_ms=9, quarantined=True, reason=LOST.reason)
    verdict = verdict_of((REWRITE, held))
    assert (verdict.is_quarantined, verdict.until_ms) == (True, None)


def test_table_that_cannot_be_read_outranks_failures_and_these_outrank_refusals() -> None:
    refused = PartitionHistory(ineffective=1, reason="ICM-111 another owner.")
    verdict = verdict_of((ORPHANS, refused), (REWRITE, LOST), (READING, LOST))
    assert [f.operation for f in verdict.faults] == [READING, REWRITE, ORPHANS]


def test_faults_name_operation_and_partition() -> None:
    [fault] = faults_of({READING: {}, REWRITE: {DAY: LOST, WHOLE_TABLE: PartitionHistory()}})
    assert (fault.operation, fault.partition, fault.history) == (REWRITE, DAY, LOST)
