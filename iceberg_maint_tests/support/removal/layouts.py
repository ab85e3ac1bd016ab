"""Tables of every shape on a local disk, with each live file, each orphan and each other file known.

Data files are a few bytes: nothing here reads them. Metadata is real, so that the catalog adapter walks it.
"""

from __future__ import annotations

import gzip
import json
import os
import time
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.catalog.local_store import LocalStore
from iceberg_maint.catalog.reachable_files import MetadataWalk
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.location import location_owner_of
from iceberg_maint.core.removal.orphan_rules import TRASH
from iceberg_maint.removal.target import Target
from iceberg_maint.removal.trash_manifest import trash_batches
from iceberg_maint_tests.support.catalog.table_files import (
    DELETED,
    EXISTING,
    File,
    ManifestFile,
    TableFiles,
    register,
    spec,
    write_avro,
)

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False), NestedField(2, "region", StringType(), required=False)
)
UNPARTITIONED = spec(0)
HIDDEN_FIELD = spec(0, (2, 1000, IdentityTransform(), "_region"))
DAY_MS = 86_400_000
OLD_SECONDS = 30 * 86_400
DATA_FILES, ORPHANS = 160, 20
FLINK_JOB = "fd72014d4c864993a2e5a9287b4a9c5d"
FLINK_OPERATOR = "cbc357ccb763df2852fee8c4fc7d55f2"


class LiteralPath(type(Path())):  # type: ignore[misc]
    """A path whose URI is not percent-encoded: Iceberg's locations are literal."""

    def as_uri(self) -> str:
        return f"file://{self}"


class ShiftedStore(LocalStore):
    """The local file system, later: its clock runs ahead by `ahead_ms`."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms

    def now_ms(self, folder: str) -> int:
        return super().now_ms(folder) + self.ahead_ms

    def local_now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms


@dataclass
class Lake:
    """A catalog with one table under test, `lake.db.t`, and what is planted round it."""

    folder: Path
    live: dict[Path, bytes] = field(default_factory=dict)
    orphans: dict[Path, bytes] = field(default_factory=dict)
    stays: dict[Path, bytes] = field(default_factory=dict)
    in_flight: set[str] = field(default_factory=set)
    exclusive: tuple[str, ...] = ()

    @property
    def database(self) -> Path:
        return self.folder / "catalog.db"

    @property
    def catalog(self) -> PyIcebergCatalog:
        properties = {"type": "sql", "uri": f"sqlite:///{self.database}", "warehouse": self.folder.as_uri()}
        return PyIcebergCatalog("lake", properties)

    def trashed(self) -> int:
        """Files in the table's trash."""
        return sum(p.is_file() for p in self.folder.rglob(f"{TRASH}/files/**/*"))

    def plant(self, kind: dict[Path, bytes], path: str | Path, content: bytes | None = None) -> None:
        """A file of one of the kinds, as old as all others."""
        place = Path(str(path).removeprefix("file://"))
        place.parent.mkdir(parents=True, exist_ok=True)
        if content is not None or not place.exists():
            place.write_bytes(content if content is not None else f"bytes of {place.name}".encode())
        kind[place] = place.read_bytes()

    def age(self, seconds: int = OLD_SECONDS) -> None:
        """Makes every file old."""
        then = time.time() - seconds
        for place in self.folder.rglob("*"):
            if place.is_file():
                os.utime(place, (then, then))

    def target(self, **changes: Any) -> Target:
        catalog, table = self.catalog, TableId.parse("lake.db.t")
        others = tuple(location_owner_of(catalog.pin(t)) for t in catalog.tables() if t != table)
        return Target(
            **{
                "state": catalog.pin(table),
                "others": others,
                "in_flight": frozenset(self.in_flight),
                "exclusive_prefixes": self.exclusive,
                **changes,
            }
        )

    def walk(self, target: Target) -> MetadataWalk:
        return MetadataWalk(self.catalog, target.state.table, target.state.uuid)

    def lost(self) -> list[Path]:
        """Live or otherwise precious files that are gone or changed."""
        return [p for p, b in {**self.live, **self.stays}.items() if not p.exists() or p.read_bytes() != b]

    def remaining(self) -> list[Path]:
        """Orphans still at their place."""
        return [p for p in self.orphans if p.exists()]


