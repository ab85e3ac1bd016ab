"""How an attempt at a batch ended, what of it is stored, and files of earlier attempts that are used again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.decisions.waits import (
    environment_failed,
    failed,
    quarantined_history,
    succeeded,
    undone,
)
from iceberg_maint.core.model.ids import PartitionKey, TableId
from iceberg_maint.core.model.location import Equivalences, location_owner_of, parse_location
from iceberg_maint.core.model.reasons import FOR_A_PERSON, LOST_RACES, OF_MACHINE, Reason
from iceberg_maint.core.model.table_state import Snapshot, TableState
from iceberg_maint.core.outcomes.failures import ENVIRONMENT_CODES, is_environment, python_causes
from iceberg_maint.core.outcomes.outcome import BatchOutcome, CommitResult, OutcomeStatus, Rejection
from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.core.planning.batch_memory import MemoryUse
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import (
    ConvertEqualityDeletes,
    LayoutGain,
    RewriteDataFiles,
    RewritePositionDeleteFiles,
    Work,
    file_work,
    layout_gain,
)
from iceberg_maint.core.policy.data import Policy, ProofLevel
from iceberg_maint.errors import FenceLostError, IcebergMaintError, StaleBatchError
from iceberg_maint.loop.context import Context
from iceberg_maint.ports.engine import EnvironmentFailedError, Written
from iceberg_maint.ports.storage import OrphanWork, ReleasedWork
from iceberg_maint.ports.stored import Lease

_MIB = 1024 * 1024


def free_space(locations: Iterable[str]) -> str:
    """Each local file system of these locations once, with its mount point and what is free on it. Empty if all are in
    stores."""
    by_device = {folder.stat().st_dev: folder for folder in map(_existing, _local_paths(locations))}
    texts = [_described(_mount(folder)) for folder in by_device.values()]
    return f"Free: {'; '.join(texts)}." if texts else ""


def _local_paths(locations: Iterable[str]) -> Iterable[Path]:
    parsed = (parse_location(text, Equivalences()) for text in locations)
    return (Path(location.path) for location in parsed if location.is_local)


def _existing(path: Path) -> Path:
    return next(p for p in (path, *path.parents) if p.exists())


def _mount(folder: Path) -> Path:
    return next(p for p in (folder, *folder.parents) if p.is_mount() or p == p.parent)


def _described(mount: Path) -> str:
    space = os.statvfs(mount)
    notes = [
        f"{space.f_bavail * space.f_frsize / _MIB:,.1f} of {space.f_blocks * space.f_frsize / _MIB:,.1f} MiB"
    ]
    # A file system without a fixed number of inodes reports none.
    notes += ["no inode"] if space.f_files and not space.f_favail else []
    notes += ["read-only"] if space.f_flag & os.ST_RDONLY else []
    return f"{mount} {', '.join(notes)}"


_REJECTIONS = {
    Rejection.STALE: Reason.STALE,
    Rejection.CONFLICT: Reason.CONFLICT,
    Rejection.REFUSED: Reason.GATE_REFUSED,
    Rejection.CLOCKS: Reason.CLOCK_SKEW,
    Rejection.ENVIRONMENT: Reason.ENVIRONMENT,
    Rejection.ERROR: Reason.ERROR,
}


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The result of one attempt.

    `snapshot` is the committed snapshot. `work` is the work of an orphan scan. `memory` is the peak usage,
    if the attempt ran out of memory. `counts` are further counts by name. `engine` elsewhere took the batch, and its commits
    `added` so many files and bytes.
    """

    outcome: OutcomeStatus
    reason: Reason
    message: str = ""
    proof: Proof | None = None
    written: Written | None = None
    commit: CommitResult | None = None
    snapshot: Snapshot | None = None
    work: OrphanWork | None = None
    memory: MemoryUse | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    engine: str = ""
    added: tuple[int, int] = (0, 0)


def pin_same(batch: Batch, context: Context) -> TableState | None:
    """Returns the current state of the batch's table. None if its name now belongs to another table."""
    table = TableId.parse(batch.table)
    state = context.catalogs.pin(table)
    return state if state.uuid == batch.table_uuid else None


@dataclass(frozen=True, slots=True)
class Committed:
    """What an attempt wrote for its batch, and what its commit, which carries its token, returned."""

    batch: Batch
    written: Written
    result: CommitResult
    token: str


def rejected_commit(commit: Committed, context: Context) -> AttemptResult:
    """Returns the result of an attempt whose commit was rejected."""
    written, result = commit.written, commit.result
    reason, message = _REJECTIONS[result.rejection or Rejection.ERROR], result.message
    if reason is Reason.ERROR and (stale := expired_plan(message, commit.batch, context)):
        reason, message = Reason.STALE, stale
    status = OutcomeStatus.DEFERRED if reason in LOST_RACES else OutcomeStatus.FAILED
    if reason is Reason.ENVIRONMENT:
        message = _environment_message(EnvironmentFailedError(f"{message}."), commit.batch, context)
    return AttemptResult(status, reason, message, written.proof, written, result)


