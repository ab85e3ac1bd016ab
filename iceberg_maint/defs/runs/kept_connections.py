"""One connection per database of Dagster's storage for many accesses, and in SQLite one transaction for many events.

Dagster's storages open a connection for every query and every event, three for an evaluation of a check. In SQLite the
cycle of 100 changed tables among 1,000 takes 63 % less CPU with kept connections. In PostgreSQL each event stays a transaction of its own: readers that follow the numbers of
events would miss one that is committed after an event with a higher number. This uses methods of Dagster's storages that are no public interface. A storage that is
neither SQLite nor PostgreSQL is left as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import dagster as dg
from sqlalchemy import create_engine, inspect
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import NullPool

from iceberg_maint.defs.dagster_internals import (
    SQLITE_BUSY_TIMEOUT_SECONDS,
    SqliteEventLogStorage,
    SqliteRunStorage,
)

_INDEX = "index"
_ENGINES = 8
"""Databases whose engines are kept: the index, the runs, and one for each run that is written."""
_EXISTING: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
"""Tables, and columns with their table, that a storage has."""
_KEPT: dict[tuple[int, int], _Storages] = {}
"""What is replaced now, by thread and instance."""


@contextmanager
def kept_connections(instance: dg.DagsterInstance) -> Iterator[None]:
    """Within the block the calling thread uses one connection per database of this instance. Other threads open theirs, as
    before. A block within a block adds nothing."""
    key = (threading.get_ident(), id(instance))
    if not instance.is_persistent or any(i == id(instance) for _, i in _KEPT):
        yield
        return
    _KEPT[key] = storages = _Storages(instance)
    try:
        with storages:
            yield
    finally:
        del _KEPT[key]


@contextmanager
def one_transaction(instance: dg.DagsterInstance) -> Iterator[None]:
    """Within the block, which must be short, events are stored in one transaction per database of SQLite, which other
    writers wait for. If the block raises, none of its events is stored. In PostgreSQL, and without `kept_connections`,
    each event is stored on its own."""
    storages = _KEPT.get((threading.get_ident(), id(instance)))
    if storages is None or storages.sqlite_events is None:
        yield
        return
    with storages.sqlite_events.together():
        yield


class _Kept:
    """The connections of one storage, by database. Each access ends with a commit, as in Dagster, or together with others."""

    def __init__(
        self,
        opened: Callable[[str], Connection],
        lock: AbstractContextManager[Any] | None = None,
        *,
        autocommit: bool = False,
    ) -> None:
        self._opened, self._lock, self._autocommit = opened, lock, autocommit
        self._connections: dict[str, Connection] = {}
        self._together, self._in_use = False, 0

    @contextmanager
    def connect(self, database: str) -> Iterator[Connection]:
        """The connection of this database. PostgreSQL's storage asks for one while it has one."""
        with ExitStack() as stack:
            if self._lock is not None:
                stack.enter_context(self._lock)
            connection = self._connections.get(database)
            if connection is None:
                connection = self._connections[database] = self._opened(database)
                self._isolate(connection)
            if self._together and not connection.in_transaction():
                connection.begin()
            is_last = not (self._together or self._in_use)
            self._in_use += 1
            try:
                yield connection
                if is_last:
                    connection.commit()
                    self._isolate(connection)
            except BaseException:
                if is_last:
                    del self._connections[database]
                    connection.close()
                raise
            finally:
                self._in_use -= 1

    def _isolate(self, connection: Connection) -> None:
        """Sets again what a transaction of PostgreSQL's storage changes of its connection."""
        if self._autocommit:
            connection.execution_options(isolation_level="AUTOCOMMIT")

    @contextmanager
    def together(self) -> Iterator[None]:
        """Commits at the end of the block: the index last, as Dagster does. A block within a block adds nothing."""
        if self._together:
            yield
            return
        self._together = True
        try:
            yield
            for database in sorted(self._connections, key=lambda name: name == _INDEX):
                self._connections[database].commit()
        except BaseException:
            self.close()
            raise
        finally:
            self._together = False

    def close(self) -> None:
        """Rolls back what is not committed."""
        while self._connections:
            self._connections.popitem()[1].close()


