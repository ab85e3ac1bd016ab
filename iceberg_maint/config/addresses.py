"""Addresses in the configuration: URLs, ports and HTTP headers, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

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
