"""A table on the local disk with many files, and orphans among them."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / ".data" / "orphans"
FILES, MANIFESTS, SNAPSHOTS, ORPHANS, FOLDERS = 100_000, 2_000, 500, 1_000, 100
OLD_SECONDS = 30 * 86_400
_VERSION = "1"


def make() -> None:
    """Writes the table, unless it is there."""
    stamp = DATA / "complete"
    if stamp.is_file() and stamp.read_text() == _VERSION:
        return
    shutil.rmtree(DATA, ignore_errors=True)
    _write_table(DATA)
    stamp.write_text(_VERSION)


def _write_table(folder: Path) -> None:
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField

    from iceberg_maint_tests.support.catalog.table_files import File, ManifestFile, TableFiles, spec

    class Once(TableFiles):
        """Writes each manifest once, however many snapshots list it."""

        def _write_manifest(self, manifest: ManifestFile) -> dict[str, Any]:
            if manifest.sequence_number not in written:
                written[manifest.sequence_number] = super()._write_manifest(manifest)
            return written[manifest.sequence_number]

    written: dict[int, dict[str, Any]] = {}
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    table = Once(folder / "warehouse" / "db" / "t", schema, [spec(0)])
    paths = [f"{table.folder}/data/{n % FOLDERS:03d}/{n:06d}-0-live.parquet" for n in range(FILES)]
    others = [f"{table.folder}/data/{n % FOLDERS:03d}/{n:06d}-0-left.parquet" for n in range(ORPHANS)]
    for number in range(FOLDERS):
        (table.folder / "data" / f"{number:03d}").mkdir(parents=True)
    each = FILES // MANIFESTS
    manifests = [
        ManifestFile(
            tuple(File(f"file://{p}") for p in paths[n * each : (n + 1) * each]), spec(0), n + 1, n + 1
        )
        for n in range(MANIFESTS)
    ]
    for n in range(1, SNAPSHOTS + 1):
        now = manifests[: n * MANIFESTS // SNAPSHOTS]
        table.commit(now, snapshot_id=len(now), sequence_number=len(now), timestamp_ms=n * 1000)
    table.register(folder / "catalog.db", "db.t")
    then = time.time() - OLD_SECONDS
    for path in (*paths, *others):
        Path(path).write_bytes(b"x")
        os.utime(path, (then, then))
