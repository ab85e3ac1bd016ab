"""Spark Connect: Iceberg's procedures `rewrite_data_files` and `rewrite_manifests` on a Spark server. No JVM runs here.

Procedures: iceberg.apache.org/docs, "Spark procedures". The client is that of PySpark, or of the package `pyspark-client`.
"""

from __future__ import annotations

import atexit
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlsplit

from iceberg_maint.core.decisions.statement_hazards import SPARK, partition_filter, plain
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import Snapshot, TableState
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import RewriteDataFiles
from iceberg_maint.core.policy.engines import EngineSettings
from iceberg_maint.ports.engine import EnvironmentFailedError
from iceberg_maint.ports.statement_engine import (
    Statement,
    StatementFailedError,
    failed_statement,
    refused_user,
    require_version,
    single_statement,
    unreachable,
    unseen,
)

NAME = "spark-connect"
MIN_ICEBERG = (1, 12)
SCHEMES = ("sc",)
CLEAR_SCHEMES = ()
"""The client encrypts where it sends a token."""
_CALL_SECONDS = 30.0
_APPLICATIONS = ("spark.app.id", "app-id")
"""Keys of a snapshot's summary with the id of the server's application."""
_REFUSED = ("UNAUTHENTICATED", "PERMISSION_DENIED")
"""Statuses of gRPC."""
_CONFLICTS = ("CommitFailedException", "ValidationException")
_OPTIONS = {
    "min-input-files": "2",
    "delete-file-threshold": "1",
    # A concurrent equality delete then fails the commit, and is not dropped by it.
    "use-starting-sequence-number": "false",
    "remove-dangling-deletes": "false",
    "partial-progress.enabled": "false",
}


def statement_engine(settings: EngineSettings) -> SparkConnect:
    """Returns the Spark server at the address of the settings. Connects to nothing."""
    return SparkConnect(settings)


