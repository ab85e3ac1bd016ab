"""An orphan scan on an S3 whose listing lags, repeats pages, loses its continuation, or does not end."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from iceberg_maint.errors import IcebergMaintError
from iceberg_maint_tests.removal.test_object_store import (
    ALL,
    DAY_MS,
    POLICY,
    TABLE,
    Later,
    World,
    object_world,
)
from iceberg_maint_tests.support.servers.object_server import Bucket, listing

pytestmark = pytest.mark.seconds

Query = dict[str, str]
Answer = tuple[int, str]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A table of about 200 files and 21 orphans; a page has 50 objects."""
    with object_world(tmp_path, monkeypatch) as world:
        yield world


def live_stay(world: World) -> bool:
    """Every live file, and every other file that must stay, is at its place."""
    lake = world.lake
    return (world.has(lake.live), world.has(lake.stays)) == (len(lake.live), len(lake.stays))


def is_of_the_table(query: Query) -> bool:
    """Whether a request lists the table, not a folder of the trash."""
    return "trash" not in query.get("prefix", "") and "delimiter" not in query


def scanned(world: World) -> tuple[int, int]:
    """Listed files and orphans of a scan."""
    remove_orphans, state = world.remove_orphans(), world.catalog.pin(TABLE)
    with remove_orphans.scan(state, POLICY, in_flight=frozenset()) as scan:
        return scan.counts.listed_files, scan.counts.orphan_files


def test_live_file_that_is_not_listed_yet_refuses_the_pass(world: World) -> None:
    lagging = next(str(path).lstrip("/") for path in world.lake.live if path.suffix == ".parquet")
    # The object was written long before the listing: by its age it should be there.
    world.bucket.objects[lagging] = (world.bucket.objects[lagging][0], time.time() - 60)
    present = {key: value for key, value in world.bucket.objects.items() if key != lagging}
    world.bucket.listed = lambda bucket, query: (200, listing(bucket, query, present))
    with pytest.raises(IcebergMaintError, match=r"^ICM-122 .*not in the listing"):
        scanned(world)
    with pytest.raises(IcebergMaintError, match=r"^ICM-122 .*not in the listing"):
        world.run()
    assert (live_stay(world), world.has(world.lake.orphans)) == (True, ALL)


def test_orphan_that_is_not_listed_yet_waits_for_the_next_pass(world: World) -> None:
    lagging = str(next(iter(world.lake.orphans))).lstrip("/")
    absent = world.bucket.objects[lagging]

    def without(bucket: Bucket, query: Query) -> Answer:
        return 200, listing(bucket, query, {k: v for k, v in bucket.objects.items() if k != lagging})

    world.bucket.listed = without
    assert world.run().trashed_files == ALL - 1
    assert world.bucket.objects[lagging] == absent
    world.bucket.listed = None
    assert world.run().trashed_files == 1
    assert live_stay(world)


def test_orphan_that_is_listed_and_gone_is_skipped(world: World) -> None:
    ghost = str(next(iter(world.lake.orphans))).lstrip("/")
    before = dict(world.bucket.objects)
    del world.bucket.objects[ghost]

    def with_ghost(bucket: Bucket, query: Query) -> Answer:
        return 200, listing(bucket, query, {ghost: before[ghost], **bucket.objects})

    world.bucket.listed = with_ghost
    work = world.run()
    assert (work.orphan_files, work.trashed_files, work.stopped) == (ALL, ALL - 1, None)
    assert live_stay(world)


def test_trash_that_is_listed_after_its_deletion_ends_the_sweep_with_a_code(world: World) -> None:
    world.run()
    before = dict(world.bucket.objects)
    Later.ahead_ms += 4 * DAY_MS
    world.bucket.listed = lambda bucket, query: (200, listing(bucket, query, {**before, **bucket.objects}))
    with pytest.raises(IcebergMaintError, match=r"^ICM-153 .*still lists it"):
        raise world.run().stopped or AssertionError
    world.bucket.listed = None
    assert world.run().left_files == 0
    assert (live_stay(world), world.in_trash()) == (True, [])


