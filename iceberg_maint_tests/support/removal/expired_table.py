"""A small v3 table with a history to expire: what each snapshot alone references is known by name.

snapshot 1: manifest A (data f1, f2), manifest DA (equality deletes e1), statistics s1 and p1
snapshot 2: manifest B (f1, f2 DELETED, f3), manifest DB (two deletion vectors in v1.puffin)
snapshot 3: manifest C, which regroups B (f1, f3), and DB; on the tag `audit`
snapshot 4: C, DB and manifest D (f4); the head of main
snapshot 5: A and manifest E (f5); the head of the branch `side`, which began at snapshot 1
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS
from pyiceberg.typedef import Record

from iceberg_maint.catalog.location_owners import FleetLocationOwners
from iceberg_maint.catalog.reachable_files import MetadataWalk
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.policy.housekeeping import RemoveOrphanFilesPolicy
from iceberg_maint.core.removal.orphan_rules import TRASH
from iceberg_maint.core.removal.released_file_rules import release_of
from iceberg_maint.ports.storage import ReleasedWork, StoredFile
from iceberg_maint.removal.remove_orphans import CleanupContext, OrphanRemoval, Scope
from iceberg_maint_tests.support.catalog.claim_memory import ClaimMemory
from iceberg_maint_tests.support.catalog.table_files import (
    DELETED,
    EXISTING,
    File,
    ManifestFile,
    TableFiles,
    register,
    write_avro,
)
from iceberg_maint_tests.support.removal.layouts import SCHEMA, UNPARTITIONED, Lake, LiteralPath, ShiftedStore

TABLE = TableId.parse("lake.db.t")
DAY_SECONDS = 86_400
POLICY = RemoveOrphanFilesPolicy()
SIZE = 10
COMMITTED_DAYS, WRITTEN_DAYS = 20, 30
"""How long ago the snapshots were committed and the files were written."""


class LoggingStore(ShiftedStore):
    """A store that keeps the listed prefixes and acts before each change, if it is given an act."""

    def __init__(self, ahead_ms: int = 0, act: Callable[[str, str], None] = lambda *_: None) -> None:
        super().__init__(ahead_ms)
        self.listed: list[str] = []
        self.act = act

    def list(self, prefix: str) -> Iterator[StoredFile]:
        self.listed.append(prefix)
        return super().list(prefix)

    def create(self, path: str, lines: Any) -> None:
        self.act("create", path)
        super().create(path, lines)

    def move(self, source: str, target: str) -> None:
        self.act("move", source)
        super().move(source, target)

    def delete(self, path: str) -> None:
        self.act("delete", path)
        super().delete(path)


class CountingWalk(MetadataWalk):
    """A walk that keeps the manifests of removed snapshots that it opens."""

    opened: list[str]

    def files(self, manifest: Any) -> Any:
        self.opened.append(manifest.path)
        return super().files(manifest)


@dataclass
class ExpiredTable:
    """The table `lake.db.t` below a folder. `placed` maps the names of the docstring to the files."""

    folder: Path
    store: LoggingStore = field(default_factory=LoggingStore)
    placed: dict[str, Path] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)
    in_flight: frozenset[str] = frozenset()
    walk: type[CountingWalk] = CountingWalk
    policy: RemoveOrphanFilesPolicy = POLICY
    scope: Scope = field(default_factory=Scope)
    location: Callable[[Path], str] = lambda at: f"file://{at}"

    def __post_init__(self) -> None:
        self.at = LiteralPath(self.folder) / "warehouse" / "db" / "t"
        self.table = TableFiles(self.at, SCHEMA, [UNPARTITIONED], 3)
        self.first_ms = int((time.time() - COMMITTED_DAYS * DAY_SECONDS) * 1000)
        self.refs = {
            "main": {"snapshot-id": 4, "type": "branch"},
            "side": {"snapshot-id": 5, "type": "branch"},
            "audit": {"snapshot-id": 3, "type": "tag"},
        }
        self.log: list[dict[str, Any]] = []
        self.statistics: dict[str, list[dict[str, Any]]] = {}
        self._make()

    @property
    def lake(self) -> Lake:
        return Lake(LiteralPath(self.folder))

    def uri(self, name: str) -> str:
        return f"file://{self.placed[name]}"

    # the history

    def _make(self) -> None:
        data = {n: self.file(f"f{n}", f"data/f{n}.parquet") for n in range(1, 6)}
        e1 = self.file("e1", "data/e1.parquet")
        v1 = self.file("v1", "data/v1.puffin")
        for name in ("s1", "p1"):
            self.file(name, f"metadata/{name}.stats")
        vectors = [
            File(
                v1,
                content=1,
                file_format="PUFFIN",
                size_bytes=SIZE,
                referenced_data_file=data[n],
                content_offset=n,
                content_bytes=4,
            )
            for n in (1, 3)
        ]
        a = self.manifest("A", 1, _data(data[1]), _data(data[2]))
        da = self.manifest("DA", 1, File(e1, content=2, size_bytes=SIZE, equality_ids=(1,)), is_deletes=True)
        b = self.manifest("B", 2, _data(data[1], EXISTING), _data(data[2], DELETED), _data(data[3]))
        db = self.manifest("DB", 2, *vectors, is_deletes=True)
        c = self.manifest("C", 3, _data(data[1], EXISTING), _data(data[3], EXISTING))
        d = self.manifest("D", 4, _data(data[4]))
        e = self.manifest("E", 5, _data(data[5]))
        for number, listed in ((1, (a, da)), (2, (b, db)), (3, (c, db)), (4, (c, db, d)), (5, (a, e))):
            self.commit(number, listed, parent={1: None, 5: 1}.get(number, number - 1))
        self.statistics = {
            "statistics": [{"snapshot-id": 1, "statistics-path": self.uri("s1")}],
            "partition-statistics": [{"snapshot-id": 1, "statistics-path": self.uri("p1")}],
        }
        self.publish()

    def file(self, name: str, path: str, *, days: float = WRITTEN_DAYS, size: int = SIZE) -> str:
        """A file on disk, written so many days ago; returns its location."""
        place = self.at / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"x" * size)
        self._age(place, days)
        self.placed[name] = place
        return f"file://{place}"

    def manifest(self, name: str, number: int, *files: File, is_deletes: bool = False) -> dict[str, Any]:
        """A manifest of this name, as a manifest list lists it."""
        shown = ManifestFile(files, UNPARTITIONED, number, number, is_deletes=is_deletes, version=3)
        listed = self.table.write_manifest(shown, f"{name}-m0.avro")
        self.placed[name] = self.at / "metadata" / f"{name}-m0.avro"
        self._age(self.placed[name], WRITTEN_DAYS)
        return listed

    def commit(self, number: int, listed: Collection[dict[str, Any]], parent: int | None) -> None:
        """A snapshot that lists these manifests."""
        path = self.at / "metadata" / f"snap-{number}.avro"
        kind = MANIFEST_LIST_FILE_SCHEMAS[3]
        rows = [Record(*(entry.get(f.name) for f in kind.fields)) for entry in listed]
        write_avro(path, kind, "manifest_file", rows, {"format-version": "3"})
        self.placed[f"l{number}"] = path
        self._age(path, WRITTEN_DAYS)
        node = {
            "snapshot-id": number,
            "sequence-number": number,
            "timestamp-ms": self.first_ms + number * 1000,
            "summary": {"operation": "overwrite"},
            "manifest-list": path.as_uri(),
            "schema-id": 0,
            "first-row-id": 0,
            "added-rows": 0,
        }
        self.table.snapshots.append(node if parent is None else {**node, "parent-snapshot-id": parent})

    def publish(self) -> None:
        """The table's metadata as it is now, in the catalog."""
        head = max(s["snapshot-id"] for s in self.table.snapshots)
        updated_ms = self.first_ms + 60_000 * (1 + len(self.log)) + head
        document = {
            **self.table.document(),
            **self.statistics,
            "refs": self.refs,
            "current-snapshot-id": self.refs["main"]["snapshot-id"],
            "last-sequence-number": 5,
            "last-updated-ms": updated_ms,
            "location": self.location(self.at),
            "metadata-log": list(self.log),
        }
        place = self.at / "metadata" / f"{len(self.log):05d}-x.metadata.json"
        place.write_text(json.dumps(document))
        self.log.append({"timestamp-ms": updated_ms, "metadata-file": place.as_uri()})
        register(self.lake.database, "db.t", place.as_uri())

    def _age(self, place: Path, days: float) -> None:
        then = time.time() - days * DAY_SECONDS
        os.utime(place, (then, then))

    # what is done with it

    def remove_orphans(self) -> OrphanRemoval:
        catalog = self.lake.catalog

        def walk(state: Any) -> CountingWalk:
            made = self.walk(catalog, state.table, state.uuid)
            made.opened = self.opened
            return made

        return OrphanRemoval(
            CleanupContext(
                others=FleetLocationOwners({"lake": catalog}, ClaimMemory()).others,
                store=lambda _state: self.store,
                reachability=walk,
                scratch=self.folder / "scratch",
                now_ms=self.store.local_now_ms,
            ),
            self.scope,
        )

    def record(self, *numbers: int) -> None:
        """Stores the release of these snapshots."""
        state = self.lake.catalog.pin(TABLE)
        document = self.lake.catalog.metadata_document(TABLE, state.metadata_location)
        self.remove_orphans().record_release(
            state, self.policy, release_of("batch-1", state, document, numbers)
        )

    def expire(self, *numbers: int) -> None:
        """Removes the snapshots, and the refs that point at them, from the metadata."""
        gone = frozenset(numbers)
        self.table.snapshots = [s for s in self.table.snapshots if s["snapshot-id"] not in gone]
        self.refs = {name: ref for name, ref in self.refs.items() if ref["snapshot-id"] not in gone}
        self.statistics = {
            key: [s for s in rows if s["snapshot-id"] not in gone] for key, rows in self.statistics.items()
        }
        self.publish()

    def remove(self, holds: Callable[[], bool] = lambda: True) -> ReleasedWork:
        """What the run of an expiry does after its commit."""
        state = self.lake.catalog.pin(TABLE)
        return self.remove_orphans().remove_released(
            state, self.policy, in_flight=self.in_flight, holds=holds
        )

    def later(self, days: float) -> ExpiredTable:
        """The same table, so many days later by all clocks."""
        self.store.ahead_ms += int(days * DAY_SECONDS * 1000)
        return self

    # what is on disk

    def gone(self) -> set[str]:
        """The names of the files that are not at their places."""
        return {name for name, place in self.placed.items() if not place.exists()}

    def in_trash(self) -> set[str]:
        """The names of the files in the trash."""
        files = {p.name for p in self.at.glob(f"{TRASH}/files/**/*") if p.is_file()}
        return {name for name, place in self.placed.items() if place.name in files}

    def stored(self) -> int:
        """The number of stored releases."""
        return sum(1 for _ in self.at.glob(f"{TRASH}/releases/*"))


def _data(path: str, status: int = 1) -> File:
    return File(
        path, size_bytes=SIZE, status=status, sequence_number=None if status == 1 else 1, snapshot_id=1
    )
