"""Which manifests of Flink jobs are pending, and since when a Kafka Connect group has written unread state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from iceberg_maint.core.model.table_state import Ref, TableState
from iceberg_maint.core.removal.pending_manifests import PendingManifests
from iceberg_maint_tests.support.core.snapshots import snapshot
from iceberg_maint_tests.support.core.values import table_of

JOB, OPERATOR = "fd72014d4c864993a2e5a9287b4a9c5d", "cbc357ccb763df2852fee8c4fc7d55f2"
OFFSETS = "kafka.connect.offsets.control-iceberg.connect-sink"


def flink(checkpoint: int | str, job: str = JOB) -> dict[str, str]:
    return {
        "flink.job-id": job,
        "flink.operator-id": OPERATOR,
        "flink.max-committed-checkpoint-id": str(checkpoint),
    }


def state_of(*summaries: dict[str, str], refs: dict[str, int] | None = None, **changes: Any) -> TableState:
    """One snapshot for each summary, numbered from 1, each the parent of the next."""
    snapshots = tuple(
        replace(snapshot(n, 0), timestamp_ms=1_000 * n, parent_id=n - 1 or None, summary=summary)
        for n, summary in enumerate(summaries, 1)
    )
    heads = {"main": len(snapshots)} if refs is None else refs
    return replace(
        table_of([]).state,
        snapshots=snapshots,
        snapshot=snapshots[-1] if snapshots else None,
        refs=tuple(Ref(name, "branch", head) for name, head in heads.items()),
        **changes,
    )


def name_of(checkpoint: int, job: str = JOB, operator: str = OPERATOR, suffix: str = "") -> str:
    return f"{job}-{operator}-00000-0-{checkpoint}-00001{suffix}.avro"


@pytest.mark.parametrize(
    ("name", "is_manifest", "full"),
    [
        (name_of(17), True, True),
        (name_of(17, suffix="-2f0c"), True, True),
        (name_of(17, job="my-job", operator="sink op"), True, True),
        (name_of(-1), True, True),
        (f"{JOB}-state.avro", True, False),
        ("job-7-state.avro", True, False),
        (f"{JOB}-op.parquet", False, False),
        ("0a0a0a0a-0000-4000-8000-000000000000-m0.avro", False, False),
        ("snap-17-1-0a0a0a0a-0000-4000-8000-000000000000.avro", False, False),
        ("optimized-m-0a0a0a0a-0000-4000-8000-000000000000.avro", False, False),
        ("00000-12-00000000-0000-4000-8000-000000000000-17-00001.avro", False, False),
        ("stage-3-task-12-manifest-0a0a0a0a-0000-4000-8000-000000000000.avro", False, False),
    ],
)
def test_name_identifies_a_manifest_of_a_flink_job(name: str, *, is_manifest: bool, full: bool) -> None:
    pending = PendingManifests(state_of(flink(1, job="job-7")))
    assert (pending.is_manifest(name), pending.has_full_name(name)) == (is_manifest, full)


def test_table_without_flink_jobs_has_no_manifest_by_the_empty_job() -> None:
    assert not PendingManifests(state_of({})).is_manifest("0a0a0a0a-m0.avro")


@pytest.mark.parametrize(("checkpoint", "kept"), [(16, False), (17, False), (18, True)])
def test_manifest_up_to_the_committed_checkpoint_is_not_pending(checkpoint: int, *, kept: bool) -> None:
    assert PendingManifests(state_of(flink(17), {})).keeps(name_of(checkpoint), 0) is kept


@pytest.mark.parametrize(
    "name",
    [
        name_of(3, job="0" * 32),
        name_of(3, operator="0" * 32),
        name_of(3, suffix="-2f0c"),
        f"{JOB}-{OPERATOR}-3.avro",
    ],
)
def test_manifest_of_another_writer_or_of_the_dynamic_sink_is_pending_whatever_was_committed(
    name: str,
) -> None:
    assert PendingManifests(state_of(flink(17))).keeps(name, 0)


def test_newest_position_of_the_writer_counts() -> None:
    # A table that was rolled forward from an older state: the job finds the newest first.
    assert PendingManifests(state_of(flink(17), flink(5))).keeps(name_of(6), 0)


def test_manifest_that_a_branch_has_not_committed_is_pending() -> None:
    both = state_of(flink(5), flink(17), refs={"main": 2, "audit": 1})
    assert PendingManifests(both).keeps(name_of(6), 0)
    assert not PendingManifests(both).keeps(name_of(5), 0)


def test_manifest_committed_by_a_snapshot_that_was_rolled_back_is_pending() -> None:
    rolled_back = state_of(flink(5), flink(17), refs={"main": 1})
    rolled_back = replace(rolled_back, snapshot=rolled_back.snapshots[0])
    assert PendingManifests(rolled_back).keeps(name_of(6), 0)


def test_summary_that_is_no_number_commits_nothing() -> None:
    assert PendingManifests(state_of(flink("seventeen"))).keeps(name_of(1), 0)


@pytest.mark.parametrize(
    ("before_ms", "modified_ms", "kept"),
    [(None, 0, True), (1_000, 999, False), (1_000, 1_000, True), (1_000, None, True)],
)
def test_manifest_older_than_the_age_is_abandoned(
    before_ms: int | None, modified_ms: int | None, *, kept: bool
) -> None:
    assert PendingManifests(state_of({}), before_ms).keeps(name_of(1), modified_ms) is kept


def test_folders_are_those_that_the_sink_writes_to() -> None:
    properties = {"flink.manifests.location": "s3://b/flink/", "write.metadata.path": "s3://b/m"}
    state = state_of({}, metadata_location="s3://b/t/metadata/1.metadata.json", properties=properties)
    assert PendingManifests(state).folders == ("s3://b/t/metadata", "s3://b/m", "s3://b/flink")
    assert PendingManifests(replace(state, properties={})).folders == ("s3://b/t/metadata",)


def test_kafka_connect_group_that_is_silent_longest_counts() -> None:
    other = OFFSETS.replace("control", "other")
    assert PendingManifests(state_of({})).unread_since_ms() is None
    assert PendingManifests(state_of({OFFSETS: "{}"}, {OFFSETS: "{}"}, {})).unread_since_ms() == 2_000
    two = state_of({other: "{}"}, {OFFSETS: "{}"})
    assert PendingManifests(two).unread_since_ms() == 1_000
    assert PendingManifests(two, before_ms=1_500).unread_since_ms() == 2_000
    assert PendingManifests(two, before_ms=2_500).unread_since_ms() is None
