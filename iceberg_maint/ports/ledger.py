"""The seam to the ledger: leases, batches and attempts as they are stored, and what is remembered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from iceberg_maint.core.decisions.history import PartitionHistory, Pause, TableHistory
from iceberg_maint.core.decisions.retention import RegisteredReader
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.outcomes.outcome import BatchOutcome
from iceberg_maint.core.outcomes.proof import Proof
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.core.outcomes.settle import Settlement
from iceberg_maint.core.outcomes.unrecorded_runs import RunTrace
from iceberg_maint.core.planning.memory import MemoryUse
from iceberg_maint.core.planning.plan import Batch, Plan
from iceberg_maint.core.removal.clock_agreement import ClockMark
from iceberg_maint.ports.engine import WrittenFile


class BatchStatus(StrEnum):
    """Where a persisted batch is. DONE, SUPERSEDED and FAILED never change again."""

    PLANNED = "PLANNED"
    STARTED = "STARTED"
    DONE = "DONE"
    FAILED = "FAILED"
    SUPERSEDED = "SUPERSEDED"
    UNKNOWN = "UNKNOWN"


class AttemptStep(StrEnum):
    """How far an attempt has come that has reported no outcome."""

    STARTED = "STARTED"
    INTENT = "INTENT"
    ATTEMPT = "ATTEMPT"


AttemptStatus = AttemptStep | BatchStatus
"""Of an attempt: the last step before its outcome, or the status in which it left its batch."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to maintain one table until it expires; `fence` grows with every lease."""

    table_uuid: str
    table: str
    owner: str
    fence: int
    ttl_seconds: int


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A persisted batch."""

    batch: Batch
    status: BatchStatus
    plan_id: str
    run_id: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a batch. `tries` are the (base snapshot id, metadata location) of each
    prepared swap, `tried_ms` is when the last of them was recorded, by the database's clock; `files` is
    None until the INTENT is recorded.
    """

    attempt_id: str
    batch_id: str
    table_uuid: str
    operation: Operation
    run_id: str
    fence: int
    token: str
    partitions: tuple[str, ...]
    status: AttemptStatus
    tries: tuple[tuple[int, str], ...] = ()
    tried_ms: int | None = None
    files: tuple[WrittenFile, ...] | None = None
    proof: Proof | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What an attempt said of its batch, and when by the database's clock."""

    recorded_ms: int
    outcome: BatchOutcome


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far an operation has come on a table: its last batch that is DONE, and the snapshot after it.

    `plan_id` names the window, which is the plan of that batch. `window_batches` counts the stored batches
    of that plan, `window_done` those that are DONE. Without a stored batch `plan_id` is None and `partitions`
    is empty.
    """

    operation: str
    plan_id: str | None
    window_batches: int
    window_done: int
    batch_id: str
    partitions: tuple[str, ...]
    snapshot_id: int | None
    fence: int
    advanced_ms: int


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A table the ledger has seen. `pointer` is the token at its last stored health."""

    table: TableId
    table_uuid: str
    pointer: str
    observed_ms: int


@dataclass(frozen=True, slots=True)
class StoredPause:
    """A pause in the ledger. `table` is the name that was paused, `*` for the fleet. `table_uuid`
    identifies the table after a rename; None for the fleet and for a name without stored health."""

    table: str
    table_uuid: str | None
    pause: Pause


