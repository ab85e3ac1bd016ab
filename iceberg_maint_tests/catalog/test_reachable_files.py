"""What a table's metadata reaches: all of it, each manifest once, and never in part."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.catalog.reachable_files import MetadataWalk
from iceberg_maint.core.model.table_state import Ref
from iceberg_maint.errors import RefusedError, UnknownTableError, UnreadableTableError
from iceberg_maint_tests.catalog.conftest import EVENTS, ROWS, SCHEMA


def walk_of(catalog: PyIcebergCatalog) -> MetadataWalk:
    return MetadataWalk(catalog, EVENTS, catalog.pin(EVENTS).uuid)


def files_below(table: Table) -> set[str]:
    root = Path(table.location().removeprefix("file://"))
    return {f"file://{p}" for p in root.rglob("*") if p.is_file()}


def test_every_file_a_writer_left_is_reached(events: Table, catalog: PyIcebergCatalog) -> None:
    """Three appends and a delete that rewrote files: none is expired, so each file on disk is reached."""
    assert set(walk_of(catalog).paths()) == files_below(events)


def test_second_walk_gives_what_came_since(events: Table, catalog: PyIcebergCatalog) -> None:
    walk = walk_of(catalog)
    before = set(walk.paths())
    events.append(ROWS)
    since = list(walk.paths())
    assert before | set(since) == files_below(events)
    assert len([p for p in since if "/data/" in p]) == len(
        [p for p in files_below(events) - before if "/data/" in p]
    )


def test_manifest_that_is_missing_stops_the_walk(events: Table, catalog: PyIcebergCatalog) -> None:
    state = catalog.pin(EVENTS)
    live = next(m for m in state.manifests if m.existing_files or m.added_files)
    Path(live.path.removeprefix("file://")).unlink()
    with pytest.raises(UnreadableTableError, match="ICM-101"):
        list(MetadataWalk(catalog, EVENTS, state.uuid).paths())


def test_manifest_list_of_an_old_snapshot_that_is_missing_stops_the_walk(
    events: Table, catalog: PyIcebergCatalog
) -> None:
    state = catalog.pin(EVENTS)
    Path(state.snapshots[0].manifest_list.removeprefix("file://")).unlink()
    with pytest.raises(UnreadableTableError, match="ICM-101"):
        list(MetadataWalk(catalog, EVENTS, state.uuid).paths())


def test_manifest_list_of_a_removed_snapshot_that_is_missing_or_damaged_has_no_manifests(
    events: Table, catalog: PyIcebergCatalog
) -> None:
    walk, first = walk_of(catalog), catalog.pin(EVENTS).snapshots[0].manifest_list
    assert len(walk.manifests(first)) == 1
    path = Path(first.removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:10])
    assert walk.manifests(first) == ()
    path.unlink()
    assert walk.manifests(first) == ()


def test_manifest_list_of_a_removed_snapshot_that_the_store_does_not_give_ends_the_walk(
    events: Table, catalog: PyIcebergCatalog
) -> None:
    walk, first = walk_of(catalog), catalog.pin(EVENTS).snapshots[0].manifest_list
    path = Path(first.removeprefix("file://"))
    path.unlink()
    path.mkdir()
    with pytest.raises(UnreadableTableError) as why:
        walk.manifests(first)
    assert isinstance(why.value.__cause__, IsADirectoryError)


def test_table_that_was_replaced_is_refused(events: Table, catalog: PyIcebergCatalog) -> None:
    with pytest.raises(RefusedError, match="ICM-129"):
        list(MetadataWalk(catalog, EVENTS, "another").paths())


def test_table_that_is_gone_is_refused(events: Table, writer: SqlCatalog, catalog: PyIcebergCatalog) -> None:
    walk = walk_of(catalog)
    writer.drop_table("db.events")
    with pytest.raises(UnknownTableError, match="ICM-126"):
        list(walk.paths())


def test_retention_of_refs_is_read(events: Table, catalog: PyIcebergCatalog) -> None:
    head = events.current_snapshot()
    assert head is not None
    events.manage_snapshots().create_tag(head.snapshot_id, "v1", max_ref_age_ms=5).create_branch(
        head.snapshot_id, "dev", max_ref_age_ms=6, max_snapshot_age_ms=7, min_snapshots_to_keep=8
    ).commit()
    assert set(catalog.pin(EVENTS).refs) == {
        Ref("main", "branch", head.snapshot_id),
        Ref("v1", "tag", head.snapshot_id, 5),
        Ref("dev", "branch", head.snapshot_id, 6, 7, 8),
    }


@pytest.mark.parametrize("content", [None, b"{"])
def test_log_whose_oldest_version_is_missing_or_damaged_is_not_complete(
    events: Table, catalog: PyIcebergCatalog, content: bytes | None
) -> None:
    whole = walk_of(catalog).log()
    assert whole.complete
    oldest = Path(whole.files[0].removeprefix("file://"))
    oldest.unlink()
    if content is not None:
        oldest.write_bytes(content)
    assert walk_of(catalog).log() == replace(whole, complete=False)


def test_log_follows_the_logs_of_versions_that_the_newest_no_longer_names(
    writer: SqlCatalog, catalog: PyIcebergCatalog
) -> None:
    properties = {"write.metadata.previous-versions-max": "1"}
    table = writer.create_table("db.events", SCHEMA, properties=properties)
    locations, times = [table.metadata_location], [table.metadata.last_updated_ms]
    for _ in range(4):
        table.append(ROWS)
        locations.append(table.metadata_location)
        times.append(table.metadata.last_updated_ms)
    assert len(table.metadata.metadata_log) == 1
    found = walk_of(catalog).log()
    assert (found.location, found.files, found.complete) == (locations[4], tuple(locations[3::-1]), True)
    assert found.oldest_ms == times[0]


def test_second_opinion_reads_manifests_until_they_list_enough_files(
    writer: SqlCatalog, catalog: PyIcebergCatalog
) -> None:
    table = writer.create_table("db.events", SCHEMA)
    for _ in range(4):
        table.append(ROWS)
    walk = walk_of(catalog)
    list(walk.paths())
    for most in (1, 2, 4, 5):
        found = [path for path in walk.second_opinion(most) if path.endswith(".parquet")]
        assert len(set(found)) == len(found) == min(most, 4)


def test_second_opinion_names_no_file_that_a_commit_removed(events: Table, catalog: PyIcebergCatalog) -> None:
    walk = walk_of(catalog)
    list(walk.paths())
    live = sorted(task.file.file_path for task in events.scan().plan_files())
    assert sorted(p for p in walk.second_opinion(10_000) if p.endswith(".parquet")) == live