class _Storages:
    """The event log and the runs of one instance, whose connections are replaced within the block of this object."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._event_log, self._runs = instance.event_log_storage, instance.run_storage
        self._thread = threading.get_ident()
        self._restored = ExitStack()
        self.sqlite_events: _Kept | None = None

    def __enter__(self) -> None:
        if isinstance(self._event_log, SqliteEventLogStorage):
            self.sqlite_events = self._keep_sqlite_events(self._event_log)
        elif _is_postgres(self._event_log):
            self._keep_postgres(self._event_log, "_connect")
            self._once(self._event_log)
        if isinstance(self._runs, SqliteRunStorage):
            url = self._runs._conn_string
            runs = self._new(_Kept(lambda _: _engine(url).connect()))
            self._replace(self._runs, "connect", lambda: runs.connect(""))
        elif _is_postgres(self._runs):
            self._keep_postgres(self._runs, "connect")

    def __exit__(self, *_: object) -> None:
        self._restored.close()

    def _new(self, kept: _Kept) -> _Kept:
        self._restored.callback(kept.close)
        return kept

    def _keep_sqlite_events(self, storage: SqliteEventLogStorage) -> _Kept:
        connect = storage._connect

        def opened(shard: str) -> Connection:
            return _engine(storage.conn_string_for_shard(shard), SQLITE_BUSY_TIMEOUT_SECONDS).connect()

        kept = self._new(_Kept(opened, storage._db_lock))

        def kept_connect(shard: str) -> AbstractContextManager[Connection]:
            if shard not in storage._initialized_dbs:
                with connect(shard):
                    pass  # creates the tables
            return kept.connect(shard)

        self._replace(storage, "_connect", kept_connect)
        self._once(storage)
        return kept

    def _keep_postgres(self, storage: Any, name: str) -> None:
        kept = self._new(_Kept(lambda _: storage._engine.connect(), autocommit=True))
        self._replace(storage, name, lambda: kept.connect(""))

    def _once(self, storage: Any) -> None:
        """Asks the storage once which tables and columns it has. Dagster asks for each event. What exists stays; what does not
        is asked again in the next block."""
        tables: dict[str, bool] = {}
        has_table = storage.has_table
        existing = _EXISTING.setdefault(storage, set())

        def known(name: str) -> bool:
            if name not in tables:
                tables[name] = name in existing or has_table(name)
                if tables[name]:
                    existing.add(name)
            return tables[name]

        columns: dict[str, bool] = {}

        def has_column(connection: Connection, name: str) -> bool:
            place = f"asset_keys.{name}"
            if name not in columns:
                columns[name] = place in existing or name in [
                    c["name"] for c in inspect(connection).get_columns("asset_keys")
                ]
                if columns[name]:
                    existing.add(place)
            return columns[name]

        self._replace(storage, "has_table", known)
        self._replace(storage, "_has_asset_key_col_on_connection", has_column)

    def _replace(self, storage: Any, name: str, own: Callable[..., Any]) -> None:
        """Replaces a method of this object for the thread that entered the block."""
        original, thread = getattr(storage, name), self._thread

        def chosen(*arguments: Any, **named: Any) -> Any:
            called = own if threading.get_ident() == thread else original
            return called(*arguments, **named)

        setattr(storage, name, chosen)
        self._restored.callback(delattr, storage, name)


@lru_cache(maxsize=_ENGINES)
def _engine(url: str, timeout_seconds: float | None = None) -> Engine:
    """The engine of a database of SQLite, without connections. It keeps what it has compiled of Dagster's statements for the
    next block."""
    arguments = {} if timeout_seconds is None else {"timeout": timeout_seconds}
    return create_engine(url, poolclass=NullPool, connect_args=arguments)


def _is_postgres(storage: object) -> bool:
    return type(storage).__module__.startswith("dagster_postgres.")
