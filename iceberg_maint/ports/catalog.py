"""The seam to a catalog: read-only access to tables and their metadata."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import LiveFile, TableState
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy


class Catalog(Protocol):
    """Read-only access to one catalog and the metadata of its tables. `checks_commit_base`: whether a commit is
    refused once the table is no longer at the very metadata it was checked against; a REST catalog asks for
    what the commit's requirements name, which for the removal of snapshots is the table's identity alone."""

    name: str
    checks_commit_base: bool

    def tables(self) -> tuple[TableId, ...]:
        """All tables (views left out), sorted. Raises ConfigurationError ICM-104."""
        ...

    def pointers(self, tables: Collection[TableId]) -> Mapping[TableId, str]:
        """A token per existing table that changes with every commit; no metadata is read where
        the catalog can avoid it. Tables that are gone are left out.
        """
        ...

    def pin(self, table: TableId) -> TableState:
        """The table's state at its current snapshot. Raises UnknownTableError ICM-126,
        RefusedError ICM-101.
        """
        ...

    def metadata_document(self, table: TableId, location: str) -> Mapping[str, Any]:
        """A table metadata file of the table, its current or a former one, as Iceberg's own JSON (spec:
        "Table Metadata"). Raises UnreadableTableError ICM-101.
        """
        ...

    def measure(self, state: TableState, policy: RewriteDataFilesPolicy) -> Measured:
        """Health of the pinned snapshot. Raises UnreadableTableError when counts contradict the
        manifest list.
        """
        ...

    def live_files(self, state: TableState, partitions: Collection[str]) -> tuple[LiveFile, ...]:
        """Live data and delete files of these partitions, and all global equality deletes."""
        ...

    def find_live(
        self, state: TableState, paths: Collection[str], *, deletes: bool = False
    ) -> frozenset[str]:
        """Which of the paths are data files, or delete files, live in any retained snapshot."""
        ...
