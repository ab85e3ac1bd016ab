"""Commits a batch that rewrites data files or converts or merges deletes, through the gate.

`spark.commit.retry` tries the commit and classifies the result.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, assert_never

from iceberg_maint.core.commits import gate_rules as rules
from iceberg_maint.core.commits.change import Identity, Rule, remembering
from iceberg_maint.core.commits.intent import Intent, intent_of
from iceberg_maint.core.model.codec import dumps
from iceberg_maint.core.model.table_state import (
    BATCH_PROPERTY,
    FENCE_PROPERTY,
    INSTALLATION_PROPERTY,
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
from iceberg_maint.engines.spark.commit.gate import Check, Gate, inspecting_files
from iceberg_maint.engines.spark.commit.retry import (
    OPERATION_CALLS,
    TableAccess,
    commit_with_retry,
    quiet_proxies,
    snapshot_with_token,
)
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.functions import JavaFunctions
from iceberg_maint.engines.spark.scan.iceberg_reader import DeleteFiles
from iceberg_maint.errors import StaleBatchError
from iceberg_maint.ports.engine import CommitContext, Written


@dataclass(frozen=True, slots=True)
class BatchFiles:
    """Java objects of one written batch, kept from its write to its commit: the data files that it
    replaces, the delete files of the plan, and the files that it adds. The commit removes some of the
    delete files."""

    sources: Sequence[Any]
    deletes: DeleteFiles
    outputs: Mapping[Identity, Any]


def commit_batch(
    access: TableAccess,
    batch: Batch,
    written: Written,
    context: CommitContext,
    files: BatchFiles,
    *,
    check: Check = rules.check,
) -> CommitResult:
    """Commits `batch` with the files of `written` in one commit.

    A rewrite replaces `files.sources` by `files.outputs`, both Java DataFiles. A conversion has no sources, and its
    outputs are Java DeleteFiles. A conversion without outputs drops equality deletes that delete nothing. It is
    a rewrite that adds no file, as Iceberg's `RemoveDanglingDeleteFiles` is, because a row delta would
    break streaming readers. A merge replaces position deletes by `outputs` that delete the same rows. Each output
    has the highest sequence number of the files that it replaces, as in Iceberg's
    `RewritePositionDeletesCommitManager` for a whole group.

    `files.deletes` are Java DeleteFiles of the pinned snapshot: the batch's equality deletes to drop, its
    position deletes, and the position deletes and deletion vectors of its data files. The commit removes a
    position delete or deletion vector of a data file only if it removes the data file, if it adds a new
    deletion vector of the data file, or if a written file takes it over. A delete that is scoped to a partition
    stays, unless the batch lists it.

    Raises FenceLostError if the lease is lost before the swap. An interrupt passes through.
    """
    bridge, outputs = access.bridge, tuple(files.outputs.values())
    intent = intent_of(batch, written.files)
    removals = _delete_files_to_remove(bridge, batch, written, files.deletes, intent)
    tries = itertools.count()
    reader = remembering(access.reader)

    def operation_of(table: Any) -> Any:
        match work := file_work(batch.work):
            case ConvertEqualityDeletes() if written.files:
                operation = _row_delta(bridge, table, batch, written, outputs, removals)
            case RewritePositionDeleteFiles():
                operation = _replace_deletes(bridge, table, batch, intent, outputs, removals)
            case RewriteDataFiles() | ConvertEqualityDeletes():
                operation = _rewrite(bridge, table, batch, files.sources, outputs, removals)
            case _:
                assert_never(work)
        for key, value in summary_of(batch, written, context).items():
            operation.set(key, value)
        return operation

    def try_once(table: Any) -> tuple[Gate, Exception | None]:
        access.begin_try(batch, table, OPERATION_CALLS)
        has_lost = next(tries) > 0
        version = int(table.operations().current().formatVersion())
        if version != batch.format_version:
            # Iceberg would refuse deletes of the other version before the gate checks them.
            raise StaleBatchError(
                f"{Rule.FORMAT_VERSION}: the table's is {version}, was {batch.format_version}"
            )
        inspect = inspecting_files(bridge, intent, reader, context, check)
        gate = Gate(bridge, table.operations(), inspect, context)
        with bridge.callbacks(), quiet_proxies():
            try:
                operation = operation_of(gate.table(batch.table))
                if has_lost:
                    # Reads and writes most of what the commit needs before the commit loads its base.
                    gate.rehearse(operation)
                gate.begin()
                operation.commit()
            except Exception as why:  # noqa: BLE001 - the caller classifies it, by the table
                return gate, why
        return gate, None

    find_commit = partial(snapshot_with_token, bridge, context.token)
    return commit_with_retry(access, batch.table, context, try_once, find_commit)


def _rewrite(
    bridge: Bridge,
    table: Any,
    batch: Batch,
    sources: Sequence[Any],
    outputs: Sequence[Any],
    removals: Any,
) -> Any:
    rewrite = table.newRewrite().validateFromSnapshot(batch.snapshot_id)
    if batch.format_version > 1:
        rewrite.dataSequenceNumber(batch.snapshot_sequence_number)
    # A call per source would take longer than Iceberg needs for the file.
    functions, rewrite_files = bridge.once(JavaFunctions), "org.apache.iceberg.RewriteFiles"
    data_file = "org.apache.iceberg.DataFile"
    functions.for_each(bridge.list(sources), rewrite, rewrite_files, "deleteFile", data_file)
    _remove_deletes(functions, removals, rewrite, rewrite_files, "deleteFile")
    for file in outputs:
        rewrite.addFile(file)
    return rewrite


def _remove_deletes(functions: JavaFunctions, removals: Any, operation: Any, owner: str, method: str) -> None:
    """Removes delete files, a Java list."""
    if not removals.isEmpty():
        functions.for_each(removals, operation, owner, method, "org.apache.iceberg.DeleteFile")


def _replace_deletes(
    bridge: Bridge, table: Any, batch: Batch, intent: Intent, outputs: Sequence[Any], removals: Any
) -> Any:
    """A rewrite: it deletes no further row, and streaming readers skip it. Iceberg still refuses it if another
    writer has added a deletion vector to one of the files since."""
    numbers = {d.identity: d.data_sequence_number for d in intent.deletes}
    rewrite = table.newRewrite().validateFromSnapshot(batch.snapshot_id)
    functions = bridge.once(JavaFunctions)
    _remove_deletes(functions, removals, rewrite, "org.apache.iceberg.RewriteFiles", "deleteFile")
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
    removals: Any,
) -> Any:
    """A row delta, not a rewrite: the validation of other writers reads the deletes of operations
    `overwrite` and `delete` only. A concurrent deletion vector of any file conflicts, because no
    conflict filter is set."""
    data_files = bridge.list(f.referenced_data_file for f in written.files)
    delta = table.newRowDelta().validateFromSnapshot(batch.snapshot_id)
    delta.validateDeletedFiles().validateDataFilesExist(data_files)
    for file in outputs:
        delta.addDeletes(file)
    functions = bridge.once(JavaFunctions)
    _remove_deletes(functions, removals, delta, "org.apache.iceberg.RowDelta", "removeDeletes")
    return delta


def _delete_files_to_remove(
    bridge: Bridge, batch: Batch, written: Written, deletes: DeleteFiles, intent: Intent
) -> Any:
    """The delete files that the commit removes, as a Java list.

    The plan lists equality deletes and merged position deletes. A delete of one data file is removed with
    that data file, or if a new deletion vector or position delete file of that data file replaces it.
    """
    equality = {d.identity for d in batch.equality_deletes}
    removed = {d.identity for d in batch.equality_deletes if d.drop}
    others = [identity for identity in deletes if identity not in equality]

    def of_data_files(identities: Iterable[Identity], paths: Collection[str | None]) -> set[Identity]:
        data_file = bridge.iceberg.util.ContentFileUtil.referencedDataFileLocation
        return {identity for identity in identities if data_file(deletes[identity]) in paths}

    match work := file_work(batch.work):
        case RewritePositionDeleteFiles():
            removed = {identity for identity in others if identity in intent.replaced}
        case ConvertEqualityDeletes() if batch.format_version < 3:
            taken_over = {path for path, _ in intent.replaced}
            removed |= {(path, offset) for path, offset in others if path in taken_over}
        case ConvertEqualityDeletes():
            with_vectors = {
                f.referenced_data_file for f in written.files if f.kind is FileKind.DELETION_VECTOR
            }
            vectors = (identity for identity in others if identity[1] is not None)
            removed |= of_data_files(vectors, with_vectors)
        case RewriteDataFiles():
            removed |= of_data_files(others, batch.paths())
        case _:
            assert_never(work)
    return deletes.picked([identity for identity in deletes if identity in removed])


def summary_of(batch: Batch, written: Written, context: CommitContext) -> dict[str, str]:
    """The properties that this program writes to the summary of its snapshots."""
    installation = {INSTALLATION_PROPERTY: context.installation} if context.installation else {}
    return {
        TOKEN_PROPERTY: context.token,
        FENCE_PROPERTY: str(context.fence),
        BATCH_PROPERTY: batch.batch_id,
        RUN_PROPERTY: context.run_id,
        PROOF_PROPERTY: dumps(written.proof),
        **installation,
    }
