"""Connections to the SQLite file of a JDBC catalog, kept while the path names the same file."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from stat import S_ISREG
from typing import Any

import sqlalchemy as sa

from iceberg_maint.errors import ConfigurationError

_BUSY_TIMEOUT_SECONDS = 30
_OPENED = "opened"


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
