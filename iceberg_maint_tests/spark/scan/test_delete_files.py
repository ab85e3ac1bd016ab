"""Delete files as one Java list: by identity, joined and picked; and the manifests that they are read from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.engines.spark.scan.iceberg_reader import DeleteFiles, delete_manifests, live_delete_files
from iceberg_maint_tests.support.spark.workshop import Workshop, workshop_of

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    made = workshop_of(spark, lake_dir)
    made.sql("create namespace if not exists lake.delete_files")
    return made


def under_deletes(shop: Workshop, version: int = 2) -> Any:
    """A file of four rows, under an equality delete of each of two commits, in manifests of their own."""
    table = shop.writers.create(shop.new_name("delete_files"), version=version)
    shop.writers.append(table, [{"id": i, "v": "a"} for i in range(4)])
    shop.writers.delete_where(table, [{"id": 1}])
    shop.writers.delete_where(table, [{"id": 2}])
    table.refresh()
    return table


def live(shop: Workshop, table: Any, manifests: Any | None = None) -> DeleteFiles:
    bridge, snapshot = shop.bridge, table.currentSnapshot()
    chosen = bridge.list(snapshot.deleteManifests(table.io())) if manifests is None else manifests
    with live_delete_files(bridge, table, chosen) as files:
        return DeleteFiles(bridge, files.collect(bridge.jvm.java.util.stream.Collectors.toList()))


def test_live_delete_files_are_those_of_all_manifests(shop: Workshop) -> None:
    table = under_deletes(shop)
    found = live(shop, table)
    assert len(found) == 2
    assert {str(found[path, None].location()) for path, _ in found} == {path for path, _ in found}
    assert ("elsewhere", None) not in found


def test_live_delete_files_of_no_manifest_are_none(shop: Workshop) -> None:
    assert dict(live(shop, under_deletes(shop), shop.bridge.list(()))) == {}


def test_deletion_vectors_of_one_file_are_told_apart_by_their_offset(shop: Workshop) -> None:
    name = shop.new_name("delete_files")
    table = shop.writers.create(name, version=3, properties={"write.delete.mode": "merge-on-read"})
    for first in (0, 10):
        shop.writers.append(table, [{"id": first + i, "v": "a"} for i in range(4)])
    shop.sql(f"delete from {name} where id in (1, 11)")
    found = live(shop, shop.writers.load(name))
    assert len(found) == 2
    assert all(offset is not None for _, offset in found)


def test_picked_files_have_the_asked_order(shop: Workshop) -> None:
    found = live(shop, under_deletes(shop))
    asked = list(found)[::-1]
    assert [str(f.location()) for f in shop.bridge.iterate(found.picked(asked))] == [
        path for path, _ in asked
    ]
    assert list(found.only(shop.bridge, asked)) == asked


def test_files_joined_with_others_have_each_once(shop: Workshop) -> None:
    found = live(shop, under_deletes(shop))
    [first, second] = found
    alone = found.only(shop.bridge, [first])
    assert list(alone.with_others(shop.bridge, found)) == [first, second]
    assert list(alone) == [first]
    assert found.with_others(shop.bridge, alone) is found


@pytest.mark.parametrize(
    ("spec_ids", "first", "last", "count"), [({0}, 2, 3, 2), ({0}, 3, 9, 1), ({0}, 1, 2, 1), ({1}, 2, 3, 0)]
)
def test_delete_manifests_are_chosen_by_spec_and_sequence_number(
    shop: Workshop, spec_ids: set[int], first: int, last: int, count: int
) -> None:
    table = under_deletes(shop)
    snapshot_id = int(table.currentSnapshot().snapshotId())
    assert delete_manifests(shop.bridge, table, snapshot_id, spec_ids, first, last).size() == count