def test_page_that_repeats_once_counts_once(world: World) -> None:
    plain = scanned(world)

    def repeating(bucket: Bucket, query: Query) -> Answer:
        token = query.get("continuation-token", "")
        if token == "again":
            # The first page once more, with its true continuation.
            return 200, listing(bucket, {**query, "continuation-token": ""})
        text = listing(bucket, query)
        if is_of_the_table(query) and not token:
            text = re.sub(r"<NextContinuationToken>[^<]*", "<NextContinuationToken>again", text)
        return 200, text

    world.bucket.listed = repeating
    assert scanned(world) == plain
    assert world.run().trashed_files == ALL
    assert live_stay(world)


def test_page_that_names_itself_as_the_next_one_ends_with_a_code(world: World) -> None:
    def standing(bucket: Bucket, query: Query) -> Answer:
        text = listing(bucket, {**query, "continuation-token": ""})
        return 200, re.sub(r"<NextContinuationToken>[^<]*", "<NextContinuationToken>same", text)

    world.bucket.listed = standing
    with pytest.raises(IcebergMaintError, match=r"^ICM-153 .*does not end"):
        world.run()
    assert (live_stay(world), world.has(world.lake.orphans)) == (True, ALL)


def test_two_pages_that_follow_one_another_for_ever_end_with_a_code(world: World) -> None:
    count = 0

    def circle(bucket: Bucket, query: Query) -> Answer:
        nonlocal count
        count += 1
        assert count < 100
        text = listing(bucket, {**query, "continuation-token": ""})
        return 200, re.sub(r"<NextContinuationToken>[^<]*", f"<NextContinuationToken>{count}", text)

    world.bucket.listed = circle
    with pytest.raises(IcebergMaintError, match=r"^ICM-153 .*does not end"):
        world.run()
    assert (live_stay(world), world.has(world.lake.orphans)) == (True, ALL)


def test_listing_goes_on_behind_its_last_key_when_the_continuation_is_refused(world: World) -> None:
    plain = scanned(world)
    refused: list[str] = []

    def forgetful(bucket: Bucket, query: Query) -> Answer:
        token = query.get("continuation-token", "")
        if token and is_of_the_table(query) and token not in refused:
            refused.append(token)
            text = "The continuation token provided is incorrect"
            return 400, f"<Error><Code>InvalidArgument</Code><Message>{text}</Message></Error>"
        return 200, listing(bucket, query)

    world.bucket.listed = forgetful
    assert scanned(world) == plain
    assert len(refused) >= 2
    assert world.run().trashed_files == ALL
    assert live_stay(world)


def test_listing_that_ends_early_without_a_sign_refuses_the_pass(world: World) -> None:
    def early(bucket: Bucket, query: Query) -> Answer:
        text = listing(bucket, query)
        if is_of_the_table(query):
            text = re.sub(r"<NextContinuationToken>[^<]*</NextContinuationToken>", "", text)
            text = text.replace("<IsTruncated>true", "<IsTruncated>false")
        return 200, text

    for key, (content, at) in world.bucket.objects.items():
        world.bucket.objects[key] = content, at - 60
    world.bucket.listed = early
    with pytest.raises(IcebergMaintError, match=r"^ICM-122 .*not in the listing"):
        world.run()
    assert (live_stay(world), world.has(world.lake.orphans)) == (True, ALL)


def test_answer_that_is_cut_in_the_middle_of_its_text_ends_with_a_code(world: World) -> None:
    def cut(bucket: Bucket, query: Query) -> Answer:
        text = listing(bucket, query)
        return 200, text[: len(text) // 2] if is_of_the_table(query) else text

    world.bucket.listed = cut
    with pytest.raises(IcebergMaintError, match=r"^ICM-133 "):
        world.run()
    assert (live_stay(world), world.has(world.lake.orphans)) == (True, ALL)
