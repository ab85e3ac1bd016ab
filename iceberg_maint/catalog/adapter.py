"""The catalog port on PyIceberg: SQL (Iceberg's `jdbc`), REST, Hive and Glue. It only reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pyiceberg.io import FileIO

from iceberg_maint.catalog.approved_io import approved_of, check, check_state, check_writes
from iceberg_maint.catalog.listing import make_listing
from iceberg_maint.catalog.manifests.entries import read_entries
from iceberg_maint.catalog.manifests.live_columns import read_columns
from iceberg_maint.catalog.manifests.live_files import changed_files, find_live, live_files
from iceberg_maint.catalog.manifests.measure import measure
from iceberg_maint.catalog.manifests.memo import ManifestMemo
from iceberg_maint.catalog.manifests.metadata_file import read_bytes
from iceberg_maint.catalog.manifests.reader import (
    PATH,
    check_manifest_list,
    read_live_entries,
    read_manifest_list,
)
from iceberg_maint.catalog.rights import missing_right_to_read, missing_rights_to_write, refreshed
from iceberg_maint.catalog.service_calls import CallBudget
from iceberg_maint.catalog.table_metadata import parse_metadata, read_document
from iceberg_maint.core.commits.change import LiveEntry
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import PartitionKey, TableId
from iceberg_maint.core.model.location import cut_path
from iceberg_maint.core.model.table_state import ChangedFiles, LiveFile, Manifest, Snapshot, TableState
from iceberg_maint.core.outcomes.failures import is_of_process
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint.errors import (
    GovernedTableError,
    IcebergMaintError,
    RefusedError,
    UnknownTableError,
    UnreadableTableError,
)
from iceberg_maint.machine.bounded_calls import CallLimits
from iceberg_maint.ports.catalog import Right

_PIN_TRIES = 3
S3_SCHEMES = ("s3://", "s3a://", "s3n://")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def _consistent(table: TableId) -> Iterator[None]:
    """Turns an error of values that do not fit together into one of the table. Without it one table stops the
    observation of all tables."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        if is_of_process(error):
            raise
        raise UnreadableTableError(
            "ICM-101",
            f"{table}: its metadata and manifests contradict each other ({type(error).__name__}: {error}). "
            "Nothing was changed.",
            "repair the metadata, or register an earlier metadata file of the table.",
        ) from error


