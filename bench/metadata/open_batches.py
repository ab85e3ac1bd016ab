"""Manifest entries that are decoded to judge the open batches of a table of many files, after a commit of ten files.

    python -m bench.metadata.open_batches [--files 200000] [--batches 100]

`all` compares each batch with all live files of its partition, `memo` does so with the memo of manifests, `changes` is
the product. Of `all` three batches are read and counted for each. Exits 1 if `changes` decodes more entries than the commit
added or judges another batch than `all`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.fleet.tables import LARGE, large_copy, large_head_of_ten_files
from bench.record import publish
from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.catalog.manifests import live_files as reading
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import LiveFile, TableState
from iceberg_maint.core.planning.plan import Batch, batch_at
from iceberg_maint.core.planning.work import FileGroup, InputFile, RewriteDataFiles
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint.loop.catalogs import Catalogs
from iceberg_maint.loop.select_batches import Changes, still_valid

ADDED = 10
COLD = 3
TABLE = TableId.parse(f"lake.{LARGE}")


def main() -> int:
    """Prints one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=200_000)
    parser.add_argument("--batches", type=int, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-open-batches-") as scratch:
        home = Path(scratch)
        large_copy(home, given.files)
        properties = {"type": "sql", "uri": f"sqlite:///{home / 'catalog.db'}", "warehouse": home.as_uri()}
        catalog = PyIcebergCatalog("lake", properties, reading.ManifestMemo(home / "memo.db"))
        batches = _batches(catalog, given.batches)
        large_head_of_ten_files(home, given.files)
        catalog.measure(catalog.pin(TABLE), RewriteDataFilesPolicy())
        ways = {
            "all": _AllFiles("lake", properties),
            "memo": _AllFiles("lake", properties, catalog._memo),
            "changes": catalog,
        }
        figures = {
            name: _judge(way, batches[:COLD] if name == "all" else batches) for name, way in ways.items()
        }
    whole = figures["all"]
    whole["entries"] = whole["entries"] * given.batches // COLD
    publish("health", {"files": given.files, "batches": given.batches, **figures})
    wrong = {tuple(f["valid"]) for f in figures.values()} != {(True,)}
    return int(wrong or figures["changes"]["entries"] > ADDED)


class _AllFiles(PyIcebergCatalog):
    def changed_files(self, *_: Any) -> None:
        return None


def _batches(catalog: PyIcebergCatalog, count: int) -> list[Batch]:
    state = catalog.pin(TABLE)
    measured = catalog.measure(state, RewriteDataFilesPolicy())
    step = max(1, len(measured.partitions) // count)
    return [
        _batch(state, key, catalog.live_files(state, [key])) for key in list(measured.partitions)[::step]
    ][:count]


def _batch(state: TableState, key: str, files: Sequence[LiveFile]) -> Batch:
    inputs = tuple(InputFile(f.path, f.size_bytes, f.record_count, f.data_sequence_number) for f in files)
    work = RewriteDataFiles((FileGroup(key, files[0].spec_id, files[0].spec_id, inputs, 1),))
    return batch_at(state, work, frozenset(f.path for f in inputs), 512 << 20)


def _judge(catalog: PyIcebergCatalog, batches: list[Batch]) -> dict[str, Any]:
    entries = 0
    read: Callable[..., Any] = reading.read_live_entries

    def counted(*arguments: Any) -> Any:
        nonlocal entries
        found = read(*arguments)
        entries += len(found)
        return found

    state = catalog.pin(TABLE)
    with patch.object(reading, "read_live_entries", counted):
        began = time.process_time()
        changes = Changes(state, Catalogs({TABLE.catalog: catalog}, calls=lambda: 0), batches)
        valid = sorted({still_valid(batch, changes) for batch in batches})
        seconds = time.process_time() - began
    return {"entries": entries, "cpu_seconds": round(seconds, 2), "judged": len(batches), "valid": valid}


if __name__ == "__main__":
    sys.exit(main())
