"""The retry loop around every commit. It classifies the result of each try.

A try loads the table and calls `commit()` once on a new operation object. Iceberg itself does not retry a commit
whose gate raises an exception. A try that ends before the compare-and-swap is REJECTED.

After the swap, the loop loads the table again. If the table shows the commit, the result is COMMITTED, even if the
catalog raised an exception. If the table does not show the commit and the catalog reports a lost swap, the result is
REJECTED. The same holds if the catalog denies the swap, also where it then denies the load, and if Iceberg could not
write the table metadata file. Otherwise the result is UNKNOWN. This module rolls nothing back and deletes no file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from iceberg_maint.core.commits.change import MetadataReader, is_stale
from iceberg_maint.core.model.table_state import TOKEN_PROPERTY
from iceberg_maint.core.outcomes.outcome import CommitResult, CommitStatus, Rejection
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.removal.clock_skew import FIX
from iceberg_maint.engines.spark.commit.gate import Gate
from iceberg_maint.engines.spark.commit.table_operations import EXCEPTIONS, LOST_SWAP
from iceberg_maint.engines.spark.jvm.bridge import Bridge, CheckWrites, check_written_locations
from iceberg_maint.engines.spark.jvm.java_errors import cause_classes, causes, failed_by_environment, one_line
from iceberg_maint.errors import FenceLostError, RefusedError, StaleBatchError
from iceberg_maint.ports.engine import CommitContext

LoadTable = Callable[[str], Any]
"""(table name) → the Java `Table`. Every call reads the table from the catalog again."""

OPERATION_CALLS = 3
"""Calls of the catalog by one try of an Iceberg operation: it loads its base, swaps, and loads the table again."""
_STATE_UNKNOWN = EXCEPTIONS + "CommitStateUnknownException"
_DENIED = frozenset({(EXCEPTIONS + "NotAuthorizedException",), (EXCEPTIONS + "ForbiddenException",)})
"""Answers of a catalog that has not looked at the request: Iceberg's `CleanableFailure`."""
_UNWRITTEN = (
    (EXCEPTIONS + "RuntimeIOException", "Failed to write json to file"),
    # Hadoop's local file system.
    ("org.apache.hadoop.fs.FSError", "No space left on device"),
    ("org.apache.hadoop.fs.FSError", "Disk quota exceeded"),
)
"""TableMetadataParser.internalWrite: the table metadata file was not written. `doCommit` of each catalog writes it first, and swaps
to its location then (`writeNewMetadata`). A commit writes no other file on this side, only deletes."""
_STALE = frozenset(
    {
        EXCEPTIONS + "ValidationException",
        EXCEPTIONS + "NoSuchTableException",
        "org.apache.spark.sql.catalyst.analysis.NoSuchTableException",
    }
)
"""Exceptions that mean, before the swap, that the plan is out of date."""
_EARLIER_CLOCK = (
    "[BUG] Expected sorted snapshot log entries",
    "[BUG] Expected sorted previous metadata log entries",
    "Invalid update timestamp ",
    "Invalid snapshot timestamp ",
)
"""TableMetadata: what Iceberg raises before the swap for a commit dated more than a minute before its base."""
_NO_ANCESTOR = "is not an ancestor of"
"""Part of the message that BaseRowDelta.validate raises if the pinned snapshot has expired or was rolled back.
The class of the exception is IllegalArgumentException. Other errors have this class too, so the message decides."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait before the next try. After n tries it is min(`cap_seconds`, `base_seconds` · 2ⁿ⁻¹) · `jitter()`.
    `jitter()` returns a number in [0, 1)."""

    base_seconds: float
    cap_seconds: float
    jitter: Callable[[], float]
    sleep: Callable[[float], None]

    def after(self, tries: int) -> None:
        """Waits. `tries` is the number of tries so far."""
        self.sleep(min(self.cap_seconds, self.base_seconds * 2 ** (tries - 1)) * self.jitter())


