"""The commit of one batch: through the gate, one operation object per try, every end classified.

A try starts from a freshly loaded table with a new operation object, whose `commit()` is called
once; Iceberg's own retry is off behind a Python gate. What the table shows afterwards decides, not
the presence or absence of an exception: a snapshot with our token means COMMITTED; without it only
a lost compare-and-swap is REJECTED, and everything else after the swap was tried is UNKNOWN.
Nothing is rolled back and no file is deleted here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from iceberg_maint.core import gate as rules
from iceberg_maint.core.change import MetadataReader
from iceberg_maint.core.codec import dumps
from iceberg_maint.core.intent import intent_of, is_conversion
from iceberg_maint.core.outcome import CommitResult, CommitStatus, Rejection
from iceberg_maint.core.plan import Batch
from iceberg_maint.core.state import (
    BATCH_PROPERTY,
    FENCE_PROPERTY,
    PROOF_PROPERTY,
    RUN_PROPERTY,
    TOKEN_PROPERTY,
    FileKind,
)
from iceberg_maint.errors import FenceLostError
from iceberg_maint.ports import Ticket, Written
from iceberg_maint.spark.bridge import Bridge, cause_classes, one_line
from iceberg_maint.spark.gate import Check, CommitGate

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
class Pause:
    """How long to wait after the nth lost try: `base_seconds` · 2ⁿ⁻¹ up to `cap_seconds`, times
    `jitter()` in [0, 1)."""

    base_seconds: float
    cap_seconds: float
    jitter: Callable[[], float]
    sleep: Callable[[float], None]

    def after(self, tries: int) -> None:
        """Waits after this many tries."""
        self.sleep(min(self.cap_seconds, self.base_seconds * 2 ** (tries - 1)) * self.jitter())


def commit_batch(
    bridge: Bridge,
    batch: Batch,
    written: Written,
    ticket: Ticket,
    *,
    sources: Sequence[Any],
    outputs: Sequence[Any],
    deletes: Sequence[Any],
    reader: MetadataReader,
    pause: Pause,
    load_table: LoadTable | None = None,
    check: Check = rules.check,
) -> CommitResult:
    """Commits `batch`, for which `written` was written, in one commit.

    A rewrite replaces `sources` by `outputs`, Java DataFiles. A conversion has no sources, and its
    outputs are Java DeleteFiles. One without any only drops equality deletes that delete nothing,
    and replaces them by nothing, as Iceberg's `RemoveDanglingDeleteFiles` does: a row delta would
    break streaming readers for it.

    `deletes` are Java DeleteFiles of the pinned snapshot: the batch's equality deletes to drop and
    the position deletes and deletion vectors of its data files. Of these only the ones go whose
    data file goes or, deletion vectors, gets a new one; what is scoped to a partition stays.

    Raises FenceLostError when the lease is lost before the swap, and whatever interrupts it.
    """
    load = load_table or bridge.load_table
    intent = intent_of(batch, written.files)
    properties = _summary(batch, written, ticket)
    dropped = _to_drop(bridge, batch, written, deletes)
    tries = 0
    while True:
        tries += 1
        try:
            table = load(batch.table)
        except Exception as why:  # noqa: BLE001 - nothing was tried on it, whatever it is
            return _rejected(_before_swap(why), one_line(why), tries)
        version = int(table.operations().current().formatVersion())
        if version != batch.format_version:
            # Iceberg would refuse deletes of the other version before the gate sees them.
            message = f"{rules.Rule.FORMAT_VERSION}: the table's is {version}, was {batch.format_version}"
            return _rejected(Rejection.STALE, message, tries)
        if not is_conversion(batch) and _gained_row_ids(table, batch):
            return _rejected(Rejection.STALE, "rows have had ids only since the pinned snapshot", tries)
        gate = CommitGate(bridge, table.operations(), intent, reader, check, ticket.holds, ticket.record_try)
        failure = _commit_once(bridge, gate, batch, written, sources, outputs, dropped, properties)
        if not gate.tried:
            return _not_tried(gate, failure, tries)
        result = _after_swap(bridge, load, batch, ticket.token, gate, failure, tries)
        if result.rejection is not Rejection.CONFLICT or tries >= ticket.max_tries:
            return result
        pause.after(tries)


def _gained_row_ids(table: Any, batch: Batch) -> bool:
    """Whether the files read had no row ids and have some by now, which the files written lack."""
    pinned, head = table.snapshot(batch.snapshot_id), table.currentSnapshot()
    return pinned is not None and pinned.firstRowId() is None and head.firstRowId() is not None


def _commit_once(
    bridge: Bridge,
    gate: CommitGate,
    batch: Batch,
    written: Written,
    sources: Sequence[Any],
    outputs: Sequence[Any],
    dropped: Sequence[Any],
    properties: Mapping[str, str],
) -> Exception | None:
    """One operation, one `commit()`; what it raised."""
    with bridge.callbacks(), _quiet_proxies():
        try:
            table = gate.table(batch.table)
            if is_conversion(batch) and written.files:
                operation = _row_delta(bridge, table, batch, written, outputs, dropped)
            else:
                operation = _rewrite(table, batch, sources, outputs, dropped)
            for key, value in properties.items():
                operation.set(key, value)
            operation.commit()
        except Exception as why:  # noqa: BLE001 - classified by the caller, with the table's word
            return why
    return None


def _rewrite(
    table: Any, batch: Batch, sources: Sequence[Any], outputs: Sequence[Any], dropped: Sequence[Any]
) -> Any:
    rewrite = table.newRewrite().validateFromSnapshot(batch.snapshot_id)
    if batch.format_version > 1:
        rewrite.dataSequenceNumber(batch.snapshot_sequence_number)
    for file in (*sources, *dropped):
        rewrite.deleteFile(file)
    for file in outputs:
        rewrite.addFile(file)
    return rewrite


def _row_delta(
    bridge: Bridge,
    table: Any,
    batch: Batch,
    written: Written,
    outputs: Sequence[Any],
    dropped: Sequence[Any],
) -> Any:
    """Not a rewrite: its deletes would go unseen by other writers' validation, which looks at
    operations `overwrite` and `delete` only. Concurrent deletion vectors conflict everywhere (no
    conflict filter is set)."""
    marked = bridge.list(f.referenced_data_file for f in written.files)
    delta = table.newRowDelta().validateFromSnapshot(batch.snapshot_id)
    delta.validateDeletedFiles().validateDataFilesExist(marked)
    for file in outputs:
        delta.addDeletes(file)
    for file in dropped:
        delta.removeDeletes(file)
    return delta


def _to_drop(bridge: Bridge, batch: Batch, written: Written, deletes: Sequence[Any]) -> list[Any]:
    """Which of the delete files go: equality deletes by the plan, others with the one data file
    they belong to, or replaced by a new deletion vector of it."""
    planned = {d.path for d in batch.equality_deletes if d.drop}
    data_file = bridge.iceberg.util.ContentFileUtil.referencedDataFileLocation
    if is_conversion(batch):
        is_vector = bridge.iceberg.util.ContentFileUtil.isDV
        renewed = {f.referenced_data_file for f in written.files if f.kind is FileKind.DELETION_VECTOR}
        return [d for d in deletes if d.location() in planned or (is_vector(d) and data_file(d) in renewed)]
    paths = batch.paths()
    return [d for d in deletes if d.location() in planned or data_file(d) in paths]


def _summary(batch: Batch, written: Written, ticket: Ticket) -> dict[str, str]:
    return {
        TOKEN_PROPERTY: ticket.token,
        FENCE_PROPERTY: str(ticket.fence),
        BATCH_PROPERTY: batch.batch_id,
        RUN_PROPERTY: ticket.run_id,
        PROOF_PROPERTY: dumps(written.proof),
    }


def _not_tried(gate: CommitGate, failure: Exception | None, tries: int) -> CommitResult:
    """The catalog was never asked to swap: nothing can have been committed."""
    if gate.violations:
        stale = rules.is_stale(gate.violations)
        broken = "; ".join(f"{v.rule}: {v.fact}" for v in gate.violations)
        return _rejected(Rejection.STALE if stale else Rejection.REFUSED, broken, tries)
    if gate.error is not None:
        if isinstance(gate.error, FenceLostError) or not isinstance(gate.error, Exception):
            raise gate.error
        return _rejected(Rejection.ERROR, one_line(gate.error), tries)
    if failure is not None:
        return _rejected(_before_swap(failure), one_line(failure), tries)
    return _rejected(Rejection.ERROR, "Iceberg found nothing to commit", tries)


def _before_swap(why: BaseException) -> Rejection:
    if _STALE.intersection(cause_classes(why)) or _NO_ANCESTOR in one_line(why):
        return Rejection.STALE
    return Rejection.ERROR


def _after_swap(
    bridge: Bridge,
    load: LoadTable,
    batch: Batch,
    token: str,
    gate: CommitGate,
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
        snapshot_id = _find_token(bridge, load(batch.table), token, base)
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


def _find_token(bridge: Bridge, table: Any, token: str, base_snapshot_id: int | None) -> int | None:
    """The snapshot with our token: among those since the base or, when the head no longer descends
    from it, among all retained ones."""
    at = table.currentSnapshot()
    while at is not None and at.snapshotId() != base_snapshot_id:
        if at.summary().get(TOKEN_PROPERTY) == token:
            return int(at.snapshotId())
        at = table.snapshot(at.parentId()) if at.parentId() is not None else None
    if at is not None:
        return None
    for snapshot in bridge.iterate(table.snapshots()):
        if snapshot.summary().get(TOKEN_PROPERTY) == token:
            return int(snapshot.snapshotId())
    return None


def _rejected(rejection: Rejection, message: str, tries: int) -> CommitResult:
    return CommitResult(CommitStatus.REJECTED, rejection, tries=tries, message=message)


@contextmanager
def _quiet_proxies() -> Iterator[None]:
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
