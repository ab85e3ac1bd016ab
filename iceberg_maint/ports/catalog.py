"""The port to a catalog: read-only access to tables and their metadata."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

from iceberg_maint.core.commits.change import LiveEntry
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import PartitionKey, TableId
from iceberg_maint.core.model.table_state import ChangedFiles, LiveFile, Manifest, Snapshot, TableState
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint.machine.bounded_calls import CallLimits


class Right(StrEnum):
    """A right on the tables of a catalog. `load` and `commit` are rights of the catalog, the others of the storage."""

    LOAD = "load"
    LIST = "list"
    GET = "get"
    PUT = "put"
    DELETE = "delete"
    COMMIT = "commit"


class Catalog(Protocol):
    """Read-only access to one catalog and the metadata of its tables.

    `checks_commit_base`: whether the catalog refuses a commit if the table's metadata is no longer the base of
    that commit. A REST catalog checks only the commit's requirements. For the removal of snapshots these name
    the table's UUID alone.

    `asks_each_table`: whether the catalog is asked for the pointer of each table, not once for all. `cycle_limits` are the limits
    of a cycle over its tables; None for a catalog in memory, which answers in the calling thread. Any thread may use a
    catalog that has limits.
    """

    name: str
    checks_commit_base: bool
    asks_each_table: bool
    cycle_limits: CallLimits | None

    def tables(self) -> tuple[TableId, ...]:
        """Returns all tables, without views, sorted. Raises ConfigurationError ICM-104."""

    def pointers(self, tables: Collection[TableId]) -> Mapping[TableId, str]:
        """Returns a token per existing table that changes with every commit. Reads no metadata where the
        catalog can avoid it. The result has no entry for a table that does not exist.
        """

    def pin(self, table: TableId, known: TableState | None = None) -> TableState:
        """Returns the table's state at its current snapshot. The catalog is asked each time. If it still names
        the metadata file of the `known` state, that state is returned: a metadata file never changes. Raises
        UnknownTableError ICM-126, RefusedError ICM-101.
        """

    def metadata_document(self, table: TableId, location: str) -> Mapping[str, Any]:
        """Returns a current or former metadata file of the table, as Iceberg's own JSON (spec:
        "Table Metadata"). Raises UnreadableTableError ICM-101.
        """

    def measure(self, state: TableState, policy: RewriteDataFilesPolicy) -> Measured:
        """Returns the health of the pinned snapshot. Raises UnreadableTableError if counts contradict the
        manifest list.
        """

    def manifests(self, state: TableState, snapshot: Snapshot) -> Sequence[Manifest]:
        """Returns the manifests of a retained snapshot. Raises UnreadableTableError ICM-101."""

    def live_entries(self, state: TableState, manifest: Manifest) -> Sequence[LiveEntry]:
        """Returns the whole live entries of a manifest. Raises UnreadableTableError ICM-101."""

    def live_files(self, state: TableState, partitions: Collection[PartitionKey]) -> tuple[LiveFile, ...]:
        """Returns live data and delete files of these partitions, and all global equality deletes."""

    def changed_files(
        self, state: TableState, since: int, partitions: Collection[PartitionKey]
    ) -> ChangedFiles | None:
        """Returns the live files of these partitions and all global equality deletes in the manifests that
        changed since a snapshot. None if that snapshot cannot be read."""

    def find_live(
        self, state: TableState, paths: Collection[str], *, deletes: bool = False, since: int | None = None
    ) -> frozenset[str]:
        """Returns the paths that are live data files, or with `deletes` live delete files, in a retained
        snapshot. With `since` the files are known to be newer than that snapshot."""
