"""What must hold of a table once the run after a killed one has ended, told by other readers."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from iceberg_maint.config import load_config
from iceberg_maint.core.model.ids import HOUSEKEEPING_OPERATIONS, Operation
from iceberg_maint.core.model.reasons import Verdict
from iceberg_maint.core.model.table_state import BATCH_PROPERTY, TOKEN_PROPERTY
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.loop.assess import assess
from iceberg_maint_tests.qualification.kill.lake import CATALOG, ORPHANS, Lake
from iceberg_maint_tests.qualification.kill.points import EXPIRE, Kind
from iceberg_maint_tests.qualification.kill.points import ORPHANS as ORPHAN_OPERATIONS
from iceberg_maint_tests.support.spark.equality.reference import Twin
from iceberg_maint_tests.support.spark.writers import Writers

Entries = Counter[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Before:
    """A table as it was made."""

    rows: Counter[tuple[Any, ...]]
    lineage: Any
    snapshot_id: int
    entries: Entries


@dataclass
class Verifier:
    """Holds tables of the lake against what they were."""

    lake: Lake
    bridge: Bridge

    @cached_property
    def before(self) -> dict[Kind, Before]:
        """Every table as it was made; read while the lake is as it was made."""
        return {kind: self._seen(kind) for kind in self.lake.kinds}

    def differences(self, kind: Kind, operations: tuple[Operation, ...]) -> list[str]:
        """What is not as it must be: rows, lineage, files, effects, and whether the work is done."""
        before, table = self.before[kind], self._table(kind)
        return [
            *self._rows(kind, before, table),
            *self._missing_files(table),
            *_double_effects(table),
            *self._undone(kind, operations),
            *self._housekept(kind, operations, before, table),
        ]

    def _rows(self, kind: Kind, before: Before, table: Table) -> Iterator[str]:
        if self.lake.rows(kind) != before.rows:
            yield "rows differ by DuckDB"
        read = self._twin(kind).read()
        if len(read.rows) != before.rows.total():
            yield f"Iceberg's reader sees {len(read.rows)} rows of {before.rows.total()}"
        if kind is Kind.VECTORS and read.lineage != before.lineage:
            yield "row ids or their sequence numbers differ"

    def _undone(self, kind: Kind, operations: tuple[Operation, ...]) -> Iterator[str]:
        context = self.lake.context(kind)
        try:
            seen = assess(self.lake.table(kind), context, operations)
            for decision in seen.decisions:
                always_due = decision.operation in (*EXPIRE, *ORPHAN_OPERATIONS)
                if decision.verdict is Verdict.RUN and not always_due:
                    yield f"{decision.operation} is due: {decision.reason}"
            for attempt in context.ledger.work.open_attempts(seen.state.uuid):
                yield f"open attempt of {attempt.operation}: {attempt.status}"
            for operation in operations:
                for stored in context.ledger.work.open_batches(seen.state.uuid, operation):
                    yield f"open batch of {operation}: {stored.status}"
            yield from (f"{run_id} is not on record" for run_id in self.lake.untold_runs(kind))
        finally:
            context.ledger.close()

    def _expired(self, kind: Kind, operations: tuple[Operation, ...]) -> Iterator[str]:
        snapshots = [s.snapshot_id for s in self._table(kind).snapshots()]
        if operations == EXPIRE and snapshots != [self.before[kind].snapshot_id]:
            yield f"{len(snapshots)} snapshots are left"

    def _removed(self, kind: Kind, operations: tuple[Operation, ...]) -> Iterator[str]:
        if operations != ORPHAN_OPERATIONS:
            return
        left = sum(p.exists() for p in self.lake.planted(kind))
        trashed = Counter(p.name for p in self.lake.trashed(kind))
        if left or trashed != Counter(p.name for p in self.lake.planted(kind)):
            yield f"{left} of {ORPHANS} orphans are left, {trashed.total()} in the trash"

    def _housekept(
        self, kind: Kind, operations: tuple[Operation, ...], before: Before, table: Table
    ) -> Iterator[str]:
        yield from self._expired(kind, operations)
        yield from self._removed(kind, operations)
        if set(operations) <= set(HOUSEKEEPING_OPERATIONS) and _entries(table) != before.entries:
            yield "live entries differ"
        if operations != EXPIRE and before.snapshot_id not in {s.snapshot_id for s in table.snapshots()}:
            yield "the snapshot that was read before is gone"

    def _missing_files(self, table: Table) -> Iterator[str]:
        """Files that a reader of any snapshot needs and that are not there."""
        needed = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
        seen: set[str] = set()
        for snapshot in table.snapshots():
            needed.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                if manifest.manifest_path not in seen:
                    seen.add(manifest.manifest_path)
                    entries = manifest.fetch_manifest_entry(table.io)
                    needed |= {entry.data_file.file_path for entry in entries}
        for location in sorted(needed | seen):
            if not self.lake.file(location).exists():
                yield f"missing: {location}"

    def _seen(self, kind: Kind) -> Before:
        table, snapshot = self._table(kind), self._table(kind).current_snapshot()
        assert snapshot is not None
        read = self._twin(kind).read()
        rows = self.lake.rows(kind)
        assert rows.total() == len(read.rows) > 0, f"the readers disagree on {kind} as it was made"
        return Before(rows, read.lineage, snapshot.snapshot_id, _entries(table))

    def _twin(self, kind: Kind) -> Twin:
        return Twin(Writers(self.bridge), str(self.lake.table(kind)))

    def _table(self, kind: Kind) -> Table:
        return self._catalog.load_table(self.lake.table(kind).in_catalog)

    @cached_property
    def _catalog(self) -> Catalog:
        catalogs = load_config(self.lake.config, os.environ).catalogs
        return load_catalog(CATALOG, **catalogs[CATALOG].pyiceberg_properties())


def _entries(table: Table) -> Entries:
    """Live files of the current snapshot with their sequence numbers."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return Counter(
        (entry.data_file.file_path, entry.sequence_number or 0)
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
    )


def _double_effects(table: Table) -> Iterator[str]:
    for name in (BATCH_PROPERTY, TOKEN_PROPERTY):
        carried = Counter(
            s.summary.additional_properties[name]
            for s in table.snapshots()
            if s.summary is not None and name in s.summary.additional_properties
        )
        yield from (f"{name} {value} in {count} snapshots" for value, count in carried.items() if count > 1)
