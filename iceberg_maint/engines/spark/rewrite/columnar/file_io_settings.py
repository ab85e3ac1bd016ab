"""The settings of a table's FileIO that Arrow follows, and why a batch is left to Iceberg's own client."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

S3_FILE_IO = "org.apache.iceberg.aws.s3.S3FileIO"
_RESOLVING_FILE_IO = "org.apache.iceberg.io.ResolvingFileIO"
_FOLLOWED = frozenset(
    {
        "client.region",
        "http-client.proxy-endpoint",
        "s3.access-key-id",
        "s3.endpoint",
        "s3.force-virtual-addressing",
        "s3.path-style-access",
        "s3.proxy-uri",
        "s3.region",
        "s3.secret-access-key",
        "s3.session-token",
    }
)
_WITHOUT_EFFECT = (
    "client.refresh-credentials",
    "s3.analytics-accelerator",
    "s3.checksum-enabled",
    "s3.connect-timeout",
    "s3.crt.",
    "s3.delete",
    "s3.multipart.",
    "s3.preload-client-enabled",
    "s3.request-timeout",
    "s3.retry.",
    "s3.session-token-expires-at-ms",
    "s3.staging-dir",
)
"""Settings of speed, of other requests, or of credentials that are checked here."""
_OF_S3 = ("client.", "s3.")
_S3 = ("s3://", "s3a://", "s3n://")
_EXPIRY = "s3.session-token-expires-at-ms"
LEAST_SECONDS = 600
"""Credentials that end sooner are left to Iceberg's own client, which asks the catalog for new ones."""


class NotColumnarError(Exception):
    """The batch does not qualify, for a reason that metadata do not show. Nothing is left of what was written."""


class TaskMemoryError(NotColumnarError):
    """A Python worker had too little memory for a task, also in streaming mode."""


def io_of(java_table: Any, paths: Iterable[str]) -> Mapping[str, str] | None:
    """Returns the properties of a table's FileIO, None if all paths are on a local file system. Raises NotColumnarError
    if Arrow would read or write them with other settings than Iceberg."""
    remote = [p for p in paths if not p.startswith(("/", "file:"))]
    if not remote:
        return None
    if other := next((p for p in remote if not p.startswith(_S3)), ""):
        raise NotColumnarError(f"files are on {other.partition(':')[0]}")
    if any("//" in p.partition("://")[2] for p in remote):
        raise NotColumnarError("Arrow reads no key with two slashes in a row")
    io = java_table.io()
    name = str(io.getClass().getName())
    if name == _RESOLVING_FILE_IO:
        name = str(io.ioClass(remote[0]).getName())
    properties = {str(k): str(v) for k, v in dict(io.properties()).items()}
    if reason := unfollowed(name, properties, time.time()):
        raise NotColumnarError(reason)
    return properties


def unfollowed(io_class: str, properties: Mapping[str, str], now_seconds: float) -> str:
    """Returns why Arrow cannot take the place of a FileIO on S3, "" if it can. It ignores settings that it does not
    have, such as encryption by the server, tags and signing by the catalog."""
    if io_class != S3_FILE_IO:
        return f"the table's FileIO is {io_class}"
    for key, value in sorted(properties.items()):
        is_set = key.startswith(_OF_S3) and value.lower() not in ("", "false")
        if is_set and key not in _FOLLOWED and not key.startswith(_WITHOUT_EFFECT):
            return f"Arrow has no setting {key}"
    expiry_ms = properties.get(_EXPIRY, "")
    if expiry_ms.isdecimal() and int(expiry_ms) / 1000 - now_seconds < LEAST_SECONDS:
        return f"the catalog's credentials end within {LEAST_SECONDS} seconds"
    return ""
