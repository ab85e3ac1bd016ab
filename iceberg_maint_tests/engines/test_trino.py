"""Trino's statements, and its protocol against a server that answers as a coordinator does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from iceberg_maint.core.decisions.statement_hazards import CannotError
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import Snapshot
from iceberg_maint.core.planning.work import RemoveOrphanFiles
from iceberg_maint.engines.trino import Trino, statement_engine
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.ports.statement_engine import Statement, StatementFailedError
from iceberg_maint_tests.support.statements import manifests, rewrite, settings, state_of, texts


@dataclass
class Coordinator:
    """Answers of `/v1/statement` by turn: each is the body, or a status. `{next}` in a body is the address of the next."""

    answers: list[Any] = field(default_factory=list)
    version: str = "476"
    requests: list[tuple[str, str, str, dict[str, str]]] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)


@contextmanager
def coordinator(*answers: Any, version: str = "476") -> Iterator[tuple[str, Coordinator]]:
    state = Coordinator(list(answers), version)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            headers = {k: v for k, v in self.headers.items() if k.startswith(("X-Trino", "Authorization"))}
            state.requests.append((self.command, self.path, body, headers))
            if self.path == "/v1/info":
                self._send(200, {"nodeVersion": {"version": state.version}})
            elif self.command == "DELETE":
                state.cancelled.set()
                self._send(200, {})
            else:
                answer = state.answers.pop(0) if len(state.answers) > 1 else state.answers[0]
                if isinstance(answer, int):
                    self._send(answer, {"message": "not now"})
                    return
                uri = f"{url}/v1/statement/executing/q1/{len(state.requests)}"
                self._send(
                    200, {k: v.replace("{next}", uri) if isinstance(v, str) else v for k, v in answer.items()}
                )

        do_GET = do_POST = do_DELETE = _answer

        def _send(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield url, state
    finally:
        server.shutdown()
        server.server_close()


def trino(url: str = "http://h", **parts: object) -> Trino:
    return statement_engine(settings(url, **parts))


TABLE = TableId.parse("lake.db.t")
RUNNING = {"id": "q1", "nextUri": "{next}"}


def test_rewrite_of_partitions_is_one_optimize_of_them() -> None:
    state = state_of("identity", "string")
    batch = rewrite(state, ("p_part=a", "p_part=b"), (10, 20))
    assert texts(trino(catalogs={"lake": "ice"}).statements(batch, state)) == [
        (
            (
                'ALTER TABLE "ice"."db"."t" EXECUTE optimize(file_size_threshold => \'21B\') '
                "WHERE \"p\" IN ('a', 'b')"
            ),
            {"ice.target_max_file_size": "1000B"},
        )
    ]


def test_rewrite_of_an_unpartitioned_table_has_no_condition() -> None:
    state = state_of()
    (statement,) = trino().statements(rewrite(state), state)
    assert statement.text == 'ALTER TABLE "lake"."db"."t" EXECUTE optimize(file_size_threshold => \'21B\')'


def test_rewrite_of_manifests_is_optimize_manifests() -> None:
    state = state_of()
    assert texts(trino().statements(manifests(state), state)) == [
        ('ALTER TABLE "lake"."db"."t" EXECUTE optimize_manifests', {})
    ]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("lake.db.T", "lower-case names only"), ("lake.db.t x", "is not made of ASCII letters")],
)
def test_name_that_trino_does_not_find_cannot_be_maintained(name: str, reason: str) -> None:
    state = state_of(name=name)
    with pytest.raises(CannotError, match=reason):
        trino().statements(rewrite(state), state)


def test_removal_of_orphans_has_no_statement() -> None:
    state = state_of()
    batch = replace(manifests(state), work=RemoveOrphanFiles(sweep=False))
    with pytest.raises(CannotError, match="it has no statement for remove_orphan_files"):
        trino().statements(batch, state)


def test_statement_runs_until_the_coordinator_names_no_next_page() -> None:
    ids: list[str] = []
    with coordinator(RUNNING, RUNNING, 503, {"id": "q1"}) as (url, server):
        trino(url, password="p").run(Statement("ALTER", {"lake.a": "1B"}), ids.append)
    assert ids == ["q1"]
    method, path, body, headers = server.requests[0]
    assert (method, path, body) == ("POST", "/v1/statement", "ALTER")
    assert headers == {
        "X-Trino-User": "me",
        "X-Trino-Source": "iceberg_maint",
        "X-Trino-Session": "lake.a=1B",
        "Authorization": "Basic bWU6cA==",
    }
    assert [r[0] for r in server.requests] == ["POST", "GET", "GET", "GET"]


@pytest.mark.parametrize(
    ("name", "is_conflict"), [("ICEBERG_COMMIT_ERROR", True), ("GENERIC_INTERNAL_ERROR", False)]
)
def test_error_of_a_query_is_a_failed_statement(name: str, is_conflict: bool) -> None:
    error = {"id": "q1", "error": {"errorName": name, "message": "no\n  more"}}
    with (
        coordinator(RUNNING, error) as (url, _),
        pytest.raises(StatementFailedError, match=f"{name}: no more") as caught,
    ):
        trino(url).run(Statement("ALTER"), lambda _id: None)
    assert caught.value.is_conflict is is_conflict


def test_statement_beyond_its_time_is_cancelled() -> None:
    with (
        coordinator(RUNNING) as (url, server),
        pytest.raises(TimeoutError, match=r"within 0\.2 s; it was cancelled"),
    ):
        trino(url, timeout_seconds=0.2).run(Statement("ALTER"), lambda _id: None)
    assert server.cancelled.is_set()


def test_statement_of_a_coordinator_that_is_busy_beyond_its_time_is_cancelled() -> None:
    with (
        coordinator(RUNNING, 503) as (url, server),
        pytest.raises(TimeoutError, match=r"within 0\.2 s; it was cancelled"),
    ):
        trino(url, timeout_seconds=0.2).run(Statement("ALTER"), lambda _id: None)
    assert server.cancelled.is_set()


def test_cancel_from_another_thread_deletes_the_query() -> None:
    with coordinator(RUNNING) as (url, server):
        engine = trino(url, timeout_seconds=30.0)
        threading.Timer(0.3, engine.cancel).start()

        def end() -> None:
            server.cancelled.wait(10)
            server.answers[:] = [{"id": "q1", "error": {"errorName": "USER_CANCELED", "message": "canceled"}}]

        threading.Thread(target=end).start()
        with pytest.raises(StatementFailedError, match="USER_CANCELED"):
            engine.run(Statement("ALTER"), lambda _id: None)


def test_trino_that_refuses_the_credentials_is_of_the_environment() -> None:
    with coordinator(401) as (url, _), pytest.raises(IcebergMaintError) as caught:
        trino(url).run(Statement("ALTER"), lambda _id: None)
    assert str(caught.value) == (
        f"ICM-133 Trino at {url} refuses the user me: 401 Unauthorized. "
        "Fix: correct engines.trino.user and engines.trino.password."
    )


def test_trino_that_is_down_is_of_the_environment() -> None:
    with pytest.raises(IcebergMaintError) as caught:
        trino("http://127.0.0.1:1").version("lake")
    assert str(caught.value).startswith("ICM-133 Trino at http://127.0.0.1:1 does not answer: ")
    assert str(caught.value).endswith("Connection refused>. Fix: start it, or correct engines.trino.uri.")


def test_table_is_looked_for_with_its_snapshot() -> None:
    with coordinator(RUNNING, {"id": "q1"}) as (url, server):
        trino(url, catalogs={"lake": "ice"}).find(TABLE, 7)
    assert server.requests[0][2] == 'SELECT 1 FROM "ice"."db"."t" FOR VERSION AS OF 7 LIMIT 0'


def test_catalog_that_trino_does_not_show_is_named_with_its_setting() -> None:
    error = {"id": "q1", "error": {"errorName": "CATALOG_NOT_FOUND", "message": "Catalog 'ice' not found"}}
    with coordinator(error) as (url, _), pytest.raises(IcebergMaintError) as caught:
        trino(url, catalogs={"lake": "ice"}).find(TABLE, 7)
    assert str(caught.value) == (
        f'ICM-133 Trino at {url} does not show lake.db.t with snapshot 7 as "ice"."db"."t": CATALOG_NOT_FOUND: Catalog '
        "'ice' not found. Fix: set engines.trino.catalogs to its name of the catalog, or permit the user to read it there."
    )


def test_answer_that_does_not_come_in_time_ends_the_search_of_a_table() -> None:
    with (
        coordinator(RUNNING) as (url, server),
        pytest.raises(IcebergMaintError, match=r"no end within 0\.2 s"),
    ):
        trino(url).find(TABLE, 7, 0.2)
    assert server.cancelled.is_set()


@pytest.mark.parametrize(("version", "shown"), [("475", "475"), ("", "unknown")])
def test_trino_that_is_too_old_is_refused(version: str, shown: str) -> None:
    with coordinator(version=version) as (url, _), pytest.raises(IcebergMaintError) as caught:
        trino(url).version("lake")
    assert str(caught.value).startswith(f"ICM-103 Trino at {url} has version {shown}; 476 is needed.")


def test_next_page_at_another_address_gets_no_password() -> None:
    answer = {"id": "q1", "nextUri": "http://elsewhere/v1/statement/1"}
    with coordinator(answer) as (url, _), pytest.raises(IcebergMaintError, match="refers to another address"):
        trino(url, password="p").run(Statement("ALTER"), lambda _id: None)


@pytest.mark.parametrize(
    ("summary", "statement_id", "made"),
    [
        ({"trino_query_id": "q1", "engine-name": "trino"}, "q1", True),
        ({"trino_query_id": "q1", "engine-name": "trino"}, "", True),
        ({"trino_query_id": "q2", "engine-name": "trino"}, "q1", False),
        # `optimize_manifests` of 476 states no query.
        ({"manifests-created": "1", "manifests-replaced": "41", "engine-name": "trino"}, "q1", True),
        ({"manifests-created": "1", "engine-name": "spark"}, "q1", False),
        ({}, "", False),
    ],
)
def test_commit_is_of_the_query_or_of_trino_without_one(
    summary: dict[str, str], statement_id: str, made: bool
) -> None:
    assert trino().made(Snapshot(1, None, 1, 0, "replace", summary, ""), statement_id) is made