def forget_restored(target: Target, store: LocalStore) -> int:
    """Deletes the manifests of what was put back, so that it may be taken for orphans again."""
    restored = [m for m in trash_batches(target.prefixes, store) if m.restored]
    for mark in restored:
        store.delete(mark.location)
    return len(restored)


Change = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Layout:
    """How one table lies on disk. `data` names a data file by its number; `uri` spells a path of the metadata."""

    name: str
    table_folder: str = "warehouse/db/t"
    data: Callable[[int], str] = lambda n: f"data/{n:04d}.parquet"
    uri: Callable[[str], str] = lambda path: f"file://{path}"
    location: Callable[[str], str] = lambda path: f"file://{path}"
    orphan: Callable[[int], str] = lambda n: f"data/orphan-{n}.parquet"
    spec: Any = UNPARTITIONED
    format_version: int = 2
    properties: Callable[[str], dict[str, str]] = lambda _: {}
    more: Callable[[Lake, Path, dict[str, Any]], None] = lambda *_: None

    def build(self, folder: Path) -> Lake:
        """Writes the table and all that belongs to it."""
        lake = Lake(LiteralPath(folder))
        at = lake.folder / self.table_folder
        table = TableFiles(at, SCHEMA, [self.spec], self.format_version, self.properties(str(at)))
        paths = [f"{at}/{self.data(n)}" for n in range(DATA_FILES)]
        for path in paths:
            lake.plant(lake.live, path)
        half = DATA_FILES // 2
        values = ("x",) if self.spec.fields else ()
        first = ManifestFile(self._files(paths[:half], values), self.spec, 1, 1, version=self.format_version)
        table.commit([first], snapshot_id=1, sequence_number=1, timestamp_ms=1_000)
        second = ManifestFile(self._files(paths[half:], values), self.spec, 2, 2, version=self.format_version)
        table.commit([first, second], snapshot_id=2, sequence_number=2, timestamp_ms=2_000)
        document = table.document()
        document["location"] = self.location(str(at))
        self.more(lake, at, document)
        self._publish(lake, at, document)
        for place in at.glob("metadata/*"):
            lake.plant(lake.live, place)
        for n in range(ORPHANS):
            lake.plant(lake.orphans, f"{at}/{self.orphan(n)}")
        lake.plant(lake.orphans, at / "metadata" / "0a0a0a0a-0000-4000-8000-000000000000-m0.avro")
        lake.plant(lake.stays, at / "metadata" / "version-hint.text")
        lake.plant(lake.stays, at / "_checkpoint" / "offsets" / "0")
        lake.plant(lake.stays, at / "data" / ".part.crc")
        lake.age()
        return lake

    def _files(self, paths: Iterable[str], values: tuple[str, ...]) -> tuple[File, ...]:
        return tuple(File(self.uri(p), values, snapshot_id=1) for p in paths)

    def _publish(self, lake: Lake, at: Path, document: dict[str, Any]) -> None:
        place = at / "metadata" / "00009-last.metadata.json"
        place.write_text(json.dumps(document))
        register(lake.database, "db.t", self.uri(str(place)))


def _statistics(lake: Lake, at: Path, document: dict[str, Any]) -> None:
    for key, name in (("statistics", "1.stats"), ("partition-statistics", "1-partition.parquet")):
        lake.plant(lake.live, at / "metadata" / name)
        document[key] = [{"snapshot-id": 1, "statistics-path": f"file://{at}/metadata/{name}"}]


def _metadata_log(lake: Lake, at: Path, document: dict[str, Any]) -> None:
    for n in range(5):
        place = at / "metadata" / f"{n:05d}-old.metadata.json"
        lake.plant(lake.live, place, json.dumps(document).encode())
        document["metadata-log"].append({"timestamp-ms": n, "metadata-file": place.as_uri()})
    lake.plant(lake.stays, at / "metadata" / "unlogged.metadata.json", json.dumps(document).encode())
    lake.plant(
        lake.stays,
        at / "metadata" / "unlogged.gz.metadata.json",
        gzip.compress(json.dumps(document).encode()),
    )


