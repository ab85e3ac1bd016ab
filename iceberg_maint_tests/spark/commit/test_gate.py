"""The gate on real tables: each known way of losing rows or bringing them back, first without it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from iceberg_maint.core.commits.change import Rule
from iceberg_maint.core.outcomes.outcome import CommitStatus, Rejection
from iceberg_maint.engines.spark.commit.gate import Gate, GateRefusedError, inspecting_files
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.errors import FenceLostError
from iceberg_maint_tests.support.spark.rewrites import READER, Output, Rewrite, open_gate, prepare
from iceberg_maint_tests.support.spark.writers import Writers

pytestmark = [pytest.mark.spark, pytest.mark.drawn(2)]

A, B, C, D = ({"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "c"}, {"id": 4, "v": "d"})
_names = itertools.count()


@pytest.fixture(scope="module")
def writers(spark: SparkSession) -> Writers:
    return Writers(Bridge(spark))


def new_name() -> str:
    return f"lake.gate.t{next(_names)}"


def two_files(writers: Writers) -> tuple[str, Any]:
    """Files (1, 2) and (3)."""
    name = new_name()
    table = writers.create(name)
    writers.append(table, [A, B])
    writers.append(table, [C])
    table.refresh()
    return name, table


def ids(writers: Writers, name: str) -> list[int]:
    return [row[0] for row in writers.rows(name)]


def in_both_ways(
    writers: Writers,
    case: Callable[[], tuple[str, Rewrite]],
    rule: Rule,
    damaged: list[int],
    rejection: Rejection = Rejection.STALE,
) -> None:
    """Without the gate the rows become `damaged`; with it the commit is refused by `rule`."""
    name, rewrite = case()
    before = ids(writers, name)
    assert rewrite.commit(check=open_gate).status is CommitStatus.COMMITTED
    assert ids(writers, name) == damaged != before

    name, rewrite = case()
    before = ids(writers, name)
    result = rewrite.commit()
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, rejection)
    assert rule in result.message
    assert ids(writers, name) == before


@pytest.mark.parametrize(
    ("append_after", "other_old_file"),
    [
        (True, False),
        pytest.param(False, False, marks=pytest.mark.variant),
        pytest.param(False, True, marks=pytest.mark.variant),
        pytest.param(True, True, marks=pytest.mark.variant),
    ],
)
def test_gate_newer_equality_delete_is_never_dropped(
    writers: Writers, append_after: bool, other_old_file: bool
) -> None:
    def case() -> tuple[str, Rewrite]:
        name, table = two_files(writers)
        first, second = writers.files(table)
        sources, rows = ([first], [A, B]) if other_old_file else ([first, second], [A, B, C])
        rewrite = prepare(writers, name, Output(sources, rows))
        writers.delete_where(table, [{"id": 2}])
        if append_after:
            writers.append(table, [D])
        return name, rewrite

    if append_after and not other_old_file:
        in_both_ways(writers, case, Rule.DROPPED_DELETE, damaged=[1, 2, 3, 4])
    else:
        name, rewrite = case()
        before = ids(writers, name)
        assert rewrite.commit().status is CommitStatus.COMMITTED
        assert ids(writers, name) == before


def test_gate_equality_delete_converted_by_foreign_replace_is_refused(writers: Writers) -> None:
    def case() -> tuple[str, Rewrite]:
        name, table = two_files(writers)
        first = writers.files(table)[0]
        rewrite = prepare(writers, name, Output([first], [A, B]))
        writers.delete_where(table, [{"id": 2}])
        table.refresh()
        converted = writers.position_deletes(table, {first.location(): [1]})
        delete = next(d for t in writers.tasks(table) for d in writers.bridge.iterate(t.deletes()))
        table.newRewrite().deleteFile(delete).addFile(converted, delete.dataSequenceNumber()).commit()
        return name, rewrite

    in_both_ways(writers, case, Rule.FOREIGN_REPLACE, [1, 2, 3])


def by_hand_in_both_ways(
    writers: Writers,
    case: Callable[[], tuple[str, Rewrite, Callable[[Any], Any]]],
    rule: Rule,
    damaged: list[int],
    after: Callable[[str], Any] = lambda name: None,
) -> None:
    """The same for an operation set up in a wrong way."""
    name, rewrite, wrong = case()
    before = ids(writers, name)
    rewrite.by_hand(wrong, check=open_gate)
    after(name)
    assert ids(writers, name) == damaged != before

    name, rewrite, wrong = case()
    before = ids(writers, name)
    assert rule in {v.rule for v in rewrite.by_hand(wrong)}
    assert ids(writers, name) == before


def test_gate_position_delete_that_a_late_validation_misses_is_refused(writers: Writers) -> None:
    def case() -> tuple[str, Rewrite, Callable[[Any], Any]]:
        name, table = two_files(writers)
        first = writers.files(table)[0]
        rewrite = prepare(writers, name, Output([first], [A, B]))
        writers.delete_at(table, {first.location(): [1]})
        table.refresh()
        late, sequence_number = (
            table.currentSnapshot().snapshotId(),
            rewrite.batch.snapshot_sequence_number,
        )
        return (
            name,
            rewrite,
            lambda operation: operation.validateFromSnapshot(late).dataSequenceNumber(sequence_number),
        )

    by_hand_in_both_ways(writers, case, Rule.NEW_DELETE, damaged=[1, 2, 3])


def test_gate_position_delete_without_validation_is_refused_by_iceberg(writers: Writers) -> None:
    name, table = two_files(writers)
    first = writers.files(table)[0]
    rewrite = prepare(writers, name, Output([first], [A, B]))
    writers.delete_at(table, {first.location(): [1]})
    with pytest.raises(Py4JJavaError, match=r"found new (position )?delete"):
        rewrite.by_hand(lambda operation: None, check=open_gate)
    assert ids(writers, name) == [1, 3]


def test_gate_snapshot_pinned_after_the_read_is_refused(writers: Writers) -> None:
    def case() -> tuple[str, Rewrite, Callable[[Any], Any]]:
        name, table = two_files(writers)
        rewrite = prepare(writers, name, Output(writers.files(table)[:1], [A, B]))
        writers.delete_where(table, [{"id": 2}])
        table.refresh()
        now = table.currentSnapshot()
        return (
            name,
            rewrite,
            lambda operation: operation.validateFromSnapshot(now.snapshotId()).dataSequenceNumber(
                now.sequenceNumber()
            ),
        )

    by_hand_in_both_ways(writers, case, Rule.SEQUENCE_NUMBER, damaged=[1, 2, 3])


def test_gate_lowest_sequence_number_of_the_sources_is_refused(writers: Writers) -> None:
    def case() -> tuple[str, Rewrite, Callable[[Any], Any]]:
        name, table = two_files(writers)
        writers.delete_where(table, [{"id": 2}])
        writers.append(table, [{"id": 2, "v": "new"}])
        table.refresh()
        _, second, third = writers.files(table)
        rewrite = prepare(writers, name, Output([second, third], [C, {"id": 2, "v": "new"}]))
        pinned = rewrite.batch.snapshot_id
        lowest = second.dataSequenceNumber()
        return (
            name,
            rewrite,
            lambda operation: operation.validateFromSnapshot(pinned).dataSequenceNumber(lowest),
        )

    by_hand_in_both_ways(writers, case, Rule.SEQUENCE_NUMBER, damaged=[1, 3])


def test_gate_future_sequence_number_that_voids_later_deletes_is_refused(writers: Writers) -> None:
    def case() -> tuple[str, Rewrite, Callable[[Any], Any]]:
        name, table = two_files(writers)
        rewrite = prepare(writers, name, Output(writers.files(table), [A, B, C]))
        pinned, future = rewrite.batch.snapshot_id, rewrite.batch.snapshot_sequence_number + 100
        return (
            name,
            rewrite,
            lambda operation: operation.validateFromSnapshot(pinned).dataSequenceNumber(future),
        )

    name, rewrite, wrong = case()
    rewrite.by_hand(wrong, check=open_gate)
    writers.delete_where(writers.load(name), [{"id": 2}])
    assert ids(writers, name) == [1, 2, 3]

    name, rewrite, wrong = case()
    assert {v.rule for v in rewrite.by_hand(wrong)} == {Rule.SEQUENCE_NUMBER}
    writers.delete_where(writers.load(name), [{"id": 2}])
    assert ids(writers, name) == [1, 3]


def test_gate_expired_start_snapshot_is_stale(writers: Writers) -> None:
    def case() -> tuple[str, Rewrite]:
        name, table = two_files(writers)
        rewrite = prepare(writers, name, Output(writers.files(table), [A, B, C]))
        writers.append(table, [D])
        table.expireSnapshots().expireSnapshotId(rewrite.batch.snapshot_id).commit()
        return name, rewrite

    # Iceberg lets it through: one expired step is no gap to its validation.
    assert case()[1].commit(check=open_gate).status is CommitStatus.COMMITTED
    name, rewrite = case()
    result = rewrite.commit()
    assert result.rejection is Rejection.STALE
    assert Rule.PINNED_SNAPSHOT in result.message
    assert ids(writers, name) == [1, 2, 3, 4]


def evolved(writers: Writers) -> tuple[str, Any, Any]:
    """(1, 2) of category a in the unpartitioned spec 0; the table is partitioned by category since."""
    name = new_name()
    table = writers.create(name, "id int, cat string")
    file = writers.append(table, [{"id": 1, "cat": "a"}, {"id": 2, "cat": "a"}])
    writers.sql(f"alter table {name} add partition field cat")
    return name, writers.load(name), file


def test_gate_output_moved_into_scope_of_newer_delete_is_refused(writers: Writers) -> None:
    def case() -> tuple[str, Rewrite]:
        name, table, _ = evolved(writers)
        rows = [{"id": 1, "cat": "a"}, {"id": 2, "cat": "a"}]
        rewrite = prepare(writers, name, Output(writers.files(table), rows, partition=("a",)))
        writers.delete_where(table, [{"id": 2}], partition=("a",))
        return name, rewrite

    in_both_ways(writers, case, Rule.SCOPE, damaged=[1])


def test_gate_output_moved_out_of_scope_of_newer_delete_is_refused(writers: Writers) -> None:
    def case() -> tuple[str, Rewrite]:
        name = new_name()
        table = writers.create(name, "id int, cat string", partitioned_by="cat")
        rows = [{"id": 1, "cat": "a"}, {"id": 2, "cat": "a"}]
        writers.append(table, rows, partition=("a",))
        # Another old file keeps Iceberg from dropping the delete, which would be a second wrong.
        writers.append(table, [{"id": 9, "cat": "b"}], partition=("b",))
        first = table.spec()
        writers.sql(f"alter table {name} add partition field bucket(1, id)")
        table = writers.load(name)
        sources = [f for f in writers.files(table) if f.recordCount() == 2]
        rewrite = prepare(writers, name, Output(sources, rows, partition=("a", 0)))
        writers.delete_where(table, [{"id": 2}], writers.spec(table, first.specId()), ("a",))
        return name, rewrite

    in_both_ways(writers, case, Rule.SCOPE, damaged=[1, 2, 9])


@pytest.mark.variant
def test_gate_global_equality_delete_across_specs_passes(writers: Writers) -> None:
    name, table, _ = evolved(writers)
    rows = [{"id": 1, "cat": "a"}, {"id": 2, "cat": "a"}]
    rewrite = prepare(writers, name, Output(writers.files(table), rows, partition=("a",)))
    writers.delete_where(table, [{"id": 2}], writers.spec(table, 0))
    assert rewrite.commit().status is CommitStatus.COMMITTED
    assert ids(writers, name) == [1]


@pytest.mark.variant
def test_gate_foreign_delete_in_another_partition_passes(writers: Writers) -> None:
    name = new_name()
    table = writers.create(name, "id int, cat string", partitioned_by="cat")
    writers.append(table, [{"id": 1, "cat": "a"}], partition=("a",))
    writers.append(table, [{"id": 2, "cat": "a"}], partition=("a",))
    other = writers.append(table, [{"id": 3, "cat": None}, {"id": 4, "cat": None}], partition=(None,))
    table.refresh()
    sources = [f for f in writers.files(table) if f.recordCount() == 1]
    rewrite = prepare(
        writers, name, Output(sources, [{"id": 1, "cat": "a"}, {"id": 2, "cat": "a"}], partition=("a",))
    )
    writers.delete_at(table, {other.location(): [0]}, partition=(None,))
    writers.delete_where(table, [{"id": 4}], partition=(None,))
    assert rewrite.commit().status is CommitStatus.COMMITTED
    assert ids(writers, name) == [1, 2]


def test_gate_delete_scoped_to_its_file_by_bounds_only_may_go(writers: Writers) -> None:
    """As older writers commit it: `referenced_data_file` left out, both path bounds equal."""
    name, table = two_files(writers)
    first = writers.files(table)[0]
    written = writers.position_deletes(table, {first.location(): [1]})
    iceberg = writers.iceberg
    opened = table.io().newInputFile(written.location())
    metrics = iceberg.parquet.ParquetUtil.fileMetrics(opened, iceberg.MetricsConfig.forPositionDelete())
    old = (
        iceberg.FileMetadata.deleteFileBuilder(table.spec())
        .ofPositionDeletes()
        .withPath(written.location())
        .withFormat(written.format())
        .withFileSizeInBytes(written.fileSizeInBytes())
        .withMetrics(metrics)
        .build()
    )
    assert old.referencedDataFile() is None
    writers.add_deletes(table, old)
    table.refresh()
    rewrite = prepare(writers, name, Output([first], [A]))
    assert rewrite.commit().status is CommitStatus.COMMITTED
    assert ids(writers, name) == [1, 3]
    assert writers.load(name).currentSnapshot().summary().get("total-delete-files") == "0"


def test_gate_takes_one_commit_only(writers: Writers) -> None:
    name, table = two_files(writers)
    rewrite = prepare(writers, name, Output(writers.files(table), [A, B, C]))
    operations = table.operations()
    context = rewrite.context(lease_is_held=lambda: False)
    inspect = inspecting_files(writers.bridge, rewrite.intent(), READER, context, open_gate)
    gate = Gate(writers.bridge, operations, inspect, context)
    metadata = operations.current()
    with pytest.raises(FenceLostError):
        gate.commit(metadata, metadata)
    with pytest.raises(GateRefusedError, match="commits once"):
        gate.commit(metadata, metadata)


def test_gate_file_that_was_not_planned_is_refused(writers: Writers) -> None:
    name, table = two_files(writers)
    first, second = writers.files(table)
    rewrite = prepare(writers, name, Output([first], [A, B]))
    sequence_number = rewrite.batch.snapshot_sequence_number
    broken = rewrite.by_hand(
        lambda operation: (
            operation.validateFromSnapshot(rewrite.batch.snapshot_id)
            .dataSequenceNumber(sequence_number)
            .deleteFile(second)
        )
    )
    assert {v.rule for v in broken} == {Rule.REMOVED_FILES, Rule.LIVE_COUNT}
    assert ids(writers, name) == [1, 2, 3]
