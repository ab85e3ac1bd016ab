"""Lakes of metadata for `bench.fleet.observe`: a fleet of small tables, and one table of many files. No data file exists."""

from __future__ import annotations

import json
import shutil
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any, cast

DATA = Path(__file__).parents[1] / ".data"
FILES, PARTITIONS, COMMITS = 12, 4, 2
LARGE = "db.many"
LARGE_DAYS, LARGE_BUCKETS, LARGE_MANIFESTS = 500, 10, 60
_FIRST_MS = 1_728_000_000_000


def write_config(home: Path) -> Path:
    """Writes a configuration with the catalog of this folder and a ledger beside it."""
    path = home / "iceberg_maint.yaml"
    path.write_text(
        "catalogs:\n  lake:\n    type: jdbc\n"
        f"    uri: sqlite:///{home / 'catalog.db'}\n    warehouse: {home.as_uri()}\n"
        f"ledger: sqlite:///{home / 'ledger.db'}\n"
    )
    return path


def fleet(tables: int) -> Path:
    """The folder with the metadata of this many tables; made on first use."""
    folder = DATA / f"fleet-{tables}"
    stamp = folder / "complete"
    if not stamp.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        for number in range(tables):
            small_table(folder / "lake", number).publish()
        stamp.touch()
    return folder


def small_table(folder: Path, number: int, commits: int = COMMITS) -> Any:
    """A table of few files in four partitions. The name of its files and its UUID follow from `number`."""
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import LongType, NestedField

    from iceberg_maint_tests.support.catalog.table_files import TableFiles, spec

    schema = Schema(NestedField(1, "id", LongType(), required=False))
    by = spec(0, (1, 1000, IdentityTransform(), "id"))
    table = TableFiles(folder / f"t{number:05d}", schema, [by], table_uuid=str(uuid.UUID(int=number + 1)))
    manifests = []
    for commit in range(1, commits + 1):
        manifests.append(_small_manifest(number, commit, by))
        table.commit(manifests, snapshot_id=commit, sequence_number=commit, timestamp_ms=_FIRST_MS + commit)
    return table


def _small_manifest(number: int, commit: int, by: Any) -> Any:
    from iceberg_maint_tests.support.catalog.table_files import File, ManifestFile

    files = tuple(
        File(f"file:///t{number}/{commit}-{n}.parquet", (n % PARTITIONS,), 10, 600 << 20)
        for n in range(FILES)
    )
    return ManifestFile(files, by, commit, commit)


def make_fleet_catalog(home: Path, tables: int) -> None:
    """Makes a catalog in `home` of the tables, whose metadata stay where they were made."""
    made = fleet(tables)
    from iceberg_maint_tests.support.catalog.table_files import register

    register(home / "catalog.db", "db.t00000", _pointer(made, 0))
    with closing(sqlite3.connect(home / "catalog.db")) as connection, connection:
        connection.executemany(
            "INSERT OR REPLACE INTO iceberg_tables VALUES ('lake', 'db', ?, ?, NULL, 'TABLE')",
            [(f"t{n:05d}", _pointer(made, n)) for n in range(tables)],
        )


def empty_catalog(home: Path) -> Path:
    """Writes a configuration with a catalog of no table."""
    home.mkdir()
    make_fleet_catalog(home, 1)
    with closing(sqlite3.connect(home / "catalog.db")) as connection, connection:
        connection.execute("DELETE FROM iceberg_tables")
    return write_config(home)


def _pointer(made: Path, number: int, version: int = 1) -> str:
    return (made / "lake" / f"t{number:05d}" / "metadata" / f"{version:05d}.metadata.json").as_uri()


def change(home: Path, tables: int, commits: int = COMMITS + 1) -> None:
    """Gives the first of the tables this many commits."""
    from iceberg_maint_tests.support.catalog.table_files import register

    for number in range(tables):
        location = small_table(home / f"changed-{commits}", number, commits).publish()
        register(home / "catalog.db", f"db.t{number:05d}", location)


