"""What the stores share: the retries of requests, the store's clock, and the errors."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from iceberg_maint.core.outcomes.failures import file_system_fix, is_environment, python_causes
from iceberg_maint.errors import IcebergMaintError, RefusedError
from iceberg_maint.ports.storage import Store

RETRIES_PROPERTY = "s3.retry-strategy-impl"
RETRIES_CLASS = "iceberg_maint.catalog.s3_store.S3Retries"
"""A name, because PyIceberg imports the class when it opens the first file in S3."""

NANOSECONDS_PER_MS = 1_000_000


def store_time_ms(store: Store, folder: str, write: Callable[[str, Iterable[bytes]], None]) -> int:
    """Returns the time of the store's clock, in ms since epoch: the modification time of a file that `write` creates in the
    folder. The file is deleted again. Raises RefusedError ICM-125 if the store does not show it."""
    path = f"{folder.rstrip('/')}/.iceberg-maint-{uuid.uuid4()}"
    try:
        write(path, [b"clock\n"])
        stored = store.stat(path)
    except BaseException:
        # A failed removal must not hide the first error, least of all an interrupt.
        with suppress(Exception):
            store.delete(path)
        raise
    store.delete(path)
    if stored is None or stored.modified_ms is None:
        raise RefusedError(
            "ICM-125",
            f"a file written to {folder} does not appear there, or has no modification time.",
            "grant the credentials permission to list the folder. The ages of files come from the store.",
        )
    return stored.modified_ms


@contextmanager
def coded_errors(location: str) -> Iterator[None]:
    """Gives the errors of the store in the block their codes: ICM-125 if it denies access, ICM-133 or ICM-176 if it does not
    serve now."""
    try:
        yield
    except PermissionError as error:
        raise denied(location, error) from error
    except OSError as error:
        # Arrow returns the store's answer as text.
        if isinstance(error, (FileNotFoundError, FileExistsError)):
            raise
        if "ACCESS_DENIED" in str(error):
            raise denied(location, error) from error
        if is_environment(python_causes(error)):
            raise unavailable(location, error) from error
        raise


def denied(location: str, error: Exception) -> RefusedError:
    """Returns the refusal for a location to which the store denies access."""
    return RefusedError(
        "ICM-125",
        f"access to {location} is denied: {str(error).splitlines()[0]}.",
        "grant permission to list, read, write and delete below this location.",
    )


def unavailable(location: str, error: Exception) -> IcebergMaintError:
    """Returns the error for a location whose store cannot be reached, asks to slow down, or fails: ICM-176 if it takes no
    writes, else ICM-133."""
    line = " ".join(str(error).split())
    if (fix := file_system_fix(line)) is not None:
        return IcebergMaintError("ICM-176", f"{location}: {line}.", f"{fix}.")
    return IcebergMaintError(
        "ICM-133",
        f"the store of {location} does not serve now: {line}.",
        "run again later; if it stays so, check the store's address (s3.endpoint), its region and its limits of "
        "requests.",
    )
