"""Who looks on: every snapshot as PyIceberg reads the metadata, every row as Iceberg's generic reader does."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.manifest import read_manifest_list
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from iceberg_maint.config import Config
from iceberg_maint.core.model.table_state import BATCH_PROPERTY, FENCE_PROPERTY
from iceberg_maint.core.removal.orphan_rules import TRASH
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.loop.context import Context
from iceberg_maint_tests.qualification.chaos.history import History, Rows, Seen, compare, replay
from iceberg_maint_tests.qualification.chaos.journal import Attempt
from iceberg_maint_tests.qualification.chaos.lake import MODELLED, NAMESPACE, TABLES, TOKEN, ChaosTable, Row
from iceberg_maint_tests.qualification.surroundings.stores import Store

# A modelled text holds neither a comma nor a parenthesis. Behind the modelled columns a record has those that
# the reader needed for itself.
_RECORD = re.compile(r"Record\((\d+), (\d+), (\d+), (\d+), ([^,()]*)[,)]")

_AGED_SECONDS = 3 * 86_400.0


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Files of a table that were never committed, and the number of those in its trash."""

    data_bytes: int
    data_files: int
    trashed_files: int


@dataclass(slots=True)
class Observer:
    """Looks at all tables, whose files are in `store`; `attempts` of all journals are given by the caller."""

    config: Config
    context: Context
    store: Store
    histories: dict[ChaosTable, History] = field(default_factory=lambda: {t: History() for t in TABLES})
    _catalogs: dict[str, Catalog] = field(default_factory=dict)
    _known: dict[ChaosTable, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, catalog in self.config.catalogs.items():
            self._catalogs[name] = load_catalog(name, **catalog.pyiceberg_properties())

    def load(self, table: ChaosTable) -> Table:
        """The table by PyIceberg."""
        return self._catalogs[table.catalog].load_table((NAMESPACE, table.name))

    def poll(self, table: ChaosTable) -> None:
        """Takes in the snapshots that are there now, and those that have come and gone since the last look,
        as the metadata files tell that are left of thirty."""
        loaded = self.load(table)
        known = self._known.setdefault(table, set())
        for entry in loaded.metadata.metadata_log:
            if entry.metadata_file not in known:
                known.add(entry.metadata_file)
                with suppress(FileNotFoundError):
                    self._add(table, FromInputFile.table_metadata(loaded.io.new_input(entry.metadata_file)))
        self._add(table, loaded.metadata)

    def _add(self, table: ChaosTable, metadata: TableMetadata) -> None:
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
        bridge = Bridge(self.context.engine.spark.session())
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
        loaded = self.load(table)
        root = self.store.file(loaded.location())
        committed = self._committed(table, root, loaded)
        there = [p for p in root.rglob("*") if p.is_file() and not p.name.startswith(".")]
        trashed = sum(TRASH in p.parts for p in there)
        lost = [p for p in there if p.relative_to(root).parts[0] == "data" and _name(str(p)) not in committed]
        return Leftovers(sum(p.stat().st_size for p in lost), len(lost), trashed)

    def age(self, table: ChaosTable) -> None:
        """Makes the files of the head look days old: age keeps none of them from being taken for orphans,
        now while they are live or when their snapshots have expired."""
        loaded = self.load(table)
        head = loaded.current_snapshot()
        if head is None:
            return
        paths = {head.manifest_list}
        for manifest in head.manifests(loaded.io):
            paths.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(loaded.io)
            paths |= {entry.data_file.file_path for entry in entries}
        old = time.time() - _AGED_SECONDS
        for path in paths:
            with suppress(FileNotFoundError):
                os.utime(self.store.file(path), (old, old))

    def _committed(self, table: ChaosTable, root: Path, loaded: Table) -> set[str]:
        """Names of all data and delete files of all snapshots there ever were, as the manifests tell that
        nobody deleted."""
        manifests = {}
        for path in root.rglob("snap-*.avro"):
            if int(path.name.split("-")[1]) in self.histories[table].seen:
                for manifest in read_manifest_list(loaded.io.new_input(str(path))):
                    manifests[_name(manifest.manifest_path)] = manifest
        found = set()
        for path in root.rglob("*.avro"):
            if path.name in manifests:
                # It may lie in the trash by now.
                manifest = manifests.pop(path.name)
                manifest._data[0] = str(path)
                entries = manifest.fetch_manifest_entry(loaded.io, discard_deleted=False)
                found |= {_name(entry.data_file.file_path) for entry in entries}
        return found


def _name(location: str) -> str:
    return location.rpartition("/")[2]
