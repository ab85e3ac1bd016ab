"""What an operation changed, as text for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from iceberg_maint.core.model.ids import DATA_OPERATIONS, POSITION_OPERATIONS, Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import BatchOutcome, OperationOutcome, OutcomeStatus
from iceberg_maint.report.formatting import counted, number, size


def work_of(outcome: OperationOutcome) -> str:
    """What the operation changed: files rewritten, or what housekeeping removed. Without a change, the message."""
    batches = outcome.batches
    committed = [b for b in batches if b.snapshot_after is not None]
    facts = []
    if outcome.operation in DATA_OPERATIONS and committed:
        files = sum(b.input_files for b in committed), sum(b.output_files for b in committed)
        read, written = sum(b.input_bytes for b in committed), sum(b.output_bytes for b in committed)
        deletes = sum(b.delete_files_removed for b in committed)
        if outcome.operation in POSITION_OPERATIONS:
            facts.append(f"{counted(files[1], 'delete file')} ({size(written)}) written")
            facts.append(f"{counted(files[0], 'data file')} ({size(read)}) kept")
        else:
            facts.append(f"{number(files[0])} → {counted(files[1], 'file')}")
            facts.append(f"{size(read)} → {size(written)}")
        if deletes:
            facts.append(f"{counted(deletes, 'delete file')} dropped")
    facts += _housekeeping(outcome.operation, batches)
    failed = [b for b in batches if b.outcome in (OutcomeStatus.FAILED, OutcomeStatus.UNKNOWN)]
    failed = [b for b in failed if b.reason is not Reason.STALE]
    deferred = [b for b in batches if b.outcome is OutcomeStatus.DEFERRED and b.reason is not Reason.STALE]
    if deferred:
        facts.append(f"{counted(len(deferred), 'batch', 'batches')} lost to other writers")
    if failed:
        message = f": {failed[-1].message}" if failed[-1].message else ""
        facts.append(f"{counted(len(failed), 'batch', 'batches')} failed{message}")
    return ", ".join(facts) or outcome.message or "nothing changed"


def notes_of(outcome: OperationOutcome) -> list[str]:
    """The notes of batches that succeeded, such as the strategy that was used instead, each with its number of batches: many
    have the same one."""
    notes = Counter(b.message for b in outcome.batches if b.outcome is OutcomeStatus.IMPROVED and b.message)
    return [f"{counted(batches, 'batch', 'batches')}: {note}" for note, batches in notes.items()]


def _housekeeping(operation: Operation, batches: Sequence[BatchOutcome]) -> list[str]:
    """What housekeeping removed. Each text is of a count that is not zero."""
    counts: dict[str, int] = {}
    for batch in batches:
        for name, value in batch.counts.items():
            counts[name] = counts.get(name, 0) + value
    facts = []
    if operation is Operation.REWRITE_MANIFESTS and counts.get("manifests_replaced"):
        created = counted(counts.get("manifests_created", 0), "manifest")
        facts.append(f"{number(counts['manifests_replaced'])} → {created}")
    for name, noun in (("expired_snapshots", "snapshot"), ("expired_refs", "ref")):
        if counts.get(name):
            facts.append(f"{counted(counts[name], noun)} expired")
    for files, total, end in (
        ("released_files", "released_bytes", "of expired snapshots held before their deletion"),
        ("trashed_files", "trashed_bytes", "orphaned, moved to the trash"),
        ("swept_files", "swept_bytes", "deleted after the hold"),
        ("released_deleted_files", "released_deleted_bytes", "of expired snapshots deleted after the hold"),
    ):
        if counts.get(files):
            facts.append(f"{counted(counts[files], 'file')} ({size(counts.get(total, 0))}) {end}")
    if operation is Operation.REMOVE_ORPHAN_FILES and not facts and "listed_files" in counts:
        facts.append(f"no orphan among {counted(counts['listed_files'], 'file')}")
    return facts
