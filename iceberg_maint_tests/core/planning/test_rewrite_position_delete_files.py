"""Exact plans of small partitions with position deletes."""

from __future__ import annotations

from dataclasses import replace

from iceberg_maint.core.health.thresholds import position_delete_findings
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Decision, PartitionDecision, Reason, Verdict
from iceberg_maint.core.model.table_state import FileKind, LiveFile
from iceberg_maint.core.planning.file_groups import BatchLimits, PlanInputs
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.rewrite_position_delete_files import plan_position_deletes
from iceberg_maint.core.policy.data import (
    Policy,
    RewriteDataFilesPolicy,
    RewritePositionDeleteFilesPolicy,
)
from iceberg_maint.core.policy.runs import WindowsPolicy
from iceberg_maint_tests.support.fakes.catalog import fake_table, measure_files

OPERATION = Operation.REWRITE_POSITION_DELETE_FILES
POLICY = Policy()


def file(
    path: str,
    sequence_number: int,
    kind: FileKind = FileKind.DATA,
    names: str | None = None,
    added: int | None = None,
) -> LiveFile:
    """A file that the commit of this sequence number added, or a later commit that kept the number."""
    return LiveFile(
        path=path,
        kind=kind,
        spec_id=0,
        partition="",
        record_count=10,
        size_bytes=10,
        data_sequence_number=sequence_number,
        file_format="parquet",
        referenced_data_file=names,
        file_sequence_number=added or sequence_number,
    )


def planned(*live: LiveFile, alone: frozenset[str] = frozenset(), base: Policy = POLICY) -> tuple[Batch, ...]:
    """The batches of partitions that are due because of their findings."""
    table = fake_table("lake.db.t", list(live), format_version=2)
    health = measure_files(table, RewriteDataFilesPolicy()).partitions
    policy = base.rewrite_position_delete_files
    due = tuple(
        PartitionDecision(
            key, Verdict.RUN, Reason.POSITION_DELETES, tuple(position_delete_findings(each, policy, 2))
        )
        for key, each in health.items()
    )
    decision = Decision("lake.db.t", OPERATION, Verdict.RUN, Reason.POSITION_DELETES, None, due)
    return plan_position_deletes(
        PlanInputs(table.state, decision, table.live_files, base, 100, BatchLimits(alone=alone))
    ).batches


def test_partition_that_works_alone_shares_no_batch() -> None:
    live = [
        replace(each, partition=f"p={key}", path=f"{key}/{each.path}")
        for key in "abcd"
        for each in (file("data", 5), file("gone", 6, FileKind.POSITION_DELETES, names="no-file"))
    ]
    assert [b.partitions for b in planned(*live)] == [("p=a", "p=b", "p=c", "p=d")]
    found = planned(*live, alone=frozenset({"p=b"}))
    assert [b.partitions for b in found] == [("p=a",), ("p=b",), ("p=c", "p=d")]


def test_batch_reads_as_many_bytes_of_deletes_as_it_may() -> None:
    live = [
        replace(each, partition=f"p={key}", path=f"{key}/{each.path}")
        for key in "abc"
        for each in (
            file("data", 5),
            *(file(name, 6, FileKind.POSITION_DELETES, names=f"{key}/data") for name in ("one", "two")),
        )
    ]
    policy = Policy(
        rewrite_position_delete_files=RewritePositionDeleteFilesPolicy(min_input_files=1),
        windows=WindowsPolicy(max_bytes_per_batch=40),
    )
    assert [b.partitions for b in planned(*live, base=policy)] == [("p=a", "p=b"), ("p=c",)]


def test_delete_of_the_same_commit_as_its_data_file_may_mark_it_and_stays() -> None:
    """Flink commits a data file and the position deletes of its rows together."""
    batches = planned(
        file("data", 5),
        file("of-the-same-commit", 5, FileKind.POSITION_DELETES),
        file("of-a-file-that-is-gone", 6, FileKind.POSITION_DELETES, names="gone"),
    )
    assert [[(d.path, d.void) for d in batch.position_deletes] for batch in batches] == [
        [("of-a-file-that-is-gone", True)]
    ]


def test_delete_of_a_gone_file_is_dropped_beside_a_delete_older_than_the_rewritten_file() -> None:
    """Both count as marking no row; the second is dropped by a merge, which reads it."""
    batches = planned(
        file("rewritten", 5, added=8),
        file("of-the-files-before", 6, FileKind.POSITION_DELETES),
        file("of-a-file-that-is-gone", 6, FileKind.POSITION_DELETES, names="gone"),
    )
    assert sorted((d.path, d.void) for batch in batches for d in batch.position_deletes) == [
        ("of-a-file-that-is-gone", True),
        ("of-the-files-before", False),
    ]
