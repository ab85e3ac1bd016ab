"""The seams: one narrow protocol per outside system. A fake ships beside each adapter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from iceberg_maint.core.decisions.publish_waits import PublishWait
from iceberg_maint.core.decisions.retention import Retention
from iceberg_maint.core.model.pending_publishes import PendingPublish
from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint.core.outcomes.outcome import CommitResult
from iceberg_maint.core.outcomes.proof import Proof
from iceberg_maint.core.outcomes.verification import MaintenanceCommit, Verification
from iceberg_maint.core.planning.memory import MemoryUse
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.errors import IcebergMaintError


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file written and not yet committed. `content` is Iceberg's content-file JSON, from
    which the file can be committed by another process; `group` indexes the batch's groups.

    `kind` is DATA of a rewrite, POSITION_DELETES or DELETION_VECTOR of a conversion. Deletion
    vectors share a path; `content_offset` tells them apart.
    """

    path: str
    size_bytes: int
    record_count: int
    spec_id: int
    group: int
    content: str
    kind: FileKind = FileKind.DATA
    content_offset: int | None = None
    referenced_data_file: str | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """The output of one batch with its proof; nothing is committed yet.

    `memory` is None where no equality deletes were applied. `scratch_bytes` were written on the
    way, are of no commit and are deleted by then. `adopted`: another process wrote the files.
    """

    files: tuple[WrittenFile, ...]
    proof: Proof
    memory: MemoryUse | None = None
    scratch_bytes: int = 0
    adopted: bool = False

    @property
    def output_bytes(self) -> int:
        """Bytes written that are to be committed."""
        return sum(f.size_bytes for f in self.files)


class MemoryExceededError(IcebergMaintError):
    """Spark ran out of memory while it applied a batch's equality deletes; `use` is how far it came.
    Nothing was changed."""

    def __init__(self, message: str, use: MemoryUse) -> None:
        super().__init__(
            "ICM-124",
            message,
            "none at first: the next attempt takes less at once. If it happens again, give Spark more memory.",
        )
        self.use = use

    def __reduce__(self) -> tuple[type[MemoryExceededError], tuple[str, MemoryUse]]:
        return (MemoryExceededError, (self.message, self.use))


def _no_retention(_metadata_location: str) -> Retention | None:
    return None


def _no_wait(_pending: Sequence[PendingPublish]) -> PublishWait | None:
    return None


@dataclass(frozen=True, slots=True)
class CommitContext:
    """The right to commit one attempt.

    `lease_is_held` returns whether this process still holds the lease and its fence.
    `record_try(base_snapshot_id, metadata_location)` persists ATTEMPT before every compare-and-swap. If
    either raises, nothing is swapped. `retention(metadata_location)` is called before the swap of an expiry. It
    returns what may expire of the table in this metadata, or None if the table has other metadata by then.
    `publish_wait(pending)` is called before the swap of a new snapshot. It returns the wait for what this commit
    would keep from being published, None if the policy does not wait. `checks_commit_base` is that of `Catalog`. Where it is false, the engine searches for refs and snapshots that
    an expiry removed by accident.
    """

    token: str
    fence: int
    run_id: str
    max_tries: int
    lease_is_held: Callable[[], bool]
    record_try: Callable[[int, str], None]
    retention: Callable[[str], Retention | None] = _no_retention
    checks_commit_base: bool = False
    publish_wait: Callable[[Sequence[PendingPublish]], PublishWait | None] = _no_wait


class Engine(Protocol):
    """Writes and commits batches (Spark)."""

    def versions(self) -> Mapping[str, str]:
        """Names and versions of engine parts, for the record."""
        ...

    def start(self) -> None:
        """Starts what writing needs, unless it runs. Raises RefusedError ICM-103 or ICM-105 where
        nothing can be written safely."""
        ...

    def write(self, batch: Batch, policy: Policy) -> Written:
        """Reads the batch's files at its snapshot and writes what is to be committed: their
        replacement or, of a conversion, the positions its equality deletes mark; nothing of
        housekeeping, whose commits write their own metadata. Raises
        RefusedError when what would be read is not what was planned, ICM-119 for equality deletes
        that cannot be applied, ICM-124 when they do not fit the declared memory.
        """
        ...

    def reuse_files(self, batch: Batch, written: Written) -> bool:
        """Whether files that another process wrote for the batch are there and hold what their proof
        says, which is read from them anew. They can be committed then. Raises what `write` does.
        """
        ...

    def commit(self, batch: Batch, written: Written, context: CommitContext) -> CommitResult:
        """Commits through the gate, each try with a new operation on a fresh table."""
        ...

    def cancel(self) -> None:
        """Stops running jobs of this engine, from another thread or a signal handler."""
        ...


class Verifier(Protocol):
    """Proves commits again (Spark)."""

    def verify(self, commit: MaintenanceCommit) -> Verification:
        """Reads the files in which the commit differs from its parent, as readers see them in
        both. Raises RefusedError ICM-102 when the table is another one by now.
        """
        ...
