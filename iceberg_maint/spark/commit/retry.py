"""The retry loop around every commit. It classifies the result of each try.

A try loads the table and calls `commit()` once on a new operation object. Iceberg itself does not retry behind
a Python gate. The table decides the result, not an exception. If the table shows the commit, the
result is COMMITTED. If it does not, and the exception reports a lost compare-and-swap, the result is REJECTED. Any
other result after the swap was tried is UNKNOWN. This module rolls nothing back and deletes no file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from iceberg_maint.core.commits.violation import is_stale
from iceberg_maint.core.model.table_state import TOKEN_PROPERTY
from iceberg_maint.core.outcomes.environment import is_environment
from iceberg_maint.core.outcomes.outcome import CommitResult, CommitStatus, Rejection
from iceberg_maint.errors import FenceLostError, RefusedError, StaleBatchError
from iceberg_maint.ports.engine import CommitContext
from iceberg_maint.spark.commit.gate import Gate
from iceberg_maint.spark.jvm.bridge import Bridge, cause_classes, causes, one_line

LoadTable = Callable[[str], Any]
"""Loads the Java `Table` of a name. Every call loads it again."""

_EXCEPTIONS = "org.apache.iceberg.exceptions."
_LOST_SWAP = _EXCEPTIONS + "CommitFailedException"
_STATE_UNKNOWN = _EXCEPTIONS + "CommitStateUnknownException"
_STALE = frozenset(
    {
        _EXCEPTIONS + "ValidationException",
        _EXCEPTIONS + "NoSuchTableException",
        "org.apache.spark.sql.catalyst.analysis.NoSuchTableException",
    }
)
"""Exceptions that Iceberg raises before the swap if the plan no longer fits the table."""
_NO_ANCESTOR = "is not an ancestor of"
"""Part of the message of a row delta (BaseRowDelta.validate) if the pinned snapshot has expired or was rolled
back. Its exception, IllegalArgumentException, has other causes too."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait after the nth lost try: `base_seconds` · 2ⁿ⁻¹, at most `cap_seconds`, times
    `jitter()` in [0, 1)."""

    base_seconds: float
    cap_seconds: float
    jitter: Callable[[], float]
    sleep: Callable[[float], None]

    def after(self, tries: int) -> None:
        """Waits after this many tries."""
        self.sleep(min(self.cap_seconds, self.base_seconds * 2 ** (tries - 1)) * self.jitter())


CommitAttempt = Callable[[Any], tuple[Gate, Exception | None]]
"""(a Java `Table` that was just loaded) → (the gate of the commit, the exception that it raised). Commits once.
Raises StaleBatchError if the table shows before the commit that the plan is out of date."""
FindCommit = Callable[[Any, int | None], int | None]
"""(a Java `Table` that was just loaded, the base snapshot's id) → the id of the snapshot that contains the
commit; None if the table does not show the commit."""


def commit_with_retry(
    load: LoadTable,
    name: str,
    context: CommitContext,
    backoff: Backoff,
    try_once: CommitAttempt,
    find_commit: FindCommit,
) -> CommitResult:
    """Tries the commit again while it loses to another commit, at most `context.max_tries` times.

    Raises FenceLostError if the lease is lost before the swap. An interrupt passes through.
    """
    tries = 0
    while True:
        tries += 1
        try:
            table = load(name)
        except Exception as why:  # noqa: BLE001 - nothing was tried, so every exception rejects
            return rejected(_before_swap(why), one_line(why), tries)
        try:
            gate, failure = try_once(table)
        except StaleBatchError as why:
            return rejected(Rejection.STALE, why.message, tries)
        if gate.tried:
            result = _after_swap(load, name, find_commit, gate, failure, tries)
            result = replace(result, window_seconds=gate.window_seconds)
        else:
            result = _not_tried(gate, failure, tries)
        if result.rejection is not Rejection.CONFLICT or tries >= context.max_tries:
            return result
        backoff.after(tries)


def _not_tried(gate: Gate, failure: Exception | None, tries: int) -> CommitResult:
    """The result of a try whose gate did not call the catalog. Nothing was committed."""
    if gate.moved:
        return rejected(Rejection.CONFLICT, "another commit came after the table was loaded", tries)
    if gate.violations:
        stale = is_stale(gate.violations)
        violations = "; ".join(f"{v.rule}: {v.fact}" for v in gate.violations)
        return rejected(Rejection.STALE if stale else Rejection.REFUSED, violations, tries)
    if gate.error is not None:
        if isinstance(gate.error, FenceLostError) or not isinstance(gate.error, Exception):
            raise gate.error
        if isinstance(gate.error, RefusedError) and gate.error.code == "ICM-115":
            return rejected(Rejection.CLOCKS, str(gate.error), tries)
        return rejected(Rejection.ERROR, one_line(gate.error), tries)
    if failure is not None:
        return rejected(_before_swap(failure), one_line(failure), tries)
    return rejected(Rejection.ERROR, "Iceberg found nothing to commit", tries)


def _before_swap(why: BaseException) -> Rejection:
    if _STALE.intersection(cause_classes(why)) or _NO_ANCESTOR in one_line(why):
        return Rejection.STALE
    return Rejection.ENVIRONMENT if is_environment(causes(why)) else Rejection.ERROR


def _after_swap(
    load: LoadTable,
    name: str,
    find_commit: FindCommit,
    gate: Gate,
    failure: Exception | None,
    tries: int,
) -> CommitResult:
    """Classifies a try by the table, because the catalog's answer may be lost, late or wrong."""
    error = gate.error or failure
    if error is not None and not isinstance(error, Exception):
        raise error
    base = gate.base_snapshot_id
    message, lost = "", False
    try:
        if error is not None:
            message, lost = one_line(error), _lost_swap(error)
        snapshot_id = find_commit(load(name), base)
    except Exception as why:  # noqa: BLE001 - a table that cannot be read makes the result unknown
        message = f"{message or 'committed'}; the table could not be read back: {one_line(why)}"
        return CommitResult(CommitStatus.UNKNOWN, None, None, base, tries, message)
    if snapshot_id is not None:
        return CommitResult(CommitStatus.COMMITTED, None, snapshot_id, base, tries, message)
    if gate.error is not None and lost:
        return CommitResult(CommitStatus.REJECTED, Rejection.CONFLICT, None, base, tries, message)
    message = message or "the catalog reported success, but the table does not show the commit"
    return CommitResult(CommitStatus.UNKNOWN, None, None, base, tries, message)


def _lost_swap(why: BaseException) -> bool:
    classes = cause_classes(why)
    return classes[:1] == (_LOST_SWAP,) and _STATE_UNKNOWN not in classes


def find_token(bridge: Bridge, table: Any, token: str, base_snapshot_id: int | None) -> int | None:
    """The id of the snapshot whose summary has this token.

    Searches the snapshots since the base. If the head no longer descends from the base, searches all
    retained snapshots.
    """
    ancestors: set[int] = set()
    snapshot = table.currentSnapshot()
    # In broken metadata a snapshot can be its own ancestor.
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
    """Inside the block py4j does not log the stack trace of each exception that a Python proxy raises. The gate
    keeps and reports these exceptions."""
    log = logging.getLogger("py4j.clientserver")
    log.addFilter(_not_from_proxy)
    try:
        yield
    finally:
        log.removeFilter(_not_from_proxy)


def _not_from_proxy(record: logging.LogRecord) -> bool:
    return "executing the Python Proxy" not in str(record.msg)
