"""moto's S3 behind a look at whose credentials a request has, and the services that give credentials out."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any

from werkzeug.serving import make_server

ADMIN = "admin-key"
SECRET = "surroundings-secret"
CLIENTS = {"aws-sdk-java": "java", "aws-sdk-cpp": "arrow", "boto": "boto3"}
"""The clients of the store, by what they call themselves."""
_DENIED = (
    b'<?xml version="1.0"?><Error><Code>InvalidAccessKeyId</Code><Message>Not this key.</Message></Error>'
)
_ASSUMED = """\
<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result><Credentials>
<AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey><SessionToken>{token}</SessionToken>
<Expiration>{end}</Expiration></Credentials><AssumedRoleUser><Arn>arn:aws:sts::123456789012:assumed-role/r/s</Arn>
<AssumedRoleId>r:s</AssumedRoleId></AssumedRoleUser></{action}Result></{action}Response>"""


@dataclass
class Gate:
    """The one key id, with its session token, that the store accepts beside the administrator's. `clients` are those that
    used it, `refused` the key ids of refused requests."""

    key_id: str = ""
    token: str = ""
    clients: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)

    def accept(self, key_id: str, token: str) -> None:
        """Accepts other credentials from now on."""
        self.key_id, self.token, self.clients, self.refused = key_id, token, set(), []


class CredentialStore:
    """A WSGI application: S3, STS, and the addresses that containers and instances ask for the credentials of their role."""

    def __init__(self, gate: Gate) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        self._app, self._gate = DomainDispatcherApplication(create_backend_app), gate

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path.startswith(("/container", "/latest/")):
            return _text(start_response, self._of_machine(path))
        if method == "POST" and path == "/":
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)).decode()
            web = "AssumeRoleWithWebIdentity" in body
            return _text(start_response, self._assumed("AssumeRoleWithWebIdentity" if web else "AssumeRole"))
        key_id = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].partition("/")[0]
        token = environ.get("HTTP_X_AMZ_SECURITY_TOKEN", "")
        if key_id != ADMIN and (key_id, token) != (self._gate.key_id, self._gate.token):
            self._gate.refused.append(key_id)
            start_response("403 Forbidden", [("Content-Type", "application/xml")])
            return [_DENIED]
        agent = environ.get("HTTP_USER_AGENT", "").lower()
        if key_id != ADMIN:
            self._gate.clients |= {name for sign, name in CLIENTS.items() if sign in agent}
        answer: Iterable[bytes] = self._app(environ, start_response)
        return answer

    def _of_machine(self, path: str) -> str:
        if path == "/latest/api/token":
            return "a-token-of-the-metadata-service"
        if path.rstrip("/").endswith("security-credentials"):
            return "maintainer"
        if "region" in path or "identity" in path:
            return json.dumps({"region": "us-east-1"}) if "identity" in path else "us-east-1"
        return json.dumps(
            {
                "Code": "Success",
                "Type": "AWS-HMAC",
                "LastUpdated": _time(-60),
                "AccessKeyId": self._gate.key_id,
                "SecretAccessKey": SECRET,
                "Token": self._gate.token,
                "Expiration": _time(3600),
            }
        )

    def _assumed(self, action: str) -> str:
        return _ASSUMED.format(
            action=action, key=self._gate.key_id, secret=SECRET, token=self._gate.token, end=_time(3600)
        )


def _time(seconds: int) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _text(start_response: Callable[..., Any], text: str) -> Iterable[bytes]:
    kind = "text/xml" if text.startswith("<") else "application/json"
    start_response("200 OK", [("Content-Type", kind), ("x-aws-ec2-metadata-token-ttl-seconds", "21600")])
    return [text.encode()]


@contextmanager
def credential_store() -> Iterator[tuple[str, Gate]]:
    """The address of the store, and what it accepts."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    gate = Gate()
    server = make_server("127.0.0.1", 0, CredentialStore(gate), threaded=True)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", gate
    finally:
        server.shutdown()
