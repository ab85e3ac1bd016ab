"""Calls to a catalog's service: counted, spaced, and their errors with a code each."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    ForbiddenError,
    NotInstalledError,
    OAuthError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    UnauthorizedError,
)

from iceberg_maint.catalog.manifests.metadata_file import unreadable
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.outcomes.failures import is_of_process
from iceberg_maint.errors import ConfigurationError, IcebergMaintError, RefusedError, UnreadableTableError
from iceberg_maint.machine.bounded_calls import CallLimits
from iceberg_maint.machine.files import PRIVATE_FILE, private_folder

_LIMIT_SECONDS = 3600.0
"""A stored time further ahead than this is damaged."""


class CallBudget:
    """The calls to one catalog. Any thread may use it.

    `per_second` is None for a catalog without a budget: then calls are only counted. `file` holds the time of the next
    free call, in seconds of the machine's monotonic clock. `limits` are those of a cycle over the tables.
    """

    def __init__(
        self,
        per_second: float | None = None,
        file: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        limits: CallLimits | None = None,
    ) -> None:
        self.limits = limits or CallLimits()
        self._per_second, self._file = per_second, file
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._next = 0.0
        self.calls = 0

    def take(self, calls: int = 1) -> None:
        """Counts calls that are about to be made, and waits until the first of them may be."""
        with self._lock:
            self.calls += calls
        if self._per_second is None:
            return
        wait = self._reserve(calls, self._per_second)
        if wait > 0:
            self._sleep(wait)

    def _reserve(self, calls: int, per_second: float) -> float:
        if self._file is None:
            with self._lock:
                now = self._clock()
                start = max(self._next, now)
                self._next = start + calls / per_second
            return start - now
        private_folder(self._file.parent)
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            now = self._clock()
            start = max(_stored(descriptor, now), now)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, repr(start + calls / per_second).encode(), 0)
        finally:
            os.close(descriptor)
        return start - now


def _stored(descriptor: int, now: float) -> float:
    try:
        stored = float(os.pread(descriptor, 64, 0))
    except ValueError:
        return now
    return stored if stored <= now + _LIMIT_SECONDS else now


_REFUSED = (UnauthorizedError, AuthorizationExpiredError, OAuthError, ForbiddenError)
_NOT_SERVED = (TooManyRequestsError, ServiceUnavailableError, ServerError)
_CREDENTIALS_FIX = (
    "correct token, credential, scope or oauth2-server-uri in the properties of the catalog, and grant the right to read. "
    "An expired token needs a new one; with credential the program gets tokens by itself."
)
_NOT_SERVED_FIX = (
    "wait until the catalog serves again; lower calls_per_second of the catalog if it answers 429."
)
_UNKNOWN_METHOD = 1
"""Type of a `TApplicationException` of Thrift: the server lacks the method that the client calls."""
_CAUSES = 10
"""Errors that are followed to the first one."""


def catalog_error(name: str, where: str, error: Exception) -> IcebergMaintError:
    """Returns the error of a catalog as a whole: ICM-160 if it refuses the credentials, ICM-161 if it does not serve
    requests now, ICM-163 if it is a Hive Metastore that lacks a call of the clients, else ICM-104."""
    line = service_reason(error)
    if _is_unknown_method(error):
        return RefusedError(
            "ICM-163",
            f"catalog '{name}' at {where} is a Hive Metastore that lacks a call of PyIceberg: {line}. Hive Metastore 4 has "
            "removed it, and calls that Spark's client makes.",
            "use Hive Metastore 3.1, or a REST catalog.",
        )
    if isinstance(error, _REFUSED):
        return ConfigurationError(
            "ICM-160", f"catalog '{name}' at {where} refuses the credentials: {line}.", _CREDENTIALS_FIX
        )
    if isinstance(error, _NOT_SERVED):
        return ConfigurationError(
            "ICM-161", f"catalog '{name}' at {where} does not serve requests now: {line}.", _NOT_SERVED_FIX
        )
    # Drivers, HTTP and Thrift clients each raise their own errors. The first line says what happened.
    fix = "check the address and the credentials, and start the service if it does not run."
    if isinstance(error, NotInstalledError):
        fix = "install the package."
    return ConfigurationError("ICM-104", f"catalog '{name}' at {where} cannot be reached: {line}.", fix)


def table_error(table: TableId, error: Exception) -> UnreadableTableError:
    """Returns the error of one table of a catalog that answers: ICM-160 if the catalog denies the table, ICM-161 if it does
    not serve this request now, else the error of its metadata file."""
    line = service_reason(error)
    if isinstance(error, _REFUSED):
        return UnreadableTableError("ICM-160", f"the catalog denies {table}: {line}.", _CREDENTIALS_FIX)
    if isinstance(error, _NOT_SERVED):
        return UnreadableTableError(
            "ICM-161", f"the catalog does not load {table} now: {line}.", _NOT_SERVED_FIX
        )
    fix = "restore the file, or register the table again in its catalog."
    return unreadable(f"cannot load {table}: {line}.", error, fix)


def _is_unknown_method(error: Exception) -> bool:
    # Thrift is installed for Hive catalogs only.
    return type(error).__name__ == "TApplicationException" and getattr(error, "type", 0) == _UNKNOWN_METHOD


def service_reason(error: Exception) -> str:
    """Returns why a service failed: the first line of an error, or of the operating system's error behind it."""
    cause = getattr(error, "orig", None) or error
    return _system_error(error) or (str(cause).strip() or type(cause).__name__).splitlines()[0]


def _system_error(error: BaseException) -> str | None:
    """Returns the text of the operating system's error behind those of an HTTP client, as "Connection refused"."""
    chain: BaseException | None = error
    for _ in range(_CAUSES):
        if chain is None:
            break
        if isinstance(chain, OSError) and chain.strerror:
            return f"{chain.strerror}: {chain.filename}" if chain.filename else chain.strerror
        inner = (getattr(chain, "reason", None), *chain.args, chain.__cause__)
        chain = next((e for e in inner if isinstance(e, BaseException)), None)
    return None


def no_commit(table: TableId, error: Exception) -> RefusedError:
    """Returns the refusal for a table to which the catalog denies a commit."""
    return RefusedError(
        "ICM-170",
        f"the right to commit is missing for {table}: {service_reason(error)}",
        "grant this principal the right to commit; 'iceberg-maint rights' prints policies.",
    )


@contextmanager
def reaching(name: str, where: str) -> Iterator[None]:
    """Turns an error of a catalog that has no code into that of the catalog."""
    try:
        yield
    except IcebergMaintError:
        raise
    except Exception as error:
        if is_of_process(error):
            raise
        raise catalog_error(name, where, error) from error
