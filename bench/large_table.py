"""A table of 200,000 live data files, or of as many as asked for, metadata only, with every kind of delete; made
once.

16 columns with bounds, 1,000 partitions (100 days x 10 buckets), format v3 grown from v2: 1,000
position delete files, 1,000 equality delete files, 4,000 deletion vectors, 20 to a Puffin file.
"""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestampType

from iceberg_maint_tests.support.catalog.table_files import File, ManifestFile, TableFiles, spec

DATA = Path(__file__).parent / ".data"
TABLE = "db.large"
FILES, DAYS, BUCKETS = 200_000, 100, 10
MANIFESTS = 12
VECTORS, DELETES = 4_000, 1_000
_FIRST_DAY = 20_000
_FIRST_MS = 1_728_000_000_000
_VERSION = "3"


def large_table(files: int = FILES) -> Path:
    """The folder with `catalog.db` and the table; made on first use."""
    folder = DATA / ("large" if files == FILES else f"large-{files}")
    stamp = folder / "complete"
    if not stamp.is_file() or stamp.read_text() != _VERSION:
        shutil.rmtree(folder, ignore_errors=True)
        make(folder, files)
        stamp.write_text(_VERSION)
    return folder


def make(folder: Path, files: int = FILES) -> None:
    """Writes the table with this number of live data files into `folder`."""
    rng = random.Random(7)
    types = [LongType(), TimestampType(), *[LongType()] * 8, *[DoubleType()] * 4, *[StringType()] * 2]
    schema = Schema(*(NestedField(i, f"c{i}", t, required=False) for i, t in enumerate(types, 1)))
    by = spec(0, (2, 1000, DayTransform(), "c2_day"), (1, 1001, BucketTransform(BUCKETS), "c1_bucket"))
    table = TableFiles(folder / "db" / "large", schema, [by], format_version=3)
    partitions = [(_FIRST_DAY + day, bucket) for day in range(DAYS) for bucket in range(BUCKETS)]
    paths = [
        f"{table.folder.as_uri()}/data/c2_day={p[0]}/c1_bucket={p[1]}/{n:08d}-0-{rng.getrandbits(64):016x}.parquet"
        for n in range(files)
        for p in (_partition(n, files, partitions),)
    ]
    count = MANIFESTS * files // FILES
    manifests = [_data_manifest(chunk, count, paths, partitions, by, types, rng) for chunk in range(count)]
    manifests += _delete_manifests(paths, partitions, by, rng)
    for at in range(len(manifests)):
        # Each commit lists what came before: only the last one's list matters for health.
        snapshot = manifests[at]
        if at == len(manifests) - 1:
            table.commit(
                manifests,
                snapshot_id=snapshot.snapshot_id,
                sequence_number=snapshot.sequence_number,
                timestamp_ms=_FIRST_MS + at * 1000,
            )
        else:
            table.commit(
                [],
                snapshot_id=snapshot.snapshot_id,
                sequence_number=snapshot.sequence_number,
                timestamp_ms=_FIRST_MS + at * 1000,
            )
    table.register(folder / "catalog.db", TABLE)


def _partition(n: int, files: int, partitions: list[tuple[int, int]]) -> tuple[int, int]:
    return partitions[n * len(partitions) // files]


def _data_manifest(chunk, count, paths, partitions, by, types, rng) -> ManifestFile:
    first, last = chunk * len(paths) // count, (chunk + 1) * len(paths) // count
    files = tuple(
        File(
            paths[n],
            _partition(n, len(paths), partitions),
            records=rng.randrange(1, 200_000),
            size_bytes=rng.choice((rng.randrange(1 << 12, 1 << 24), rng.randrange(1 << 24, 1 << 30))),
            lower_bounds={i: _bound(t, rng) for i, t in enumerate(types, 1)},
            upper_bounds={i: _bound(t, rng) for i, t in enumerate(types, 1)},
            sort_order_id=0,
        )
        for n in range(first, last)
    )
    return ManifestFile(files, by, chunk + 1, 1000 + chunk, version=3)


def _bound(kind, rng) -> bytes:
    if isinstance(kind, DoubleType):
        return struct.pack("<d", rng.random())
    if isinstance(kind, StringType):
        return f"{rng.getrandbits(64):016x}".encode()
    return struct.pack("<q", rng.getrandbits(48))


def _delete_manifests(paths, partitions, by, rng) -> list[ManifestFile]:
    folder = paths[0].rsplit("/", 3)[0]
    at = MANIFESTS * len(paths) // FILES
    found = []
    for content, name in ((1, "pos"), (2, "eq")):
        files = []
        for n in range(DELETES):
            number = rng.randrange(len(paths))
            files.append(
                File(
                    f"{folder}/{name}-{n}.parquet",
                    _partition(number, len(paths), partitions),
                    records=rng.randrange(1, 5000),
                    content=content,
                    size_bytes=rng.randrange(500, 50_000),
                    equality_ids=(1,) if content == 2 else None,
                )
            )
        found.append(ManifestFile(tuple(files), by, at + 1, 1000 + at, is_deletes=True, version=2))
        at += 1
    vectors = []
    for n, number in enumerate(sorted(rng.sample(range(len(paths)), VECTORS))):
        vectors.append(
            File(
                f"{folder}/dv-{n // 20}.puffin",
                _partition(number, len(paths), partitions),
                records=rng.randrange(1, 1000),
                content=1,
                file_format="PUFFIN",
                size_bytes=20_000,
                referenced_data_file=paths[number],
                content_offset=4 + (n % 20) * 900,
                content_bytes=rng.randrange(40, 900),
            )
        )
    found.append(ManifestFile(tuple(vectors), by, at + 1, 1000 + at, is_deletes=True, version=3))
    return found