@dataclass(frozen=True, slots=True)
class TableAccess:
    """How commits reach a table: through the session's bridge, with a reader of its metadata and waits between tries.
    `load_table` loads it from the catalog, None for the bridge's own way. `check_writes` is that of `SparkEngine`."""

    bridge: Bridge
    reader: MetadataReader
    backoff: Backoff
    load_table: LoadTable | None = None
    check_writes: CheckWrites | None = None

    def load(self, name: str) -> Any:
        """Loads the Java `Table`."""
        return (self.load_table or self.bridge.load_table)(name)

    def begin_try(self, batch: Batch, table: Any, calls: int) -> None:
        """Takes the calls of one try from the catalog's budget. Raises StaleBatchError for a table that was created again, and
        RefusedError ICM-155 for a location that is not approved."""
        self.bridge.take_calls(batch.table, calls)
        check_written_locations(self.bridge, self.check_writes, batch.table, table)
        if str(table.uuid()) != batch.table_uuid:
            raise StaleBatchError(f"the table is {table.uuid()}, the plan was for {batch.table_uuid}")


CommitAttempt = Callable[[Any], tuple[Gate, Exception | None]]
"""(a Java `Table` that was just loaded) → (the gate of the commit, the exception that `commit()` raised). Calls
`commit()` once. Before it calls `commit()` it raises StaleBatchError if the plan is out of date, and RefusedError if the
commit would write to a location that is not approved."""
FindCommit = Callable[[Any, int | None], int | None]
"""(a Java `Table` that was just loaded, the base snapshot's id) → the id of the snapshot that the commit made.
Returns None if the table does not show the commit."""


def commit_with_retry(
    access: TableAccess,
    name: str,
    context: CommitContext,
    try_once: CommitAttempt,
    find_commit: FindCommit,
) -> CommitResult:
    """Tries the commit until its result is not a conflict, at most `context.max_tries` times.

    Raises FenceLostError if the lease is lost before the swap. Does not catch KeyboardInterrupt or SystemExit.
    """
    tries = 0
    while True:
        tries += 1
        try:
            table = access.load(name)
        except Exception as why:  # noqa: BLE001 - no swap was tried, so the commit is rejected
            return rejected(_rejection_before_swap(why), one_line(why), tries)
        try:
            gate, failure = try_once(table)
        except StaleBatchError as why:
            return rejected(Rejection.STALE, why.message, tries)
        except RefusedError as why:
            return rejected(Rejection.REFUSED, str(why), tries)
        if gate.tried:
            result = _result_after_swap(access, name, find_commit, gate, failure, tries)
            result = replace(result, window_seconds=gate.window_seconds)
        else:
            result = _result_without_swap(name, gate, failure, tries)
        if result.rejection is not Rejection.CONFLICT or tries >= context.max_tries:
            return result
        access.backoff.after(tries)


def _result_without_swap(name: str, gate: Gate, failure: Exception | None, tries: int) -> CommitResult:
    """The result of a try whose gate did not call the catalog to swap. Such a try commits nothing."""
    if gate.moved:
        return rejected(
            Rejection.CONFLICT, "another commit changed the table after this try loaded it", tries
        )
    if gate.violations:
        stale = is_stale(gate.violations)
        violations = "; ".join(f"{v.rule}: {v.fact}" for v in gate.violations)
        return rejected(Rejection.STALE if stale else Rejection.REFUSED, violations, tries)
    if gate.error is not None:
        if isinstance(gate.error, FenceLostError) or not isinstance(gate.error, Exception):
            raise gate.error
        if isinstance(gate.error, RefusedError) and gate.error.code == "ICM-115":
            return rejected(Rejection.CLOCKS, str(gate.error), tries)
        is_environment = failed_by_environment(gate.error)
        return rejected(
            Rejection.ENVIRONMENT if is_environment else Rejection.ERROR, one_line(gate.error), tries
        )
    if failure is not None:
        why = one_line(failure)
        if any(sign in why for sign in _EARLIER_CLOCK):
            return rejected(Rejection.CLOCKS, str(_earlier_clock(name, why)), tries)
        return rejected(_rejection_before_swap(failure), why, tries)
    return rejected(Rejection.ERROR, "Iceberg found nothing to commit", tries)


def _earlier_clock(name: str, why: str) -> RefusedError:
    """The error of a commit that Iceberg would date before the metadata of its base."""
    return RefusedError(
        "ICM-115",
        f"{name}: its metadata is dated more than a minute after the clock of this machine, and Iceberg commits nothing that "
        f"is dated earlier ({why}).",
        f"{FIX} If another writer's clock was ahead, maintenance goes on by itself at the time of that metadata.",
    )