class PyIcebergCatalog:
    """One catalog. `properties` are PyIceberg's, with `type` sql, rest, hive or glue. The connection is
    opened at the first use, and no state is cached. What data manifests hold for a measurement is kept in the
    `memo`: a manifest never changes. `now_ms` is the clock of vended credentials. `on_governed` is called with a
    table that is refused for its read restrictions. Every call of the catalog is taken from `calls`."""

    def __init__(
        self,
        name: str,
        properties: Mapping[str, str],
        memo: ManifestMemo | None = None,
        now_ms: Callable[[], int] = _now_ms,
        on_governed: Callable[[TableId], None] = lambda _table: None,
        calls: CallBudget | None = None,
    ) -> None:
        self.name = name
        self._on_governed = on_governed
        self._now_ms = now_ms
        self.checks_commit_base = properties.get("type") != "rest"
        self._properties = dict(properties)
        self._memo = memo
        self._approved = approved_of(properties)
        calls = calls or CallBudget()
        self.cycle_limits: CallLimits | None = calls.limits
        self._listing = make_listing(name, properties, calls)
        self.asks_each_table = self._listing.asks_each_table
        # A service may issue credentials per table.
        self._io_lock = threading.Lock()
        self._io_by_table: dict[TableId, FileIO] = {}

    def tables(self) -> tuple[TableId, ...]:
        """Returns all tables without views, sorted. Raises ConfigurationError ICM-104."""
        return tuple(sorted(self._listing.tables()))

    def stored_names(self) -> tuple[str, ...]:
        """Returns the names of the catalogs that have tables in a JDBC catalog's database; none for another type."""
        return self._listing.names()

    def pointers(self, tables: Collection[TableId]) -> Mapping[TableId, str]:
        """Returns the metadata location of every existing table; a SQL catalog needs one SELECT. A table that a service
        does not answer for in time has none."""
        return self._listing.locations(tables)

    def check_writes(self, table: TableId, location: str, properties: Mapping[str, str]) -> None:
        """Raises RefusedError ICM-155 if files of the table with this location and these properties are written to a
        location that is not approved."""
        if self._approved is not None:
            check_writes(str(table), location, properties, self._approved)

    def pointer(self, table: TableId) -> str | None:
        """Returns the metadata location of a table as the catalog has it now, for work that removes files: an ETag that
        a server forgets to change would hide a commit. None if the table does not exist."""
        return self._listing.location(table)

    def pin(self, table: TableId, known: TableState | None = None) -> TableState:
        """Returns the state at the current snapshot, read from the metadata file itself; the `known` state if the
        catalog still names its metadata file.

        Raises UnknownTableError ICM-126, UnreadableTableError ICM-101, RefusedError ICM-108, ICM-155 for a
        location that is not approved, ICM-156 for a name that may mean another table, and GovernedTableError
        ICM-169 for a table with read restrictions.
        """
        if not table.is_unique:
            raise RefusedError(
                "ICM-156",
                f"the name of table {list(table.parts)} has an empty part or a dot within a part, so '{table}' may "
                "mean another table. It is not maintained.",
                "rename the table.",
            )
        tried: set[str] = set()
        while True:
            location, io = self._open(table)
            if known is not None and (known.table, known.metadata_location) == (table, location):
                return known
            tried.add(location)
            try:
                return self._read(table, location, io)
            except UnreadableTableError:
                # Another writer may have committed and removed the file since. Only then a retry helps.
                if len(tried) == _PIN_TRIES or self._open(table)[0] in tried:
                    raise

    def measure(self, state: TableState, policy: RewriteDataFilesPolicy) -> Measured:
        """Measures the health of the pinned snapshot. Raises UnreadableTableError ICM-101."""
        with _consistent(state.table):
            return measure(state, read_columns(self.io_of(state.table), state, self._memo), policy)

    def manifests(self, state: TableState, snapshot: Snapshot) -> Sequence[Manifest]:
        """Returns the manifests of a retained snapshot. Raises UnreadableTableError ICM-101."""
        return read_manifest_list(self.io_of(state.table), check_manifest_list(state.table, snapshot))

    def live_entries(self, state: TableState, manifest: Manifest) -> Sequence[LiveEntry]:
        """Returns the whole live entries of a manifest. Raises UnreadableTableError ICM-101."""
        return read_entries(self.io_of(state.table), manifest)

    def live_files(self, state: TableState, partitions: Collection[PartitionKey]) -> tuple[LiveFile, ...]:
        """Returns the live files of these partitions and all global equality deletes.

        Raises UnreadableTableError ICM-101, RefusedError ICM-120 for a file listed twice, ICM-155 for a
        location that is not approved, ICM-173 for a path that names two objects.
        """
        with _consistent(state.table):
            files = live_files(self.io_of(state.table), state, partitions, self._memo)
        if self._approved is not None:
            check(self._approved, (f.path for f in files), f"{state.table}: a live file")
        for file in files:
            if file.path.startswith(S3_SCHEMES) and cut_path(file.path) != file.path:
                raise RefusedError(
                    "ICM-173",
                    f"{state.table}: Iceberg's S3FileIO reads {file.path!r} as {cut_path(file.path)!r}, other "
                    "clients as another object. A rewrite would change the rows for one of them.",
                    "copy the file to a name without `?` and `#`, and register that one in its place.",
                )
        return files

    def changed_files(
        self, state: TableState, since: int, partitions: Collection[PartitionKey]
    ) -> ChangedFiles | None:
        """Returns the live files of these partitions and all global equality deletes in the manifests that
        changed since a retained snapshot, without their ranges. None if that snapshot cannot be read."""
        io, snapshot = self.io_of(state.table), state.snapshot_by_id(since)
        if snapshot is None:
            return None
        try:
            with _consistent(state.table):
                earlier = read_manifest_list(io, check_manifest_list(state.table, snapshot))
                return changed_files(io, replace(state, order=None), earlier, partitions, self._memo)
        except UnreadableTableError:
            return None

    def find_live(
        self, state: TableState, paths: Collection[str], *, deletes: bool = False, since: int | None = None
    ) -> frozenset[str]:
        """Returns which of the paths are data files, or delete files, live in any retained snapshot. With
        `since` the files are known to be newer than that snapshot."""
        io, table = self.io_of(state.table), str(state.table)
        return find_live(
            lambda location: read_manifest_list(io, location),
            lambda manifest: read_live_entries(io, manifest, table, (PATH,)).more[0],
            state,
            paths,
            deletes=deletes,
            since=since,
        )

    def io_of(self, table: TableId) -> FileIO:
        """Returns the FileIO for the table's metadata files, with the table's own credentials if it has
        any."""
        with self._io_lock:
            io = self._io_by_table.get(table)
        return self._open(table)[1] if io is None else io

    def missing_rights(
        self, table: TableId, *, changes: bool
    ) -> Iterator[tuple[Right, IcebergMaintError | None]]:
        """Yields each right on a table, with the refusal ICM-125 or ICM-170 if it is missing. Without `changes` only the
        right to read is probed. Without the right to read nothing else is probed. Raises what `pin` raises."""
        io = self.io_of(table)
        unread = missing_right_to_read(io, self.pointers([table])[table])
        yield Right.GET, unread
        if unread is None and changes:
            yield from missing_rights_to_write(io, self.pin(table).location)
            try:
                probed = self._listing.probe_commit(table)
            except RefusedError as error:
                yield Right.COMMIT, error
            else:
                if probed:
                    yield Right.COMMIT, None

    def metadata_file(self, table: TableId) -> tuple[str, bytes]:
        """Returns location and content of the current metadata file; of a table with read restrictions as the
        catalog answers them, without a read. Raises UnknownTableError ICM-126, UnreadableTableError ICM-101."""
        try:
            location, io = self._open(table)
        except GovernedTableError as error:
            if error.metadata is None:
                raise
            return error.metadata
        return location, read_bytes(io, location, f"{table}: metadata file")

    def metadata_document(self, table: TableId, location: str) -> Mapping[str, Any]:
        """Returns a metadata file of the table as JSON. Raises UnreadableTableError ICM-101."""
        data = read_bytes(self.io_of(table), location, f"{table}: metadata file")
        return read_document(table, location, data)

    def _open(self, table: TableId) -> tuple[str, FileIO]:
        try:
            location_and_io = self._listing.open(table) if table.catalog == self.name else None
        except GovernedTableError:
            with self._io_lock:
                self._io_by_table.pop(table, None)
            self._on_governed(table)
            raise
        if location_and_io is None:
            raise UnknownTableError(
                "ICM-126",
                f'"{table}" is not a table of catalog {self.name}.',
                "list the tables with `iceberg-maint tables`.",
            )
        location, io = location_and_io
        io = refreshed(io, lambda: self._reload(table), self._now_ms)
        with self._io_lock:
            self._io_by_table[table] = io
        return location, io

    def _reload(self, table: TableId) -> FileIO | None:
        location_and_io = self._listing.open(table)
        return None if location_and_io is None else location_and_io[1]

    def _read(self, table: TableId, location: str, io: FileIO) -> TableState:
        state = parse_metadata(
            table, location, read_bytes(io, location, f"cannot load {table}: metadata file")
        )
        if state.snapshot is not None:
            manifests = read_manifest_list(io, check_manifest_list(table, state.snapshot))
            state = replace(state, manifests=manifests)
        if self._approved is not None:
            check_state(state, self._approved)
        return state
