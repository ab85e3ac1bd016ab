"""Dremio's statements by the protocol: a Flight SQL server that decodes the commands as `FlightSql.proto` writes them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.wrappers_pb2 import StringValue
from pyarrow import flight

from iceberg_maint.core.decisions.statement_hazards import CannotError
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import Snapshot
from iceberg_maint.engines.dremio import Dremio, statement_engine
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.ports.statement_engine import Statement, StatementFailedError
from iceberg_maint_tests.support.statements import manifests, rewrite, settings, state_of, texts

TABLE = TableId.parse("lake.db.t")
TYPE = "type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"


class _Auth(flight.ServerAuthHandler):  # type: ignore[misc]
    """The handshake does nothing: headers carry the login."""

    def authenticate(self, _outgoing: Any, _incoming: Any) -> None:
        pass

    def is_valid(self, _token: bytes) -> bytes:
        return b""


class _Basic(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Basic at first, then a bearer token, as Dremio does."""

    def __init__(self, server: FlightSql) -> None:
        self._server = server

    def start_call(self, _info: Any, headers: Any) -> Any:
        text = headers.get("authorization", [""])[0]
        self._server.logins.append(text)
        if self._server.requires_login and text not in ("Basic bWU6cA==", "Bearer t"):
            raise flight.FlightUnauthenticatedError("who are you")
        return _Token() if text.startswith("Basic") else None


class _Token(flight.ServerMiddleware):  # type: ignore[misc]
    def sending_headers(self) -> Any:
        return {"authorization": "Bearer t"}


class FlightSql(flight.FlightServerBase):  # type: ignore[misc]
    """Answers each query with `pages`; `queries` are those that it got. A query without an end stays until it is cancelled."""

    def __init__(self, *, requires_login: bool = False) -> None:
        self.queries: list[str] = []
        self.logins: list[str] = []
        self.requires_login = requires_login
        self.version = "26.0.0-202511"
        self.error: Exception | None = None
        self.ended = threading.Event()
        self.hangs = self.unseen = False
        super().__init__(
            "grpc://127.0.0.1:0",
            auth_handler=_Auth() if requires_login else None,
            middleware={"basic": _Basic(self)},
        )

    def get_flight_info(self, _context: Any, descriptor: Any) -> Any:
        command = AnyMessage.FromString(descriptor.command)
        assert command.type_url == TYPE
        # CommandStatementQuery has the query as field 1, as StringValue has its value.
        query = StringValue.FromString(command.value).value
        self.queries.append(query)
        if self.unseen and "AT SNAPSHOT" in query:
            raise flight.FlightServerError("VALIDATION ERROR: Object 'lake' not found")
        if self.error is not None and not query.startswith("SELECT"):
            raise self.error
        endpoint = flight.FlightEndpoint(query.encode(), [])
        return flight.FlightInfo(pa.schema([]), descriptor, [endpoint], -1, -1)

    def do_get(self, _context: Any, ticket: Any) -> Any:
        if self.hangs:
            self.ended.wait(5)
        rows = {"version": [self.version]} if ticket.ticket.startswith(b"SELECT") else {"rewritten": [2]}
        return flight.RecordBatchStream(pa.table(rows))


@contextmanager
def flight_sql(**faults: Any) -> Iterator[tuple[str, FlightSql]]:
    with FlightSql(**faults) as server:
        yield f"grpc://127.0.0.1:{server.port}", server
        server.ended.set()


def dremio(uri: str = "grpc://h:1", **parts: object) -> Dremio:
    return statement_engine(settings(uri, **parts))


def test_rewrite_of_partitions_is_one_optimize_of_them() -> None:
    state = state_of("identity", "string")
    batch = rewrite(state, ("p_part=a", "p_part=b"))
    assert texts(dremio(catalogs={"lake": "src"}).statements(batch, state)) == [
        (
            (
                'OPTIMIZE TABLE "src"."db"."t" REWRITE DATA USING BIN_PACK '
                "(TARGET_FILE_SIZE_MB = 1, MIN_INPUT_FILES = 2) FOR PARTITIONS \"p\" IN ('a', 'b')"
            ),
            {},
        )
    ]


def test_rewrite_of_an_unpartitioned_table_has_no_condition() -> None:
    state = state_of()
    (statement,) = dremio().statements(rewrite(state), state)
    assert statement.text.endswith("(TARGET_FILE_SIZE_MB = 1, MIN_INPUT_FILES = 2)")


def test_rewrite_of_manifests_rewrites_nothing_else() -> None:
    state = state_of()
    assert texts(dremio().statements(manifests(state), state)) == [
        ('OPTIMIZE TABLE "lake"."db"."t" REWRITE MANIFESTS', {})
    ]


def test_partitions_of_a_transform_of_time_cannot_be_selected() -> None:
    state = state_of("day", "date", "timestamp")
    with pytest.raises(CannotError, match="partitions of the transform identity only"):
        dremio().statements(rewrite(state, ("p_part=2026-11-29",)), state)


