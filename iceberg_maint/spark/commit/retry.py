"""Tries: the loop around every commit, one operation object per try, every end classified.

A try starts from a freshly loaded table with a new operation object, whose `commit()` is called
once; Iceberg's own retry is off behind a Python gate. What the table shows afterwards decides, not
the presence or absence of an exception: a table that shows the commit means COMMITTED; without it
only a lost compare-and-swap is REJECTED, and everything else after the swap was tried is UNKNOWN.
Nothing is rolled back and no file is deleted here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from iceberg_maint.core.commits import gate as rules
from iceberg_maint.core.model.table_state import TOKEN_PROPERTY
from iceberg_maint.core.outcomes.outcome import CommitResult, CommitStatus, Rejection
from iceberg_maint.errors import FenceLostError, RefusedError, StaleBatchError
from iceberg_maint.ports.engine import CommitContext
from iceberg_maint.spark.commit.gate import Gate
from iceberg_maint.spark.jvm.bridge import Bridge, cause_classes, one_line

LoadTable = Callable[[str], Any]
"""The Java `Table` of a name, fresh at every call."""

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
"""What Iceberg raises before the swap when the plan no longer fits the table."""
_NO_ANCESTOR = "is not an ancestor of"
"""What a row delta says of a pinned snapshot that is gone or was rolled back (BaseRowDelta.validate)
in an exception that could be anything, IllegalArgumentException."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after the nth lost try: `base_seconds` · 2ⁿ⁻¹ up to `cap_seconds`, times
    `jitter()` in [0, 1)."""

    base_seconds: float
    cap_seconds: float
    jitter: Callable[[], float]
    sleep: Callable[[float], None]

    def after(self, tries: int) -> None:
        """Waits after this many tries."""
        self.sleep(min(self.cap_seconds, self.base_seconds * 2 ** (tries - 1)) * self.jitter())


CommitAttempt = Callable[[Any], tuple[Gate, Exception | None]]
"""Commits once to a fresh Java `Table`: the gate it went through, and what was raised. Raises
StaleBatchError where the table tells before that the plan is out of date."""
FindCommit = Callable[[Any, int | None], int | None]
"""(a fresh Java `Table`, the base snapshot's id) → the id of the snapshot at which the table shows
the commit, None where it does not."""


def commit_with_retry(
    load: LoadTable,
    name: str,
    context: CommitContext,
    backoff: Backoff,
    try_once: CommitAttempt,
    shown: FindCommit,
) -> CommitResult:
    """Tries until a try does not lose against another commit, `context.max_tries` at most.

    Raises FenceLostError when the lease is lost before the swap, and whatever interrupts it.
    """
    tries = 0
    while True:
        tries += 1
        try:
            table = load(name)
        except Exception as why:  # noqa: BLE001 - nothing was tried on it, whatever it is
            return rejected(_before_swap(why), one_line(why), tries)
        try:
            gate, failure = try_once(table)
        except StaleBatchError as why:
            return rejected(Rejection.STALE, why.message, tries)
        if gate.tried:
            result = _after_swap(load, name, shown, gate, failure, tries)
        else:
            result = _not_tried(gate, failure, tries)
        if result.rejection is not Rejection.CONFLICT or tries >= context.max_tries:
            return result
        backoff.after(tries)


def _not_tried(gate: Gate, failure: Exception | None, tries: int) -> CommitResult:
    """The catalog was never asked to swap: nothing can have been committed."""
    if gate.moved:
        return rejected(Rejection.CONFLICT, "somebody committed after the table was loaded", tries)
    if gate.violations:
        stale = rules.is_stale(gate.violations)
        broken = "; ".join(f"{v.rule}: {v.fact}" for v in gate.violations)
        return rejected(Rejection.STALE if stale else Rejection.REFUSED, broken, tries)
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
    return Rejection.ERROR


def _after_swap(
    load: LoadTable,
    name: str,
    shown: FindCommit,
    gate: Gate,
    failure: Exception | None,
    tries: int,
) -> CommitResult:
    """Judges a try by the table: the catalog's answer may be lost, late or a lie."""
    raised = gate.error or failure
    if raised is not None and not isinstance(raised, Exception):
        raise raised
    base = gate.base_snapshot_id
    message, lost = "", False
    try:
        if raised is not None:
            message, lost = one_line(raised), _lost_swap(raised)
        snapshot_id = shown(load(name), base)
    except Exception as why:  # noqa: BLE001 - not being able to look is not knowing
        message = f"{message or 'committed'}; the table could not be read back: {one_line(why)}"
        return CommitResult(CommitStatus.UNKNOWN, None, None, base, tries, message)
    if snapshot_id is not None:
        return CommitResult(CommitStatus.COMMITTED, None, snapshot_id, base, tries, message)
    if gate.error is not None and lost:
        return CommitResult(CommitStatus.REJECTED, Rejection.CONFLICT, None, base, tries, message)
    message = message or "the catalog reported success, the table does not show the commit"
    return CommitResult(CommitStatus.UNKNOWN, None, None, base, tries, message)


def _lost_swap(why: BaseException) -> bool:
    classes = cause_classes(why)
    return classes[:1] == (_LOST_SWAP,) and _STATE_UNKNOWN not in classes


def find_token(bridge: Bridge, table: Any, token: str, base_snapshot_id: int | None) -> int | None:
    """The snapshot with our token: among those since the base or, when the head no longer descends
    from it, among all retained ones."""
    seen: set[int] = set()
    at = table.currentSnapshot()
    # Broken metadata can name a snapshot its own ancestor.
    while at is not None and at.snapshotId() != base_snapshot_id and at.snapshotId() not in seen:
        if at.summary().get(TOKEN_PROPERTY) == token:
            return int(at.snapshotId())
        seen.add(at.snapshotId())
        at = table.snapshot(at.parentId()) if at.parentId() is not None else None
    if at is not None and at.snapshotId() == base_snapshot_id:
        return None
    for snapshot in bridge.iterate(table.snapshots()):
        if snapshot.summary().get(TOKEN_PROPERTY) == token:
            return int(snapshot.snapshotId())
    return None


def rejected(rejection: Rejection, message: str, tries: int) -> CommitResult:
    """Nothing was committed."""
    return CommitResult(CommitStatus.REJECTED, rejection, tries=tries, message=message)


@contextmanager
def quiet_proxies() -> Iterator[None]:
    """py4j logs a stack trace for every exception that a Python proxy throws; the gate keeps and
    reports them itself."""
    log = logging.getLogger("py4j.clientserver")
    log.addFilter(_not_from_proxy)
    try:
        yield
    finally:
        log.removeFilter(_not_from_proxy)


def _not_from_proxy(record: logging.LogRecord) -> bool:
    return "executing the Python Proxy" not in str(record.msg)
