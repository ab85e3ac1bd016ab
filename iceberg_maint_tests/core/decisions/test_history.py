"""Histories of several operations as one."""

from __future__ import annotations

import pytest

from iceberg_maint.core.decisions.history import PartitionHistory, TableHistory, combine_histories


def test_joint_history_of_one_is_that_one() -> None:
    one = TableHistory(paused=True, hour_bytes=3)
    assert combine_histories([one]) is one


def test_joint_history_of_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="unpack"):
        combine_histories([])


def test_joint_history_adds_work_and_shows_what_holds_either_back() -> None:
    first = TableHistory(
        hour_partitions=1,
        hour_bytes=10,
        unknown_commits=1,
        partitions={
            "p=a": PartitionHistory(ineffective=1, not_before_ms=50, reason="late"),
            "p=b": PartitionHistory(crashes=2, quarantined=True, reason="crashed"),
        },
    )
    second = TableHistory(
        paused=True,
        paused_reason="migration",
        lease_owner="run-7",
        hour_partitions=2,
        hour_bytes=5,
        partitions={
            "p=a": PartitionHistory(ineffective=3, not_before_ms=20, reason="early"),
            "p=b": PartitionHistory(crashes=1, not_before_ms=90, reason="waits"),
            "p=c": PartitionHistory(ineffective=1),
        },
    )
    assert combine_histories([first, second]) == TableHistory(
        paused=True,
        paused_reason="migration",
        lease_owner="run-7",
        unknown_commits=1,
        hour_partitions=3,
        hour_bytes=15,
        partitions={
            "p=a": PartitionHistory(ineffective=3, not_before_ms=50, reason="late"),
            "p=b": PartitionHistory(crashes=2, not_before_ms=90, quarantined=True, reason="crashed"),
            "p=c": PartitionHistory(ineffective=1),
        },
    )