class Ledger(Protocol):
    """Leases, batches, attempts, back-off, health and records. Every write that belongs to a
    lease is conditional on its (owner, fence) and raises FenceLostError otherwise.
    """

    def now_ms(self) -> int:
        """The database's clock."""
        ...

    # clocks
    def clock_mark(self, boot: str | None) -> ClockMark:
        """What is kept of earlier readings of clocks, of this boot and of all machines."""
        ...

    def keep_clock_mark(self, boot: str | None, booted_ms: int | None, newest_ms: int) -> None:
        """Notes a reading of clocks that agreed: when the machine booted by its clock, and the
        database's time."""
        ...

    def forget_clock_marks(self) -> None:
        """Forgets all readings: an operator says that the clocks are right now."""
        ...

    # leases
    def acquire_lease(
        self, table_uuid: str, table: str, owner: str, ttl_seconds: int, min_fence: int
    ) -> Lease | None:
        """A lease with fence max(ledger's, min_fence) + 1, or None while another owner's lease
        has not expired by the database's clock.
        """
        ...

    def heartbeat(self, lease: Lease) -> bool:
        """Extends the lease by its ttl; False when it is no longer ours."""
        ...

    def holds(self, lease: Lease) -> bool:
        """Whether the lease is still ours and not expired."""
        ...

    def release_lease(self, lease: Lease) -> None:
        """Ends the lease if it is still ours."""
        ...

    # runs of Dagster's
    def record_run_heartbeat(self, run_id: str) -> None:
        """The process of the run says that it lives, now by the database's clock."""
        ...

    def end_run(self, run_id: str) -> None:
        """Nothing more is to be heard of the run."""
        ...

    def run_heartbeats(self) -> Mapping[str, int]:
        """When each run that has not ended was last heard, ms by the database's clock."""
        ...

    # batches and attempts
    def save_plan(self, lease: Lease, plan: Plan, run_id: str) -> None:
        """Persists the plan's batches as PLANNED; one that is already open stays as it is, one
        that ended FAILED at the same id is opened again.
        """
        ...

    def open_batches(self, table_uuid: str, operation: Operation) -> tuple[StoredBatch, ...]:
        """Batches in PLANNED, STARTED or UNKNOWN, in plan order."""
        ...

    def batch_of(self, attempt: Attempt) -> StoredBatch:
        """The batch that the attempt was at, in whatever status it is by now."""
        ...

    def start_attempt(
        self,
        lease: Lease,
        batch_id: str,
        run_id: str,
        write_ahead: Mapping[str, PartitionHistory],
    ) -> Attempt:
        """STARTED, with the write-ahead back-off of its partitions, in one transaction."""
        ...

    def record_intent(
        self, lease: Lease, attempt_id: str, files: tuple[WrittenFile, ...], proof: Proof
    ) -> None:
        """INTENT: the files written, before any attempt to commit them."""
        ...

    def record_try(
        self, lease: Lease, attempt_id: str, base_snapshot_id: int, metadata_location: str
    ) -> None:
        """ATTEMPT: persisted before each compare-and-swap."""
        ...

    def finish_attempt(
        self,
        lease: Lease,
        attempt_id: str,
        status: BatchStatus,
        outcome: BatchOutcome,
        histories: Mapping[str, PartitionHistory],
    ) -> None:
        """OUTCOME, then CURSOR: batch status, back-off and hourly use, in one transaction."""
        ...

    def open_attempts(self, table_uuid: str) -> tuple[Attempt, ...]:
        """Attempts without an outcome, oldest first; UNKNOWN ones included."""
        ...

    def attempts_at(self, table_uuid: str, batch_id: str) -> tuple[Attempt, ...]:
        """Every attempt at a batch, oldest first, however it ended."""
        ...

    def uncommitted_output(self, lease: Lease, batch_id: str, within_seconds: int) -> Attempt | None:
        """The newest attempt at a batch that wrote files, where its process died without a commit
        that is known or could not commit for no fault of theirs, and the batch is what it was then. The
        attempt that wrote them, which may be an earlier one, began no longer ago than this."""
        ...

    def settle_attempt(
        self, lease: Lease, attempt_id: str, settlement: Settlement, status: BatchStatus
    ) -> None:
        """Records what became of an attempt that never reported, and its batch's status."""
        ...

    def close_batch(self, lease: Lease, batch_id: str, why: str) -> None:
        """SUPERSEDED: will not be executed; a newer plan covers its partitions."""
        ...

    def cursors(self, table_uuid: str) -> Mapping[str, Cursor]:
        """The cursor of each operation that ended a batch DONE on the table, by operation."""
        ...

    # decisions' memory
    def history(self, table_uuid: str, table: str, operation: Operation) -> TableHistory:
        """Back-off, quarantine, pause, this hour's use, unknown commits and a foreign lease."""
        ...

    def set_partition_history(
        self, table_uuid: str, operation: Operation, histories: Mapping[str, PartitionHistory]
    ) -> None:
        """Overwrites back-off and quarantine (release by an operator)."""
        ...

    def memory_uses(self, table_uuid: str, limit: int = 20) -> tuple[MemoryUse, ...]:
        """Estimated and measured memory of the last batches that applied equality deletes, or ran
        out of memory with it, newest first."""
        ...

    def last_report(self, table_uuid: str, operation: Operation) -> Report | None:
        """What the last attempt at the operation that reported said of its batch."""
        ...

    # readers
    def readers(self, table_uuid: str) -> tuple[RegisteredReader, ...]:
        """The registered readers of the table's changes, by name."""
        ...

    def put_reader(self, table_uuid: str, name: str, snapshot_id: int) -> None:
        """Registers a reader, or notes how far it has come, now by the database's clock."""
        ...

    def remove_reader(self, table_uuid: str, name: str) -> bool:
        """Forgets a reader; whether there was one."""
        ...

    def pause(self, table: str, note: str, by: str = "") -> None:
        """Pauses a table, or the fleet with table '*'. `by` names the operator."""
        ...

    def pauses(self) -> tuple[StoredPause, ...]:
        """The pauses in force: the fleet's first, then by name."""
        ...

    def resume(self, table: str, table_uuid: str | None = None) -> None:
        """Ends a pause. A table that was renamed since it was paused and not measured yet is known
        by its UUID alone."""
        ...

    def pause_note(self, table_uuid: str, table: str) -> str | None:
        """The note of the pause that holds for the table, its own or the fleet's; None without one."""
        ...

    # health and records
    def put_health(self, measured: Measured) -> bool:
        """Stores health unless what is stored is of a newer sequence number; says which."""
        ...

    def health(self, table: TableId) -> Measured | None:
        """The last stored health of the table with this name."""
        ...

    def known_tables(self) -> tuple[KnownTable, ...]:
        """Tables with stored health, by name."""
        ...

    def forget_table(self, table: TableId) -> None:
        """Drops the stored health of a table that is gone; history and records stay."""
        ...

    def missing_partitions(self, table: TableId) -> tuple[str, ...]:
        """Partition keys that earlier health of the table had and the stored health lacks."""
        ...

    def retired_partitions(self, table: TableId) -> tuple[str, ...]:
        """Partition keys absent from at least two successful observations in a row."""
        ...

    def append_record(self, record: Record) -> None:
        """Appends to the audit trail."""
        ...

    def records(self, table: str | None, limit: int) -> tuple[Record, ...]:
        """Newest first."""
        ...

    def has_unrecorded_runs(self, table_uuid: str) -> bool:
        """Whether `unrecorded_runs` would tell of any, or a run is at work."""
        ...

    def unrecorded_runs(self, lease: Lease) -> tuple[RunTrace, ...]:
        """Ended attempts of earlier runs on the leased table that no record tells of: their run
        died, or they were settled after it. `core.outcomes.unrecorded_runs.record_of` tells them."""
        ...

    def prune(self, table_uuid: str, keep_days: int) -> int:
        """Forgets records but the newest, and ended work, of a table that are older than this; open
        work, back-off and fences stay. Returns the number of rows."""
        ...
