"""The gate on real tables where a path of the plan names another file at the base: removed since and
registered again, or undeleted. Each case shows first the rows that are lost or come back without it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestContent, read_manifest_list, write_manifest_list
from pyspark.sql import SparkSession

from iceberg_maint.core.commits.change import Rule, is_stale
from iceberg_maint.core.model.ids import UNPARTITIONED_KEY, TableId
from iceberg_maint.core.outcomes.outcome import CommitStatus, Rejection
from iceberg_maint.core.planning.plan import Batch, batch_of_text, batch_text
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.errors import UnreadableTableError
from iceberg_maint.loop.fleet.catalogs import Catalogs
from iceberg_maint.loop.select_batches import Changes, still_valid
from iceberg_maint_tests.support.spark.equality_deletes import rows_of
from iceberg_maint_tests.support.spark.position_deletes import mark, paths, registered_again, unguarded
from iceberg_maint_tests.support.spark.position_deletes import table as table_of
from iceberg_maint_tests.support.spark.rewrites import (
    Output,
    Rewrite,
    open_gate,
    prepare,
    prepare_conversion,
)
from iceberg_maint_tests.support.spark.workshop import FULL, workshop_of
from iceberg_maint_tests.support.spark.writers import Writers

pytestmark = pytest.mark.spark

A, B, C, D = ({"id": n, "v": "abcd"[n - 1]} for n in (1, 2, 3, 4))
_names = itertools.count()

Case = Callable[[], tuple[str, Rewrite]]


@pytest.fixture(scope="module")
def writers(spark: SparkSession) -> Writers:
    return Writers(Bridge(spark))


def new_name() -> str:
    return f"lake.gate_identity.t{next(_names)}"


def ids(writers: Writers, name: str) -> list[int]:
    return [row[0] for row in writers.rows(name)]


def deletes(writers: Writers, table: Any) -> list[Any]:
    """The delete files that apply to any file, each once, oldest first."""
    table.refresh()
    found = {d.location(): d for t in writers.tasks(table) for d in writers.bridge.iterate(t.deletes())}
    return sorted(found.values(), key=lambda d: int(d.dataSequenceNumber()))


def removed(table: Any, *files: Any) -> None:
    delete = table.newDelete()
    for file in files:
        delete.deleteFile(file)
    delete.commit()


def registered(table: Any, *files: Any) -> None:
    """The same files once more, as `add_files` commits them: with a sequence number of their own."""
    append = table.newAppend()
    for file in files:
        append.appendFile(file)
    append.commit()


def undeleted(table: Any, *files: Any) -> None:
    delta = table.newRowDelta()
    for file in files:
        delta.removeDeletes(file)
    delta.commit()


def in_both_ways(writers: Writers, case: Case, damaged: list[int]) -> None:
    """Without the gate the rows become `damaged`; with it the commit is out of date."""
    name, batch = case()
    before = ids(writers, name)
    assert batch.commit(check=open_gate).status is CommitStatus.COMMITTED
    assert ids(writers, name) == damaged != before

    name, batch = case()
    before = ids(writers, name)
    result = batch.commit()
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.STALE)
    assert Rule.IDENTITY in result.message
    assert ids(writers, name) == before


def three_files(writers: Writers, name: str) -> tuple[Any, list[Any]]:
    """Files (1, 2), (3) and (4)."""
    table = writers.create(name)
    for rows in ([A, B], [C], [D]):
        writers.append(table, rows)
    table.refresh()
    return table, writers.files(table)


def test_sources_registered_again_after_an_equality_delete_are_stale(writers: Writers) -> None:
    def case() -> tuple[str, Rewrite]:
        name = new_name()
        table, (first, second, _) = three_files(writers, name)
        rewrite = prepare(writers, name, Output([first, second], [A, B, C]))
        removed(table, first, second)
        writers.delete_where(table, [{"id": 2}])
        registered(table, first, second)
        assert ids(writers, name) == [1, 2, 3, 4]
        return name, rewrite

    in_both_ways(writers, case, damaged=[1, 3, 4])


@pytest.mark.variant
def test_source_removed_and_registered_in_one_commit_is_stale(writers: Writers) -> None:
    def case() -> tuple[str, Rewrite]:
        name = new_name()
        table, (first, second, _) = three_files(writers, name)
        writers.delete_where(table, [{"id": 2}])
        rewrite = prepare(writers, name, Output([first, second], [A, C]))
        table.newOverwrite().deleteFile(first).addFile(first).commit()
        assert ids(writers, name) == [1, 2, 3, 4]
        return name, rewrite

    in_both_ways(writers, case, damaged=[1, 3, 4])


@pytest.mark.variant
@pytest.mark.drawn(1)
@pytest.mark.parametrize("drops", [False, True])
def test_source_registered_again_above_an_applied_equality_delete_is_stale(
    writers: Writers, drops: bool
) -> None:
    def case() -> tuple[str, Rewrite]:
        name = new_name()
        table, files = three_files(writers, name)
        writers.delete_where(table, [{"id": 1}])
        found = deletes(writers, table)
        rewrite = prepare(
            writers,
            name,
            Output(files, [B, C, D]),
            drop=found if drops else (),
            apply=() if drops else found,
        )
        removed(table, files[0])
        registered(table, files[0])
        assert ids(writers, name) == [1, 2, 3, 4]
        return name, rewrite

    in_both_ways(writers, case, damaged=[2, 3, 4])


def test_source_registered_again_above_an_applied_position_delete_is_stale(writers: Writers) -> None:
    """A v2 delete file that is scoped to the partition."""

    def case() -> tuple[str, Rewrite]:
        name = new_name()
        table, (first, second, _) = three_files(writers, name)
        shared = writers.delete_at(table, {first.location(): [0], second.location(): [0]})
        assert shared.referencedDataFile() is None
        rewrite = prepare(writers, name, Output([first, second], [B]))
        removed(table, first, second)
        registered(table, first, second)
        assert ids(writers, name) == [1, 2, 3, 4]
        return name, rewrite

    in_both_ways(writers, case, damaged=[2, 4])


@pytest.mark.drawn(1)
@pytest.mark.parametrize("by_key", [False, True])
def test_applied_delete_that_was_undone_is_stale(writers: Writers, by_key: bool) -> None:
    def case() -> tuple[str, Rewrite]:
        name = new_name()
        table, (first, second, _) = three_files(writers, name)
        if by_key:
            writers.delete_where(table, [{"id": 1}, {"id": 3}])
        else:
            writers.delete_at(table, {first.location(): [0], second.location(): [0]})
        found = deletes(writers, table)
        rewrite = prepare(writers, name, Output([first, second], [B]), apply=found if by_key else ())
        undeleted(table, *found)
        assert ids(writers, name) == [1, 2, 3, 4]
        return name, rewrite

    in_both_ways(writers, case, damaged=[2, 4])


def test_dropped_equality_delete_registered_again_is_stale(writers: Writers) -> None:
    """With its new number it deletes a row that the conversion has left alone."""

    def case() -> tuple[str, Rewrite]:
        name = new_name()
        table, (first, *_) = three_files(writers, name)
        writers.delete_where(table, [{"id": 1}])
        writers.append(table, [{"id": 1, "v": "new"}])
        [delete] = deletes(writers, table)
        conversion = prepare_conversion(writers, name, {first.location(): [0]}, [delete])
        assert ids(writers, name) == [1, 2, 3, 4]
        undeleted(table, delete)
        writers.add_deletes(table, delete)
        assert ids(writers, name) == [2, 3, 4]
        return name, conversion

    in_both_ways(writers, case, damaged=[1, 2, 3, 4])


def test_examined_file_registered_again_is_stale(writers: Writers) -> None:
    """Iceberg sees it where it is asked to; the gate sees it without."""

    def case() -> tuple[str, Rewrite, Callable[[Any], Any]]:
        name = new_name()
        table, (first, *_) = three_files(writers, name)
        writers.delete_where(table, [{"id": 1}])
        [delete] = deletes(writers, table)
        conversion = prepare_conversion(writers, name, {first.location(): [0]}, [delete])
        removed(table, first)
        registered(table, first)
        assert ids(writers, name) == [1, 2, 3, 4]
        pinned = conversion.batch.snapshot_id
        return name, conversion, lambda operation: operation.validateFromSnapshot(pinned)

    name, conversion, loose = case()
    conversion.by_hand(loose, check=open_gate)
    assert ids(writers, name) == [2, 3, 4]

    name, conversion, loose = case()
    assert Rule.IDENTITY in {v.rule for v in conversion.by_hand(loose)}
    assert ids(writers, name) == [1, 2, 3, 4]


def test_stored_batch_whose_sources_were_registered_again_is_stale(
    spark: SparkSession, lake_dir: Path
) -> None:
    """As a later run reads it from the ledger, under a v2 delete file that is scoped to the partition."""
    shop = workshop_of(spark, lake_dir)

    def case() -> tuple[str, Batch]:
        name = table_of(shop, range(10), range(10, 20))
        sources = paths(shop, name)
        mark(shop, name, {path: [0] for path in sources})
        batch = batch_of_text(batch_text(shop.batch(name)))
        catalogs = Catalogs({shop.catalog.name: shop.catalog}, calls=lambda: 0)
        shop.writers.append(shop.writers.load(name), rows_of([99]))
        state = shop.catalog.pin(TableId.parse(name))
        assert still_valid(batch, Changes(state, catalogs, [batch]))
        for path in sources:
            registered_again(shop, name, path)
        state = shop.catalog.pin(TableId.parse(name))
        assert not still_valid(batch, Changes(state, catalogs, [batch]))
        return name, batch

    name, batch = case()
    assert unguarded(shop, batch, shop.engine.write(batch, FULL)).status is CommitStatus.COMMITTED
    assert len(shop.writers.rows(name)) == 19

    name, batch = case()
    result = shop.commit(batch, shop.engine.write(batch, FULL))
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.STALE)
    assert Rule.IDENTITY in result.message
    assert len(shop.writers.rows(name)) == 21


def test_rewrite_planned_before_another_writers_first_v3_commit_is_stale(writers: Writers) -> None:
    """The commit comes between our look at the table and the base that Iceberg refreshes to."""
    name = new_name()
    table = writers.create(name)
    writers.append(table, [A])
    writers.append(table, [B])
    table.updateProperties().set("format-version", "3").commit()
    rewrite = prepare(writers, name, Output(writers.files(table), [A, B]))

    def load(loaded: str) -> Any:
        ours = writers.load(loaded)
        writers.append(writers.load(loaded), [C])
        return ours

    result = rewrite.commit(load_table=load)
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.STALE)
    assert f"{Rule.ROW_IDS}: rows have had ids only since the pinned snapshot" in result.message
    given = writers.bridge.spark.table(name).select("id", "_row_id").orderBy("id").collect()
    assert sorted(row["_row_id"] for row in given) == [0, 1, 2]


def test_source_registered_again_with_its_sequence_number_and_other_row_ids_is_stale(
    writers: Writers, lake_dir: Path
) -> None:
    name = new_name()
    table = writers.create(name, version=3)
    for row in (A, B, C):
        writers.append(table, [row])
    first, second, spare = sorted(writers.files(table), key=lambda f: int(f.dataSequenceNumber()))
    rewrite = prepare(writers, name, Output([first, second], [A, B]))
    removed(table, first)
    again = table.newRewrite().dataSequenceNumber(int(first.dataSequenceNumber()))
    again.deleteFile(spare).addFile(first).commit()
    table.refresh()
    now = next(f for f in writers.files(table) if f.location() == first.location())
    assert int(now.dataSequenceNumber()) == int(first.dataSequenceNumber())
    assert (int(first.firstRowId()), int(now.firstRowId())) == (0, 3)
    catalog = workshop_of(writers.bridge.spark, lake_dir).catalog
    live = catalog.live_files(catalog.pin(TableId.parse(name)), [UNPARTITIONED_KEY])
    assert {f.path: f.first_row_id for f in live} == {
        str(f.location()): int(f.firstRowId()) for f in writers.files(table)
    }
    result = rewrite.commit()
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.STALE)
    assert "first row id 3, was 0" in result.message


def test_source_registered_again_does_not_excuse_a_removal_outside_the_plan(writers: Writers) -> None:
    name = new_name()
    table = writers.create(name)
    for row in (A, B, C):
        writers.append(table, [row])
    first, second, other = sorted(writers.files(table), key=lambda f: int(f.dataSequenceNumber()))
    rewrite = prepare(writers, name, Output([first, second], [A, B]))
    removed(table, first)
    registered(table, first)
    number = rewrite.batch.snapshot_sequence_number
    broken = rewrite.by_hand(lambda operation: operation.dataSequenceNumber(number).deleteFile(other))
    assert {v.rule for v in broken} == {Rule.IDENTITY, Rule.REMOVED_FILES, Rule.LIVE_COUNT}
    assert not is_stale(broken)
    assert ids(writers, name) == [1, 2, 3]


def test_manifest_list_with_a_lowest_number_that_is_too_high_drops_no_delete(
    writers: Writers, lake_dir: Path
) -> None:
    """Iceberg drops the delete by the list, although its own entry still needs it."""
    name = new_name()
    table = writers.create(name)
    needing = writers.append(table, [A, B])
    writers.delete_where(table, [{"id": 1}])
    writers.append(table, [C])
    writers.append(table, [D])
    table.refresh()
    sources = [f for f in writers.files(table) if f.location() != needing.location()]
    rewrite = prepare(writers, name, Output(sources, [C, D]))
    writers.append(table, [{"id": 5, "v": "e"}])
    table.refresh()
    with_lowest_number(table.currentSnapshot(), 9)
    assert ids(writers, name) == [2, 3, 4, 5]
    result = rewrite.commit()
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.STALE)
    assert f"{Rule.DROPPED_DELETE}: delete file" in result.message
    assert ids(writers, name) == [2, 3, 4, 5]
    catalog = workshop_of(writers.bridge.spark, lake_dir).catalog
    with pytest.raises(UnreadableTableError, match=r"the manifest list says .* 9\."):
        catalog.measure(catalog.pin(TableId.parse(name)), RewriteDataFilesPolicy())
    assert rewrite.commit(check=open_gate).status is CommitStatus.COMMITTED
    assert ids(writers, name) == [1, 2, 3, 4, 5]


def with_lowest_number(snapshot: Any, number: int) -> None:
    """Another writer's manifest list: every data manifest's lowest sequence number is said to be this one."""
    io, location = PyArrowFileIO(), str(snapshot.manifestListLocation())
    manifests = list(read_manifest_list(io.new_input(location)))
    for manifest in manifests:
        if manifest.content is ManifestContent.DATA:
            manifest.min_sequence_number = number
    folder, _, file = location.removeprefix("file:").rpartition("/")
    Path(folder, f".{file}.crc").unlink()  # Hadoop's checksum of the list before
    parent, output = int(snapshot.parentId()), io.new_output(location)
    sequence_number = int(snapshot.sequenceNumber())
    with write_manifest_list(
        2, output, int(snapshot.snapshotId()), parent, sequence_number, "gzip"
    ) as writer:
        writer.add_manifests(manifests)