def _only_old_snapshot(lake: Lake, at: Path, document: dict[str, Any], *, ref: str | None) -> None:
    """A third snapshot that has dropped the files of the first, which only `ref` still shows."""
    table = TableFiles(at, SCHEMA, [UNPARTITIONED], snapshots=document["snapshots"])
    kept = tuple(File(p, status=EXISTING, sequence_number=1, snapshot_id=1) for p in _live_uris(lake)[:80])
    gone = tuple(File(p, status=DELETED, sequence_number=1, snapshot_id=3) for p in _live_uris(lake)[80:])
    manifest = ManifestFile((*kept, *gone), UNPARTITIONED, 3, 3)
    table.commit([manifest], snapshot_id=3, sequence_number=3, timestamp_ms=3_000)
    document["current-snapshot-id"], document["last-sequence-number"] = 3, 3
    document["refs"] = {"main": {"snapshot-id": 3, "type": "branch"}}
    if ref:
        document["refs"]["old"] = {"snapshot-id": 2, "type": ref}


def _live_uris(lake: Lake) -> list[str]:
    return [f"file://{p}" for p in lake.live if p.suffix == ".parquet"]


def _expired(lake: Lake, at: Path, document: dict[str, Any]) -> None:
    """Files of an expired snapshot are orphans although a manifest still lists them as DELETED."""
    gone = [f"{at}/data/gone-{n}.parquet" for n in range(5)]
    for path in gone:
        lake.plant(lake.orphans, path)
    table = TableFiles(at, SCHEMA, [UNPARTITIONED], snapshots=document["snapshots"])
    files = tuple(File(f"file://{p}", status=DELETED, sequence_number=1, snapshot_id=3) for p in gone)
    live = tuple(File(p, status=EXISTING, sequence_number=1, snapshot_id=1) for p in _live_uris(lake))
    manifest = ManifestFile((*files, *live), UNPARTITIONED, 3, 3)
    table.commit([manifest], snapshot_id=3, sequence_number=3, timestamp_ms=3_000)
    document["current-snapshot-id"], document["last-sequence-number"] = 3, 3


def _deletes(lake: Lake, at: Path, document: dict[str, Any], *, puffin: bool) -> None:
    names = [f"data/dv-{n}.puffin" if puffin else f"data/delete-{n}.parquet" for n in range(6)]
    for name in names:
        lake.plant(lake.live, at / name)
    table = TableFiles(at, SCHEMA, [UNPARTITIONED], 3 if puffin else 2, snapshots=document["snapshots"])
    vector = {"file_format": "PUFFIN", "content_offset": 4, "content_bytes": 30} if puffin else {}
    referenced = _live_uris(lake)[0] if puffin else None
    files = tuple(
        File(f"file://{at}/{name}", content=1, referenced_data_file=referenced, **vector)
        for name in names[:3]
    ) + tuple(
        File(f"file://{at}/{name}", content=1, referenced_data_file=referenced, **vector)
        if puffin
        else File(f"file://{at}/{name}", content=2, equality_ids=(1,))
        for name in names[3:]
    )
    version = table.format_version
    live = tuple(File(p, status=EXISTING, sequence_number=1, snapshot_id=1) for p in _live_uris(lake)[:160])
    data = ManifestFile(live, UNPARTITIONED, 3, 3, version=version)
    deletes = ManifestFile(files, UNPARTITIONED, 3, 3, is_deletes=True, version=version)
    table.commit([data, deletes], snapshot_id=3, sequence_number=3, timestamp_ms=3_000)
    document["current-snapshot-id"], document["last-sequence-number"] = 3, 3
    document["refs"] = {"main": {"snapshot-id": 3, "type": "branch"}}