def unknown_commit(commit: Committed) -> AttemptResult:
    """Returns the result of an attempt whose commit the table does not show."""
    written, result = commit.written, commit.result
    message = result.message or "the catalog reported success, but the table does not show the commit"
    return AttemptResult(
        OutcomeStatus.UNKNOWN, Reason.UNKNOWN_COMMIT, message, written.proof, written, result
    )


def expired_plan(why: str, batch: Batch, context: Context) -> str:
    """Returns the message of a failure that says nothing of the table: the snapshot of the plan has been expired since, and
    files with it. "" if the table has the snapshot, or cannot be read."""
    with suppress(Exception):
        state = pin_same(batch, context)
        if state is not None and all(s.snapshot_id != batch.snapshot_id for s in state.snapshots):
            return f"snapshot {batch.snapshot_id} of the plan has been expired since: {why}"
    return ""


def environment_failure(why: Exception, batch: Batch, context: Context) -> AttemptResult | None:
    """Returns the result of an attempt that the environment failed. None for any other error."""
    if isinstance(why, IcebergMaintError):
        if why.code not in ENVIRONMENT_CODES:
            return None
    elif is_environment(python_causes(why)):
        why = EnvironmentFailedError(f"{one_line(why)}.")
    else:
        return None
    return AttemptResult(OutcomeStatus.FAILED, Reason.ENVIRONMENT, _environment_message(why, batch, context))


def _environment_message(why: IcebergMaintError, batch: Batch, context: Context) -> str:
    """The message with what is free on the file systems of the table and of scratch files, if it is about one."""
    if why.code != "ICM-176":
        return str(why)
    locations: tuple[str, ...] = context.process.scratch_folders
    with suppress(Exception):  # The catalog may be what fails.
        locations = (
            *location_owner_of(context.catalogs.pin(TableId.parse(batch.table))).locations,
            *locations,
        )
    with suppress(OSError, ValueError):
        return str(IcebergMaintError(why.code, f"{why.message} {free_space(locations)}".rstrip(), why.fix))
    return str(why)


def one_line(why: BaseException) -> str:
    """Returns class and text of an error on one line, cut to 500 characters."""
    text = " ".join(str(why).split())
    return f"{type(why).__name__}: {text[:500]}"


ADOPT_WITHIN_SECONDS = 12 * 3600
"""The greatest age of files to reuse, counted from the start of the attempt that wrote them. It is half the
least age of a file that an orphan scan removes, ours (`ORPHAN_AGE_FLOOR_SECONDS`) or Iceberg's (24 hours).
So no orphan scan removes a file that is being reused."""


def reusable_output(batch: Batch, policy: Policy, context: Context, lease: Lease) -> Written | None:
    """Returns the files that an earlier process wrote for this batch, if they can be committed. None if
    the batch must be written. Raises StaleBatchError if the batch is no longer valid."""
    output = context.ledger.work.uncommitted_output(lease, batch.batch_id, ADOPT_WITHIN_SECONDS)
    # Without files or a proof there is nothing to check again.
    if (
        output is None
        or not output.files
        or output.proof is None
        or not _suffices(output.proof, batch, policy)
    ):
        return None
    written = Written(output.files, output.proof, adopted=True)
    try:
        return written if context.engine().reuse_files(batch, written) else None
    except (FenceLostError, StaleBatchError):
        raise
    except Exception:  # noqa: BLE001 - the batch can be written again after any failure
        return None


def _suffices(proof: Proof, batch: Batch, policy: Policy) -> bool:
    """Whether a proof has the level that the policy requires for this batch now."""
    match work := file_work(batch.work):
        case RewriteDataFiles():
            required_level = policy.rewrite_data_files.proof
        case RewritePositionDeleteFiles() | ConvertEqualityDeletes():
            required_level = ProofLevel.FULL
        case _:
            assert_never(work)
    return proof.equal and proof.level in (required_level.value, ProofLevel.FULL.value)