@pytest.mark.parametrize("length", [1, 127, 128, 20_000])
def test_statement_of_any_length_arrives_as_it_is(length: int) -> None:
    text = "OPTIMIZE " + "é" * length
    with flight_sql() as (uri, server):
        dremio(uri).run(Statement(text), lambda _id: None)
    assert server.queries == [text]


def test_version_is_that_of_the_coordinator() -> None:
    with flight_sql() as (uri, server):
        assert dremio(uri).version("lake") == "26.0.0-202511"
    assert server.queries == ['SELECT "version" FROM sys."version"']


def test_password_is_exchanged_for_a_token() -> None:
    with flight_sql(requires_login=True) as (uri, server):
        dremio(uri, password="p").run(Statement("OPTIMIZE"), lambda _id: None)
    assert server.logins[0] == "Basic bWU6cA=="
    assert set(server.logins[1:]) == {"Bearer t"}


def test_dremio_that_refuses_the_credentials_is_of_the_environment() -> None:
    with flight_sql(requires_login=True) as (uri, _), pytest.raises(IcebergMaintError) as caught:
        dremio(uri, password="wrong").version("lake")
    assert str(caught.value).startswith(f"ICM-133 Dremio at {uri} refuses the user me: ")
    assert str(caught.value).endswith("Fix: correct engines.dremio.user and engines.dremio.password.")


def test_dremio_that_is_down_is_of_the_environment() -> None:
    with pytest.raises(
        IcebergMaintError, match=r"^ICM-133 Dremio at grpc://127\.0\.0\.1:1 does not answer: "
    ):
        dremio("grpc://127.0.0.1:1").version("lake")


def test_dremio_that_never_answers_a_login_or_a_query_is_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("iceberg_maint.engines.dremio._CALL_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent, flight_sql() as (uri, server):
        server.hangs = True
        for engine in (dremio(f"grpc://127.0.0.1:{silent.getsockname()[1]}", password="p"), dremio(uri)):
            with pytest.raises(
                IcebergMaintError, match=r"^ICM-133 Dremio at grpc://127\.0\.0\.1:\d+ does not answer: "
            ):
                engine.version("lake")


def test_table_is_looked_for_with_its_snapshot() -> None:
    with flight_sql() as (uri, server):
        dremio(uri, catalogs={"lake": "src"}).find(TABLE, 7)
    assert server.queries == ['SELECT 1 FROM "src"."db"."t" AT SNAPSHOT \'7\' LIMIT 0']


def test_table_that_dremio_does_not_show_is_named_with_its_setting() -> None:
    with flight_sql() as (uri, server):
        server.unseen = True
        with pytest.raises(IcebergMaintError) as caught:
            dremio(uri).find(TABLE, 7)
    assert str(caught.value).startswith(
        f'ICM-133 Dremio at {uri} does not show lake.db.t with snapshot 7 as "lake"."db"."t": VALIDATION ERROR'
    )
    assert "Fix: set engines.dremio.catalogs to its name of the catalog" in str(caught.value)


def test_dremio_that_is_too_old_is_refused() -> None:
    with flight_sql() as (uri, server):
        server.version = "25.1.0"
        with pytest.raises(IcebergMaintError) as caught:
            dremio(uri).version("lake")
    assert str(caught.value).startswith(f"ICM-103 Dremio at {uri} has version 25.1.0; 26 is needed.")


@pytest.mark.parametrize(
    ("message", "is_conflict"), [("CommitFailedException: base", True), ("VALIDATION ERROR: no table", False)]
)
def test_error_of_a_query_is_a_failed_statement(message: str, is_conflict: bool) -> None:
    with flight_sql() as (uri, server):
        server.error = flight.FlightServerError(message)
        with pytest.raises(StatementFailedError) as caught:
            dremio(uri).run(Statement("OPTIMIZE"), lambda _id: None)
    assert message in str(caught.value)
    assert caught.value.is_conflict is is_conflict


def test_statement_beyond_its_time_is_cancelled() -> None:
    with flight_sql() as (uri, server):
        server.hangs = True
        with pytest.raises(TimeoutError, match=r"no end within 0\.5 s; it was cancelled"):
            dremio(uri, timeout_seconds=0.5).run(Statement("OPTIMIZE"), lambda _id: None)


@pytest.mark.parametrize(
    ("summary", "made"),
    [
        ({}, True),
        ({"engine-name": "Dremio"}, True),
        ({"trino_query_id": "q"}, False),
        ({"engine-name": "spark"}, False),
    ],
)
def test_commit_with_the_mark_of_another_engine_is_not_dremios(summary: dict[str, str], made: bool) -> None:
    assert dremio().made(Snapshot(1, None, 1, 0, "replace", summary, ""), "") is made
