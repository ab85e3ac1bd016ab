"""Trino: `optimize` and `optimize_manifests` over its HTTP protocol.

Protocol: trino.io/docs, "Trino client REST API". Statements: "Iceberg connector", ALTER TABLE EXECUTE.
"""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from iceberg_maint.core.decisions.statement_hazards import ANSI, CannotError, partition_filter, plain
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import Snapshot, TableState
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import RewriteDataFiles
from iceberg_maint.core.policy.engines import EngineSettings
from iceberg_maint.ports.engine import EnvironmentFailedError
from iceberg_maint.ports.statement_engine import (
    Statement,
    StatementFailedError,
    refused_user,
    require_version,
    single_statement,
    unreachable,
    unseen,
)

NAME = "trino"
MIN_VERSION = (476,)
"""The oldest version whose statements were tried."""
SCHEMES = ("http", "https")
CLEAR_SCHEMES = ("http",)
_CALL_SECONDS = 30.0
_BUSY = frozenset({429, 502, 503, 504})
"""Answers after which the protocol asks to repeat the request."""
_REFUSED = frozenset({401, 403})
_QUERY_ID = "trino_query_id"
"""Key of a snapshot's summary (Trino's `IcebergMetadata`)."""


def statement_engine(settings: EngineSettings) -> Trino:
    """Returns Trino at the address of the settings. Connects to nothing."""
    return Trino(settings)


class Trino:
    """`ports.StatementEngine` on a coordinator. Writes format versions 1 and 2, with the rows of each partition as they are."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings, self._where = settings, f"Trino at {settings.uri}"
        self._lock = threading.Lock()
        self._next: str | None = None

    def version(self, catalog: str) -> str:
        """Returns the version of the coordinator. Raises what `StatementEngine.version` raises."""
        del catalog
        node = self._ask("GET", f"{self._settings.uri}/v1/info").get("nodeVersion") or {}
        version = str(node.get("version", ""))
        require_version(NAME, self._where, version, MIN_VERSION)
        return version

    def find(self, table: TableId, snapshot_id: int, seconds: float | None = None) -> None:
        """Asks for no row of the snapshot. Raises what `StatementEngine.find` raises."""
        name = self._name(table)
        try:
            query = Statement(f"SELECT 1 FROM {name} FOR VERSION AS OF {snapshot_id} LIMIT 0")
            self._finish(query, lambda _id: None, seconds or self._settings.timeout_seconds)
        except (StatementFailedError, TimeoutError) as why:
            raise unseen(NAME, self._where, f"{table} with snapshot {snapshot_id} as {name}", why) from why

    def statements(self, batch: Batch, state: TableState) -> tuple[Statement, ...]:
        """Returns the statement for the batch. Raises CannotError."""
        name, catalog = self._name(state.table), self._settings.catalog_of(state.table)

        def optimize(work: RewriteDataFiles) -> Statement:
            # Every file of the batch is below the threshold; others of its partitions may be too.
            largest = max(f.size_bytes for g in work.groups for f in g.files)
            condition = partition_filter(batch.partitions, state, ANSI)
            text = f"ALTER TABLE {name} EXECUTE optimize(file_size_threshold => '{largest + 1}B')"
            settings = {f"{catalog}.target_max_file_size": f"{batch.target_file_size_bytes}B"}
            return Statement(text if condition is None else f"{text} WHERE {condition}", settings)

        return single_statement(batch, Statement(f"ALTER TABLE {name} EXECUTE optimize_manifests"), optimize)

    def run(self, statement: Statement, started: Callable[[str], None]) -> None:
        """Runs the statement. Raises what `StatementEngine.run` raises."""
        self._finish(statement, started, self._settings.timeout_seconds)

    def _finish(self, statement: Statement, started: Callable[[str], None], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        answer = self._ask("POST", f"{self._settings.uri}/v1/statement", statement.text, statement.settings)
        started(str(answer["id"]))
        try:
            while True:
                if (error := answer.get("error")) is not None:
                    text = " ".join(str(error.get("message", "")).split())
                    name = str(error.get("errorName", ""))
                    raise StatementFailedError(f"{name}: {text}", is_conflict=name == "ICEBERG_COMMIT_ERROR")
                with self._lock:
                    self._next = answer.get("nextUri")
                if self._next is None:
                    return
                if time.monotonic() >= deadline:
                    self.cancel()
                    raise TimeoutError(f"no end within {seconds:g} s; it was cancelled")
                answer = self._ask("GET", self._next, if_busy=answer)
        finally:
            with self._lock:
                self._next = None

    def made(self, snapshot: Snapshot, statement_id: str) -> bool:
        """Returns whether the snapshot has the id of the query, of any query for an empty id. A commit of `optimize_manifests`
        has Trino's name only."""
        query = snapshot.summary.get(_QUERY_ID)
        if query is None:
            return snapshot.summary.get("engine-name") == "trino"
        return statement_id in ("", query)

    def cancel(self) -> None:
        """Cancels the running query."""
        with self._lock:
            uri = self._next
        if uri is not None:
            with suppress(Exception):
                self._send("DELETE", uri, None, {}).close()

    def _name(self, table: TableId) -> str:
        parts = plain(*table.namespace, table.name)
        if any(part != part.lower() for part in parts):
            raise CannotError("it has lower-case names only")
        return ".".join(f'"{part}"' for part in (self._settings.catalog_of(table), *parts))

    def _ask(
        self,
        method: str,
        uri: str,
        body: str | None = None,
        session: Mapping[str, str] | None = None,
        if_busy: Any = None,
    ) -> Any:
        """The answer; `if_busy`, after a moment, where the server asks to repeat the request."""
        try:
            with self._send(method, uri, body, session or {}) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as why:
            with why:
                if why.code in _REFUSED:
                    raise refused_user(
                        NAME, self._where, self._settings.user, f"{why.code} {why.reason}"
                    ) from why
                if if_busy is None or why.code not in _BUSY:
                    detail = " ".join(why.read(300).decode("utf-8", "replace").split())
                    raise EnvironmentFailedError(
                        f"{self._where} answers {why.code} {why.reason} {detail}".strip() + "."
                    ) from why
            time.sleep(0.1)
            return if_busy
        except (OSError, ValueError) as why:
            raise unreachable(NAME, self._where, why) from why

    def _send(self, method: str, uri: str, body: str | None, session: Mapping[str, str]) -> Any:
        if not uri.startswith(f"{self._settings.uri}/"):
            # The password goes to the configured address only.
            raise ValueError(f"it refers to another address, {uri[:100]}")
        headers = {"X-Trino-User": self._settings.user, "X-Trino-Source": "iceberg_maint"}
        if session:
            headers["X-Trino-Session"] = ",".join(f"{key}={value}" for key, value in session.items())
        if self._settings.password is not None:
            token = base64.b64encode(f"{self._settings.user}:{self._settings.password}".encode())
            headers["Authorization"] = f"Basic {token.decode()}"
        data = None if body is None else body.encode()
        request = urllib.request.Request(uri, data, headers, method=method)  # noqa: S310 - http or https, checked
        return urllib.request.urlopen(request, timeout=_CALL_SECONDS)  # noqa: S310
