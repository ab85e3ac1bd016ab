"""The port to an engine: it writes, commits and verifies batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from iceberg_maint.core.decisions.snapshot_retention import Retention
from iceberg_maint.core.decisions.waits import PublishWait
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.other_writers import PendingPublish
from iceberg_maint.core.model.table_state import FileKind, TableState
from iceberg_maint.core.outcomes.failures import ended_process_fix, file_system_fix
from iceberg_maint.core.outcomes.outcome import CommitResult
from iceberg_maint.core.outcomes.verification import MaintenanceCommit, Proof, Verification
from iceberg_maint.core.planning.batch_memory import MemoryUse
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import Strategy
from iceberg_maint.core.policy.data import Policy, RewriteDataFilesPolicy
from iceberg_maint.errors import IcebergMaintError


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file written and not yet committed. `content` is Iceberg's content-file JSON, from
    which another process can commit the file. `group` is the index of its group in the batch.

    A rewrite writes DATA, a conversion POSITION_DELETES or DELETION_VECTOR (`kind`). Deletion vectors may
    share a path and differ by `content_offset`. `replaces` are the paths of older position delete files of the same data
    file, which a conversion has merged into this one. None for every other file.
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
    replaces: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """The output of one batch with its proof. Nothing is committed yet.

    `memory` is None if no equality deletes were applied. `scratch_bytes` is the size of temporary files,
    which are deleted before the commit. `adopted`: another process wrote the files. `note` says why another strategy
    than that of the policy or the plan wrote them, or which part of the proof was not made. `strategy` wrote the rows, where
    it is not that of the plan.
    """

    files: tuple[WrittenFile, ...]
    proof: Proof
    memory: MemoryUse | None = None
    scratch_bytes: int = 0
    adopted: bool = False
    note: str = ""
    strategy: Strategy | None = None

    @property
    def output_bytes(self) -> int:
        """The bytes of the files to commit."""
        return sum(f.size_bytes for f in self.files)


class MemoryExceededError(IcebergMaintError):
    """Spark ran out of memory while it applied a batch's equality deletes. `use` is the memory that it had
    used. The table is unchanged."""

    def __init__(self, message: str, use: MemoryUse) -> None:
        super().__init__(
            "ICM-124",
            message,
            "none at first: the next attempt applies fewer deletes at once. If it fails again, give Spark more memory.",
        )
        self.use = use

    def __reduce__(self) -> tuple[type[MemoryExceededError], tuple[str, MemoryUse]]:
        return (MemoryExceededError, (self.message, self.use))


class EngineFailedError(Exception):
    """The engine failed to write a batch. The text is the first cause, on one line. The table is unchanged."""


class EnvironmentFailedError(IcebergMaintError):
    """Credentials, a connection or a class are missing, a file system takes no writes, or a process of this machine was ended.
    This says nothing about the batch. The table is unchanged."""

    def __init__(self, message: str, fix: str | None = None) -> None:
        code = "ICM-133"
        fix = (
            fix
            or "correct the credentials, address, region or jar that the message names, then run iceberg-maint doctor."
        )
        for other, found in (("ICM-176", file_system_fix(message)), ("ICM-175", ended_process_fix(message))):
            if found is not None:
                code, fix = other, f"{found}. The work then resumes by itself."
        super().__init__(code, message, fix)

    def __reduce__(self) -> tuple[type[EnvironmentFailedError], tuple[str, str]]:
        return (EnvironmentFailedError, (self.message, self.fix))


@dataclass(frozen=True, slots=True)
class CommitContext:
    """The right to commit one attempt.

    `lease_is_held` returns whether this process still holds the lease and its fence.
    `record_try(base_snapshot_id, metadata_location)` persists ATTEMPT before every compare-and-swap. If
    either raises, nothing is swapped. `retention(metadata_location)` is called before the swap of an expiry. It
    returns what may expire of the table in this metadata, or None if the table has other metadata by then.
    `publish_wait(pending)` is called before the swap of a new snapshot. It returns the wait for what this commit
    would keep from being published, None if the policy does not wait. `checks_commit_base` is that of `Catalog`. Where it is false, the engine searches for refs and snapshots that
    an expiry removed by accident. `installation` is the installation id that the snapshot summary carries.
    """

    token: str
    fence: int
    run_id: str
    max_tries: int
    lease_is_held: Callable[[], bool]
    record_try: Callable[[int, str], None]
    retention: Callable[[str], Retention | None]
    checks_commit_base: bool
    publish_wait: Callable[[Sequence[PendingPublish]], PublishWait | None]
    installation: str


@dataclass(frozen=True, slots=True)
class WorkProgress:
    """What the engine does now, since how many seconds, and the figures of the current batch so far. `groups` are
    the parts that it writes at the same time or one after the other. A figure that the engine does not know is 0."""

    step: str
    seconds: float = 0.0
    groups_done: int = 0
    groups: int = 0
    rows_read: int = 0
    bytes_read: int = 0
    rows_written: int = 0
    bytes_written: int = 0


class Engine(Protocol):
    """Writes and commits batches (Spark)."""

    def versions(self) -> Mapping[str, str]:
        """Returns names and versions of the engine's parts, for the record."""

    def start(self) -> None:
        """Starts the engine, unless it runs. Raises RefusedError ICM-103 or ICM-105 if it cannot write
        safely."""

    def measure(self, state: TableState, policy: RewriteDataFilesPolicy) -> Measured:
        """Returns the health of the pinned snapshot, as `Catalog.measure` does. Raises RefusedError ICM-178 for a table
        that the engine cannot measure, and UnreadableTableError ICM-101."""

    def write(self, batch: Batch, policy: Policy) -> Written:
        """Reads the batch's files at its snapshot and writes the files to commit: their replacement or, for
        a conversion, the positions of the rows that its equality deletes delete. It is not called for
        housekeeping, whose commits write their own metadata.

        Raises RefusedError if the scan differs from the plan, ICM-119 for equality deletes that cannot be
        applied, ICM-124 if they need more than the declared memory.
        """

    def reuse_files(self, batch: Batch, written: Written) -> bool:
        """Reads the files that another process wrote for the batch. Returns whether they exist and match
        their proof, so that they can be committed. Raises what `write` raises.
        """

    def commit(self, batch: Batch, written: Written, context: CommitContext) -> CommitResult:
        """Commits through the gate. Each try uses a new operation on freshly loaded metadata."""

    def progress(self) -> WorkProgress:
        """Returns the progress of the current batch. Called from another thread."""

    def abandon_calls(self) -> None:
        """Forgets the calls of this thread that an interrupt has ended. Their answers must not reach a later call."""

    def cancel(self) -> None:
        """Stops running jobs of this engine, from another thread or a signal handler."""


class Verifier(Protocol):
    """Verifies earlier commits again (Spark)."""

    def verify(self, commit: MaintenanceCommit) -> Verification:
        """Compares the rows of the commit with those of its parent, in the files that differ. Raises
        RefusedError ICM-129 if the name now belongs to another table.
        """
