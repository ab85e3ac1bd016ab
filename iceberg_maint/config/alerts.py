"""Addresses in the configuration: URLs, ports and HTTP headers, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from iceberg_maint.config.document import (
    AlertsSection,
    EmailSection,
    ReceiverSection,
    SlackSection,
    WebhookSection,
)
from iceberg_maint.config.secrets import Resolver
from iceberg_maint.errors import ConfigurationError


def checked_url(value: object, path: str, resolver: Resolver) -> str:
    """Returns the address of a setting. Raises ConfigurationError ICM-100 if it does not begin with http:// or
    https:// or names no host, and ICM-118 for a secret written in the file."""
    text = resolver.text(value, path)
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and parts.hostname is not None and parts.port != 0
    except ValueError:
        valid = False
    if not valid or not text.isascii() or not text.isprintable() or " " in text:
        raise ConfigurationError(
            "ICM-100",
            f"{path} is not an address that begins with http:// or https:// and names a host.",
            f"set {path} to such an address.",
        )
    return text


def checked_port(port: int, path: str) -> int:
    """Returns the port. Raises ConfigurationError ICM-100 for a number that is none."""
    if not 0 <= port <= 65535:
        raise ConfigurationError(
            "ICM-100", f"{path} has the port {port}. It must be from 0 to 65535.", "set another port."
        )
    return port


def checked_headers(section: Mapping[str, object], path: str, resolver: Resolver) -> dict[str, str]:
    """Returns HTTP headers. Raises ConfigurationError ICM-100 for a name or a value that HTTP does not allow."""
    headers = {name: resolver.text(value, f"{path}.{name}") for name, value in section.items()}
    for name, value in headers.items():
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name) or not value.isprintable():
            raise ConfigurationError(
                "ICM-100",
                f"{path}.{name!r} is no header. A name has letters, digits, '-' and '_'; a value has printable "
                "characters.",
                "correct the header.",
            )
    return headers


def checked_host(value: object, path: str, resolver: Resolver) -> str:
    """Returns a host name or an address. Raises ConfigurationError ICM-100 for other text."""
    host = resolver.text(value, path)
    if not re.fullmatch(r"[A-Za-z0-9_.:-]+", host):
        raise ConfigurationError(
            "ICM-100",
            f"{path} is '{host}'. It must be a host name or an address.",
            f"set {path} to a host name.",
        )
    return host


def secret_reference(value: object, path: str, resolver: Resolver) -> str:
    """Returns a secret from the environment. Raises ConfigurationError ICM-118 for a secret in the file."""
    if not isinstance(value, Mapping):
        raise ConfigurationError(
            "ICM-118",
            f"{path} is a secret. Secrets must not be written in the file.",
            "write {env: NAME}, and set that variable in the environment of the program.",
        )
    return resolver.text(value, path)


_ADDRESS = re.compile(r"[^\s@<>,;:\"()\\]+@[A-Za-z0-9.-]+")


@dataclass(frozen=True, slots=True)
class SlackConfig:
    """An incoming webhook. The URL is a secret."""

    url: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class WebhookConfig:
    """A generic webhook."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class EmailConfig:
    """A mail server, with STARTTLS unless `tls` is False."""

    host: str
    port: int
    sender: str
    to: tuple[str, ...]
    user: str | None
    password: str | None = field(repr=False)
    tls: bool


@dataclass(frozen=True, slots=True)
class AlertmanagerConfig:
    """The base address of an Alertmanager."""

    url: str
    headers: Mapping[str, str] = field(repr=False)


ReceiverConfig = SlackConfig | WebhookConfig | EmailConfig | AlertmanagerConfig


@dataclass(frozen=True, slots=True)
class ReceiverSettings:
    """A receiver and the owners whose incidents it gets; without owners it gets all."""

    receiver: ReceiverConfig
    owners: frozenset[str]


@dataclass(frozen=True, slots=True)
class AlertsConfig:
    """The receivers by name."""

    receivers: Mapping[str, ReceiverSettings]


def alerts_config(section: AlertsSection, resolver: Resolver) -> AlertsConfig:
    """Returns the checked settings. Raises ConfigurationError ICM-100, ICM-118."""
    return AlertsConfig(
        {
            name: ReceiverSettings(
                _receiver(receiver, f"alerts.receivers.{name}", resolver), frozenset(receiver.owners)
            )
            for name, receiver in section.receivers.items()
        },
    )


def _receiver(section: ReceiverSection, path: str, resolver: Resolver) -> ReceiverConfig:
    if isinstance(section, EmailSection):
        return _email(section, path, resolver)
    if isinstance(section, SlackSection):
        secret_reference(section.url, f"{path}.url", resolver)
        return SlackConfig(checked_url(section.url, f"{path}.url", resolver))
    url = checked_url(section.url, f"{path}.url", resolver)
    headers = checked_headers(section.headers, f"{path}.headers", resolver)
    return (
        WebhookConfig(url, headers)
        if isinstance(section, WebhookSection)
        else AlertmanagerConfig(url, headers)
    )


def _email(section: EmailSection, path: str, resolver: Resolver) -> EmailConfig:
    if not section.to:
        raise ConfigurationError("ICM-100", f"{path}.to is empty.", f"set {path}.to to mail addresses.")
    sender = resolver.text(section.sender, f"{path}.sender")
    for name, address in (("sender", sender), *(("to", to) for to in section.to)):
        if not _ADDRESS.fullmatch(address):
            raise ConfigurationError(
                "ICM-100",
                f"{path}.{name} has '{address}', which is no mail address.",
                "write an address such as oncall@example.org.",
            )
    user = None if section.user is None else resolver.text(section.user, f"{path}.user")
    password = (
        None if section.password is None else secret_reference(section.password, f"{path}.password", resolver)
    )
    if user is not None and not section.tls:
        raise ConfigurationError(
            "ICM-100",
            f"{path}.tls is false. A password must not travel without encryption.",
            f"remove {path}.tls, or {path}.user.",
        )
    return EmailConfig(
        checked_host(section.host, f"{path}.host", resolver),
        checked_port(section.port, f"{path}.port"),
        sender,
        tuple(section.to),
        user,
        password,
        section.tls,
    )
