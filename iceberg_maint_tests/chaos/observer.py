"""Who looks on: every snapshot as PyIceberg reads the metadata, every row as Iceberg's generic reader does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from iceberg_maint.core.orphans import TRASH
from iceberg_maint.core.state import BATCH_PROPERTY, FENCE_PROPERTY
from iceberg_maint.spark.bridge import Bridge
from iceberg_maint.wiring import App
from iceberg_maint_tests.chaos.history import History, Rows, Seen, compare, replay
from iceberg_maint_tests.chaos.journal import Attempt
from iceberg_maint_tests.chaos.lake import MODELLED, NAMESPACE, TABLES, TOKEN, ChaosTable, Row

# A modelled text holds neither a comma nor a parenthesis. Behind the modelled columns a record has those that
# the reader needed for itself.
_RECORD = re.compile(r"Record\((\d+), (\d+), (\d+), (\d+), ([^,()]*)[,)]")


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Files below a table's location that no snapshot and no metadata reaches."""

    data_bytes: int
    data_files: int
    metadata_files: int


@dataclass(slots=True)
class Observer:
    """Looks at all tables; `attempts` of all journals are given by the caller."""

    app: App
    histories: dict[ChaosTable, History] = field(default_factory=lambda: {t: History() for t in TABLES})
    _catalogs: dict[str, Catalog] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, catalog in self.app.config.catalogs.items():
            self._catalogs[name] = load_catalog(name, **catalog.pyiceberg_properties())

    def load(self, table: ChaosTable) -> Table:
        """The table by PyIceberg."""
        return self._catalogs[table.catalog].load_table((NAMESPACE, table.name))

    def poll(self, table: ChaosTable) -> None:
        """Takes in the snapshots that are there now."""
        metadata = self.load(table).metadata
        found = []
        for s in metadata.snapshots:
            summary: Mapping[str, str] = s.summary.additional_properties if s.summary else {}
            fence = summary.get(FENCE_PROPERTY)
            found.append(
                Seen(
                    s.snapshot_id,
                    s.parent_snapshot_id,
                    s.timestamp_ms,
                    s.summary.operation.value if s.summary else "",
                    summary.get(TOKEN),
                    summary.get(BATCH_PROPERTY),
                    None if fence is None else int(fence),
                    int(summary.get("added-files-size", 0)),
                )
            )
        self.histories[table].add(found, metadata.current_snapshot_id)

    def rows(self, table: ChaosTable, snapshot_id: int) -> list[Row]:
        """The rows of one snapshot."""
        bridge = Bridge(self.app.session())
        loaded = bridge.load_table(str(table))
        names = [loaded.schema().findColumnName(i) for i in MODELLED]
        scan = bridge.iceberg.data.IcebergGenerics.read(loaded)
        scan = scan.project(loaded.schema().select(bridge.list(names))).useSnapshot(snapshot_id).build()
        lists = bridge.iceberg.relocated.com.google.common.collect.Lists
        try:
            records = lists.newArrayList(scan)
            text, count = str(records.toString()), int(records.size())
        finally:
            scan.close()
        rows = [(int(a), int(b), int(c), int(d), e) for a, b, c, d, e in _RECORD.findall(text)]
        assert len(rows) == count, f"{count} records, {len(rows)} read: {text[:300]}"
        return rows

    def check(self, table: ChaosTable, attempts: Mapping[str, Attempt], snapshot_id: int) -> Rows:
        """The rows of a snapshot against those its foreign ancestors must have left; `attempts` must have
        been read after the snapshot was seen."""
        expected = replay(self.histories[table].chain(snapshot_id), attempts)
        return compare(expected, self.rows(table, snapshot_id))

    def leftovers(self, table: ChaosTable) -> Leftovers:
        """What lies about, when nobody writes."""
        spark = self.app.session()
        sources = {
            "all_files": "file_path",
            "all_manifests": "path",
            "snapshots": "manifest_list",
            "metadata_log_entries": "file",
        }
        reached = set()
        for source, column in sources.items():
            rows = spark.sql(f"SELECT DISTINCT {column} FROM {table}.{source}").collect()
            reached |= {_path(row[0]) for row in rows}
        loaded = self.load(table)
        root = Path(_path(loaded.location()))
        lost = [
            p
            for p in root.rglob("*")
            if p.is_file() and TRASH not in p.parts and not p.name.startswith(".") and str(p) not in reached
        ]
        data = [p for p in lost if "data" in p.relative_to(root).parts[:1]]
        metadata = [p for p in lost if p not in data and not p.name.endswith(".metadata.json")]
        return Leftovers(sum(p.stat().st_size for p in data), len(data), len(metadata))


def _path(location: str) -> str:
    return unquote(urlsplit(location).path)
