"""The reading part of Iceberg's REST catalog API over loopback HTTP, in front of a SQLite catalog.

It needs no JVM, and it can deny requests; `qualification/chaos/rest_catalog.py` also commits, by Iceberg's own handlers in a JVM.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

_SEPARATOR = "\x1f"


class RestServer(ThreadingHTTPServer):
    """Answers from `database`; with `denies` every request is unauthorised. `vends` is the configuration
    that comes with each table, `restricts` its read restrictions. `missing` tables are listed and not found, `denied` ones are forbidden, and requests for `silent` ones are
    answered after `end_silence` is set. `latency_seconds` is the time of each answer. Every commit
    is a conflict; with `denies_commits` it is forbidden. With `secret` a request needs a token of `tokens`, which the
    token endpoint gives for this secret. With `has_etags` a table has an ETag, with `tag` every one this. `faults` are the answers to the next
    requests, None for the true one; each is a status, a type and headers. `asked` are the requests so far."""

    def __init__(self, database: Path | None, *, denies: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.database, self.denies = database, denies
        self.vends: Callable[[], dict[str, str]] = dict
        self.restricts: object = None
        self.missing: frozenset[str] = frozenset()
        self.denied: frozenset[str] = frozenset()
        self.silent: frozenset[str] = frozenset()
        self.end_silence = Event()
        self.latency_seconds = 0.0
        self.denies_commits = False
        self.secret: str | None = None
        self.tokens: set[str] = set()
        self.has_etags = False
        self.tag = ""
        self.faults: list[tuple[int, str, dict[str, str]] | None] = []
        self.asked: list[tuple[str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def rows(self) -> list[tuple[tuple[str, ...], str, str, str]]:
        """Namespace, name, metadata location and type of everything in the catalog."""
        assert self.database is not None
        with closing(sqlite3.connect(self.database)) as connection:
            query = "SELECT table_namespace, table_name, metadata_location, iceberg_type FROM iceberg_tables"
            return [(tuple(ns.split(".")), *rest) for ns, *rest in connection.execute(query)]


class _Handler(BaseHTTPRequestHandler):
    server: RestServer

    def do_GET(self) -> None:
        self.server.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
        if fault := self.server.faults.pop(0) if self.server.faults else None:
            code, kind, headers = fault
            self._error(code, kind, "by the test", headers)
            return
        time.sleep(self.server.latency_seconds)
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.server.denies or (self.server.secret and token not in self.server.tokens):
            self._error(401, "NotAuthorizedException", "who are you")
            return
        url = urlsplit(self.path)
        match [unquote(part) for part in url.path.strip("/").split("/")]:
            case ["v1", "config"]:
                self._answer(200, {"defaults": {}, "overrides": {}})
            case ["v1", "namespaces"]:
                parent = parse_qs(url.query).get("parent", [""])[0]
                if parent and not self._is_namespace(tuple(parent.split(_SEPARATOR))):
                    self._error(404, "NoSuchNamespaceException", f"Namespace does not exist: {parent}")
                    return
                self._answer(
                    200, {"namespaces": self._namespaces(tuple(parent.split(_SEPARATOR)) if parent else ())}
                )
            case ["v1", "namespaces", namespace, "tables"]:
                here = tuple(namespace.split(_SEPARATOR))
                names = [n for ns, n, _, kind in self.server.rows() if ns == here and kind == "TABLE"]
                self._answer(200, {"identifiers": [{"namespace": here, "name": n} for n in names]})
            case ["v1", "namespaces", _, "tables", name] if name in self.server.denied:
                self._error(403, "ForbiddenException", "by the test")
            case ["v1", "namespaces", namespace, "tables", name]:
                if name in self.server.silent:
                    self.server.end_silence.wait()
                self._table(tuple(namespace.split(_SEPARATOR)), name)
            case _:
                self._error(404, "NotFoundException", self.path)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self.server.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
        if self.path == "/v1/oauth/tokens":
            self._token(parse_qs(body).get("client_secret", [""])[0])
        elif self.server.denies_commits:
            self._error(403, "ForbiddenException", "not permitted")
        else:
            self._error(409, "CommitFailedException", "requirement failed")

    def _namespaces(self, parent: tuple[str, ...]) -> list[tuple[str, ...]]:
        depth = len(parent)
        return sorted(
            {ns[: depth + 1] for ns, *_ in self.server.rows() if ns[:depth] == parent and len(ns) > depth}
        )

    def _is_namespace(self, name: tuple[str, ...]) -> bool:
        return any(ns[: len(name)] == name for ns, *_ in self.server.rows())

    def _table(self, namespace: tuple[str, ...], name: str) -> None:
        for ns, found, location, kind in self.server.rows():
            if (ns, found, kind) == (namespace, name, "TABLE") and name not in self.server.missing:
                metadata = json.loads(Path(location.removeprefix("file://")).read_text())
                body = {"metadata-location": location, "metadata": metadata, "config": self.server.vends()}
                if self.server.restricts is not None:
                    body["read-restrictions"] = self.server.restricts
                tag = {"ETag": self.server.tag or f'"{location}"'} if self.server.has_etags else {}
                if tag and self.headers.get("If-None-Match") == tag["ETag"]:
                    self.send_response(304)
                    self.end_headers()
                    return
                self._answer(200, body, tag)
                return
        self._error(404, "NoSuchTableException", name)

    def _token(self, secret: str) -> None:
        if secret != self.server.secret:
            self._answer(401, {"error": "invalid_client", "error_description": "wrong secret"})
            return
        token = f"token-{len(self.server.asked)}"
        self.server.tokens = {token}
        self._answer(200, {"access_token": token, "token_type": "bearer", "expires_in": 3600})

    def _error(self, code: int, kind: str, message: str, headers: dict[str, str] | None = None) -> None:
        self._answer(code, {"error": {"message": message, "type": kind, "code": code}}, headers)

    def _answer(self, code: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(server: RestServer) -> Iterator[str]:
    """Runs the server for the time of the block; gives its address."""
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.url
    finally:
        server.end_silence.set()
        server.shutdown()
        server.server_close()
        thread.join()
