"""Credentials that a catalog vends with a table, and that expire before a long pass ends.

A REST catalog answers the load of a table with credentials for its files (REST specification: LoadTableResult,
config). They last an hour, or minutes. PyIceberg keeps them in the FileIO that it makes then. The FileIO here
loads the table again before they expire.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

from pyiceberg.io import FileIO

from iceberg_maint.errors import GovernedTableError, IcebergMaintError

_VENDED = ("s3.session-token", "gcs.oauth2.token", "adls.sas-token")
_EXPIRES = ("s3.session-token-expires-at-ms", "gcs.oauth2.token-expires-at", "adls.sas-token-expires-at-ms")
"""Keys of the times in milliseconds; ADLS adds the account to both of its keys."""
_MARGIN_MS = 300_000
"""Credentials are loaded again this long before they expire, or at half of a shorter life."""
_UNKNOWN_LIFE_MS = 600_000
"""Credentials without a time are loaded again after this time: no service vends them for less than 15 minutes."""
_RETRY_MS = 30_000
"""A load that failed is repeated after this time."""


def refreshed(io: FileIO, load: Callable[[], FileIO | None], now_ms: Callable[[], int]) -> FileIO:
    """Returns `io`, or a FileIO in its place that takes new credentials from `load` before those of `io`
    expire. `load` returns None if the table is gone."""
    if not _are_vended(io.properties):
        return io
    return cast("FileIO", _RefreshedFileIO(io, load, now_ms))


class _RefreshedFileIO:
    """Every attribute is that of the FileIO with the newest credentials. Any thread may use it."""

    def __init__(self, io: FileIO, load: Callable[[], FileIO | None], now_ms: Callable[[], int]) -> None:
        self._load, self._now_ms = load, now_ms
        self._lock = threading.Lock()
        self._io = io
        self._due_ms = due_ms(io.properties, now_ms())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._newest(), name)

    def _newest(self) -> FileIO:
        with self._lock:
            if self._now_ms() >= self._due_ms:
                try:
                    io = self._load()
                except GovernedTableError:
                    raise
                except IcebergMaintError:
                    # The present ones may still be good. If not, the store says so.
                    io = None
                if io is None:
                    self._due_ms = self._now_ms() + _RETRY_MS
                else:
                    self._io = io
                    self._due_ms = due_ms(io.properties, self._now_ms())
            return self._io


def due_ms(properties: Mapping[str, Any], now_ms: int) -> int:
    """Returns when credentials that were loaded at `now_ms` are to be loaded again."""
    times = [int(value) for key, value in properties.items() if key.startswith(_EXPIRES) and _is_time(value)]
    if not times:
        return now_ms + _UNKNOWN_LIFE_MS
    life_ms = max(0, min(times) - now_ms)
    return now_ms + max(life_ms - _MARGIN_MS, life_ms // 2)


def _are_vended(properties: Mapping[str, Any]) -> bool:
    return any(key.startswith(_VENDED) and value for key, value in properties.items())


def _is_time(value: object) -> bool:
    return str(value).isascii() and str(value).isdigit()
