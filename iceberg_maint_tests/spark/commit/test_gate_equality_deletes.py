"""The gate on real tables with equality deletes that a rewrite or a conversion applies and drops: each way
of bringing rows back or losing them, first without it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.commits.change import Rule
from iceberg_maint.core.outcomes.outcome import CommitStatus, Rejection
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint_tests.support.spark.rewrites import (
    Output,
    Rewrite,
    open_gate,
    prepare,
    prepare_conversion,
)
from iceberg_maint_tests.support.spark.writers import Writers

pytestmark = [pytest.mark.spark, pytest.mark.drawn(2)]

A, B, C, D = ({"id": n, "v": "abcd"[n - 1]} for n in (1, 2, 3, 4))
_names = itertools.count()

Case = Callable[[], tuple[str, Rewrite]]


@pytest.fixture(scope="module")
def writers(spark: SparkSession) -> Writers:
    return Writers(Bridge(spark))


def new_name() -> str:
    return f"lake.gate_equality.t{next(_names)}"


def ids(writers: Writers, name: str) -> list[int]:
    return [row[0] for row in writers.rows(name)]


def deletes(writers: Writers, table: Any) -> list[Any]:
    """The equality delete files that apply to any file, each once, oldest first."""
    table.refresh()
    found = {d.location(): d for t in writers.tasks(table) for d in writers.bridge.iterate(t.deletes())}
    return sorted(
        (d for d in found.values() if d.equalityFieldIds()), key=lambda d: int(d.dataSequenceNumber())
    )


def deleted_key(writers: Writers, *, version: int = 2) -> tuple[str, Any, Any]:
    """Files (1, 2) and (3), 1 deleted by key: the table, and the equality delete."""
    name = new_name()
    table = writers.create(name, version=version)
    writers.append(table, [A, B])
    writers.append(table, [C])
    writers.delete_where(table, [{"id": 1}])
    return name, table, deletes(writers, table)[0]


def in_both_ways(
    writers: Writers, case: Case, rule: Rule, damaged: list[int], rejection: Rejection = Rejection.STALE
) -> None:
    """Without the gate the rows become `damaged`; with it the commit is refused by `rule`."""
    name, batch = case()
    before = ids(writers, name)
    assert batch.commit(check=open_gate).status is CommitStatus.COMMITTED
    assert ids(writers, name) == damaged != before

    name, batch = case()
    before = ids(writers, name)
    result = batch.commit()
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, rejection)
    assert rule in result.message
    assert ids(writers, name) == before


def passes(writers: Writers, case: Case) -> Any:
    """The commit changes no row; the table afterwards."""
    name, batch = case()
    before = ids(writers, name)
    result = batch.commit()
    assert result.status is CommitStatus.COMMITTED, result.message
    assert ids(writers, name) == before
    return writers.load(name)


# rewrites that have applied equality deletes


@pytest.mark.parametrize(
    ("other_old_file", "append_after", "drops", "resurrects"),
    [
        (False, True, False, True),
        # Iceberg looks no further than the manifests of the delete files that it is told to drop.
        pytest.param(False, True, True, False, marks=pytest.mark.variant),
        pytest.param(False, False, True, False, marks=pytest.mark.variant),
        pytest.param(True, True, False, False, marks=pytest.mark.variant),
        pytest.param(True, False, False, False, marks=pytest.mark.variant),
    ],
)
def test_rewrite_under_deletes_never_drops_a_newer_one(
    writers: Writers, other_old_file: bool, append_after: bool, drops: bool, resurrects: bool
) -> None:
    """apache/iceberg#10312, of a rewrite that applies one equality delete and meets another."""

    def case() -> tuple[str, Rewrite]:
        name, table, delete = deleted_key(writers)
        first, second = writers.files(table)
        output = Output([first], [B]) if other_old_file else Output([first, second], [B, C])
        rewrite = prepare(writers, name, output, drop=[delete] if drops else [])
        writers.delete_where(table, [{"id": 2}])
        if append_after:
            writers.append(table, [D])
        return name, rewrite

    if resurrects:
        in_both_ways(writers, case, Rule.DROPPED_DELETE, [2, 3, 4])
    else:
        [newer] = deletes(writers, passes(writers, case))
        assert newer.dataSequenceNumber() == 4


@pytest.mark.variant
def test_rewrite_under_deletes_meets_a_foreign_replace_of_a_newer_one(writers: Writers) -> None:
    """As another optimizer commits its conversion of the newer delete."""

    def case() -> tuple[str, Rewrite]:
        name, table, _ = deleted_key(writers)
        first = writers.files(table)[0]
        rewrite = prepare(writers, name, Output([first], [B]))
        writers.delete_where(table, [{"id": 2}])
        newer = deletes(writers, table)[-1]
        marks = writers.position_deletes(table, {first.location(): [1]})
        table.newRewrite().deleteFile(newer).addFile(marks, newer.dataSequenceNumber()).commit()
        return name, rewrite

    in_both_ways(writers, case, Rule.FOREIGN_REPLACE, [2, 3])


