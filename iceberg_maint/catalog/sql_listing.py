"""Lists the tables of a JDBC catalog. A connection to its SQLite file is kept while the path names the same file."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from pathlib import Path
from stat import S_ISREG
from typing import Any

import sqlalchemy as sa
from pyiceberg.io import PY_IO_IMPL, FileIO, load_file_io

from iceberg_maint.catalog.local_store import LocalFileIO, is_local
from iceberg_maint.catalog.service_calls import CallBudget, no_commit, reaching, service_reason
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import ConfigurationError

_BUSY_TIMEOUT_SECONDS = 30
_OPENED = "opened"
_NO_TABLES = re.compile(r'no such table: iceberg_tables|relation "iceberg_tables" does not exist')


def sqlite_engine(catalog: str, url: sa.URL) -> sa.Engine:
    """Returns the engine for the file of `url`. A connection to a file that has been replaced would continue to read
    it, so each use asks first whether the path still names the same file. Its first use raises ConfigurationError
    ICM-104 if there is no such file."""
    file = Path(url.database or "")
    # The pool gives a connection to one thread at a time, in turn to different ones.
    engine = sa.create_engine(url, creator=lambda: _open(catalog, file), poolclass=sa.QueuePool)

    @sa.event.listens_for(engine, "connect")
    def _note(connection: _Connection, record: Any) -> None:
        record.info[_OPENED] = connection.opened

    @sa.event.listens_for(engine, "checkout")
    def _compare(_connection: object, record: Any, _checked_out: object) -> None:
        if record.info.get(_OPENED) != _identity(file):
            raise sa.exc.DisconnectionError("the file was replaced")

    return engine


class _Connection(sqlite3.Connection):
    opened: tuple[int, int] | None = None


def _open(catalog: str, file: Path) -> sqlite3.Connection:
    opened = _identity(file)
    if opened is None:
        raise ConfigurationError(
            "ICM-104",
            f"catalog '{catalog}' cannot be reached: {file} does not exist.",
            "set the uri to the catalog's file, create the catalog's first table, or name a configuration with --config "
            "('iceberg-maint init' writes one).",
        )
    # mode=rw: by default SQLite creates an empty file at a mistyped path.
    connection = sqlite3.connect(
        f"{file.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=_BUSY_TIMEOUT_SECONDS,
        check_same_thread=False,
        factory=_Connection,
    )
    # Read before the file was opened: if it is replaced in between, the next use opens it again.
    connection.opened = opened
    return connection


def _identity(file: Path) -> tuple[int, int] | None:
    """Device and inode; None if there is no such file. A file that is open keeps its inode."""
    try:
        status = file.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if S_ISREG(status.st_mode) else None


class SqlListing:
    """The tables of a JDBC catalog (Iceberg `JdbcCatalog`, PyIceberg `SqlCatalog`). It only reads."""

    asks_each_table = False

    def __init__(self, name: str, properties: Mapping[str, str], calls: CallBudget) -> None:
        self._name, self._properties, self._calls = name, dict(properties), calls
        self._file_io: FileIO | None = None

    def tables(self) -> list[TableId]:
        return list(self._select({}))

    def names(self) -> tuple[str, ...]:
        statement = sa.text("SELECT DISTINCT catalog_name FROM iceberg_tables ORDER BY catalog_name")
        return tuple(row[0] for row in self._rows(statement, {}))

    def locations(self, tables: Collection[TableId]) -> dict[TableId, str]:
        known_locations = self._select({})
        return {t: known_locations[t] for t in tables if t in known_locations}

    def location(self, table: TableId) -> str | None:
        names = {"table_namespace": ".".join(table.namespace), "table_name": table.name}
        return self._select(names).get(table)

    def open(self, table: TableId) -> tuple[str, FileIO] | None:
        location = self.location(table)
        return None if location is None else (location, self._io(location))

    def probe_commit(self, table: TableId) -> bool:
        statement = sa.text("UPDATE iceberg_tables SET metadata_location = metadata_location WHERE 1 = 0")
        self._calls.take()
        try:
            with self._engine.begin() as connection:
                connection.execute(statement)
        except sa.exc.DBAPIError as error:
            raise no_commit(table, error) from error
        return True

    def _io(self, location: str) -> FileIO:
        if is_local(location) and PY_IO_IMPL not in self._properties:
            return LocalFileIO(self._properties)
        if self._file_io is None:
            self._file_io = load_file_io(self._properties, location)
        return self._file_io

    def _select(self, equal: Mapping[str, str]) -> dict[TableId, str]:
        parameters = {"catalog_name": self._name, **equal}
        rows = self._rows(_statement(*parameters), parameters)
        if not rows:
            return {}
        # An orphan scan reads the rows of all tables. A value by its place costs a third of one by its name.
        column = {name: place for place, name in enumerate(rows[0]._fields)}
        namespace, table, location = map(
            column.__getitem__, ("table_namespace", "table_name", "metadata_location")
        )
        kind = column.get("iceberg_type")
        return {
            _table(self._name, row[namespace], row[table]): row[location]
            for row in rows
            if row[location] and (kind is None or row[kind] in (None, "TABLE"))
        }

    def _rows(self, statement: sa.TextClause, parameters: Mapping[str, str]) -> Sequence[sa.Row[Any]]:
        self._calls.take()
        with reaching(self._name, self._where), self._engine.connect() as connection:
            try:
                return connection.execute(statement, parameters).all()
            except sa.exc.DBAPIError as error:
                # Both drivers name the missing table in the text only.
                if not _NO_TABLES.search(service_reason(error)):
                    raise
                raise ConfigurationError(
                    "ICM-104",
                    f"catalog '{self._name}' at {self._where} has no table iceberg_tables, in which a JDBC catalog keeps "
                    "its tables.",
                    f"set catalogs.{self._name}.uri to the database of the catalog, or create its first table.",
                ) from error

    @cached_property
    def _where(self) -> str:
        return self._engine.url.render_as_string(hide_password=True)

    @cached_property
    def _engine(self) -> sa.Engine:
        url = sa.make_url(self._properties["uri"])
        if url.get_backend_name() != "sqlite":
            return sa.create_engine(url, pool_pre_ping=True)
        return sqlite_engine(self._name, url)


@cache
def _statement(*columns: str) -> sa.TextClause:
    condition = " AND ".join(f"{column} = :{column}" for column in columns)
    # Every column: a catalog created before views has no iceberg_type.
    return sa.text(f"SELECT * FROM iceberg_tables WHERE {condition}")


@lru_cache(maxsize=10_000)
def _table(catalog: str, namespace: str, name: str) -> TableId:
    return TableId(catalog, tuple(namespace.split(".")), name)
