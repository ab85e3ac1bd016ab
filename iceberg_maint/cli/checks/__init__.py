"""One check of `doctor`, and what several checks need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from iceberg_maint.core.policy.data import Mode
from iceberg_maint.errors import EXIT_DONE, EXIT_FAILED, ConfigurationError, IcebergMaintError

if TYPE_CHECKING:
    from iceberg_maint.config import Config
    from iceberg_maint.core.model.ids import TableId

OK, WARNING, FAILED = "ok", "warning", "failed"
PROPERTIES_READ = 100
"""Number of tables whose properties are read. Each needs a request or a file, and there may be thousands."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. `status` is ok, warning or failed."""

    name: str
    status: str
    detail: str
    code: str | None = None
    exit_code: int = EXIT_DONE


def try_check(name: str, body: Callable[[], str]) -> Check:
    """Returns the check whose detail `body` returns; a failed one if `body` raises an error."""
    return check_or_failure(name, lambda: Check(name, OK, body()))


def check_or_failure(name: str, body: Callable[[], Check]) -> Check:
    """Returns the check that `body` returns; a failed one if `body` raises an error."""
    try:
        return body()
    except IcebergMaintError as error:
        return Check(name, FAILED, str(error), error.code, error.exit_code)
    except Exception as error:  # noqa: BLE001 - an error must not stop the other checks
        line = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return Check(name, FAILED, line, None, EXIT_FAILED)


def only_advises(config: Config, tables: list[TableId]) -> bool:
    """Whether the configuration permits no change of these tables; False if it has an error."""
    try:
        modes = {config.policy_for(table, {}).policy.mode for table in tables}
    except ConfigurationError:
        return False
    return modes == {Mode.ADVISE}


def place(address: str) -> str:
    """The address without user and password."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
