"""Spark Connect: Iceberg's procedures `rewrite_data_files` and `rewrite_manifests` on a Spark server. No JVM runs here.

Procedures: iceberg.apache.org/docs, "Spark procedures". The client is that of PySpark, or of the package `pyspark-client`.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from iceberg_maint.core.decisions.statement_hazards import SPARK, partition_filter, plain_parts
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import Snapshot, TableState
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import RewriteDataFiles, RewriteManifests
from iceberg_maint.core.policy.engines import EngineSettings
from iceberg_maint.errors import RefusedError
from iceberg_maint.ports.engine import EnvironmentFailedError
from iceberg_maint.ports.statement_engine import CannotError, Statement, StatementFailedError

MIN_ICEBERG = (1, 12)
SCHEMES = ("sc",)
_CALL_SECONDS = 30.0
_APPLICATIONS = ("spark.app.id", "app-id")
"""Keys of a snapshot's summary with the id of the server's application."""
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
        self._settings = settings
        self._session: Any = None

    def version(self, table: TableId) -> str:
        """Returns the versions of Spark and Iceberg on the server. Raises what `StatementEngine.version` raises."""
        self._reach()
        (row,) = self._collect(f"SELECT `{self._catalog(table)}`.system.iceberg_version()", _CALL_SECONDS)
        found = re.match(r"(\d+)\.(\d+)", str(row[0]))
        if found is None or (int(found[1]), int(found[2])) < MIN_ICEBERG:
            raise RefusedError(
                "ICM-103",
                f"Iceberg {row[0]} found on Spark at {self._settings.uri}; {'.'.join(map(str, MIN_ICEBERG))} is needed.",
                "upgrade the runtime jar of the server, or remove spark-connect from the policy's engines.",
            )
        return f"Spark {self._session.version}, Iceberg {row[0]}"

    def statements(self, batch: Batch, state: TableState) -> tuple[Statement, ...]:
        """Returns the call for the batch. Raises CannotError."""
        try:
            name, system = ".".join(plain_parts(state.table)), f"`{self._catalog(state.table)}`.system"
            match batch.work:
                case RewriteManifests():
                    return (
                        Statement(
                            f"CALL {system}.rewrite_manifests(table => '{name}', use_caching => false)"
                        ),
                    )
                case RewriteDataFiles() as work:
                    if work.layout is not None:
                        raise CannotError("the batch sorts its files")
                    condition = partition_filter(batch.partitions, state, SPARK)
                    options = {"target-file-size-bytes": str(batch.target_file_size_bytes), **_OPTIONS}
                    pairs = ", ".join(f"'{key}', '{value}'" for key, value in options.items())
                    where = "" if condition is None else f', where => "{condition}"'
                    return (
                        Statement(
                            f"CALL {system}.rewrite_data_files(table => '{name}', strategy => 'binpack', "
                            f"options => map({pairs}){where})"
                        ),
                    )
                case _:
                    raise CannotError(f"it has no statement for {batch.operation}")
        except ValueError as why:
            raise CannotError(str(why)) from why

    def run(self, statement: Statement, started: Callable[[str], None]) -> None:
        """Runs the call. Raises what `StatementEngine.run` raises. Its id is that of the server's application."""
        self._reach()
        started(str(self._connected().conf.get("spark.app.id")))
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

    def _catalog(self, table: TableId) -> str:
        catalog = self._settings.catalogs.get(table.catalog, table.catalog)
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", catalog):
            raise ValueError(f"the name '{catalog}' is not made of ASCII letters, digits and '_'")
        return catalog

    def _reach(self) -> None:
        """The client repeats a refused connection for minutes."""
        parts = urlsplit(self._settings.uri)
        try:
            socket.create_connection((str(parts.hostname), parts.port or 15002), _CALL_SECONDS).close()
        except OSError as why:
            raise EnvironmentFailedError(f"Spark at {self._settings.uri} does not answer: {why}.") from why

    def _connected(self) -> Any:
        if self._session is None:
            try:
                from pyspark.sql.connect.session import SparkSession
            except ImportError as why:
                raise EnvironmentFailedError(f"the client of Spark Connect is not installed: {why}.") from why
            token = "" if self._settings.password is None else f";token={self._settings.password}"
            uri = f"{self._settings.uri}/;user_id={self._settings.user}{token}"
            self._session = SparkSession.builder.remote(uri).create()
        return self._session

    def _collect(self, text: str, seconds: float) -> Any:
        from pyspark.errors import PySparkException

        late = threading.Event()
        session = self._connected()

        def interrupt() -> None:
            late.set()
            self.cancel()

        timer = threading.Timer(seconds, interrupt)
        timer.daemon = True
        timer.start()
        try:
            return session.sql(text).collect()
        except PySparkException as why:
            if late.is_set():
                raise TimeoutError(f"no end within {seconds:g} s; it was cancelled") from why
            message = " ".join(str(why).split())[:500]
            raise StatementFailedError(message, is_conflict=any(c in message for c in _CONFLICTS)) from why
        except Exception as why:
            # gRPC's own errors: the server may go on with the call.
            raise EnvironmentFailedError(
                f"Spark at {self._settings.uri}: {' '.join(str(why).split())[:500]}."
            ) from why
        finally:
            timer.cancel()
