"""A store that fails by rule: a proxy in front of an S3 server."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

from iceberg_maint_tests.support.servers.request_body import read_body

KINDS = ("metadata", "data", "list", "write", "delete")
FAULTS = ("slow_down", "error", "timeout", "reset", "cut", "short")
CUTS = ("cut", "short")
TIMEOUT_SECONDS = 1
"""The time that clients wait, by configuration."""
_HOP = frozenset({"connection", "transfer-encoding", "content-length", "expect", "keep-alive"})
_CODES = {
    "slow_down": (503, "SlowDown", "Please reduce your request rate."),
    "error": (500, "InternalError", "We encountered an internal error. Please try again."),
}


@dataclass
class Rule:
    """Which requests fail, and how. Of the requests of the kind every one that `every` divides fails; 0: none.

    `slow_down`: status 503. `error`: status 500. `timeout`: no answer within the time that a client waits. `reset`: the
    connection is reset. `cut`: half of the body that the header states. `short`: half of the body, and the header agrees.
    An answer of less than two bytes is reset instead.
    """

    kind: str = ""
    fault: str = ""
    every: int = 0
    asked: int = 0
    failed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def set(self, kind: str, fault: str, every: int) -> None:
        """Begins another rule, and counts from 0."""
        with self.lock:
            self.kind, self.fault, self.every, self.asked, self.failed = kind, fault, every, 0, 0

    def fault_of(self, kind: str, method: str) -> str:
        """The fault of the next request of this kind, "" if it is served."""
        with self.lock:
            # The answer to a HEAD request has no body to cut.
            if not self.every or kind != self.kind or (self.fault in CUTS and method != "GET"):
                return ""
            self.asked += 1
            if self.asked % self.every:
                return ""
            self.failed += 1
            return self.fault


def kind_of(method: str, target: str) -> str:
    """Which kind of request this is."""
    parts = urlsplit(target)
    key = unquote(parts.path).lstrip("/").partition("/")[2]
    query = parse_qs(parts.query, keep_blank_values=True)
    if method in ("GET", "HEAD"):
        return (
            ("metadata" if "/metadata/" in key else "data" if "/data/" in key else "other") if key else "list"
        )
    is_deletion = method == "DELETE" or "delete" in query
    return "delete" if is_deletion else "write"


@contextmanager
def unreliable_store(endpoint: str) -> Iterator[tuple[str, Rule]]:
    """The address of the proxy in front of a server, and its rule."""
    address = urlsplit(endpoint)
    present = Rule()

    class Handler(_Handler):
        rule = present
        upstream = (str(address.hostname), int(address.port or 80))

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", present
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    rule: ClassVar[Rule]
    upstream: ClassVar[tuple[str, int]]

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def _serve(self) -> None:
        body = read_body(self)
        fault = self.rule.fault_of(kind_of(self.command, self.path), self.command)
        if fault in _CODES:
            status, code, message = _CODES[fault]
            text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
            self._answer(status, [("Content-Type", "application/xml")], text.encode())
            return
        if fault == "timeout":
            time.sleep(3 * TIMEOUT_SECONDS)
        if fault in ("timeout", "reset"):
            self._reset()
            return
        connection = http.client.HTTPConnection(*self.upstream, timeout=60)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP}
            connection.request(
                self.command, self.path, body or None, headers | {"Content-Length": str(len(body))}
            )
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        kept = [(k, v) for k, v in answer.getheaders() if k.lower() not in _HOP]
        if self.command == "HEAD":
            kept.append(("Content-Length", answer.getheader("Content-Length", "0")))
        if fault in CUTS and len(content) < 2:
            self._reset()
        elif fault == "cut":
            self._answer(answer.status, kept, content[: len(content) // 2], len(content))
            self.wfile.flush()
            self._reset(abort=False)
        else:
            self._answer(answer.status, kept, content[: len(content) // 2] if fault == "short" else content)

    def _answer(
        self, status: int, headers: list[tuple[str, str]], content: bytes, stated: int | None = None
    ) -> None:
        self.send_response_only(status)
        for key, value in headers:
            self.send_header(key, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(content) if stated is None else stated))
        elif not any(key == "Content-Length" for key, _ in headers):
            self.send_header("Content-Length", "0")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _reset(self, *, abort: bool = True) -> None:
        self.close_connection = True
        if abort:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