@pytest.mark.variant
def test_rewrite_under_deletes_moves_no_row_into_a_newer_ones_scope(writers: Writers) -> None:
    def case() -> tuple[str, Rewrite]:
        name = new_name()
        table = writers.create(name, "id int, cat string")
        writers.append(table, [{"id": n, "cat": "a"} for n in (1, 2, 3)])
        writers.delete_where(table, [{"id": 3}])
        writers.sql(f"alter table {name} add partition field cat")
        table = writers.load(name)
        rows = [{"id": n, "cat": "a"} for n in (1, 2)]
        output = Output(writers.files(table), rows, partition=("a",))
        rewrite = prepare(writers, name, output, drop=deletes(writers, table))
        writers.delete_where(table, [{"id": 2}], partition=("a",))
        return name, rewrite

    in_both_ways(writers, case, Rule.SCOPE, [1])


def old_sequence_file(writers: Writers) -> tuple[str, Any, Any, Callable[[], None]]:
    """(1, 2) of before the partitioning, 2 deleted everywhere, (2, 5) of category a since; and what
    another compaction does that gives the latter's replacement too low a sequence number: 2 is lost."""
    name = new_name()
    table = writers.create(name, "id int, cat string")
    writers.append(table, [{"id": 1, "cat": "a"}, {"id": 2, "cat": "a"}])
    writers.delete_where(table, [{"id": 2}])
    writers.sql(f"alter table {name} add partition field cat")
    table = writers.load(name)
    rows = [{"id": 2, "cat": "a"}, {"id": 5, "cat": "a"}]
    late = writers.append(table, rows, partition=("a",))
    [delete] = deletes(writers, table)

    def foreign() -> None:
        replacement = writers.data(table, rows, partition=("a",))
        table.newRewrite().dataSequenceNumber(1).deleteFile(late).addFile(replacement).commit()

    return name, table, delete, foreign


def test_rewrite_drops_no_delete_that_a_foreign_old_file_came_under(writers: Writers) -> None:
    def case() -> tuple[str, Rewrite]:
        name, table, delete, foreign = old_sequence_file(writers)
        output = Output(writers.files(table)[:1], [{"id": 1, "cat": "a"}], writers.spec(table, 0))
        rewrite = prepare(writers, name, output, drop=[delete])
        foreign()
        return name, rewrite

    in_both_ways(writers, case, Rule.NEEDED_DELETE, [1, 2, 5])


@pytest.mark.variant
def test_rewrite_drops_no_delete_of_a_file_it_leaves(writers: Writers) -> None:
    """A plan that is wrong: the delete applies to the second file too."""

    def case() -> tuple[str, Rewrite]:
        name, table, _ = deleted_key(writers)
        writers.delete_where(table, [{"id": 3}, {"id": 2}])
        newest = deletes(writers, table)[-1]
        return name, prepare(writers, name, Output(writers.files(table)[:1], []), drop=[newest])

    in_both_ways(writers, case, Rule.NEEDED_DELETE, [3])


# conversions


@pytest.mark.drawn(1)
@pytest.mark.parametrize("version", [2, 3])
def test_conversion_meets_a_newer_delete_and_an_append(writers: Writers, version: int) -> None:
    """What #10312 is for a rewrite does a conversion no harm: its data files keep their sequence numbers."""

    def case() -> tuple[str, Rewrite]:
        name, table, delete = deleted_key(writers, version=version)
        conversion = prepare_conversion(writers, name, {writers.files(table)[0].location(): [0]}, [delete])
        writers.delete_where(table, [{"id": 2}])
        writers.append(table, [A, D])
        return name, conversion

    table = passes(writers, case)
    assert [d.recordCount() for d in deletes(writers, table)] == [1]


@pytest.mark.variant
def test_conversion_drops_no_delete_that_a_foreign_old_file_came_under(writers: Writers) -> None:
    def case() -> tuple[str, Rewrite]:
        name, table, delete, foreign = old_sequence_file(writers)
        first = writers.files(table)[0]
        conversion = prepare_conversion(writers, name, {first.location(): [1]}, [delete], [first])
        foreign()
        return name, conversion

    in_both_ways(writers, case, Rule.NEEDED_DELETE, [1, 2, 5])


