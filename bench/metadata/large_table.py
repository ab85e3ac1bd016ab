"""A table of 200,000 live data files, or of as many as asked for, metadata only, with every kind of delete; made
once.

16 columns with bounds, 1,000 partitions (100 days x 10 buckets), format v3 grown from v2: 1,000
position delete files, 1,000 equality delete files, 4,000 deletion vectors, 20 to a Puffin file.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform
from pyiceberg.types import DoubleType, IcebergType, LongType, NestedField, StringType, TimestampType

from iceberg_maint_tests.support.catalog.table_files import File, ManifestFile, TableFiles, spec

DATA = Path(__file__).parents[1] / ".data"
TABLE = "db.large"
FILES, DAYS, BUCKETS = 200_000, 100, 10
MANIFESTS = 12
VECTORS, DELETES = 4_000, 1_000
_FIRST_DAY = 20_000
_FIRST_MS = 1_728_000_000_000
_FIRST_ID = 1000
_LISTED = "listed.json"
_VERSION = "4"
_TYPES = [LongType(), TimestampType(), *[LongType()] * 8, *[DoubleType()] * 4, *[StringType()] * 2]
_BY = spec(0, (2, 1000, DayTransform(), "c2_day"), (1, 1001, BucketTransform(BUCKETS), "c1_bucket"))


def large_table(files: int = FILES, manifests: int | None = None) -> Path:
    """The folder with `catalog.db` and the table; made on first use. Its data files are in `manifests` manifests, by
    default in one for each 16,667 files."""
    count = manifests_of(files) if manifests is None else manifests
    name = "large" if files == FILES else f"large-{files}"
    folder = DATA / (name if count == manifests_of(files) else f"{name}-of-{count}")
    stamp = folder / "complete"
    if not stamp.is_file() or stamp.read_text() != _VERSION:
        shutil.rmtree(folder, ignore_errors=True)
        make(folder, files, count)
        stamp.write_text(_VERSION)
    return folder


def manifests_of(files: int) -> int:
    """The number of data manifests by default, and the number of commits that add data with any number of manifests."""
    return max(1, MANIFESTS * files // FILES)


def make(folder: Path, files: int, count: int) -> None:
    """Writes the table with this number of live data files in `count` manifests into `folder`."""
    rng = random.Random(7)
    table, commits = _table(folder), manifests_of(files)
    partitions = [(_FIRST_DAY + day, bucket) for day in range(DAYS) for bucket in range(BUCKETS)]
    paths = [
        f"{table.folder.as_uri()}/data/c2_day={p[0]}/c1_bucket={p[1]}/{n:08d}-0-{rng.getrandbits(64):016x}.parquet"
        for n in range(files)
        for p in (_partition(n, files, partitions),)
    ]

    def data_manifest(at: int) -> ManifestFile:
        content = _data_files(range(at * files // count, (at + 1) * files // count), paths, partitions, rng)
        commit = at * commits // count
        return ManifestFile(content, _BY, commit + 1, _FIRST_ID + commit, version=3)

    # Written one by one: the values of a million entries with their bounds take gigabytes.
    listed = [table.write_manifest(data_manifest(at), f"data-{at}.avro") for at in range(count)]
    listed += [
        table.write_manifest(manifest, f"deletes-{at}.avro")
        for at, manifest in enumerate(_delete_manifests(paths, partitions, rng, commits))
    ]
    (folder / _LISTED).write_text(json.dumps(listed))
    _publish(table, listed, folder)


def commit_ten_files(folder: Path, home: Path) -> None:
    """Makes a catalog in `home` of the table in `folder` with one more commit: a manifest of ten files. The folder
    stays as it is."""
    listed = json.loads((folder / _LISTED).read_text())
    table, number = _table(home), max(entry["sequence_number"] for entry in listed) + 1
    paths = [f"{table.folder.as_uri()}/data/new-{n}.parquet" for n in range(10)]
    files = _data_files(range(10), paths, [(_FIRST_DAY, 0)], random.Random(8))
    manifest = ManifestFile(files, _BY, number, _FIRST_ID + number - 1, version=3)
    _publish(table, [*listed, table.write_manifest(manifest, "ten-files.avro")], home)


def _table(folder: Path) -> TableFiles:
    schema = Schema(*(NestedField(i, f"c{i}", t, required=False) for i, t in enumerate(_TYPES, 1)))
    return TableFiles(folder / "db" / "large", schema, [_BY], format_version=3)


def _publish(table: TableFiles, listed: list[dict[str, Any]], home: Path) -> None:
    """Points the catalog in `home` to the table, with a snapshot for each commit of these manifests. Only the last list
    has them: it alone matters for health."""
    last = max(entry["sequence_number"] for entry in listed)
    for number in range(1, last + 1):
        table.commit(
            listed if number == last else [],
            snapshot_id=_FIRST_ID + number - 1,
            sequence_number=number,
            timestamp_ms=_FIRST_MS + (number - 1) * 1000,
        )
    table.register(home / "catalog.db", TABLE)


def _partition(n: int, files: int, partitions: list[tuple[int, int]]) -> tuple[int, int]:
    return partitions[n * len(partitions) // files]


def _data_files(
    numbers: Iterable[int], paths: list[str], partitions: list[tuple[int, int]], rng: random.Random
) -> tuple[File, ...]:
    return tuple(
        File(
            paths[n],
            _partition(n, len(paths), partitions),
            records=rng.randrange(1, 200_000),
            size_bytes=rng.choice((rng.randrange(1 << 12, 1 << 24), rng.randrange(1 << 24, 1 << 30))),
            lower_bounds={i: _bound(t, rng) for i, t in enumerate(_TYPES, 1)},
            upper_bounds={i: _bound(t, rng) for i, t in enumerate(_TYPES, 1)},
            sort_order_id=0,
        )
        for n in numbers
    )


def _bound(kind: IcebergType, rng: random.Random) -> bytes:
    if isinstance(kind, DoubleType):
        return struct.pack("<d", rng.random())
    if isinstance(kind, StringType):
        return f"{rng.getrandbits(64):016x}".encode()
    return struct.pack("<q", rng.getrandbits(48))


def _delete_manifests(
    paths: list[str], partitions: list[tuple[int, int]], rng: random.Random, at: int
) -> list[ManifestFile]:
    folder = paths[0].rsplit("/", 3)[0]
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
        found.append(ManifestFile(tuple(files), _BY, at + 1, _FIRST_ID + at, is_deletes=True, version=2))
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
    found.append(ManifestFile(tuple(vectors), _BY, at + 1, _FIRST_ID + at, is_deletes=True, version=3))
    return found