def _migrated(lake: Lake, at: Path, document: dict[str, Any]) -> None:
    """Live files elsewhere, as `add_files` leaves them, beside files that are none of ours."""
    outside = [f"{lake.folder}/hive/t/{n}.parquet" for n in range(10)]
    for path in outside:
        lake.plant(lake.live, path)
    lake.plant(lake.stays, lake.folder / "hive" / "t" / "foreign.parquet")
    table = TableFiles(at, SCHEMA, [UNPARTITIONED], snapshots=document["snapshots"])
    files = tuple(File(f"file://{p}") for p in outside)
    table.commit(
        [ManifestFile(files, UNPARTITIONED, 3, 3)], snapshot_id=3, sequence_number=3, timestamp_ms=3_000
    )


def _neighbours(lake: Lake, at: Path, document: dict[str, Any]) -> None:
    """Tables whose locations begin like ours."""
    for name in ("t_2", "t2", "t.old", "s"):
        other = TableFiles(at.parent / name, SCHEMA, [UNPARTITIONED])
        path = at.parent / name / "data" / "1.parquet"
        lake.plant(lake.live, path)
        files = (File(path.as_uri()),)
        other.commit(
            [ManifestFile(files, UNPARTITIONED, 1, 1)], snapshot_id=1, sequence_number=1, timestamp_ms=1
        )
        other.register(lake.database, f"db.{name.replace('.', '_')}")
        for place in (at.parent / name / "metadata").iterdir():
            lake.plant(lake.live, place)
        lake.plant(lake.stays, at.parent / name / "data" / "their-orphan.parquet")


def _writers(lake: Lake, at: Path, document: dict[str, Any]) -> None:
    """A batch in flight, Flink's manifests of a checkpoint not committed yet."""
    path = at / "data" / "written-not-committed.parquet"
    lake.plant(lake.stays, path)
    lake.in_flight.add(path.as_uri())
    pending = [f"{at}/data/pending-{n}.parquet" for n in range(4)]
    for path in pending:
        lake.plant(lake.stays, path)
    data, deletes = (
        [File(f"file://{p}") for p in pending[:2]],
        [File(f"file://{p}", content=1) for p in pending[2:]],
    )
    flink_manifest(lake, at, data, checkpoint=17)
    flink_manifest(lake, at, deletes, checkpoint=17, count=2)
    state = at / "metadata" / "job-7-state.avro"
    write_avro(state, Schema(NestedField(1, "id", LongType(), required=True)), "state", [], {})
    lake.plant(lake.stays, state)
    document["snapshots"][0]["summary"]["flink.job-id"] = "job-7"


def flink_manifest(
    lake: Lake,
    at: Path,
    files: list[File],
    *,
    checkpoint: int,
    count: int = 1,
    version: int = 2,
    job: str = FLINK_JOB,
) -> Path:
    """Writes a pending manifest as Flink's sink does: entries of the snapshot 0, without sequence number."""
    name = f"{job}-{FLINK_OPERATOR}-00000-0-{checkpoint}-{count:05d}.avro"
    added = tuple(replace(f, snapshot_id=0) for f in files)
    manifest = ManifestFile(added, UNPARTITIONED, 0, 0, is_deletes=bool(files[0].content), version=version)
    TableFiles(at, SCHEMA, [UNPARTITIONED], version).write_manifest(manifest, name)
    lake.plant(lake.stays, at / "metadata" / name)
    return at / "metadata" / name


def _declared_prefix(lake: Lake, at: Path, document: dict[str, Any]) -> None:
    lake.exclusive = (f"file://{lake.folder}/elsewhere/t",)
    for n in range(5):
        lake.plant(lake.orphans, lake.folder / "elsewhere" / "t" / f"orphan-{n}.parquet")


def _bits(n: int) -> str:
    return f"data/{n % 16:04b}/{n // 16 % 16:04b}/{n:08b}/00000-{n}.parquet"


NFC, NFD = unicodedata.normalize("NFC", "café"), unicodedata.normalize("NFD", "café")

