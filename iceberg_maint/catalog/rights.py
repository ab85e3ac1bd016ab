"""What a REST catalog grants with a table, and the rights on one table, each probed by a request of its own that leaves
nothing behind."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from pyiceberg.io import FileIO

from iceberg_maint.catalog.approved_io import open_store
from iceberg_maint.catalog.manifests.metadata_file import store_reason
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import GovernedTableError, IcebergMaintError, RefusedError, UnreadableTableError
from iceberg_maint.ports.catalog import Right

if TYPE_CHECKING:
    from requests import Response

_FIELD = "read-restrictions"
_KINDS = {"required-row-filter": "a row filter", "required-column-projections": "column masks"}


def refuse_restricted(response: Response, **_settings: Any) -> None:
    """Raises GovernedTableError ICM-169 if a catalog's answer has read restrictions."""
    if _FIELD.encode() not in response.content:
        return
    try:
        answer = json.loads(response.content)
    except (ValueError, RecursionError):
        return
    kinds = restrictions(answer.get(_FIELD)) if isinstance(answer, dict) else ()
    if kinds:
        raise GovernedTableError(
            f"the catalog restricts what this principal may read: {_FIELD} has {' and '.join(kinds)}. Maintenance "
            "must read and rewrite whole files.",
            (str(answer.get("metadata-location")), json.dumps(answer.get("metadata")).encode()),
        )


def restrictions(document: object) -> tuple[str, ...]:
    """Returns the kinds of restrictions in the value of `read-restrictions`. A kind that is not known restricts too.
    An absent field, an empty object and empty lists restrict nothing."""
    if document is None:
        return ()
    if not isinstance(document, dict):
        return ("an unknown restriction",)
    return tuple(
        _KINDS.get(key, "an unknown restriction")
        for key, value in document.items()
        if value not in (None, [])
    )


_SIGNS = "s3.remote-signing-enabled"
_KEYS = ("s3.access-key-id", "client.access-key-id", "s3.role-arn", "client.role-arn")


def check_signing(table: TableId, properties: Mapping[str, Any]) -> None:
    """Raises UnreadableTableError ICM-154 if the FileIO with these properties has remote signing in place of credentials."""
    if str(properties.get(_SIGNS, "")).lower() != "true" or any(properties.get(key) for key in _KEYS):
        return
    raise UnreadableTableError(
        "ICM-154",
        f"{table}: the catalog signs requests to the store ({_SIGNS}) and gives no credentials. Files are read and "
        "listed by a client that cannot ask it for signatures.",
        "let the catalog vend credentials, or set s3.access-key-id and s3.secret-access-key (or s3.role-arn) in the "
        "properties of the catalog.",
    )


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


_DENIED = ("ACCESS_DENIED", "AccessDenied", "HTTP status 403", "403 Forbidden")


def missing_right_to_read(io: FileIO, pointer: str) -> IcebergMaintError | None:
    """Returns the refusal ICM-125 if the right to read a file is missing."""

    def get() -> None:
        with io.new_input(pointer).open() as file:
            file.read(1)

    return _storage(Right.GET, pointer, get)


def missing_rights_to_write(io: FileIO, location: str) -> Iterator[tuple[Right, IcebergMaintError | None]]:
    """Yields the rights to list, write and delete below a location, each with the refusal ICM-125 if it is missing."""
    path = f"{location.rstrip('/')}/.iceberg-maint-{uuid.uuid4()}"

    def put() -> None:
        with io.new_output(path).create(overwrite=True) as file:
            file.write(b"probe\n")

    store = open_store(io, location)
    yield Right.LIST, _storage(Right.LIST, path, lambda: next(iter(store.list(path)), None))
    written = _storage(Right.PUT, path, put)
    yield Right.PUT, written
    if written is None:
        yield Right.DELETE, _storage(Right.DELETE, path, lambda: io.delete(path))
    else:
        # A write that failed late may have left the file.
        with suppress(Exception):
            io.delete(path)


def _storage(right: Right, location: str, request: Callable[[], object]) -> IcebergMaintError | None:
    try:
        request()
    except RefusedError as error:
        if error.code != "ICM-125":
            raise
        return _missing(right, location, error)
    except OSError as error:
        if not isinstance(error, PermissionError) and not any(word in str(error) for word in _DENIED):
            raise
        return _missing(right, location, error)
    return None


def _missing(right: Right, location: str, error: Exception) -> RefusedError:
    return RefusedError(
        "ICM-125",
        f"the right to {right.value} is missing at {location}: {store_reason(error)}.",
        f"grant the credentials the right to {right.value} below the table's location; 'iceberg-maint rights' prints "
        "policies.",
    )
