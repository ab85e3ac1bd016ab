"""The commit of one batch that rewrites data files or converts equality deletes, through the gate.

How it is tried, and how every end is classified: `spark.commit.retry`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from iceberg_maint.core.commits import gate as rules
from iceberg_maint.core.commits.change import Identity, MetadataReader
from iceberg_maint.core.commits.intent import (
    Intent,
    intent_of,
    keeps_data_files,
)
from iceberg_maint.core.model.codec import dumps
from iceberg_maint.core.model.table_state import (
    BATCH_PROPERTY,
    FENCE_PROPERTY,
    PROOF_PROPERTY,
    RUN_PROPERTY,
    TOKEN_PROPERTY,
    FileKind,
)
from iceberg_maint.core.outcomes.outcome import CommitResult
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import (
    ConvertEqualityDeletes,
    RewriteDataFiles,
    RewritePositionDeleteFiles,
    file_work,
)
from iceberg_maint.errors import StaleBatchError
from iceberg_maint.ports.engine import CommitContext, Written
from iceberg_maint.spark.commit.gate import Check, CommitGate
from iceberg_maint.spark.commit.retry import Backoff, LoadTable, commit_with_retry, find_token, quiet_proxies
from iceberg_maint.spark.jvm.bridge import Bridge


def commit_batch(
    bridge: Bridge,
    batch: Batch,
    written: Written,
    context: CommitContext,
    *,
    sources: Sequence[Any],
    outputs: Sequence[Any],
    deletes: Sequence[Any],
    reader: MetadataReader,
    backoff: Backoff,
    load_table: LoadTable | None = None,
    check: Check = rules.check,
) -> CommitResult:
    """Commits `batch`, for which `written` was written, in one commit.

    A rewrite replaces `sources` by `outputs`, Java DataFiles. A conversion has no sources, and its
    outputs are Java DeleteFiles. One without any only drops equality deletes that delete nothing,
    and replaces them by nothing, as Iceberg's `RemoveDanglingDeleteFiles` does: a row delta would
    break streaming readers for it. Position deletes are replaced by `outputs` that mark the same rows,
    each with the highest sequence number of those whose place it takes, as Iceberg's
    `RewritePositionDeletesCommitManager` does for a whole group.

    `deletes` are Java DeleteFiles of the pinned snapshot: the batch's equality deletes to drop, its
    position deletes and the position deletes and deletion vectors of its data files. Of the last only
    the ones go whose data file goes or, deletion vectors, gets a new one; what is scoped to a
    partition and not the batch's stays.

    Raises FenceLostError when the lease is lost before the swap, and whatever interrupts it.
    """
    intent = intent_of(batch, written.files)
    properties = summary_of(batch, written, context)
    dropped = _to_drop(bridge, batch, written, deletes, intent)

    def try_once(table: Any) -> tuple[CommitGate, Exception | None]:
        version = int(table.operations().current().formatVersion())
        if version != batch.format_version:
            # Iceberg would refuse deletes of the other version before the gate sees them.
            raise StaleBatchError(
                f"{rules.Rule.FORMAT_VERSION}: the table's is {version}, was {batch.format_version}"
            )
        if not keeps_data_files(batch.work) and _gained_row_ids(table, batch):
            raise StaleBatchError("rows have had ids only since the pinned snapshot")
        gate = CommitGate(
            bridge, table.operations(), intent, reader, check, context.holds, context.record_try
        )
        return gate, _commit_once(bridge, gate, batch, written, intent, sources, outputs, dropped, properties)

    def shown(table: Any, base_snapshot_id: int | None) -> int | None:
        return find_token(bridge, table, context.token, base_snapshot_id)

    return commit_with_retry(load_table or bridge.load_table, batch.table, context, backoff, try_once, shown)


def _gained_row_ids(table: Any, batch: Batch) -> bool:
    """Whether the files read had no row ids and have some by now, which the files written lack."""
    pinned, head = table.snapshot(batch.snapshot_id), table.currentSnapshot()
    return pinned is not None and pinned.firstRowId() is None and head.firstRowId() is not None


def _commit_once(
    bridge: Bridge,
    gate: CommitGate,
    batch: Batch,
    written: Written,
    intent: Intent,
    sources: Sequence[Any],
    outputs: Sequence[Any],
    dropped: Sequence[Any],
    properties: Mapping[str, str],
) -> Exception | None:
    """One operation, one `commit()`; what it raised."""
    with bridge.callbacks(), quiet_proxies():
        try:
            table = gate.table(batch.table)
            match work := file_work(batch.work):
                case ConvertEqualityDeletes() if written.files:
                    operation = _row_delta(bridge, table, batch, written, outputs, dropped)
                case RewritePositionDeleteFiles():
                    operation = _replace_deletes(table, batch, intent, outputs, dropped)
                case RewriteDataFiles() | ConvertEqualityDeletes():
                    operation = _rewrite(table, batch, sources, outputs, dropped)
                case _:
                    assert_never(work)
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


def _replace_deletes(
    table: Any, batch: Batch, intent: Intent, outputs: Sequence[Any], dropped: Sequence[Any]
) -> Any:
    """A rewrite: no row is deleted that was not before, and streaming readers see none of it. Another
    writer's deletion vector of a file that has one since is refused by Iceberg all the same."""
    numbers = {d.identity: d.data_sequence_number for d in intent.deletes}
    rewrite = table.newRewrite().validateFromSnapshot(batch.snapshot_id)
    for file in dropped:
        rewrite.deleteFile(file)
    for file in outputs:
        rewrite.addFile(file, numbers[_identity(file)])
    return rewrite


def _identity(file: Any) -> Identity:
    offset = file.contentOffset()
    return str(file.location()), None if offset is None else int(offset)


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


def _to_drop(
    bridge: Bridge, batch: Batch, written: Written, deletes: Sequence[Any], intent: Intent
) -> list[Any]:
    """Which of the delete files go: equality deletes and merged position deletes by the plan, others
    with the one data file they belong to, or replaced by a new deletion vector of it."""
    data_file = bridge.iceberg.util.ContentFileUtil.referencedDataFileLocation
    planned = {d.path for d in batch.equality_deletes if d.drop}
    match work := file_work(batch.work):
        case RewritePositionDeleteFiles():
            return [d for d in deletes if _identity(d) in intent.replaced]
        case ConvertEqualityDeletes():
            is_vector = bridge.iceberg.util.ContentFileUtil.isDV
            renewed = {f.referenced_data_file for f in written.files if f.kind is FileKind.DELETION_VECTOR}
            return [
                d for d in deletes if d.location() in planned or (is_vector(d) and data_file(d) in renewed)
            ]
        case RewriteDataFiles():
            paths = batch.paths()
            return [d for d in deletes if d.location() in planned or data_file(d) in paths]
        case _:
            assert_never(work)


def summary_of(batch: Batch, written: Written, context: CommitContext) -> dict[str, str]:
    """What our commits leave in their snapshot's summary."""
    return {
        TOKEN_PROPERTY: context.token,
        FENCE_PROPERTY: str(context.fence),
        BATCH_PROPERTY: batch.batch_id,
        RUN_PROPERTY: context.run_id,
        PROOF_PROPERTY: dumps(written.proof),
    }
