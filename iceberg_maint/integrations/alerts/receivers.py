"""Sends JSON over HTTP with a timeout. Follows no redirect: a receiver is the address in the configuration."""

from __future__ import annotations

import json
import smtplib
import ssl
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Protocol, assert_never

from iceberg_maint.config.alerts import (
    AlertmanagerConfig,
    EmailConfig,
    ReceiverConfig,
    SlackConfig,
    WebhookConfig,
)
from iceberg_maint.core.alerts import Incident, Messages

_MOST_RESPONSE_BYTES = 2000


_OPENER = urllib.request.OpenerDirector()
for _handler in (
    urllib.request.ProxyHandler(),
    urllib.request.HTTPHandler(),
    urllib.request.HTTPSHandler(),
    urllib.request.HTTPErrorProcessor(),
    urllib.request.HTTPDefaultErrorHandler(),
):
    _OPENER.add_handler(_handler)


def post_json(url: str, document: object, headers: Mapping[str, str], seconds: float) -> None:
    """Posts a document. Raises OSError (urllib's URLError and HTTPError) if the receiver does not take it."""
    body = json.dumps(document, ensure_ascii=True).encode()
    request = urllib.request.Request(  # noqa: S310 - the configuration allows http and https only
        url, body, {**headers, "Content-Type": "application/json"}, method="POST"
    )
    with _OPENER.open(request, timeout=seconds) as response:
        response.read(_MOST_RESPONSE_BYTES)


MOST_SHOWN = 20
"""Incidents written out in one message; the others are counted."""
_MOST_CHARACTERS = 500


def plain(text: str) -> str:
    """The text on one line, without control characters, at most 500 characters long."""
    one_line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return one_line if len(one_line) <= _MOST_CHARACTERS else one_line[: _MOST_CHARACTERS - 1] + "…"


def headline(messages: Messages) -> str:
    """How many incidents began and ended, and of what."""
    if len(messages.fired) == 1 and not messages.cleared:
        return plain(f"{messages.fired[0].table}: {messages.fired[0].kind.value}")
    if len(messages.cleared) == 1 and not messages.fired:
        return plain(f"{messages.cleared[0].table}: {messages.cleared[0].kind.value} has ended")
    parts = [f"{len(messages.fired)} new", f"{len(messages.cleared)} ended"]
    return "Alerts of iceberg_maint: " + ", ".join(
        p for p, of in zip(parts, (messages.fired, messages.cleared), strict=True) if of
    )


def lines(messages: Messages) -> list[str]:
    """The message as lines of plain text, grouped by kind."""
    return [*_fired(messages.fired), *_cleared(messages.cleared)]


def _fired(incidents: Sequence[Incident]) -> Iterable[str]:
    ordered = sorted(incidents, key=lambda i: (i.kind, i.table))
    kind = None
    for incident in ordered[:MOST_SHOWN]:
        if incident.kind is not kind:
            kind = incident.kind
            yield f"NEW {kind.value} ({incident.runbook})"
        owners = f" [{', '.join(map(plain, incident.owners))}]" if incident.owners else ""
        yield f"  {plain(incident.table)}{owners}: {plain(incident.summary)}"
        yield f"    {plain(incident.action)}"
    if len(ordered) > MOST_SHOWN:
        yield f"  and {len(ordered) - MOST_SHOWN} more: iceberg-maint alerts list"


def _cleared(incidents: Sequence[Incident]) -> Iterable[str]:
    for incident in sorted(incidents, key=lambda i: (i.kind, i.table))[:MOST_SHOWN]:
        yield f"ENDED {incident.kind.value}: {plain(incident.table)}"
    if len(incidents) > MOST_SHOWN:
        yield f"ENDED: {len(incidents) - MOST_SHOWN} more"


_LAST_MS = 253_402_300_799_000
"""The last second of the year 9999, after which Python has no dates."""
OPEN_SECONDS = 900
"""Alertmanager ends an alert of ours that it has not received again for this time."""


class Receiver(Protocol):
    """Sends messages to one receiver."""

    def send(self, messages: Messages, open_incidents: Sequence[Incident], now_ms: int) -> None:
        """Sends what the receiver has not taken. `open_incidents` are all that have fired and are still open.
        Raises OSError (smtplib and urllib raise subclasses) if the receiver does not take it."""


def make_receiver(config: ReceiverConfig, seconds: float) -> Receiver:
    """The receiver of a configuration. Opens no connection."""
    match config:
        case SlackConfig():
            return Slack(config.url, seconds)
        case WebhookConfig():
            return Webhook(config.url, config.headers, seconds)
        case EmailConfig():
            return Email(config, seconds)
        case AlertmanagerConfig():
            return Alertmanager(config.url, config.headers, seconds)
        case _:
            assert_never(config)


