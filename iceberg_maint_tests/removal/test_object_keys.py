"""Keys and times that only object stores have: characters that divide addresses, and two precisions of one time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from iceberg_maint.catalog.approved_io import open_store
from iceberg_maint.ports.storage import OrphanWork
from iceberg_maint_tests.removal.test_object_store import ALL, DAY_MS, POLICY, TABLE, Later, World
from iceberg_maint_tests.removal.test_unreliable_listing import live_stay, world
from iceberg_maint_tests.support.servers.object_server import Bucket, listing

pytestmark = pytest.mark.seconds

__all__ = ["world"]
LONG_AGO = 1_700_000_000.0


def swept(world: World) -> int:
    """Files that the next pass deletes, after the retention."""
    Later.ahead_ms += 4 * DAY_MS
    return world.run().swept_files


@pytest.mark.parametrize("mark", ["#1", "?versionId=1", "\n"])
def test_copy_whose_key_continues_that_of_a_live_file_goes_and_the_live_file_stays(
    world: World, mark: str
) -> None:
    live = next(str(path).lstrip("/") for path in world.lake.live if path.suffix == ".parquet")
    content, _ = world.bucket.objects[live]
    # Both have one size and, in whole seconds, one time: a job copied its folder.
    world.bucket.objects[live] = (content, LONG_AGO)
    world.bucket.objects[live + mark] = (content, LONG_AGO)
    assert world.run().trashed_files == ALL + 1
    assert (live_stay(world), live + mark in world.bucket.objects) == (True, False)
    assert swept(world) == ALL + 1
    assert live_stay(world)


def test_listing_in_milliseconds_and_facts_in_whole_seconds_are_one_file(world: World) -> None:
    world.bucket.listed = lambda bucket, query: (200, listing(bucket, query).replace(".000Z", ".987Z"))
    assert world.run().trashed_files == ALL
    assert (swept(world), live_stay(world)) == (ALL, True)


def test_trash_is_restored_after_the_scheme_of_the_location_has_changed(world: World) -> None:
    world.run()
    key = next(key for key in world.bucket.objects if key.endswith("00009-last.metadata.json"))
    document = json.loads(world.bucket.objects[key][0])
    document["location"] = document["location"].replace("s3://", "s3a://")
    world.bucket.objects[key] = (json.dumps(document).encode(), LONG_AGO)
    state = world.catalog.pin(TABLE)
    world.remove_orphans().restore(state, POLICY, mark_id=None, holds=lambda: True, report=lambda _: None)
    assert world.has(world.lake.orphans) == ALL


def test_orphan_that_its_writer_deletes_during_the_moves_is_skipped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = next(str(path).lstrip("/") for path in world.lake.orphans)
    store = type(world.remove_orphans()._context.store(world.catalog.pin(TABLE)))
    move = store.move

    def deleted_first(self: object, source: str, target: str) -> None:
        if source.endswith(gone):
            world.bucket.objects.pop(gone, None)
        move(self, source, target)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "move", deleted_first)
    work = world.run()
    assert (work.trashed_files, work.stopped, live_stay(world)) == (ALL - 1, None, True)


def test_archived_orphan_stays_and_the_others_go(world: World, caplog: pytest.LogCaptureFixture) -> None:
    archived = min(str(path).lstrip("/") for path in world.lake.orphans)
    world.bucket.archived = frozenset({archived})
    work = world.run()
    assert (work.trashed_files, work.stopped, archived in world.bucket.objects) == (ALL - 1, None, True)
    assert f"ICM-172 s3://bucket/{archived} is archived" in caplog.text
    assert swept(world) == ALL - 1


@pytest.mark.parametrize("key", ["/../x.parquet", "/data/../../../x", "/data/./x.parquet"])
def test_key_with_dots_stays_and_the_orphans_go(world: World, key: str) -> None:
    key = world.catalog.pin(TABLE).location.removeprefix("s3://bucket/") + key
    world.bucket.objects[key] = (b"x", LONG_AGO)
    assert world.run().trashed_files == ALL
    assert (key in world.bucket.objects, live_stay(world)) == (True, True)


def test_file_that_comes_while_the_trash_is_tidied_stays(world: World) -> None:
    # Another installation moves a file to the trash between the listing and the deletion of its markers.
    world.bucket.objects["t/trash/"] = world.bucket.objects["t/trash/files/"] = (b"", LONG_AGO)
    answer = listing

    def meanwhile(bucket: Bucket, query: dict[str, str]) -> tuple[int, str]:
        answered = answer(bucket, query)
        if query.get("prefix", "").startswith("t/trash"):
            bucket.objects.setdefault("t/trash/files/orphan", (b"x", LONG_AGO))
            world.bucket.listed = None
        return 200, answered

    world.bucket.listed = meanwhile
    store = open_store(world.catalog.io_of(TABLE), "s3://bucket/t")
    store.tidy("s3://bucket/t/trash")
    store.tidy("s3://bucket/t/trash")
    assert [key for key in world.bucket.objects if key.startswith("t/")] == ["t/trash/files/orphan"]


def test_two_installations_that_pass_in_the_same_second_have_manifests_of_their_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: LONG_AGO)
    monkeypatch.setattr(time, "time_ns", lambda: int(LONG_AGO) * 10**9)
    for key, (content, _) in list(world.bucket.objects.items()):
        world.bucket.objects[key] = (content, LONG_AGO)
    store = type(world.remove_orphans()._context.store(world.catalog.pin(TABLE)))
    create, works = store.create, list[OrphanWork]()

    def other_first(self: object, path: str, lines: Iterable[bytes]) -> None:
        if "/marks/" in path:
            monkeypatch.setattr(store, "create", create)
            works.append(replace(world, scratch=world.scratch / "other").run())
        create(self, path, lines)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "create", other_first)
    work = world.run()
    assert (works[0].trashed_files, work.trashed_files, work.stopped) == (ALL, 0, None)
    assert sum("/marks/" in key for key in world.bucket.objects) == 2
    assert swept(world) == ALL
    assert (live_stay(world), world.in_trash()) == (True, [])


def test_manifest_that_another_pass_has_swept_since_the_listing_is_none(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run()
    store = type(world.remove_orphans()._context.store(world.catalog.pin(TABLE)))
    read = store.read_lines

    def gone_first(self: object, path: str) -> Iterator[bytes]:
        if "/marks/" in path:
            for key in world.in_trash():
                world.bucket.objects.pop(key)
        return read(self, path)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "read_lines", gone_first)
    assert (swept(world), live_stay(world)) == (0, True)
