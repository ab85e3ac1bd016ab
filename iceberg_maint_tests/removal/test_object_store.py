"""A whole life of orphans on an object store: listed, set aside, put back, swept, by Arrow's own S3 file system."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.catalog.approved_io import open_store
from iceberg_maint.catalog.arrow_store import ArrowStore
from iceberg_maint.catalog.location_owners import FleetLocationOwners
from iceberg_maint.catalog.reachable_files import MetadataWalk
from iceberg_maint.catalog.s3_store import S3Store
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.policy.housekeeping import RemoveOrphanFilesPolicy
from iceberg_maint.loop.context import Context
from iceberg_maint.ports.storage import OrphanWork, Store
from iceberg_maint.removal.removal_progress import TrashChange
from iceberg_maint.removal.remove_orphans import CleanupContext, OrphanRemoval
from iceberg_maint_tests.support.catalog.claim_memory import ClaimMemory
from iceberg_maint_tests.support.context import changed
from iceberg_maint_tests.support.removal.layouts import (
    DAY_MS,
    LAYOUTS,
    ORPHANS,
    Lake,
    LiteralPath,
    ShiftedStore,
)
from iceberg_maint_tests.support.removal.passes import Passes
from iceberg_maint_tests.support.servers.object_server import Bucket, object_server

pytestmark = pytest.mark.seconds

POLICY = RemoveOrphanFilesPolicy()
TABLE = TableId.parse("lake.db.t")
ALL = ORPHANS + 1
HOUR_MS = DAY_MS // 24
TRASH = "/.iceberg-maint-trash/"


class ObjectPath(LiteralPath):
    """A path whose URI is that of the object it is uploaded to."""

    def as_uri(self) -> str:
        return f"s3://bucket{self}"


class Later:
    """The object store, later."""

    ahead_ms = 8 * DAY_MS


class LaterArrow(ArrowStore):
    def now_ms(self, folder: str) -> int:
        return super().now_ms(folder) + Later.ahead_ms


class LaterS3(S3Store):
    def now_ms(self, folder: str) -> int:
        return super().now_ms(folder) + Later.ahead_ms


@dataclass
class World:
    """The table on the object store; `lake` says which file is what."""

    lake: Lake
    bucket: Bucket
    catalog: PyIcebergCatalog
    scratch: Path
    arrow_only: bool = False

    def remove_orphans(self) -> OrphanRemoval:
        def store(state: TableState) -> Store:
            found = open_store(self.catalog.io_of(TABLE), state.location)
            assert isinstance(found, S3Store)
            if self.arrow_only:
                return LaterArrow(found._resolve)
            return LaterS3(found._resolve, found._properties, found._region)

        return OrphanRemoval(
            CleanupContext(
                FleetLocationOwners({"lake": self.catalog}, ClaimMemory()).others,
                store,
                lambda state: MetadataWalk(self.catalog, state.table, state.uuid),
                self.scratch,
                lambda: time.time_ns() // 1_000_000 + Later.ahead_ms,
            )
        )

    def run(self) -> OrphanWork:
        return self.remove_orphans().run(
            self.catalog.pin(TABLE), POLICY, in_flight=frozenset(), sweep=True, holds=lambda: True
        )

    def has(self, kind: dict[Path, bytes]) -> int:
        """How many of the files are at their places, unchanged."""
        return sum(self.bucket.objects.get(str(p).lstrip("/"), (b"",))[0] == b for p, b in kind.items())

    def in_trash(self) -> list[str]:
        return [key for key in self.bucket.objects if TRASH in f"/{key}"]


@contextmanager
def object_world(scratch: Path, patch: pytest.MonkeyPatch, *, arrow_only: bool = False) -> Iterator[World]:
    """Uploads a table and its orphans to a server that ends with the block."""
    patch.setattr(Later, "ahead_ms", 8 * DAY_MS)
    patch.setattr("iceberg_maint_tests.support.removal.layouts.LiteralPath", ObjectPath)
    layout = replace(LAYOUTS[0], uri=lambda p: f"s3a://bucket{p}", location=lambda p: f"s3://bucket{p}")
    lake = layout.build(scratch / "lake")
    with object_server() as (endpoint, bucket):
        for path in lake.folder.rglob("*"):
            if path.is_file() and path != lake.database:
                bucket.objects[str(path).lstrip("/")] = (path.read_bytes(), time.time())
        properties = {
            "type": "sql",
            "uri": f"sqlite:///{lake.database}",
            "s3.endpoint": endpoint,
            "s3.access-key-id": "key",
            "s3.secret-access-key": "a secret",
            "s3.region": "us-east-1",
        }
        yield World(lake, bucket, PyIcebergCatalog("lake", properties), scratch, arrow_only)


@pytest.fixture(params=["arrow", "boto3"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with object_world(tmp_path, monkeypatch, arrow_only=request.param == "arrow") as world:
        yield world


def test_orphans_of_an_object_store_go_and_come_back(world: World) -> None:
    lake = world.lake
    first = world.run()
    assert (first.orphan_files, first.trashed_files, first.needs_approval) == (ALL, ALL, False)
    assert (world.has(lake.live), world.has(lake.stays), world.has(lake.orphans)) == (
        len(lake.live),
        len(lake.stays),
        0,
    )
    told: list[TrashChange] = []
    state = world.catalog.pin(TABLE)
    world.remove_orphans().restore(state, POLICY, mark_id=None, holds=lambda: True, report=told.append)
    assert [t.restored_files for t in told] == [ALL]
    assert world.has(lake.orphans) == ALL
    assert world.run().trashed_files == 0  # what a person put back stays


def test_swept_object_store_keeps_nothing_of_the_trash(world: World) -> None:
    world.run()
    early = world.run()
    assert (early.swept_files, early.trashed_files) == (0, 0)
    Later.ahead_ms += 4 * DAY_MS
    swept = world.run()
    assert (swept.swept_files, swept.left_files) == (ALL, 0)
    assert (world.has(world.lake.live), world.in_trash()) == (len(world.lake.live), [])


def test_orphan_with_an_empty_segment_in_its_key_stays_and_the_others_go(world: World) -> None:
    table = world.catalog.pin(TABLE).location.removeprefix("s3://bucket/")
    world.bucket.objects[f"{table}/data//orphan"] = (b"x", time.time())
    assert world.run().trashed_files == ALL
    assert f"{table}/data//orphan" in world.bucket.objects


def test_listing_comes_by_the_page_and_no_folder_objects_are_made_for_moves(world: World) -> None:
    before = len(world.bucket.requests)
    world.run()
    asked = world.bucket.requests[before:]
    # Per file: is it as listed, is the place free, copy, delete; Arrow keeps the folder it came from.
    assert asked.count("PUT") <= 3 * ALL + 20
    assert asked.count("DELETE") <= ALL + 5


@dataclass(kw_only=True)
class ObjectPasses(Passes):
    """Passes by the whole loop on the object store; `store` is the clock of the machine and of the ledger."""

    world: World

    def remove_orphans(self) -> OrphanRemoval:
        return self.world.remove_orphans()

    def context(self) -> Context:
        def store_now_ms(state: TableState) -> int:
            return open_store(self.world.catalog.io_of(TABLE), state.location).now_ms(state.location) + (
                Later.ahead_ms
            )

        catalogs = {TABLE.catalog: self.world.catalog}
        return changed(super().context(), catalogs=catalogs, store_now_ms=store_now_ms)

    def run_later(self, hours: int = 0) -> str:
        """What a pass does this many hours later."""
        Later.ahead_ms += hours * HOUR_MS
        self.store.ahead_ms = Later.ahead_ms
        [batch] = self.run(force=True).batches
        if batch.reason is Reason.CLOCK_SKEW:
            return batch.message[:7]
        return f"{batch.counts['trashed_files'] + batch.counts['swept_files']} files"


@pytest.mark.variant
@pytest.mark.parametrize("world", ["boto3"], indirect=True)
@pytest.mark.parametrize("minutes_an_hour", [1, -1])
def test_store_whose_clock_drifts_removes_nothing_until_it_is_right(
    world: World, minutes_an_hour: int
) -> None:
    """A pass every three hours of a simulated day. Clocks may differ by five minutes."""
    passes = ObjectPasses(world.lake, ShiftedStore(), world=world)
    ran = []
    for hour in range(0, 24, 3):
        world.bucket.ahead_seconds = (60 * hour + 30) * minutes_an_hour
        ran.append(passes.run_later(3))
    assert ran == [f"{ALL} files", "0 files", *["ICM-115"] * 6]
    assert passes.run_later(96) == "ICM-115"
    assert len(world.in_trash()) == ALL + 1
    world.bucket.ahead_seconds = 0
    assert passes.run_later() == f"{ALL} files"
    assert (world.has(world.lake.live), world.has(world.lake.stays), world.in_trash()) == (
        len(world.lake.live),
        len(world.lake.stays),
        [],
    )
