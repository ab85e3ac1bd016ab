"""Queries for many table names or UUIDs. Each statement asks for one chunk of them."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Engine,
    Row,
    Select,
    bindparam,
    create_engine,
    event,
    make_url,
    text,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.pool import StaticPool

from iceberg_maint.core.model.codec import MalformedTextError
from iceberg_maint.core.outcomes.failures import file_system_fix
from iceberg_maint.errors import ConfigurationError, IcebergMaintError
from iceberg_maint.ledger.migrations import check_version, migrate
from iceberg_maint.machine.files import private_database, private_folder

_CHUNK = 500
"""The most values in one statement. SQLite before version 3.32 allows at most 999 parameters."""


def chunks(values: Iterable[str]) -> Iterator[list[str]]:
    """Yields the values as lists of at most `_CHUNK` values."""
    rest = iter(values)
    while chunk := list(islice(rest, _CHUNK)):
        yield chunk


def among(column: ColumnElement[Any]) -> ColumnElement[bool]:
    """The condition that the column has one of the values of a chunk, for statements that `in_chunks` runs."""
    return column.in_(bindparam("chunk", expanding=True))


def in_chunks(conn: Connection, query: Select[Any], values: Iterable[str]) -> Iterator[Row[*tuple[Any, ...]]]:
    """Yields the rows of the query, which has the condition `among`, for all values. A query that is built once costs
    less than one that is built for each table."""
    for chunk in chunks(values):
        yield from conn.execute(query, {"chunk": chunk})


_BUSY_TIMEOUT_MS = 30_000
_POSTGRES = {
    "application_name": "iceberg_maint",
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""libpq's settings if the URL has none. If a server disappears silently, in a failover or behind a
firewall, a statement would otherwise wait for a quarter of an hour, and a lease lasts 45 seconds."""
_LEAST_FREE_BYTES = 1 << 20
_BEGIN_WRITE = "BEGIN IMMEDIATE"
_READ_ONLY = {
    "42501",  # insufficient_privilege
    "25006",  # read_only_sql_transaction
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM,
}
"""SQLSTATEs and primary result codes of a statement that has no permission to write."""
_FIX_ROW = "restore a backup of the ledger, or keep it aside: the next command makes a new one, and the tables lose nothing."
_FIX_GONE = "restore a backup of the ledger if there is one, then run again. Without one the next command makes a new one, and the tables lose nothing."
_FIX = "start the database, or set the ledger's URL and permissions so that this user can write to it."
_FIX_FILE = "set the ledger's URL to a file that this user can read and write, in a folder that this user can write to."


