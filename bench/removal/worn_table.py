"""A table whose old snapshots hold most of its storage: 500 snapshots, 100,000 files of one block each.

Each commit adds 200 files in four manifests and drops the files of the commit a hundred before it, as a table
with a retention or with compacted CDC does. Every fifth commit regroups the manifests of the last five. Made once;
a run works on links to the files and on a catalog of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from iceberg_maint_tests.support.catalog.table_files import (
    EXISTING,
    File,
    ManifestFile,
    TableFiles,
    register,
    spec,
    write_avro,
)

DATA = Path(__file__).parents[1] / ".data" / "worn"
TABLE = "db.worn"
SNAPSHOTS, MANIFESTS_PER_COMMIT, FILES_PER_MANIFEST, WINDOW, REGROUPED = 500, 4, 50, 100, 5
FILES = SNAPSHOTS * MANIFESTS_PER_COMMIT * FILES_PER_MANIFEST
SIZE = 100
_WRITTEN_DAYS, _HOUR_MS, _DAY_SECONDS = 60, 3_600_000, 86_400
_VERSION = "1"


def worn_table(folder: Path) -> Path:
    """The table as it was made, at its place, and a catalog in the folder that has it; returns the catalog."""
    made, live = DATA / "made", DATA / "live"
    stamp = DATA / "complete"
    if not stamp.is_file() or stamp.read_text().splitlines()[0] != _VERSION:
        shutil.rmtree(DATA, ignore_errors=True)
        location = _make(live)
        live.rename(made)
        stamp.write_text(f"{_VERSION}\n{location}")
    shutil.rmtree(live, ignore_errors=True)
    subprocess.run(["cp", "-al", str(made), str(live)], check=True)
    database = folder / "catalog.db"
    register(database, TABLE, stamp.read_text().splitlines()[1])
    return database


def files_at_their_places() -> set[str]:
    """The table's files but the metadata files themselves, which every commit adds, and the trash."""
    live = DATA / "live"
    return {
        str(place.relative_to(live))
        for place in live.rglob("*")
        if place.is_file()
        and not place.name.endswith(".metadata.json")
        and "/." not in str(place.relative_to(live))
    }


def _make(folder: Path) -> str:
    table = _Worn(folder, Schema(NestedField(1, "c1", LongType())), [spec(0)])
    return table.make()


class _Worn(TableFiles):
    """Snapshots that list the manifests of a window of commits."""

    def make(self) -> str:
        by = spec(0)
        first_ms = int((time.time() - 40 * _DAY_SECONDS) * 1000)
        then = time.time() - _WRITTEN_DAYS * _DAY_SECONDS
        (self.folder / "data").mkdir(parents=True)
        commits: list[tuple[list[str], list[dict[str, Any]]]] = []
        for number in range(1, SNAPSHOTS + 1):
            paths = [self._file(number, n, then) for n in range(MANIFESTS_PER_COMMIT * FILES_PER_MANIFEST)]
            listed = [
                self._write_manifest(
                    ManifestFile(_files(paths[start::MANIFESTS_PER_COMMIT]), by, number, number)
                )
                for start in range(MANIFESTS_PER_COMMIT)
            ]
            commits.append((paths, listed))
            if number % REGROUPED == 0:
                group = commits[-REGROUPED:]
                together = [path for paths, _ in group for path in paths]
                regrouped = ManifestFile(_files(together, EXISTING), by, number, number)
                commits[-REGROUPED:] = [
                    *((p, []) for p, _ in group[:-1]),
                    (paths, [self._write_manifest(regrouped)]),
                ]
            window = commits[-(WINDOW + number % REGROUPED) :]
            self._commit(number, [m for _, ms in window for m in ms], first_ms + number * _HOUR_MS)
        for place in (self.folder / "metadata").iterdir():
            os.utime(place, (then, then))
        return self.publish()

    def document(self) -> dict[str, Any]:
        log = [{"snapshot-id": s["snapshot-id"], "timestamp-ms": s["timestamp-ms"]} for s in self.snapshots]
        return {**super().document(), "snapshot-log": log}

    def _file(self, commit: int, number: int, then: float) -> str:
        place = self.folder / "data" / f"{commit:04d}" / f"{number:03d}-{self.table_uuid}.parquet"
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(b"x" * SIZE)
        os.utime(place, (then, then))
        return place.as_uri()

    def _commit(self, number: int, listed: list[dict[str, Any]], at_ms: int) -> None:
        path = self._path(f"snap-{number}.avro")
        kind = MANIFEST_LIST_FILE_SCHEMAS[2]
        rows = [Record(*(entry.get(f.name) for f in kind.fields)) for entry in listed]
        write_avro(path, kind, "manifest_file", rows, {"format-version": "2"})
        node = {
            "snapshot-id": number,
            "sequence-number": number,
            "timestamp-ms": at_ms,
            "summary": {"operation": "overwrite"},
            "manifest-list": path.as_uri(),
            "schema-id": 0,
        }
        if self.snapshots:
            node["parent-snapshot-id"] = number - 1
        self.snapshots.append(node)


def _files(paths: list[str], status: int = 1) -> tuple[File, ...]:
    since = 1 if status == EXISTING else None
    return tuple(
        File(path, size_bytes=SIZE, status=status, sequence_number=since, snapshot_id=since) for path in paths
    )
