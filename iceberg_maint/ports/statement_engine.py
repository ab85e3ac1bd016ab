"""The port to an engine elsewhere that maintains a table by statements. Its commits pass no gate of this program."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from iceberg_maint.core.decisions.statement_hazards import CannotError
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import Snapshot, TableState
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import RewriteDataFiles, RewriteManifests
from iceberg_maint.errors import RefusedError
from iceberg_maint.ports.engine import EnvironmentFailedError


class StatementFailedError(Exception):
    """The engine says that a statement failed. `is_conflict`: a commit of another writer won."""

    def __init__(self, message: str, *, is_conflict: bool = False) -> None:
        super().__init__(message)
        self.is_conflict = is_conflict


@dataclass(frozen=True, slots=True)
class Statement:
    """The text of a statement, and the settings of the engine's session that it runs with."""

    text: str
    settings: Mapping[str, str] = field(default_factory=dict)


class StatementEngine(Protocol):
    """Runs the statements of one engine, one at a time. No call is repeated: a statement may have taken effect."""

    def version(self, catalog: str) -> str:
        """Returns the engine's version for this catalog of ours. Raises EnvironmentFailedError ICM-133 if it does not answer or refuses the
        credentials, and RefusedError ICM-103 if it is too old. Raises CannotError for a name that a statement cannot have."""

    def find(self, table: TableId, snapshot_id: int, seconds: float | None = None) -> None:
        """Raises EnvironmentFailedError ICM-133 unless the engine shows the user this table with this snapshot, within the time of
        the settings or so many seconds: a table of the same name in another lake has other snapshots. Reads no row. Raises
        CannotError for a name that a statement cannot have."""

    def statements(self, batch: Batch, state: TableState) -> tuple[Statement, ...]:
        """Returns the statements that do the work of the batch, in order. Asks no server. Raises CannotError."""

    def run(self, statement: Statement, started: Callable[[str], None]) -> None:
        """Runs one statement to its end. `started` is called with its id at the engine as soon as that is known. Raises
        StatementFailedError if the engine says that it failed, EnvironmentFailedError ICM-133 if the engine could not be
        asked, and TimeoutError, with the statement cancelled, after the time of the settings."""

    def made(self, snapshot: Snapshot, statement_id: str) -> bool:
        """Returns whether the snapshot can be of this statement, by its summary."""

    def cancel(self) -> None:
        """Cancels the running statement, from another thread or a signal handler. It may still take effect."""


def single_statement(
    batch: Batch, rewrite_manifests: Statement, rewrite_data_files: Callable[[RewriteDataFiles], Statement]
) -> tuple[Statement, ...]:
    """Returns the one statement for the batch. Raises CannotError for other work, and for rows in another order."""
    match batch.work:
        case RewriteManifests():
            return (rewrite_manifests,)
        case RewriteDataFiles(layout=None) as work:
            return (rewrite_data_files(work),)
        case RewriteDataFiles():
            raise CannotError("the batch sorts its files")
        case _:
            raise CannotError(f"it has no statement for {batch.operation}")


def require_version(name: str, what: str, version: str, minimum: tuple[int, ...]) -> None:
    """Raises RefusedError ICM-103 unless the version begins with these numbers or later ones."""
    found = re.match(r"\d+(\.\d+)*", version)
    if found is None or tuple(map(int, found[0].split("."))) < minimum:
        raise RefusedError(
            "ICM-103",
            f"{what} has version {version or 'unknown'}; {'.'.join(map(str, minimum))} is needed.",
            f"upgrade it, or remove {name} from the policy's engines.",
        )


def failed_statement(why: Exception, conflicts: tuple[str, ...]) -> StatementFailedError:
    """The error of a statement that an engine says has failed. With a text of `conflicts` in it, another writer won."""
    message = _one_line(why, 500)
    return StatementFailedError(message, is_conflict=any(text in message for text in conflicts))


def unreachable(name: str, where: str, why: object) -> EnvironmentFailedError:
    """The error of an engine that does not answer. `where` is its kind and address."""
    return EnvironmentFailedError(
        f"{where} does not answer: {_one_line(why)}.", f"start it, or correct engines.{name}.uri."
    )


def refused_user(name: str, where: str, user: str, why: object) -> EnvironmentFailedError:
    """The error of an engine that does not take the credentials."""
    return EnvironmentFailedError(
        f"{where} refuses the user {user}: {_one_line(why)}.",
        f"correct engines.{name}.user and engines.{name}.password.",
    )


def unseen(name: str, where: str, what: str, why: object) -> EnvironmentFailedError:
    """The error of an engine that does not show the user a catalog, or a table with a snapshot."""
    return EnvironmentFailedError(
        f"{where} does not show {what}: {_one_line(why)}.",
        f"set engines.{name}.catalogs to its name of the catalog, or permit the user to read it there.",
    )


def _one_line(why: object, length: int = 300) -> str:
    return " ".join(str(why).split())[:length].rstrip(".")