def _rejection_before_swap(why: BaseException) -> Rejection:
    if _STALE.intersection(cause_classes(why)) or _NO_ANCESTOR in one_line(why):
        return Rejection.STALE
    return Rejection.ENVIRONMENT if failed_by_environment(why) else Rejection.ERROR


def _result_after_swap(
    access: TableAccess,
    name: str,
    find_commit: FindCommit,
    gate: Gate,
    failure: Exception | None,
    tries: int,
) -> CommitResult:
    """Classifies a try by the state of the table. The catalog's answer can be lost, late or wrong."""
    error = gate.error or failure
    if error is not None and not isinstance(error, Exception):
        raise error
    base = gate.base_snapshot_id
    message, lost, before_swap = "", False, None
    try:
        if error is not None:
            message, lost = one_line(error), _lost_swap(error)
            before_swap = None if gate.error is None else _error_before_swap(gate.error)
        snapshot_id = find_commit(access.load(name), base)
    except Exception as why:  # noqa: BLE001 - a table that cannot be read makes the result unknown
        if before_swap is not None:
            return CommitResult(CommitStatus.REJECTED, before_swap, None, base, tries, message)
        message = (
            f"{message or 'the catalog reported success'}; the table could not be loaded after the swap: "
            f"{one_line(why)}"
        )
        return CommitResult(CommitStatus.UNKNOWN, None, None, base, tries, message)
    if snapshot_id is not None:
        return CommitResult(CommitStatus.COMMITTED, None, snapshot_id, base, tries, message)
    if gate.error is not None and lost:
        return CommitResult(CommitStatus.REJECTED, Rejection.CONFLICT, None, base, tries, message)
    if before_swap is not None:
        return CommitResult(CommitStatus.REJECTED, before_swap, None, base, tries, message)
    message = message or "the catalog reported success, but the table does not show the commit"
    return CommitResult(CommitStatus.UNKNOWN, None, None, base, tries, message)


def _error_before_swap(why: BaseException) -> Rejection | None:
    """What an error of the catalog means that says that it did not swap: that it denies the commit, or that there is no file
    to swap to. None for any other error."""
    chain = causes(why)
    is_unwritten = any(chain[:1] and chain[0][0] == name and sign in chain[0][1] for name, sign in _UNWRITTEN)
    if cause_classes(why)[:1] in _DENIED or (is_unwritten and failed_by_environment(why)):
        return Rejection.ENVIRONMENT
    return Rejection.ERROR if is_unwritten else None


def _lost_swap(why: BaseException) -> bool:
    classes = cause_classes(why)
    return classes[:1] == (LOST_SWAP,) and _STATE_UNKNOWN not in classes


def snapshot_with_token(bridge: Bridge, token: str, table: Any, base_snapshot_id: int | None) -> int | None:
    """The id of the snapshot whose summary has this token, or None.

    Walks from the current snapshot back to the base. If the walk does not meet the base, searches all snapshots
    of the table metadata.
    """
    ancestors: set[int] = set()
    snapshot = table.currentSnapshot()
    # Broken metadata can make a snapshot its own ancestor. `ancestors` ends the walk in that case.
    while (
        snapshot is not None
        and snapshot.snapshotId() != base_snapshot_id
        and snapshot.snapshotId() not in ancestors
    ):
        if snapshot.summary().get(TOKEN_PROPERTY) == token:
            return int(snapshot.snapshotId())
        ancestors.add(snapshot.snapshotId())
        snapshot = table.snapshot(snapshot.parentId()) if snapshot.parentId() is not None else None
    if snapshot is not None and snapshot.snapshotId() == base_snapshot_id:
        return None
    for retained in bridge.iterate(table.snapshots()):
        if retained.summary().get(TOKEN_PROPERTY) == token:
            return int(retained.snapshotId())
    return None


def rejected(rejection: Rejection, message: str, tries: int) -> CommitResult:
    """The result of a commit that committed nothing."""
    return CommitResult(CommitStatus.REJECTED, rejection, tries=tries, message=message)


@contextmanager
def quiet_proxies() -> Iterator[None]:
    """Stops py4j from logging exceptions that Python proxies raise in this block. The gate reports them."""
    log = logging.getLogger("py4j.clientserver")
    log.addFilter(_is_not_from_proxy)
    try:
        yield
    finally:
        log.removeFilter(_is_not_from_proxy)


def _is_not_from_proxy(record: logging.LogRecord) -> bool:
    return "executing the Python Proxy" not in str(record.msg)