def batch_outcome(batch: Batch, attempt_result: AttemptResult, seconds: float) -> BatchOutcome:
    """Returns the outcome of a batch whose attempt took `seconds`. What the attempt does not know, the caller adds."""
    committed = attempt_result.snapshot is not None
    written = attempt_result.written
    # An earlier batch of the plan, or another writer, may have committed since the plan.
    base = attempt_result.commit.base_snapshot_id if committed and attempt_result.commit else None
    return BatchOutcome(
        batch_id=batch.batch_id,
        partitions=batch.partitions,
        outcome=attempt_result.outcome,
        reason=attempt_result.reason,
        input_files=batch.input_files,
        output_files=len(written.files) if written and committed else attempt_result.added[0],
        input_bytes=batch.input_bytes,
        output_bytes=written.output_bytes if written and committed else attempt_result.added[1],
        delete_files_removed=removed_deletes_of(attempt_result.snapshot) if attempt_result.snapshot else 0,
        seconds=round(seconds, 3),
        snapshot_before=batch.snapshot_id if base is None else base,
        snapshot_after=attempt_result.snapshot.snapshot_id if attempt_result.snapshot else None,
        commit_tries=attempt_result.commit.tries if attempt_result.commit else 0,
        wasted_bytes=_wasted_bytes(written, committed=committed),
        proof=attempt_result.proof,
        message=attempt_result.message,
        memory=written.memory if written else attempt_result.memory,
        layout=layout_gain_of(batch.work, written) if written and committed else None,
        counts=counts_of(attempt_result),
        retained=attempt_result.work.retained if attempt_result.work else None,
        unlogged=attempt_result.work.unlogged if attempt_result.work else None,
        engine=attempt_result.engine,
    )


def layout_gain_of(work: Work, written: Written) -> LayoutGain | None:
    """Returns what a sort gains, None for other work."""
    if not isinstance(work, RewriteDataFiles) or work.layout is None:
        return None
    return layout_gain(work.layout, ((f.group, f.content) for f in written.files))


def histories_after(
    attempt_result: AttemptResult,
    histories: Mapping[PartitionKey, PartitionHistory],
    policy: Policy,
    context: Context,
) -> dict[PartitionKey, PartitionHistory]:
    """Returns the histories of the partitions after an attempt, from those before it. Without an entry, what was stored
    before the attempt stays."""
    # An orphan scan that finds no orphans is a success.
    no_orphans = attempt_result.work is not None and attempt_result.outcome is OutcomeStatus.NO_OP
    if (
        attempt_result.outcome is OutcomeStatus.IMPROVED
        or attempt_result.reason is Reason.FORCED
        or no_orphans
    ):
        return {p: succeeded() for p in histories}
    if attempt_result.outcome is OutcomeStatus.UNKNOWN:
        return {}  # The write-ahead back-off stays until the commit is settled.
    if attempt_result.reason in (Reason.STALE, Reason.CONFLICT):
        # A conflict is counted once, at the end of the run.
        return {p: undone(h) for p, h in histories.items()}
    now_ms = context.clock.now_ms()
    why = attempt_result.message or attempt_result.reason.value
    if attempt_result.reason in OF_MACHINE:
        return {p: environment_failed(h, policy.retry, now_ms, why) for p, h in histories.items()}
    if attempt_result.reason in FOR_A_PERSON:
        return {p: quarantined_history(h, why) for p, h in histories.items()}
    return {p: failed(h, policy.retry, now_ms, why) for p, h in histories.items()}


def _wasted_bytes(written: Written | None, *, committed: bool) -> int:
    if written is None or written.adopted:
        # The attempt that wrote the files counts their bytes.
        return 0
    return written.scratch_bytes + (0 if committed else written.output_bytes)


def removed_deletes_of(snapshot: Snapshot) -> int:
    """Returns the number of delete files that a commit removed."""
    return int(snapshot.summary.get("removed-delete-files", "0"))


def counts_of(attempt_result: AttemptResult) -> Mapping[str, int]:
    """Returns the counts of housekeeping by name. For a batch that committed files of another process: the
    number of those files. For a batch that swapped: the milliseconds from its base to its last swap."""
    return {**_work_counts(attempt_result), **_window(attempt_result.commit)}


def _window(commit: CommitResult | None) -> Mapping[str, int]:
    if commit is None or not commit.window_seconds:
        return {}
    return {"base_to_swap_ms": round(commit.window_seconds * 1000)}


def _work_counts(attempt_result: AttemptResult) -> Mapping[str, int]:
    if (
        attempt_result.written is not None
        and attempt_result.written.adopted
        and attempt_result.snapshot is not None
    ):
        return {"adopted_files": len(attempt_result.written.files)}
    if attempt_result.work is None:
        return attempt_result.counts
    names = ("listed_files", "orphan_files", "trashed_files", "trashed_bytes", "swept_files", "swept_bytes")
    counts = {name: getattr(attempt_result.work, name) for name in names}
    released = attempt_result.work.released
    return counts if released is None else {**counts, **released_counts(released)}


def released_counts(done: ReleasedWork) -> Mapping[str, int]:
    """The numbers of released files and bytes, by name."""
    return {
        "released_files": done.released_files,
        "released_bytes": done.released_bytes,
        "released_deleted_files": done.deleted_files,
        "released_deleted_bytes": done.deleted_bytes,
        "released_retained_files": done.retained_files,
        "released_retained_bytes": done.retained_bytes,
    }