class Slack:
    """An incoming webhook of Slack or of a service that takes the same document, such as Mattermost."""

    def __init__(self, url: str, seconds: float) -> None:
        self._url, self._seconds = url, seconds

    def send(self, messages: Messages, open_incidents: Sequence[Incident], now_ms: int) -> None:  # noqa: ARG002
        """Sends one message for all incidents."""
        if messages.is_empty:
            return
        text = _slack_text(headline(messages))
        body = "\n".join(map(_slack_text, lines(messages)))
        post_json(self._url, {"text": f"*{text}*\n```{body}```"}, {}, self._seconds)


def _slack_text(text: str) -> str:
    # Slack reads <!channel>, <@user> and links between angle brackets, and a code block ends at three backticks.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("`", "'")


class Webhook:
    """A receiver of our own document, described in `docs/how-to/alerts.md`."""

    def __init__(self, url: str, headers: Mapping[str, str], seconds: float) -> None:
        self._url, self._headers, self._seconds = url, headers, seconds

    def send(self, messages: Messages, open_incidents: Sequence[Incident], now_ms: int) -> None:  # noqa: ARG002
        """Sends one document for all incidents."""
        if messages.is_empty:
            return
        document = {
            "version": 1,
            "title": headline(messages),
            "fired": [_document(i) for i in messages.fired],
            "cleared": [_document(i) for i in messages.cleared],
        }
        post_json(self._url, document, self._headers, self._seconds)


def _document(incident: Incident) -> dict[str, object]:
    return {
        "id": incident.incident_id,
        "kind": incident.kind.value,
        "table": plain(incident.table),
        "table_uuid": incident.table_uuid,
        "owners": [plain(o) for o in incident.owners],
        "summary": plain(incident.summary),
        "action": plain(incident.action),
        "runbook": incident.runbook,
        "since_ms": incident.since_ms,
        "fired_ms": incident.fired_ms,
        "cleared_ms": incident.cleared_ms,
    }


class Email:
    """A mail server over SMTP."""

    def __init__(self, config: EmailConfig, seconds: float) -> None:
        self._config, self._seconds = config, seconds

    def send(self, messages: Messages, open_incidents: Sequence[Incident], now_ms: int) -> None:  # noqa: ARG002
        """Sends one mail for all incidents."""
        if messages.is_empty:
            return
        mail = EmailMessage()
        mail["Subject"] = headline(messages)[:200]
        mail["From"], mail["To"] = self._config.sender, ", ".join(self._config.to)
        mail.set_content("\n".join(lines(messages)) + "\n")
        with smtplib.SMTP(self._config.host, self._config.port, timeout=self._seconds) as server:
            if self._config.tls:
                server.starttls(context=ssl.create_default_context())
            if self._config.user is not None:
                server.login(self._config.user, self._config.password or "")
            server.send_message(mail)


class Alertmanager:
    """Prometheus Alertmanager, API version 2. It groups, repeats and silences by its own configuration."""

    def __init__(self, url: str, headers: Mapping[str, str], seconds: float) -> None:
        self._url, self._headers, self._seconds = f"{url.rstrip('/')}/api/v2/alerts", headers, seconds

    def send(self, messages: Messages, open_incidents: Sequence[Incident], now_ms: int) -> None:
        """Sends every open incident with the time when it ends without another message, and every end."""
        alerts = [_alert(i, now_ms + OPEN_SECONDS * 1000) for i in open_incidents]
        # The labels identify an alert. A table that was created again may have the same one open, which must stay so.
        labels = [alert["labels"] for alert in alerts]
        ends = [_alert(i, i.cleared_ms or now_ms) for i in messages.cleared]
        alerts += [end for end in ends if end["labels"] not in labels]
        if alerts:
            post_json(self._url, alerts, self._headers, self._seconds)


def _alert(incident: Incident, ends_ms: int) -> dict[str, object]:
    return {
        "labels": {
            "alertname": f"iceberg_maint_{incident.kind.value}",
            "table": plain(incident.table),
            "owner": plain(", ".join(incident.owners)),
        },
        "annotations": {
            "summary": plain(incident.summary),
            "action": plain(incident.action),
            "runbook": incident.runbook,
            "incident": incident.incident_id,
        },
        # After a clock went back. Alertmanager answers 400 to a request with an alert that ends before it starts.
        "startsAt": _moment(min(incident.fired_ms or incident.since_ms, ends_ms)),
        "endsAt": _moment(ends_ms),
    }


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(min(ms, _LAST_MS) / 1000, UTC).isoformat(timespec="milliseconds")
