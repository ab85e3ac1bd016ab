"""A table that many small commits have made, metadata only: 500 snapshots, 2,000 manifests, 100,000 files.

Each commit appended 200 files in four manifests, spread over 1,000 partitions (20 days x 50 buckets), as
writers do that do not merge manifests. Made once; a run works on a catalog of its own that points to it.
"""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path
from typing import Any

from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, TimestampType

from iceberg_maint_tests.support.catalog.table_files import (
    File,
    ManifestFile,
    TableFiles,
    register,
    spec,
    write_avro,
)

DATA = Path(__file__).parents[1] / ".data"
TABLE = "db.grown"
SNAPSHOTS, MANIFESTS_PER_COMMIT, FILES_PER_MANIFEST = 500, 4, 50
FILES = SNAPSHOTS * MANIFESTS_PER_COMMIT * FILES_PER_MANIFEST
DAYS, BUCKETS, COLUMNS = 20, 50, 10
_FIRST_DAY, _FIRST_MS, _HOUR_MS = 20_000, 1_728_000_000_000, 3_600_000
_VERSION = "2"


def grown_table() -> Path:
    """The metadata file of the table; made on first use."""
    folder = DATA / "grown"
    stamp = folder / "complete"
    if not stamp.is_file() or stamp.read_text().splitlines()[0] != _VERSION:
        shutil.rmtree(folder, ignore_errors=True)
        stamp.write_text(f"{_VERSION}\n{_make(folder)}")
    return Path(stamp.read_text().splitlines()[1].removeprefix("file://"))


def catalog_of(folder: Path) -> Path:
    """A catalog in this folder in which the table is as it was made."""
    database = folder / "catalog.db"
    register(database, TABLE, grown_table().as_uri())
    return database


def _make(folder: Path) -> str:
    rng = random.Random(11)
    fields = [NestedField(1, "c1", LongType()), NestedField(2, "c2", TimestampType())]
    fields += [NestedField(n, f"c{n}", LongType(), required=False) for n in range(3, COLUMNS + 1)]
    schema = Schema(*fields)
    by = spec(0, (2, 1000, DayTransform(), "c2_day"), (1, 1001, BucketTransform(BUCKETS), "c1_bucket"))
    table = _Grown(folder / "db" / "grown", schema, [by])
    for number in range(1, SNAPSHOTS + 1):
        manifests = [
            ManifestFile(
                tuple(_file(table.folder.as_uri(), rng) for _ in range(FILES_PER_MANIFEST)),
                by,
                number,
                1000 + number,
            )
            for _ in range(MANIFESTS_PER_COMMIT)
        ]
        table.append(manifests, number)
    return table.publish()


class _Grown(TableFiles):
    """Commits that list what came before them as well, and a log of them, without which Iceberg cannot
    expire any."""

    def document(self) -> dict[str, Any]:
        log = [{"snapshot-id": s["snapshot-id"], "timestamp-ms": s["timestamp-ms"]} for s in self.snapshots]
        return {**super().document(), "snapshot-log": log}

    def append(self, manifests: list[ManifestFile], number: int) -> None:
        self.listed = [*getattr(self, "listed", []), *(self._write_manifest(m) for m in manifests)]
        path = self._path(f"snap-{1000 + number}.avro")
        kind = MANIFEST_LIST_FILE_SCHEMAS[2]
        rows = [Record(*(entry.get(f.name) for f in kind.fields)) for entry in self.listed]
        write_avro(path, kind, "manifest_file", rows, {"format-version": "2"})
        node = {
            "snapshot-id": 1000 + number,
            "sequence-number": number,
            "timestamp-ms": _FIRST_MS + number * _HOUR_MS,
            "summary": {"operation": "append"},
            "manifest-list": path.as_uri(),
            "schema-id": 0,
        }
        if self.snapshots:
            node["parent-snapshot-id"] = self.snapshots[-1]["snapshot-id"]
        self.snapshots.append(node)


def _file(location: str, rng: random.Random) -> File:
    partition = (_FIRST_DAY + rng.randrange(DAYS), rng.randrange(BUCKETS))
    lower = {n: struct.pack("<q", rng.getrandbits(40)) for n in range(1, COLUMNS + 1)}
    upper = {n: struct.pack("<q", (1 << 41) + rng.getrandbits(40)) for n in range(1, COLUMNS + 1)}
    return File(
        f"{location}/data/c2_day={partition[0]}/c1_bucket={partition[1]}/{rng.getrandbits(128):032x}.parquet",
        partition,
        records=rng.randrange(1, 5000),
        size_bytes=rng.randrange(1 << 12, 1 << 22),
        lower_bounds=lower,
        upper_bounds=upper,
        sort_order_id=0,
    )
