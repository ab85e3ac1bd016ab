"""Commits of conversions on real tables: a row delta, what it leaves, and every end with its class."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.model.table_state import (
    BATCH_PROPERTY,
    FENCE_PROPERTY,
    PROOF_PROPERTY,
    TOKEN_PROPERTY,
)
from iceberg_maint.core.outcomes.outcome import CommitStatus, Rejection
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint_tests.support.spark.rewrites import Output, Rewrite, prepare, prepare_conversion
from iceberg_maint_tests.support.spark.writers import Writers

pytestmark = [pytest.mark.spark, pytest.mark.drawn(1)]

A, B, C, D = ({"id": n, "v": "abcd"[n - 1]} for n in (1, 2, 3, 4))
_names = itertools.count()


@pytest.fixture(scope="module")
def writers(spark: SparkSession) -> Writers:
    return Writers(Bridge(spark))


def applying(writers: Writers, table: Any) -> list[Any]:
    """The delete files that apply to any data file, each once."""
    table.refresh()
    found = {
        (d.location(), d.contentOffset()): d
        for t in writers.tasks(table)
        for d in writers.bridge.iterate(t.deletes())
    }
    return list(found.values())


def conversion_of_all(writers: Writers, *, version: int = 2) -> tuple[str, Any, Rewrite]:
    """Files (1, 2) and (3, 4), 1 and 3 deleted by key, to be marked."""
    name = f"lake.commit_conversion.t{next(_names)}"
    table = writers.create(name, version=version)
    writers.append(table, [A, B])
    writers.append(table, [C, D])
    writers.delete_where(table, [{"id": 1}, {"id": 3}])
    deletes = applying(writers, table)
    positions = {f.location(): [0] for f in writers.files(table)}
    return name, table, prepare_conversion(writers, name, positions, deletes)


def ids(writers: Writers, name: str) -> list[int]:
    return [row[0] for row in writers.rows(name)]


@pytest.mark.parametrize("version", [2, 3])
def test_conversion_of_a_quiet_table_is_committed(writers: Writers, version: int) -> None:
    name, table, conversion = conversion_of_all(writers, version=version)
    files = [f.location() for f in writers.files(table)]
    tried: list[int] = []
    result = conversion.commit(context=conversion.context(record_try=lambda base, _: tried.append(base)))

    table.refresh()
    head = table.currentSnapshot()
    assert (result.status, result.tries) == (CommitStatus.COMMITTED, 1), result.message
    assert (result.snapshot_id, tried) == (head.snapshotId(), [conversion.batch.snapshot_id])
    assert ids(writers, name) == [2, 4]
    assert [f.location() for f in writers.files(table)] == files
    deletes = applying(writers, table)
    assert sorted(d.referencedDataFile() for d in deletes) == sorted(files)
    assert {str(d.format().toString()) for d in deletes} == {"PUFFIN" if version == 3 else "PARQUET"}
    summary = head.summary()
    assert head.operation() == "delete"
    assert (summary.get("removed-equality-delete-files"), summary.get("total-equality-deletes")) == ("1", "0")
    assert (summary.get(TOKEN_PROPERTY), summary.get(FENCE_PROPERTY)) == ("token-1", "7")
    assert summary.get(BATCH_PROPERTY) == conversion.batch.batch_id
    assert '"equal":true' in summary.get(PROOF_PROPERTY)


def test_drop_of_deletes_that_apply_to_nothing_is_committed(writers: Writers) -> None:
    name = f"lake.commit_conversion.t{next(_names)}"
    table = writers.create(name, "id int, cat string", partitioned_by="cat")
    writers.append(table, [{"id": 1, "cat": "a"}], partition=("a",))
    void = writers.delete_where(table, [{"id": 1}], partition=("b",))
    table.refresh()
    opened = writers.iceberg.ManifestFiles.readDeleteManifest(
        table.currentSnapshot().deleteManifests(table.io()).get(0), table.io(), table.specs()
    )
    [committed] = [f.copy() for f in writers.bridge.iterate(opened)]
    assert committed.location() == void.location()
    drop = prepare_conversion(writers, name, {}, [committed], examined=[])
    assert (drop.batch.groups, drop.outputs) == ((), ())
    assert drop.commit().status is CommitStatus.COMMITTED
    table.refresh()
    head = table.currentSnapshot()
    assert head.summary().get("total-delete-files") == "0"
    assert head.operation() == "replace", "what streaming readers pass over"
    assert ids(writers, name) == [1]


def test_conversion_that_marks_nothing_replaces_the_deletes_by_nothing(writers: Writers) -> None:
    name = f"lake.commit_conversion.t{next(_names)}"
    table = writers.create(name)
    writers.append(table, [A, C])
    writers.delete_where(table, [B])
    [delete] = applying(writers, table)
    assert prepare_conversion(writers, name, {}, [delete]).commit().status is CommitStatus.COMMITTED
    table.refresh()
    head = table.currentSnapshot()
    assert (head.operation(), head.summary().get("total-delete-files")) == ("replace", "0")
    assert ids(writers, name) == [1, 3]


def test_conversion_puts_a_vector_in_place_of_the_old_one(writers: Writers) -> None:
    name, table, conversion = conversion_of_all(writers, version=3)
    assert conversion.commit().status is CommitStatus.COMMITTED
    writers.delete_where(table, [{"id": 2}])
    equality = [d for d in applying(writers, table) if d.equalityFieldIds()]
    first = writers.files(table)[0].location()
    again = prepare_conversion(writers, name, {first: [0, 1]}, equality)
    assert len(again.deletes) == 2
    assert again.commit(context=again.context(token="again")).status is CommitStatus.COMMITTED
    assert ids(writers, name) == [4]
    found = {d.referencedDataFile(): d.recordCount() for d in applying(writers, table)}
    assert (len(found), found[first]) == (2, 2)


@pytest.mark.variant
def test_conversion_of_several_partitions_and_specs_is_committed(writers: Writers) -> None:
    name = f"lake.commit_conversion.t{next(_names)}"
    table = writers.create(name, "id int, cat string")
    writers.append(table, [{"id": 1, "cat": "a"}, {"id": 2, "cat": None}])
    writers.sql(f"alter table {name} add partition field cat")
    table = writers.load(name)
    for category in ("x/y=%", None):
        rows = [{"id": 1, "cat": category}, {"id": 3, "cat": category}]
        writers.append(table, rows, partition=(category,))
    writers.delete_where(table, [{"id": 1}], writers.spec(table, 0))
    positions = {f.location(): [0] for f in writers.files(table)}
    conversion = prepare_conversion(writers, name, positions, applying(writers, table))
    assert sorted(conversion.batch.partitions) == ["__all__", "spec=1/cat", "spec=1/cat=x%2Fy%3D%25"]
    result = conversion.commit()
    assert result.status is CommitStatus.COMMITTED, result.message
    assert ids(writers, name) == [2, 3, 3]


def test_conversion_lost_swap_is_tried_again(writers: Writers) -> None:
    name, _, conversion = conversion_of_all(writers)
    bases: list[int] = []

    def foreign_first(base: int, location: str) -> None:
        bases.append(base)
        if len(bases) == 1:
            writers.append(writers.load(name), [A])

    result = conversion.commit(context=conversion.context(record_try=foreign_first))
    assert (result.status, result.tries) == (CommitStatus.COMMITTED, 2)
    assert ids(writers, name) == [1, 2, 4]


@pytest.mark.parametrize("version", [2, 3])
def test_conversion_of_a_file_others_rewrote_is_stale(writers: Writers, version: int) -> None:
    name, table, conversion = conversion_of_all(writers, version=version)
    rewrite = prepare(writers, name, Output(writers.files(table)[:1], [B]))
    assert rewrite.commit().status is CommitStatus.COMMITTED
    result = conversion.commit()
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.STALE)
    assert "missing data files" in result.message
    assert ids(writers, name) == [2, 4]


@pytest.mark.variant
def test_conversion_of_deletes_others_converted_is_stale(writers: Writers) -> None:
    name, _, conversion = conversion_of_all(writers)
    other = prepare_conversion(
        writers,
        name,
        {f.path: [0] for g in conversion.batch.groups for f in g.files},
        conversion.deletes,
    )
    assert other.commit(context=other.context(token="other")).status is CommitStatus.COMMITTED
    result = conversion.commit()
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.STALE)
    assert ids(writers, name) == [2, 4]


def test_conversion_to_a_vector_beside_a_newer_one_is_stale(writers: Writers) -> None:
    name, table, conversion = conversion_of_all(writers, version=3)
    second = writers.files(table)[1].location()
    other = prepare_conversion(writers, name, {second: [1]}, [])
    assert other.commit(context=other.context(token="other")).status is CommitStatus.COMMITTED
    result = conversion.commit()
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.STALE)
    assert ids(writers, name) == [2]


@pytest.mark.variant
def test_conversion_beside_newer_position_deletes_passes(writers: Writers) -> None:
    name, table, conversion = conversion_of_all(writers)
    writers.delete_at(table, {writers.files(table)[1].location(): [1]})
    assert conversion.commit().status is CommitStatus.COMMITTED
    assert ids(writers, name) == [2]


@pytest.mark.variant
def test_conversion_planned_on_a_snapshot_that_was_rolled_back_is_stale(writers: Writers) -> None:
    name, table, conversion = conversion_of_all(writers)
    table.manageSnapshots().rollbackTo(table.currentSnapshot().parentId()).commit()
    writers.append(table, [A])
    result = conversion.commit()
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.STALE)
    assert ids(writers, name) == [1, 1, 2, 3, 4]


@pytest.mark.variant
def test_conversion_planned_on_a_snapshot_that_expired_is_stale(writers: Writers) -> None:
    name, table, conversion = conversion_of_all(writers)
    writers.append(table, [A])
    table.expireSnapshots().expireSnapshotId(conversion.batch.snapshot_id).commit()
    result = conversion.commit()
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.STALE)
    assert ids(writers, name) == [1, 2, 4]
