"""Back-off and quarantine: doubling, capped, crashes apart from ineffective work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from iceberg_maint.core.decisions.history import PartitionHistory, TableHistory
from iceberg_maint.core.decisions.waits import (
    automation_waits,
    backs_off,
    environment_failed,
    failed,
    runs_isolated,
    succeeded,
    undone,
    write_ahead,
)
from iceberg_maint.core.policy.runs import RetryPolicy
from iceberg_maint_tests.support.core.values import NOW_MS

POLICY = RetryPolicy(
    backoff_seconds=100,
    backoff_max_seconds=350,
    quarantine_after=4,
    quarantine_after_crashes=3,
)
CLEAN = PartitionHistory()


def wait_seconds(history: PartitionHistory) -> float:
    assert history.not_before_ms is not None
    return (history.not_before_ms - NOW_MS) / 1000


@pytest.mark.parametrize(
    ("before", "wait", "quarantined"), [(0, 100, False), (1, 200, False), (2, 350, False), (3, 350, True)]
)
def test_failed_doubles_to_the_cap_then_quarantines(before: int, wait: int, quarantined: bool) -> None:
    found = failed(PartitionHistory(ineffective=before), POLICY, NOW_MS, "no_effect")
    assert (found.ineffective, wait_seconds(found), found.quarantined) == (before + 1, wait, quarantined)
    assert found.reason == "no_effect"


@pytest.mark.parametrize("reason", ["conflict", "stale"])
def test_lost_races_lengthen_the_wait_and_never_quarantine(reason: str) -> None:
    found = failed(PartitionHistory(ineffective=9, reason=reason), POLICY, NOW_MS, reason)
    assert (found.ineffective, wait_seconds(found), found.quarantined) == (10, 350, False)


def test_failure_after_lost_races_is_the_first_one() -> None:
    found = failed(PartitionHistory(ineffective=9, reason="conflict"), POLICY, NOW_MS, "disk full")
    assert (found.ineffective, wait_seconds(found), found.quarantined) == (1, 100, False)


@pytest.mark.parametrize(
    ("before", "wait", "quarantined"), [(0, 0, False), (1, 20, False), (2, 40, True), (9, 350, True)]
)
def test_write_ahead_waits_from_the_second_crash_on(before: int, wait: int, quarantined: bool) -> None:
    found = write_ahead(PartitionHistory(crashes=before), POLICY, NOW_MS)
    assert (found.crashes, wait_seconds(found), found.quarantined) == (before + 1, wait, quarantined)


def test_failure_of_the_environment_waits_a_short_time_and_never_quarantines() -> None:
    found, waits = PartitionHistory(ineffective=1), []
    for _ in range(6):
        found = environment_failed(found, replace(POLICY, backoff_max_seconds=86_400), NOW_MS, "ICM-176 full")
        waits.append(wait_seconds(found))
    assert waits == [100, 200, 400, 800, 1600, 2400]
    assert (found.ineffective, found.environment_failures, found.quarantined) == (1, 6, False)
    assert (backs_off(found, NOW_MS), automation_waits(found, NOW_MS)) == (False, True)
    assert not automation_waits(found, NOW_MS + 2_400_000)
    assert not automation_waits(found, NOW_MS - 1)  # dated by a clock that was ahead
    lost = PartitionHistory(ineffective=9, reason="conflict")
    assert environment_failed(lost, POLICY, NOW_MS, "ICM-176 full").ineffective == 0


@pytest.mark.parametrize(
    "after",
    [
        lambda h: write_ahead(h, POLICY, NOW_MS),
        lambda h: failed(h, POLICY, NOW_MS, "x"),
    ],
)
def test_other_end_of_an_attempt_ends_the_row_of_failures_of_the_environment(
    after: Callable[[PartitionHistory], PartitionHistory],
) -> None:
    assert after(PartitionHistory(crashes=1, environment_failures=3)).environment_failures == 0


def test_crashes_and_ineffective_work_are_counted_apart() -> None:
    past = PartitionHistory(ineffective=2, crashes=1)
    assert write_ahead(past, POLICY, NOW_MS).ineffective == 2
    assert failed(past, POLICY, NOW_MS, "x").crashes == 1


def test_quarantine_stays_until_success_or_release() -> None:
    held = PartitionHistory(crashes=3, quarantined=True)
    assert failed(held, POLICY, NOW_MS, "x").quarantined
    assert write_ahead(held, POLICY, NOW_MS).quarantined
    assert succeeded() == CLEAN


def test_success_clears_and_undone_restores() -> None:
    past = PartitionHistory(ineffective=2, not_before_ms=5)
    assert succeeded() == CLEAN
    assert undone(past) == past


def test_huge_counts_do_not_overflow_the_wait() -> None:
    policy = RetryPolicy(backoff_seconds=1, backoff_max_seconds=10**9)
    assert wait_seconds(failed(PartitionHistory(ineffective=10_000), policy, NOW_MS, "x")) == 10**9


def test_history_of_unknown_partition_is_clean() -> None:
    assert TableHistory().of("p=a") == CLEAN
    held = PartitionHistory(quarantined=True)
    assert TableHistory(partitions={"p=a": held}).of("p=a") is held


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        (CLEAN, False),
        (PartitionHistory(ineffective=1, reason="OSError: disk full"), True),
        # Lost commits and work without gain say nothing of the files.
        (PartitionHistory(ineffective=3, reason="conflict"), False),
        (PartitionHistory(ineffective=3, reason="stale"), False),
        (PartitionHistory(ineffective=3, reason="no_gain"), False),
        # The first crash is resumed with its files.
        (PartitionHistory(crashes=1, reason="an attempt started and has not reported back"), False),
        (PartitionHistory(crashes=2, reason="an attempt started and has not reported back"), True),
    ],
)
def test_partition_works_alone_after_its_work_failed(history: PartitionHistory, expected: bool) -> None:
    assert runs_isolated(history) is expected
