"""Dremio: `OPTIMIZE TABLE` over Arrow Flight SQL.

Protocol: arrow.apache.org/docs/format, "FlightSql.proto". Statements: docs.dremio.com, "OPTIMIZE TABLE", version 26.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from iceberg_maint.core.decisions.statement_hazards import ANSI, CannotError, partition_filter, plain
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import Snapshot, TableState
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import RewriteDataFiles
from iceberg_maint.core.policy.engines import EngineSettings
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

NAME = "dremio"
MIN_VERSION = (26,)
"""The version whose documentation the statements follow."""
SCHEMES = ("grpc", "grpc+tcp", "grpc+tls")
CLEAR_SCHEMES = ("grpc", "grpc+tcp")
_CALL_SECONDS = 30.0
_MIB = 1024**2
_QUERY_TYPE = "type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"
_OTHERS = ("trino_query_id", "spark.app.id", "snapshot.producer", "maintenance")
"""Keys of the summaries of other engines. Dremio's has no key of its own that its documentation names."""
_CONFLICTS = ("CommitFailedException", "ValidationException", "CONCURRENT MODIFICATION")


def statement_engine(settings: EngineSettings) -> Dremio:
    """Returns Dremio at the address of the settings. Connects to nothing."""
    return Dremio(settings)


class Dremio:
    """`ports.StatementEngine` on a coordinator. Its statements select whole partitions of an identity transform."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings, self._where = settings, f"Dremio at {settings.uri}"
        self._lock = threading.Lock()
        self._reader: Any = None

    def version(self, catalog: str) -> str:
        """Returns the version of the coordinator. Raises what `StatementEngine.version` raises."""
        del catalog
        try:
            rows = self._query('SELECT "version" FROM sys."version"', _CALL_SECONDS).to_pylist()
        except (StatementFailedError, TimeoutError) as why:
            raise unreachable(NAME, self._where, why) from why
        version = str(rows[0].get("version", "")) if rows else ""
        require_version(NAME, self._where, version, MIN_VERSION)
        return version

    def find(self, table: TableId, snapshot_id: int, seconds: float | None = None) -> None:
        """Asks for no row of the snapshot. Raises what `StatementEngine.find` raises."""
        name = self._name(table)
        try:
            self._query(
                f"SELECT 1 FROM {name} AT SNAPSHOT '{snapshot_id}' LIMIT 0",
                seconds or self._settings.timeout_seconds,
            )
        except (StatementFailedError, TimeoutError) as why:
            raise unseen(NAME, self._where, f"{table} with snapshot {snapshot_id} as {name}", why) from why

    def statements(self, batch: Batch, state: TableState) -> tuple[Statement, ...]:
        """Returns the statement for the batch. Raises CannotError."""
        name = self._name(state.table)

        def optimize(_work: RewriteDataFiles) -> Statement:
            fields = state.specs[state.current_spec_id].fields
            if any(f.transform not in ("identity", "void") for f in fields):
                raise CannotError("it selects partitions of the transform identity only")
            condition = partition_filter(batch.partitions, state, ANSI)
            target = max(1, batch.target_file_size_bytes // _MIB)
            text = (
                f"OPTIMIZE TABLE {name} REWRITE DATA USING BIN_PACK "
                f"(TARGET_FILE_SIZE_MB = {target}, MIN_INPUT_FILES = 2)"
            )
            return Statement(text if condition is None else f"{text} FOR PARTITIONS {condition}")

        return single_statement(batch, Statement(f"OPTIMIZE TABLE {name} REWRITE MANIFESTS"), optimize)

    def run(self, statement: Statement, started: Callable[[str], None]) -> None:
        """Runs the statement. Raises what `StatementEngine.run` raises. Flight SQL gives a statement no id."""
        del started
        self._query(statement.text, self._settings.timeout_seconds)

    def made(self, snapshot: Snapshot, statement_id: str) -> bool:
        """Returns whether the summary has no mark of another engine."""
        del statement_id
        engine = snapshot.summary.get("engine-name", "dremio").lower()
        return "dremio" in engine and not any(key in snapshot.summary for key in _OTHERS)

    def cancel(self) -> None:
        """Cancels the running statement."""
        with self._lock:
            reader = self._reader
        if reader is not None:
            with suppress(Exception):
                reader.cancel()

    def _name(self, table: TableId) -> str:
        parts = plain(*table.namespace, table.name)
        return ".".join(f'"{part}"' for part in (self._settings.catalog_of(table), *parts))

    def _query(self, text: str, seconds: float) -> Any:
        from pyarrow import ArrowException, concat_tables, flight, table

        try:
            with flight.connect(self._settings.uri) as client:
                options = flight.FlightCallOptions(timeout=seconds, headers=self._login(client))
                info = client.get_flight_info(flight.FlightDescriptor.for_command(_command(text)), options)
                pages = []
                for endpoint in info.endpoints:
                    reader = client.do_get(endpoint.ticket, options)
                    with self._lock:
                        self._reader = reader
                    pages.append(reader.read_all())
                return concat_tables(pages) if pages else table({})
        except flight.FlightTimedOutError as why:
            self.cancel()
            raise TimeoutError(f"no end within {seconds:g} s; it was cancelled") from why
        except flight.FlightUnavailableError as why:
            raise unreachable(NAME, self._where, why) from why
        except (flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError) as why:
            raise refused_user(NAME, self._where, self._settings.user, why) from why
        except ArrowException as why:
            raise failed_statement(why, _CONFLICTS) from why
        finally:
            with self._lock:
                self._reader = None

    def _login(self, client: Any) -> list[tuple[bytes, bytes]]:
        from pyarrow import ArrowException, flight

        if self._settings.password is None:
            return []
        options = flight.FlightCallOptions(timeout=_CALL_SECONDS)
        try:
            return [client.authenticate_basic_token(self._settings.user, self._settings.password, options)]
        except flight.FlightUnauthenticatedError:
            raise
        except ArrowException as why:
            raise unreachable(NAME, self._where, why) from why


def _command(query: str) -> bytes:
    """The query as FlightSql.proto's CommandStatementQuery within Any, each of one or two length-delimited fields."""
    return _field(1, _QUERY_TYPE.encode()) + _field(2, _field(1, query.encode()))


def _field(number: int, value: bytes) -> bytes:
    """A length-delimited field of a protocol buffer."""
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    head = bytearray()
    while value > 0x7F:
        head.append(value & 0x7F | 0x80)
        value >>= 7
    head.append(value)
    return bytes(head)