@pytest.mark.variant
def test_conversion_drops_no_delete_of_a_file_not_examined(writers: Writers) -> None:
    """A plan that is wrong: the delete applies to the second file too."""

    def case() -> tuple[str, Rewrite]:
        name, table, _ = deleted_key(writers)
        writers.delete_where(table, [{"id": 3}, {"id": 2}])
        first, newest = writers.files(table)[0], deletes(writers, table)[-1]
        return name, prepare_conversion(writers, name, {first.location(): [0, 1]}, [newest], [first])

    in_both_ways(writers, case, Rule.NEEDED_DELETE, [3])


def by_hand_in_both_ways(
    writers: Writers,
    case: Callable[[], tuple[str, Rewrite, Callable[[Any], Any]]],
    rule: Rule,
    damage: Callable[[str], None],
) -> None:
    """The same for an operation set up in a wrong way: `damage` looks at what it did."""
    name, batch, wrong = case()
    batch.by_hand(wrong, check=open_gate)
    damage(name)

    name, batch, wrong = case()
    before = ids(writers, name)
    assert rule in {v.rule for v in batch.by_hand(wrong)}
    assert ids(writers, name) == before


@pytest.mark.variant
def test_conversion_of_a_file_that_others_replaced_is_refused(writers: Writers) -> None:
    """As if it did not ask that its data files exist: the positions mark nothing, the delete is gone."""

    def case() -> tuple[str, Rewrite, Callable[[Any], Any]]:
        name, table, delete = deleted_key(writers)
        first = writers.files(table)[0]
        conversion = prepare_conversion(writers, name, {first.location(): [0]}, [delete])
        other = writers.data(table, [A, B])
        table.newRewrite().dataSequenceNumber(1).deleteFile(first).addFile(other).commit()
        assert ids(writers, name) == [2, 3]
        return (
            name,
            conversion,
            lambda operation: operation.validateFromSnapshot(conversion.batch.snapshot_id),
        )

    def damage(name: str) -> None:
        assert ids(writers, name) == [1, 2, 3]

    by_hand_in_both_ways(writers, case, Rule.LOST_FILE, damage)


@pytest.mark.variant
def test_conversion_that_leaves_the_old_vector_is_refused(writers: Writers) -> None:
    def case() -> tuple[str, Rewrite, Callable[[Any], Any]]:
        name, table, delete = deleted_key(writers, version=3)
        first = writers.files(table)[0]
        old = prepare_conversion(writers, name, {first.location(): [1]}, [])
        assert old.commit().status is CommitStatus.COMMITTED
        conversion = prepare_conversion(writers, name, {first.location(): [0, 1]}, [delete])
        conversion = Rewrite(
            conversion.bridge, conversion.batch, conversion.written, (), conversion.outputs, (delete,)
        )
        return (
            name,
            conversion,
            lambda operation: operation.validateFromSnapshot(conversion.batch.snapshot_id),
        )

    def damage(name: str) -> None:
        with pytest.raises(Exception, match="multiple DVs"):
            ids(writers, name)

    by_hand_in_both_ways(writers, case, Rule.SECOND_VECTOR, damage)


def test_conversion_with_a_poorer_vector_than_the_old_one_is_refused(writers: Writers) -> None:
    def case() -> tuple[str, Rewrite]:
        name, table, delete = deleted_key(writers, version=3)
        first = writers.files(table)[0]
        old = prepare_conversion(writers, name, {first.location(): [0, 1]}, [])
        assert old.commit().status is CommitStatus.COMMITTED
        return name, prepare_conversion(writers, name, {first.location(): [0]}, [delete])

    in_both_ways(writers, case, Rule.DROPPED_DELETE, [2, 3], Rejection.REFUSED)


def test_conversion_with_marks_in_another_partition_is_refused(writers: Writers) -> None:
    """apache/iceberg#16957: a reader that looks by partition does not find them."""

    def case() -> tuple[str, Rewrite]:
        name = new_name()
        table = writers.create(name, "id int, cat string", partitioned_by="cat")
        file = writers.append(table, [{"id": 1, "cat": "a"}, {"id": 2, "cat": "a"}], partition=("a",))
        writers.delete_where(table, [{"id": 1}], partition=("a",))
        found = deletes(writers, table)
        conversion = prepare_conversion(writers, name, {file.location(): [0]}, found)
        builder = writers.iceberg.FileMetadata.deleteFileBuilder(table.spec())
        moved = (
            builder.copy(conversion.outputs[0]).withPartition(writers.partition(table.spec(), ["b"])).build()
        )
        return name, Rewrite(
            conversion.bridge, conversion.batch, conversion.written, (), (moved,), conversion.deletes
        )

    name, conversion = case()
    result = conversion.commit()
    assert (result.rejection, ids(writers, name)) == (Rejection.REFUSED, [2])
    assert Rule.ADDED_FILES in result.message