class SparkConnect:
    """`ports.StatementEngine` on a Spark server with Iceberg's extensions."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings, self._where = settings, f"Spark at {settings.uri}"
        self._session: Any = None

    def version(self, catalog: str) -> str:
        """Returns the versions of Spark and Iceberg on the server. Raises what `StatementEngine.version` raises."""
        self._reach()
        name = self._catalog(catalog)
        try:
            (row,) = self._collect(f"SELECT `{name}`.system.iceberg_version()", _CALL_SECONDS)
        except (StatementFailedError, TimeoutError) as why:
            raise unseen(NAME, self._where, f"a catalog {name} of Iceberg", why) from why
        require_version(NAME, f"Iceberg of {self._where}", str(row[0]), MIN_ICEBERG)
        return f"Spark {self._session.version}, Iceberg {row[0]}"

    def find(self, table: TableId, snapshot_id: int, seconds: float | None = None) -> None:
        """Asks for no row of the snapshot. Raises what `StatementEngine.find` raises."""
        name = f"`{self._catalog(table.catalog)}`.{_plain_name(table)}"
        try:
            # Iceberg's catalog for Spark keeps tables as it has read them.
            self._collect(f"REFRESH TABLE {name}", _CALL_SECONDS)
            self._collect(
                f"SELECT 1 FROM {name} VERSION AS OF {snapshot_id} LIMIT 0",
                seconds or self._settings.timeout_seconds,
            )
        except (StatementFailedError, TimeoutError) as why:
            raise unseen(NAME, self._where, f"{table} with snapshot {snapshot_id} as {name}", why) from why

    def statements(self, batch: Batch, state: TableState) -> tuple[Statement, ...]:
        """Returns the call for the batch. Raises CannotError."""
        name, system = _plain_name(state.table), f"`{self._catalog(state.table.catalog)}`.system"
        manifests = f"CALL {system}.rewrite_manifests(table => '{name}', use_caching => false)"

        def rewrite(_work: RewriteDataFiles) -> Statement:
            condition = partition_filter(batch.partitions, state, SPARK)
            options = {"target-file-size-bytes": str(batch.target_file_size_bytes), **_OPTIONS}
            pairs = ", ".join(f"'{key}', '{value}'" for key, value in options.items())
            where = "" if condition is None else f', where => "{condition}"'
            return Statement(
                f"CALL {system}.rewrite_data_files(table => '{name}', strategy => 'binpack', "
                f"options => map({pairs}){where})"
            )

        return single_statement(batch, Statement(manifests), rewrite)

    def run(self, statement: Statement, started: Callable[[str], None]) -> None:
        """Runs the call. Raises what `StatementEngine.run` raises. Its id is that of the server's application."""
        self._reach()
        started(str(self._asked(lambda session: session.conf.get("spark.app.id"))))
        self._collect(statement.text, self._settings.timeout_seconds)

    def made(self, snapshot: Snapshot, statement_id: str) -> bool:
        """Returns whether the snapshot is of the server's application; of any of Spark for an empty id."""
        ids = {snapshot.summary[key] for key in _APPLICATIONS if key in snapshot.summary}
        return bool(ids) if statement_id == "" else statement_id in ids

    def cancel(self) -> None:
        """Interrupts the session's calls."""
        if self._session is not None:
            with suppress(Exception):
                self._session.interruptAll()

    def _catalog(self, ours: str) -> str:
        return plain(self._settings.catalogs.get(ours, ours))[0]

    def _reach(self) -> None:
        """The client repeats a refused connection for minutes."""
        parts = urlsplit(self._settings.uri)
        try:
            socket.create_connection((str(parts.hostname), parts.port or 15002), _CALL_SECONDS).close()
        except OSError as why:
            raise unreachable(NAME, self._where, why) from why

    def _connected(self) -> Any:
        if self._session is None:
            try:
                from pyspark.sql.connect.session import SparkSession
            except ImportError as why:
                raise EnvironmentFailedError(f"the client of Spark Connect is not installed: {why}.") from why
            token = (
                "" if self._settings.password is None else f";token={quote(self._settings.password, safe='')}"
            )
            uri = f"{self._settings.uri}/;user_id={self._settings.user}{token}"
            self._session = SparkSession.builder.remote(uri).create()
            # At exit PySpark asks the server to clear a cache, for ten minutes if it does not answer. Not through a closed client.
            atexit.register(self._session.client.close)
        return self._session

    def _collect(self, text: str, seconds: float) -> Any:
        late = threading.Event()

        def interrupt() -> None:
            late.set()
            self.cancel()

        timer = threading.Timer(seconds, interrupt)
        timer.daemon = True
        timer.start()
        try:
            return self._asked(lambda session: session.sql(text).collect())
        except StatementFailedError as why:
            if late.is_set():
                raise TimeoutError(f"no end within {seconds:g} s; it was cancelled") from why
            raise
        finally:
            timer.cancel()

    def _asked(self, question: Callable[[Any], Any]) -> Any:
        """The answer to a question. An error that is none of the statement leaves open whether the server goes on with it."""
        try:
            return question(self._connected())
        except EnvironmentFailedError:
            raise
        except Exception as why:
            status = str(getattr(getattr(why, "getGrpcStatusCode", lambda: None)(), "name", ""))
            if status in _REFUSED:
                raise refused_user(NAME, self._where, self._settings.user, why) from why
            if not _is_of_statement(why, status):
                raise unreachable(NAME, self._where, why) from why
            raise failed_statement(why, _CONFLICTS) from why


def _is_of_statement(why: Exception, status: str) -> bool:
    """Whether the server says that the statement failed: it says so with the status INTERNAL."""
    from pyspark.errors import PySparkException

    return isinstance(why, PySparkException) and status in ("", "INTERNAL")


def _plain_name(table: TableId) -> str:
    return ".".join(plain(*table.namespace, table.name))