def _large_table(folder: Path, files: int) -> tuple[Any, list[Any], Any]:
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import BucketTransform, DayTransform
    from pyiceberg.types import LongType, NestedField, TimestampType

    from iceberg_maint_tests.support.catalog.table_files import File, ManifestFile, TableFiles, spec

    columns = [
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "at", TimestampType(), required=False),
    ]
    schema = Schema(*columns, *(NestedField(i, f"c{i}", LongType(), required=False) for i in range(3, 17)))
    by = spec(0, (2, 1000, DayTransform(), "at_day"), (1, 1001, BucketTransform(LARGE_BUCKETS), "id_bucket"))
    table = TableFiles(folder / "many", schema, [by], table_uuid="00000000-0000-0000-0000-00000000abcd")
    partitions = [(20_000 + day, bucket) for day in range(LARGE_DAYS) for bucket in range(LARGE_BUCKETS)]

    def manifest(at: int, first: int, last: int) -> Any:
        entries = tuple(
            File(
                f"{table.folder.as_uri()}/data/{n:08d}.parquet",
                partitions[n % files * len(partitions) // files],
                1000 + n % 7,
                (1 + n % 200) << 20,
                lower_bounds={i: (n * i).to_bytes(8, "little") for i in range(1, 17)},
                upper_bounds={i: (n * i + 9).to_bytes(8, "little") for i in range(1, 17)},
            )
            for n in range(first, last)
        )
        return ManifestFile(entries, by, at + 1, at + 1)

    each = -(-files // LARGE_MANIFESTS)
    ranges = [(at, at * each, min(files, (at + 1) * each)) for at in range(LARGE_MANIFESTS)]
    return table, ranges, manifest


def large_table(files: int) -> Path:
    """The folder with one table of many files; made on first use. Its manifests have partition bounds."""
    folder = DATA / f"many-{files}"
    stamp = folder / "complete"
    if not stamp.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        table, ranges, manifest = _large_table(folder, files)
        listed = [table._write_manifest(manifest(*of)) for of in ranges]
        for entry, (_, first, last) in zip(listed, ranges, strict=True):
            entry["partitions"] = _bounds(files, first, last)
        (folder / "listed.json").write_text(json.dumps([_plain(e) for e in listed]))
        stamp.touch()
    return folder


def _bounds(files: int, first: int, last: int) -> Any:
    """Field summaries: the days of the manifest, and every bucket."""
    count = LARGE_DAYS * LARGE_BUCKETS
    days = [20_000 + n % files * count // files // LARGE_BUCKETS for n in (first, last - 1)]
    return [sorted(days), [0, LARGE_BUCKETS - 1]]


def _plain(entry: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in entry.items() if v is not None}


def _summaries(bounds: list[list[int]]) -> Any:
    from pyiceberg.typedef import Record

    return [
        Record(False, False, low.to_bytes(4, "little"), high.to_bytes(4, "little")) for low, high in bounds
    ]


def large_copy(home: Path, files: int) -> Path:
    """A catalog in `home` with the table; its manifests stay where they were made."""
    _publish_large(home, large_table(files), files, extra=None)
    return write_config(home)


def commit_ten_files(home: Path, files: int) -> None:
    """Adds ten files in a manifest of their own."""
    _, _, manifest = _large_table(home, files)
    _publish_large(home, large_table(files), files, extra=manifest(LARGE_MANIFESTS, files, files + 10))


def large_head_of_ten_files(home: Path, files: int) -> None:
    """The table with the snapshot of `large_copy`, and one with ten files more after it."""
    _, _, manifest = _large_table(home, files)
    extra = manifest(LARGE_MANIFESTS, files, files + 10)
    _publish_large(home, large_table(files), files, extra=extra, keep=True)


def _publish_large(home: Path, made: Path, files: int, extra: Any, *, keep: bool = False) -> None:
    from iceberg_maint_tests.support.catalog.table_files import ManifestFile

    table, _, _ = _large_table(home, files)
    listed = json.loads((made / "listed.json").read_text())
    table._count = 0 if extra is None else 1
    rows = [{**entry, "partitions": _summaries(entry["partitions"])} for entry in listed]
    write = table._write_manifest
    fixed = iter(rows)

    def written(of: ManifestFile | None) -> dict[str, Any]:
        return (
            next(fixed)
            if of is None
            else {**write(of), "partitions": _summaries(_bounds(files, files, files + 10))}
        )

    table._write_manifest = written
    if keep:
        fixed = iter([*rows, *rows])
        table.commit(
            cast("Any", [None] * len(rows)),
            snapshot_id=LARGE_MANIFESTS,
            sequence_number=LARGE_MANIFESTS,
            timestamp_ms=_FIRST_MS + LARGE_MANIFESTS,
        )
    manifests: list[Any] = [None] * len(rows) + ([] if extra is None else [extra])
    number = LARGE_MANIFESTS if extra is None else LARGE_MANIFESTS + 1
    table.commit(manifests, snapshot_id=number, sequence_number=number, timestamp_ms=_FIRST_MS + number)
    table.register(home / "catalog.db", LARGE)