class Database:
    """Connections to the ledger at `url`. Nothing is opened before the first transaction.

    Raises ConfigurationError ICM-100 for a URL of another database. The first transaction raises
    ConfigurationError ICM-128 if the database cannot be reached or has a newer version. A later one
    raises IcebergMaintError ICM-128 if the database is lost, and ConfigurationError ICM-128 if this user
    has never been able to write to it, or if a stored row cannot be read. With `read_only` the database must
    exist at this program's version, and every write raises ICM-128.
    """

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self._url = _parse(url)
        self._read_only = read_only
        is_sqlite = self._url.get_backend_name() == "sqlite"
        self._in_memory = is_sqlite and self._url.database in (None, "", ":memory:")
        self._opening = threading.Lock()
        # An in-memory database is one connection; its transactions run in turn.
        self._turn = threading.RLock()
        self._engine: Engine | None = None
        self._reading: Engine | None = None
        self._has_written = False
        self._file: tuple[int, int] | None = None

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Opens a transaction that reads one consistent state and blocks no other."""
        self._open()
        assert self._reading is not None, "opened with the engine"
        with self._turns(), self._reached(), self._reading.begin() as conn:
            _begin(conn, "BEGIN")
            yield conn

    @contextmanager
    def write(self, *keys: str) -> Iterator[Connection]:
        """Opens a transaction during which no other writer of any of the `keys` runs.

        SQLite has one writer at a time anyway. PostgreSQL takes an advisory lock per key, always in the
        same order. SQLite would write to a file that was removed, too.
        """
        engine = self._open()
        with self._turns(), self._reached(), engine.begin() as conn:
            _begin(conn, _BEGIN_WRITE)
            if self._file != self._file_now():
                self.close()
                raise IcebergMaintError(
                    "ICM-128", f"{self._named()} was removed or replaced while it was used.", _FIX_GONE
                )
            _lock(conn, keys)
            yield conn
        self._has_written = True

    def close(self) -> None:
        """Closes all connections. The next transaction opens new ones."""
        with self._opening:
            if self._engine is not None:
                self._engine.dispose()
                self._engine = self._reading = None

    @contextmanager
    def _turns(self) -> Iterator[None]:
        if not self._in_memory:
            yield
            return
        with self._turn:
            yield

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except MalformedTextError as why:
            raise ConfigurationError(
                "ICM-128", f"{self._named()} has a row that cannot be read: {why}.", _FIX_ROW
            ) from why
        except DBAPIError as why:
            if _is_read_only(why.orig):
                # A server that no longer accepts writes was lost in a failover.
                kind = IcebergMaintError if self._has_written else ConfigurationError
                raise self._failure(why, kind) from why
            if not isinstance(why, (OperationalError, InterfaceError)):
                raise
            raise self._failure(why, IcebergMaintError) from why

    def _open(self) -> Engine:
        with self._opening:
            if self._engine is None:
                engine = self._opened()
                self._reading, self._file = _reading(engine), self._file_now()
                self._engine = engine
            return self._engine

    def _opened(self) -> Engine:
        try:
            if self._url.get_backend_name() == "sqlite":
                engine = _sqlite(self._url, in_memory=self._in_memory, read_only=self._read_only)
            else:
                engine = _postgres(self._url, read_only=self._read_only)
        except (OSError, ModuleNotFoundError) as why:
            raise self._failure(why, ConfigurationError) from why
        try:
            self._prepare(engine)
        except DBAPIError as why:
            engine.dispose()
            raise self._failure(why, ConfigurationError) from why
        except ConfigurationError:
            engine.dispose()
            raise
        return engine

    def _file_now(self) -> tuple[int, int] | None:
        """What identifies the file of SQLite. None: there is none of this name, as of a server or of a URI."""
        if self._in_memory or self._url.get_backend_name() != "sqlite":
            return None
        try:
            found = Path(str(self._url.database)).stat()
        except OSError:
            return None
        return (found.st_dev, found.st_ino)

    def _prepare(self, engine: Engine) -> None:
        if self._read_only:
            with engine.begin() as conn:
                _begin(conn, "BEGIN")
                check_version(conn)
            return
        with engine.begin() as conn:
            _begin(conn, _BEGIN_WRITE)
            _lock(conn, ["schema"])
            migrate(conn)

    def _failure(self, why: Exception, kind: type[IcebergMaintError]) -> IcebergMaintError:
        """The error of this kind, or that of a disk that takes no writes, which no configuration causes."""
        message = self._lost(why)
        is_file = self._url.get_backend_name() == "sqlite" and not self._in_memory
        reason = self._file_system_reason() if is_file and isinstance(why, DBAPIError) else ""
        if reason and reason not in message:
            # SQLite has one text for nearly every answer of the file system.
            message = f"{message.removesuffix('.')}, {reason}."
        if (fix := file_system_fix(message)) is not None:
            return IcebergMaintError("ICM-128", message, f"{fix}.")
        return kind("ICM-128", message, _FIX_FILE if is_file else _FIX)

    def _lost(self, why: Exception) -> str:
        cause = why.orig if isinstance(why, DBAPIError) and why.orig is not None else why
        words = " ".join(str(cause).split())
        if self._url.password:
            words = words.replace(str(self._url.password), "***")
        return f"{self._named()} cannot be used: {words.rstrip('.?')}."

    def _file_system_reason(self) -> str:
        """Why the file system of a SQLite file takes no writes. Empty if it takes them."""
        file = Path(str(self._url.database))
        try:
            if shutil.disk_usage(file.parent).free < _LEAST_FREE_BYTES:
                return "database or disk is full"
            with TemporaryFile(dir=file.parent, buffering=0) as beside:
                beside.seek(file.stat().st_size if file.exists() else 0)
                beside.write(b"0")
        except OSError as why:
            return str(why.strerror)
        return ""

    def _named(self) -> str:
        return f"the ledger at {self._url.render_as_string(hide_password=True)}"


class Part:
    """A part of the ledger. Each method of it is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._read, self._write = database.read, database.write