LAYOUTS = [
    Layout("plain"),
    Layout("format_v1", format_version=1),
    Layout("format_v3", format_version=3),
    Layout("location_ends_in_slash", location=lambda p: f"file://{p}/"),
    Layout("location_with_one_slash_uri", location=lambda p: f"file:{p}"),
    Layout("location_is_a_bare_path", location=lambda p: p),
    Layout("paths_with_one_slash_uri", uri=lambda p: f"file:{p}"),
    Layout("paths_are_bare", uri=lambda p: p),
    Layout("location_with_double_slash", location=lambda p: f"file://{p.replace('/db/', '/db//')}"),
    Layout("paths_with_double_slash", uri=lambda p: f"file://{p.replace('/data/', '//data//')}"),
    Layout("paths_with_dot_segments", uri=lambda p: f"file://{p.replace('/data/', '/./x/../data/')}"),
    Layout("folder_with_dots", table_folder="ware.house/d.b/t.v1"),
    Layout("folder_with_spaces", table_folder="ware house/db/my table"),
    Layout("folder_with_unicode", table_folder=f"warehouse/データ/{NFC}"),
    Layout("folder_decomposed", table_folder=f"warehouse/{NFD}/t"),
    Layout("folder_with_percent", table_folder="warehouse/a%20b/50%/t"),
    Layout("folder_with_signs", table_folder="warehouse/a+b=c,d/t'\"&;!@"),
    Layout("folder_with_marks_of_urls", table_folder="warehouse/a#b?c=d/t"),
    Layout("folder_in_upper_case", table_folder="WAREHOUSE/Db/T"),
    Layout("metadata_composed_files_decomposed", data=lambda n: f"data/r={NFD}/{n}.parquet", uri=lambda p: f"file://{unicodedata.normalize('NFC', p) if '.parquet' in p else p}"),
    Layout("metadata_decoded_files_encoded", data=lambda n: f"data/r=a%3Ab/{n}.parquet", uri=lambda p: f"file://{p.replace('%3A', ':')}"),
    Layout("metadata_encoded_files_decoded", data=lambda n: f"data/r=a b/{n}.parquet", uri=lambda p: f"file://{p.replace(' ', '%20')}"),
    Layout("partitions_encoded", data=lambda n: f"data/region=a%2Fb%25{n % 7}/{n}.parquet", orphan=lambda n: f"data/region=a%2Fb%25{n % 7}/orphan-{n}.parquet"),
    Layout("partitions_with_encoded_dots", data=lambda n: f"data/region={'%2F..' * 12}%2F{n % 7}/{n}.parquet"),
    Layout("partitions_with_signs", data=lambda n: f"data/region='{n % 5}\n#?*/{n}.parquet", orphan=lambda n: f"data/region='{n % 5}\n#?*/o{n}.parquet"),
    Layout("partition_field_begins_hidden", spec=HIDDEN_FIELD, data=lambda n: f"data/_region=x/{n}.parquet", orphan=lambda n: f"data/_region=y/{n}.parquet"),
    Layout("object_storage_layout", data=_bits, orphan=lambda n: f"data/1111/0000/{n:08b}/orphan.parquet", properties=lambda _: {"write.object-storage.enabled": "true"}),
    Layout("files_beside_metadata", data=lambda n: f"{n}.parquet", orphan=lambda n: f"orphan-{n}"),
    Layout("deep_folders", data=lambda n: f"{'a/' * 30}{n}.parquet", orphan=lambda n: f"{'a/' * 29}{n}"),
    Layout("statistics", more=_statistics),
    Layout("metadata_log", more=_metadata_log),
    Layout("only_a_tag_reaches", more=lambda *a: _only_old_snapshot(*a, ref="tag")),
    Layout("only_a_branch_reaches", more=lambda *a: _only_old_snapshot(*a, ref="branch")),
    Layout("only_an_unreferenced_snapshot_reaches", more=lambda *a: _only_old_snapshot(*a, ref=None)),
    Layout("deleted_entries", more=_expired),
    Layout("delete_files", more=lambda *a: _deletes(*a, puffin=False)),
    Layout("deletion_vectors", format_version=3, more=lambda *a: _deletes(*a, puffin=True)),
    Layout("migrated", more=_migrated),
    Layout("neighbours", more=_neighbours),
    Layout("writers", more=_writers),
    Layout("declared_prefix", more=_declared_prefix, properties=lambda p: {"write.data.path": f"file://{p.split('/warehouse')[0]}/elsewhere/t"}),
]  # fmt: skip
