"""Bytes of the audit log, of trash manifests and of the memo of orphan passes, per operation, file and table.

    python -m bench.stores [--tables 6]

`run` maintains small tables that need work, with an audit log in a folder. The line of a trash manifest is that of a data
file with a path of usual length.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from bench.small_tables import lake
from bench.worker import PROJECT
from iceberg_maint.core.removal.orphan_rules import Orphan, TrashBatchHeader
from iceberg_maint.removal.trash_manifest import manifest_lines, trashed_file

PREFIX = "s3://bucket/warehouse/db/events"
PATH = f"{PREFIX}/data/day=2026-11-23/00000-12-6f3c1c1e-2f0e-4a0e-9d4e-0d7b9f2a5c11-00001.parquet"


def main() -> int:
    """Prints one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=6)
    given = parser.parse_args()
    home = lake(given.tables)
    config = home / "iceberg_maint.yaml"
    config.write_text(f"{config.read_text('utf-8')}\naudit:\n  location: file://{home}/audit\n", "utf-8")
    environ = {**os.environ, "ICEBERG_MAINT_CONFIG": str(config), "ICEBERG_MAINT_HOME": str(home / "own")}
    command = [sys.executable, "-m", "iceberg_maint", "run", "--json"]
    run = subprocess.run(command, cwd=PROJECT, env=environ, capture_output=True, text=True, check=True)
    outcomes = [o for t in json.loads(run.stdout)["tables"] for o in t["operations"] if o["batches"]]
    entries = [p.stat().st_size for p in (home / "audit").rglob("*") if p.is_file()]
    file = trashed_file(
        Orphan(PATH, 1, 1_800_000_000_000), PREFIX, "1800000000000-0123456789abcdef", "orphan"
    )
    header = TrashBatchHeader(
        mark_id="1800000000000-0123456789abcdef",
        table="lake.db.events",
        table_uuid="6f3c1c1e-2f0e-4a0e-9d4e-0d7b9f2a5c11",
        prefix=PREFIX,
        marked_ms=1_800_000_000_000,
        older_than_seconds=259_200,
        metadata_location=f"{PREFIX}/metadata/00042-6f3c1c1e-2f0e-4a0e-9d4e-0d7b9f2a5c11.metadata.json",
        digest="0" * 64,
    )
    sizes = [len(line) for line in manifest_lines(header, [file])]
    figures = {
        "operations": len(outcomes),
        "audit_entries": len(entries),
        "audit_bytes_per_operation": round(sum(entries) / len(outcomes)),
        "trash_manifest_bytes": sizes[0],
        "trash_manifest_bytes_per_file": sizes[1],
        "orphan_memo_bytes_per_table": round(_bytes(home / "own" / "orphans") / given.tables),
    }
    print(json.dumps(figures))
    return 0


def _bytes(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


if __name__ == "__main__":
    sys.exit(main())