def _reading(engine: Engine) -> Engine:
    """Returns an engine for transactions that read, on the same connections."""
    if engine.dialect.name == "sqlite":
        return engine
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def _is_read_only(why: BaseException | None) -> bool:
    if isinstance(why, sqlite3.Error):
        # The low byte of an extended result code is the primary one.
        return getattr(why, "sqlite_errorcode", 0) & 0xFF in _READ_ONLY
    return getattr(why, "pgcode", None) in _READ_ONLY


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ConfigurationError(
            "ICM-100",
            "the ledger's URL cannot be read.",
            "write sqlite:///path or postgresql://host/database.",
        ) from None
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg2")
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite", "postgresql+psycopg2"):
        raise ConfigurationError(
            "ICM-100",
            f"the ledger's URL begins with '{parsed.drivername}'. The ledger must be a sqlite or postgresql database.",
            "write sqlite:///path or postgresql://host/database.",
        )
    return parsed


def _lock(conn: Connection, keys: tuple[str, ...] | list[str]) -> None:
    if conn.dialect.name != "postgresql":
        return
    for key in sorted(set(keys)):
        hashed = hashlib.sha256(f"iceberg_maint {key}".encode("utf-8", "surrogatepass")).digest()[:8]
        number = int.from_bytes(hashed, "big", signed=True)
        conn.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": number})


def _sqlite(url: URL, *, in_memory: bool, read_only: bool) -> Engine:
    settings: dict[str, Any] = {"connect_args": {"timeout": _BUSY_TIMEOUT_MS / 1000}}
    if in_memory:
        settings = {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}}
    elif not read_only:
        _make_private(Path(str(url.database)))
    elif "uri" not in url.query and not Path(str(url.database)).exists():
        raise FileNotFoundError("there is no such file")
    engine = create_engine(url, hide_parameters=True, **settings)

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: object) -> None:
        # The driver begins transactions late and never IMMEDIATE. We begin them ourselves.
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
        if read_only:
            connection.execute("PRAGMA query_only = ON")
            return
        connection.execute("PRAGMA foreign_keys = ON")
        _use_wal(connection)
        # NORMAL may lose the last commits in a power failure. With a lost ATTEMPT, a committed batch
        # would look as if no commit had been attempted.
        connection.execute("PRAGMA synchronous = FULL")

    return engine


def _begin(conn: Connection, statement: str) -> None:
    """Begins a transaction of SQLite. PostgreSQL's driver begins its own.

    A listener of SQLAlchemy's event `begin` would do the same, and would make every statement call the listeners of
    all other events, too: a tenth of what the ledger costs a small table.
    """
    if conn.dialect.name != "sqlite":
        return
    try:
        # SQLAlchemy's own way to run a statement takes longer than SQLite, and every transaction begins.
        conn.connection.dbapi_connection.execute(statement)  # type: ignore[union-attr]
    except sqlite3.Error as why:
        raise DBAPIError.instance(statement, None, why, sqlite3.Error, hide_parameters=True) from why


def _make_private(path: Path) -> None:
    """Makes the file and its folder readable by their owner only, if this call creates them."""
    private_folder(path.parent)
    private_database(path)


def _postgres(url: URL, *, read_only: bool) -> Engine:
    engine = create_engine(
        url,
        hide_parameters=True,
        pool_pre_ping=True,
        execution_options={"postgresql_readonly": True} if read_only else {},
        connect_args={k: v for k, v in _POSTGRES.items() if k not in url.query},
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: object) -> None:
        with connection.cursor() as statements:
            statements.execute("SHOW synchronous_commit")
            if statements.fetchone()[0] == "off":  # for the same reason as in SQLite above
                statements.execute("SET synchronous_commit TO on")
        connection.commit()

    @event.listens_for(engine, "checkin")
    def _as_the_server_says(connection: Any, _record: object) -> None:
        # After a transaction that reads, SQLAlchemy makes all later ones READ WRITE, also where the server allows none.
        if connection is not None:
            connection.readonly = None

    return engine


def _use_wal(connection: Any) -> None:
    """Turns the write-ahead log on. The first time needs exclusive access to the file, and SQLite does
    not wait for that, whatever its busy timeout."""
    deadline = time.monotonic() + _BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as why:
            if _is_read_only(why) or time.monotonic() >= deadline:
                raise
            time.sleep(0.05)
        else:
            return
