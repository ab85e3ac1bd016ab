"""Lists a catalog's tables and the locations of their current metadata."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast
from uuid import uuid4

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io import SCHEMA_TO_FILE_IO, FileIO, load_file_io

from iceberg_maint.catalog.rights import check_signing
from iceberg_maint.catalog.service_calls import CallBudget, no_commit, reaching, table_error
from iceberg_maint.catalog.sql_listing import SqlListing
from iceberg_maint.catalog.store_service import RETRIES_CLASS, RETRIES_PROPERTY
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import (
    GovernedTableError,
    UnreadableTableError,
)
from iceberg_maint.machine.bounded_calls import BoundedCalls, LateError, Threads

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from iceberg_maint.catalog.rest_client import PatientRestCatalog

T = TypeVar("T")
# By its name, because PyIceberg imports the class when it opens the first file.
SCHEMA_TO_FILE_IO |= {
    scheme: ["iceberg_maint.catalog.arrow_store.LiteralFileIO"] for scheme in ("file", "hdfs", "viewfs")
}


class Listing(Protocol):
    """One catalog's list of tables. It connects at the first use. Any thread may use it. Raises ConfigurationError
    ICM-104. `asks_each_table`: whether the catalog is asked for the location of each table."""

    asks_each_table: bool

    def tables(self) -> list[TableId]:
        """Returns all tables without views."""

    def names(self) -> tuple[str, ...]:
        """Returns the names of the catalogs that have tables in this database; none for a service."""

    def locations(self, tables: Collection[TableId]) -> dict[TableId, str]:
        """Returns the metadata locations of those tables that exist and can be loaded in time."""

    def location(self, table: TableId) -> str | None:
        """Returns the metadata location of one table as the catalog has it now, whatever it answered before; None if
        the table does not exist. Raises as `open`."""

    def open(self, table: TableId) -> tuple[str, FileIO] | None:
        """Returns the metadata location and the FileIO for it; None if the table does not exist. Raises
        UnreadableTableError ICM-101 if the catalog answers but cannot load the table, GovernedTableError ICM-169
        if it answers with read restrictions, ICM-154 for remote signing without credentials."""

    def probe_commit(self, table: TableId) -> bool:
        """Returns whether the catalog was asked to commit nothing. Raises RefusedError ICM-170 if it denies that."""


def make_listing(name: str, properties: Mapping[str, str], calls: CallBudget) -> Listing:
    """Returns the listing for PyIceberg's `type`: one SELECT for `sql`, PyIceberg's catalog for others. Every call of
    the catalog is taken from `calls`. Requests to S3 are repeated as `S3Retries` says, unless a property names another
    strategy."""
    properties = {RETRIES_PROPERTY: RETRIES_CLASS, **properties}
    if properties["type"] == "sql":
        return SqlListing(name, properties, calls)
    return ServiceListing(name, properties, calls)


class ServiceListing:
    """The tables of a REST, Hive or Glue catalog, through PyIceberg's client. Threads share the client: its connections
    are those of urllib3's and boto3's pools."""

    asks_each_table = True

    def __init__(self, name: str, properties: Mapping[str, str], calls: CallBudget) -> None:
        self._name, self._properties, self._calls = name, dict(properties), calls
        self._limits, self._threads = calls.limits, Threads()
        # Python's `cached_property` would have one lock for the clients of all catalogs.
        self._connecting = threading.Lock()
        self._client: Catalog | None = None
        # PyIceberg's client of Hive has one connection, on which the answers of two threads would mix.
        self._turn = threading.RLock() if properties["type"] == "hive" else nullcontext()

    def tables(self) -> list[TableId]:
        return self._call(
            lambda catalog: [t for ns in self._namespaces(catalog) for t in self._in(catalog, ns)]
        )

    def names(self) -> tuple[str, ...]:
        return ()

    def locations(self, tables: Collection[TableId]) -> dict[TableId, str]:
        locations: dict[TableId, str] = {}
        # A broken or governed table must not hide the others. Opening it reports the error.
        with suppress(UnreadableTableError, GovernedTableError):
            for table, location in self._located(tables):
                if isinstance(location, UnreadableTableError | GovernedTableError | LateError):
                    continue
                if isinstance(location, Exception):
                    raise location
                if location:
                    locations[table] = location
        return locations

    def _located(self, tables: Collection[TableId]) -> Iterator[tuple[TableId, Any]]:
        """Yields the location of each table, None if it does not exist, or the error."""
        if len(tables) == 1:
            [table] = tables
            yield table, self._load(table, self._location)
            return
        calls = BoundedCalls[TableId](self._threads)
        group = calls.group(self._limits)
        for table in tables:
            group.add(table, partial(self._load, table, self._location))
        yield from calls

    def open(self, table: TableId) -> tuple[str, FileIO] | None:
        def load(catalog: Catalog) -> tuple[str, FileIO]:
            self._take()
            loaded = catalog.load_table(table.in_catalog)
            if self._is_rest:
                return loaded.metadata_location, loaded.io
            # PyIceberg adds the table's own properties, by which a writer of the table would choose the store's endpoint
            # and the class of the FileIO.
            return loaded.metadata_location, load_file_io(catalog.properties, loaded.metadata_location)

        opened = self._load(table, lambda catalog, _table: load(catalog))
        if opened is not None:
            check_signing(table, opened[1].properties)
        return opened

    def location(self, table: TableId) -> str | None:
        return self._load(table, partial(self._location, is_new=True))

    def _location(self, catalog: Catalog, table: TableId, *, is_new: bool = False) -> str:
        if self._is_rest:
            return cast("PatientRestCatalog", catalog).location_of(table.in_catalog, is_new=is_new)
        self._take()
        return catalog.load_table(table.in_catalog).metadata_location

    def _load(self, table: TableId, work: Callable[[Catalog, TableId], T]) -> T | None:
        """Returns what `work` returns; None if the table does not exist."""

        def load(catalog: Catalog) -> T | None:
            try:
                return work(catalog, table)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None
            except GovernedTableError as error:
                raise GovernedTableError(f"{table}: {error.message}", error.metadata) from error
            except Exception as error:
                self._take()
                catalog.list_namespaces()  # Raises if the catalog itself does not answer.
                raise table_error(table, error) from error

        return self._call(load)

    def probe_commit(self, table: TableId) -> bool:
        if not self._is_rest:
            return False
        from pyiceberg.exceptions import CommitFailedException, ForbiddenError, UnauthorizedError
        from pyiceberg.table.update import AssertTableUUID

        def commit(catalog: Catalog) -> bool:
            loaded = catalog.load_table(table.in_catalog)
            try:
                # No table has this UUID: a catalog that permits commits refuses this one.
                catalog.commit_table(loaded, (AssertTableUUID(uuid=uuid4()),), ())
            except CommitFailedException:
                pass
            except (ForbiddenError, UnauthorizedError) as error:
                raise no_commit(table, error) from error
            return True

        return self._call(commit)

    def _namespaces(self, catalog: Catalog, parent: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        self._take()
        for namespace in catalog.list_namespaces(parent):
            # Catalogs differ in whether a child includes its parents' names. None lists itself.
            if len(namespace) > len(parent) and namespace[: len(parent)] == parent:
                yield namespace
                yield from self._namespaces(catalog, namespace)

    def _in(self, catalog: Catalog, namespace: tuple[str, ...]) -> list[TableId]:
        self._take()
        try:
            names = catalog.list_tables(namespace)
        except NoSuchNamespaceError:
            return []  # dropped since it was listed
        return [TableId(self._name, tuple(parts[:-1]), parts[-1]) for parts in names]

    def _call(self, work: Callable[[Catalog], T]) -> T:
        where = self._properties.get("uri", self._properties["type"])
        # The address without user and password.
        with reaching(self._name, re.sub(r"//[^/@]*@", "//", where)), self._turn:
            return work(self._catalog)

    @property
    def _is_rest(self) -> bool:
        return self._properties["type"] == "rest"

    def _take(self) -> None:
        # The client of a REST catalog takes one for each of its requests.
        if not self._is_rest:
            self._calls.take()

    @property
    def _catalog(self) -> Catalog:
        with self._connecting:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def _connect(self) -> Catalog:
        # A start without these imports saves 0.3 CPU seconds: SQL catalogs do not need them.
        if self._is_rest:
            from iceberg_maint.catalog.rest_client import load_rest_catalog

            return load_rest_catalog(self._name, self._properties, self._calls, self._limits.at_once)
        from pyiceberg.catalog import load_catalog

        self._calls.take()
        return load_catalog(self._name, **self._properties)
