"""A REST catalog that asks for tokens and fails in every way that the specification names.

Iceberg's own handlers answer. In front of them stand a token endpoint, a check of each request's token, and faults.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from iceberg_maint_tests.qualification.chaos.rest_catalog import Handlers, Server

CLIENT_ID, SECRET = "maintainer", "rest-secret"
STATIC = "static-rest-token"
LIFE_SECONDS = 3.0
"""Life of a token: a run takes longer."""
CONFIG = json.dumps({"defaults": {}, "overrides": {}})

Answer = tuple[int, str, dict[str, str]]
Fault = Callable[["Request"], Answer | None]


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `agent` is the client: `java` or `python`."""

    method: str
    target: str
    body: str
    agent: str
    seconds: float = 0.0

    @property
    def is_counted(self) -> bool:
        """Whether the program counts it as a call: not Iceberg's reports, nor what Spark's client asks for at its start."""
        by_client = "/oauth/" in self.target or self.target.startswith("/v1/config")
        return not self.target.endswith("/metrics") and not (self.agent == "java" and by_client)

    @property
    def is_commit(self) -> bool:
        """Whether it changes a table."""
        return self.method == "POST" and "/tables/" in self.target and not self.target.endswith("/metrics")

    @property
    def is_load(self) -> bool:
        """Whether it loads a table."""
        return self.method == "GET" and "/tables/" in self.target


def refusal(
    code: int, kind: str, message: str = "by the test", headers: Mapping[str, str] | None = None
) -> Answer:
    """An error as the specification has it."""
    return code, json.dumps({"error": {"message": message, "type": kind, "code": code}}), dict(headers or {})


@dataclass
class Tokens:
    """The tokens that are good, with their ends."""

    good: dict[str, float] = field(default_factory=dict)
    given: int = 0
    refused: int = 0
    _names: itertools.count[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def new(self, life: float) -> str:
        """A token that is good for so many seconds."""
        with self._lock:
            self.given += 1
            token = f"token-{next(self._names)}"
            self.good[token] = time.monotonic() + life
            return token

    def are_good(self, header: str) -> bool:
        """Whether the value of a header has a good token."""
        token = header.removeprefix("Bearer ")
        good = token == STATIC or self.good.get(token, 0.0) > time.monotonic()
        self.refused += not good
        return good


class GuardedRest:
    """The server. `fault` sees each request with a good token before the handlers: its answer is the answer.
    `after` sees it after them. `unauthorised` is the answer to a token that is not good."""

    def __init__(self) -> None:
        self.tokens = Tokens()
        self.handlers: Handlers | None = None
        self.life_seconds = LIFE_SECONDS
        self.fault: Fault = lambda _request: None
        self.after: Fault = lambda _request: None
        self.has_etags = False
        self.unauthorised = refusal(401, "NotAuthorizedException", "the token has expired")
        self.requests: list[Request] = []
        self._server: Server | None = None
        self._thread: threading.Thread | None = None
        self._restart: threading.Thread | None = None
        self._closes = False
        self.port = 0

    def start(self) -> None:
        """Listens, on the port of before if there was one."""
        self._server = Server(self.port, self)  # type: ignore[arg-type]
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Refuses connections from now on."""
        assert self._server is not None
        assert self._thread is not None
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def ensure_started(self) -> None:
        """Listens again if it is stopped or about to be."""
        if self._restart is not None:
            self._restart.join()
        if self._thread is None or not self._thread.is_alive():
            self.start()

    def away_for(self, seconds: float) -> None:
        """Closes the connections and refuses others for so long, from now on."""

        def restart() -> None:
            self.stop()
            time.sleep(seconds)
            self.start()
            self._closes = False

        self._closes = True
        self._restart = threading.Thread(target=restart, daemon=True)
        self._restart.start()

    def counts(self) -> Counter[str]:
        """The requests by client, without those for tokens."""
        return Counter(r.agent for r in self.requests if "/oauth/" not in r.target)

    def respond(self, method: str, target: str, body: str, headers: Mapping[str, str]) -> Answer:
        """The answer to one request."""
        code, text, more = self._respond(method, target, body, headers)
        return code, text, {**more, "Connection": "close"} if self._closes else more

    def _respond(self, method: str, target: str, body: str, headers: Mapping[str, str]) -> Answer:
        header = {key.lower(): value for key, value in headers.items()}
        agent = "python" if "pyiceberg" in header.get("user-agent", "").lower() else "java"
        request = Request(method, target, body, agent, time.monotonic())
        self.requests.append(request)
        if target.endswith("/oauth/tokens"):
            return self._token(body, header.get("authorization", ""))
        if not self.tokens.are_good(header.get("authorization", "")):
            return self.unauthorised
        if early := self.fault(request):
            return early
        if self.handlers is None:
            return 200, CONFIG, {}
        code, text = self.handlers.answer(method, target, body)
        if late := self.after(request):
            return late
        return self._tagged(request, code, text, header)

    def _tagged(self, request: Request, code: int, text: str, header: Mapping[str, str]) -> Answer:
        if not self.has_etags or code != 200 or not request.is_load:
            return code, text, {}
        tag = f'"{hashlib.sha256(json.loads(text)["metadata-location"].encode()).hexdigest()[:16]}"'
        if header.get("if-none-match") == tag:
            return 304, "", {"ETag": tag}
        return code, text, {"ETag": tag}

    def _token(self, body: str, authorization: str) -> Answer:
        form = {key: values[0] for key, values in parse_qs(body).items()}
        exchanged = form.get("subject_token", "")
        by_secret = (form.get("client_id"), form.get("client_secret")) == (CLIENT_ID, SECRET)
        by_basic = authorization.startswith("Basic ") and bool(exchanged)
        if not (by_secret or by_basic or self.tokens.good.get(exchanged, 0.0) > time.monotonic()):
            return 401, json.dumps({"error": "invalid_client", "error_description": "wrong secret"}), {}
        document = {
            "access_token": self.tokens.new(self.life_seconds),
            "token_type": "bearer",
            "expires_in": max(1, int(self.life_seconds)),
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        }
        return 200, json.dumps(document), {}
