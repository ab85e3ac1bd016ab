"""Probes the rights on one table, each by a request of its own that leaves nothing behind."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.catalog.manifests.unreadable import store_reason
from iceberg_maint.catalog.open_store import open_store
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.policy.rights import Right
from iceberg_maint.errors import IcebergMaintError, RefusedError

_DENIED = ("ACCESS_DENIED", "AccessDenied", "HTTP status 403", "403 Forbidden")


def missing_rights(
    catalog: PyIcebergCatalog, table: TableId, *, changes: bool
) -> Iterator[tuple[Right, IcebergMaintError | None]]:
    """Yields each right on a table, with the refusal ICM-125 or ICM-170 if it is missing. Without `changes` only the
    right to read is probed. Without the right to read nothing else is probed. Raises what `pin` raises."""
    io, pointer = catalog.io_of(table), catalog.pointers([table])[table]

    def get() -> None:
        with io.new_input(pointer).open() as file:
            file.read(1)

    unread = _storage(Right.GET, pointer, get)
    yield Right.GET, unread
    if unread is not None or not changes:
        return
    location = catalog.pin(table).location
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
    try:
        probed = catalog.probe_commit(table)
    except RefusedError as error:
        yield Right.COMMIT, error
    else:
        if probed:
            yield Right.COMMIT, None


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
