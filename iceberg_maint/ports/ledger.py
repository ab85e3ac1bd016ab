"""The port to the ledger: stored leases, batches, attempts, histories, health and records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from iceberg_maint.core.alerts import Incident
from iceberg_maint.core.decisions.fleet_budget import Spend, WorkKey
from iceberg_maint.core.decisions.history import FleetWait, PartitionHistory, PastWork, TableHistory
from iceberg_maint.core.decisions.snapshot_retention import RegisteredReader
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation, PartitionKey, TableId
from iceberg_maint.core.outcomes.attestation import Attestation
from iceberg_maint.core.outcomes.outcome import BatchOutcome
from iceberg_maint.core.outcomes.record import Record, RunTrace, Settlement
from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.core.planning.batch_memory import MemoryUse
from iceberg_maint.core.planning.batch_trials import CommitTrial
from iceberg_maint.core.planning.plan import Plan
from iceberg_maint.core.removal.clock_skew import ClockReading
from iceberg_maint.ports.engine import WrittenFile
from iceberg_maint.ports.stored import (
    Attempt,
    BatchStatus,
    Cursor,
    DroppedTable,
    HealthDay,
    KnownTable,
    Lease,
    Report,
    StoredBatch,
    StoredLocationOwner,
    StoredMeasurement,
    StoredPause,
)


class Leases(Protocol):
    """Leases of tables, heartbeats of runs, and readings of clocks."""

    def acquire(
        self, table_uuid: str, table: str, owner: str, ttl_seconds: int, min_fence: int
    ) -> Lease | None:
        """Returns a lease with fence max(ledger's, min_fence) + 1. None while the lease of another owner
        has not expired by the database's clock.
        """

    def owner(self, table_uuid: str) -> tuple[str, int] | None:
        """Returns the owner of the table's unexpired lease, and when it expires by the database's clock."""

    def heartbeat(self, lease: Lease) -> bool:
        """Extends the lease by its time to live. Returns False if the lease has another owner or fence now."""

    def holds(self, lease: Lease) -> bool:
        """Whether the lease still has this owner and fence and has not expired."""

    def release(self, lease: Lease) -> None:
        """Ends the lease if it still has this owner and fence."""

    def last_leased_name(self, table_uuid: str) -> str | None:
        """Returns the name under which the table was last leased; None if it never was."""

    def adopt_table(self, table_uuid: str, table: str) -> None:
        """Stores a person's word that the table with this UUID had this name last, and was dropped."""

    def record_run_heartbeat(self, run_id: str) -> None:
        """Records a heartbeat of the run's process, by the database's clock."""

    def end_run(self, run_id: str) -> None:
        """Ends the heartbeats of the run."""

    def run_heartbeats(self) -> Mapping[str, int]:
        """Returns the time of the last heartbeat of each run that has not ended, in ms by the database's
        clock."""

    def clock_reading(self, boot: str | None) -> ClockReading:
        """Returns the stored readings of clocks, of this boot and of all machines."""

    def keep_clock_reading(self, boot: str | None, booted_ms: int | None, newest_ms: int) -> None:
        """Stores a reading of clocks that agreed: when the machine booted by its clock, and the
        database's time."""

    def accept_clock(self) -> None:
        """Deletes all readings, ends back-offs and waits, and dates what is in the future to now. An operator calls
        this when the clocks are right again."""


class Work(Protocol):
    """Plans, batches, attempts and intents."""

    def save_plan(self, lease: Lease, plan: Plan) -> None:
        """Persists the plan's batches as PLANNED. An open or DONE batch with the same id stays unchanged. A
        FAILED or SUPERSEDED one becomes PLANNED again.
        """

    def open_batches(self, table_uuid: str, operation: Operation) -> tuple[StoredBatch, ...]:
        """Returns the batches in PLANNED, STARTED or UNKNOWN, in plan order."""

    def open_operations(self, table_uuid: str) -> frozenset[Operation]:
        """Returns the operations that have open batches."""

    def batch(self, batch_id: str) -> StoredBatch:
        """Returns a stored batch, whatever its status."""

    def close_batch(self, lease: Lease, batch_id: str) -> None:
        """Makes the batch SUPERSEDED: it is not executed, and a newer plan covers its partitions."""

    def cursors(self, table_uuid: str) -> Mapping[str, Cursor]:
        """Returns the cursor of each operation with a DONE batch on the table, by operation."""

    def start_attempt(
        self,
        lease: Lease,
        batch_id: str,
        run_id: str,
        write_ahead: Mapping[PartitionKey, PartitionHistory],
    ) -> Attempt:
        """Records STARTED and the write-ahead back-off of the batch's partitions in one transaction."""

    def record_intent(
        self, lease: Lease, attempt_id: str, files: tuple[WrittenFile, ...], proof: Proof
    ) -> None:
        """Records INTENT: the written files, before the first try to commit them."""

    def record_try(
        self, lease: Lease, attempt_id: str, base_snapshot_id: int, metadata_location: str
    ) -> None:
        """Records ATTEMPT: one try, before its compare-and-swap."""

    def finish_attempt(
        self,
        lease: Lease,
        attempt_id: str,
        status: BatchStatus,
        outcome: BatchOutcome,
        histories: Mapping[PartitionKey, PartitionHistory],
    ) -> None:
        """Records the outcome of an attempt, with batch status, cursor, back-off and hourly use, in one
        transaction."""

    def settle_attempt(
        self, lease: Lease, attempt_id: str, settlement: Settlement, status: BatchStatus
    ) -> None:
        """Records the settlement of an attempt that reported no outcome, and the status of its batch."""

    def open_attempts(self, table_uuid: str) -> tuple[Attempt, ...]:
        """Returns the attempts without an outcome and the UNKNOWN ones, oldest first."""

    def attempts_at(self, table_uuid: str, batch_id: str) -> tuple[Attempt, ...]:
        """Returns every attempt at a batch, oldest first, with any outcome."""

    def uncommitted_output(self, lease: Lease, batch_id: str, within_seconds: int) -> Attempt | None:
        """Returns the newest attempt at a batch that has written files which can be reused.

        Its process died before a known commit, or its commit failed for a reason other than the files. The
        batch has not changed since. The attempt that wrote the files, which may be an earlier one, began at
        most `within_seconds` ago.
        """

    def snapshot_before_files(self, attempt: Attempt) -> int | None:
        """Returns a snapshot that is older than every file of the attempt: the pinned one of its batch. None
        if the batch has other contents now than when the files were written."""


class Records(Protocol):
    """Outcomes of batches, records of runs, and how far these are recorded."""

    def append(self, record: Record) -> None:
        """Appends to the audit trail."""

    def newest(self, table: str | None, limit: int) -> tuple[Record, ...]:
        """Returns records, newest first."""

    def of_run(self, run_id: str) -> tuple[Record, ...]:
        """Returns the records of the runs whose id begins with this text, oldest first."""

    def last_proved(self, table: str) -> Record | None:
        """Returns the newest record of the table that has a committed batch with a proof of rows or positions."""

    def has_unrecorded_runs(self, table_uuid: str) -> bool:
        """Whether a run has ended attempts at the table that no record has. The run may still be running."""

    def unrecorded_runs(self, lease: Lease) -> tuple[RunTrace, ...]:
        """Returns earlier runs on the leased table with ended attempts that no record has: the run died, or
        the attempts were settled after it. `core.outcomes.unrecorded_runs.record_of` makes the records."""

    def last_report(self, table_uuid: str, operation: Operation) -> Report | None:
        """Returns the report of the last attempt at the operation that reported an outcome."""

    def last_outcomes(
        self, table_uuids: Collection[str], operation: Operation, each: int
    ) -> Mapping[str, tuple[BatchOutcome, ...]]:
        """Returns the last reported outcomes of an operation by table, at most `each` of a table, newest first."""

    def memory_uses(self, table_uuid: str, limit: int = 20) -> tuple[MemoryUse, ...]:
        """Returns estimated and measured memory of the last batches that applied equality deletes or ran
        out of memory while they did, newest first."""

    def commit_trials(
        self, table_uuid: str, operation: Operation, limit: int = 100
    ) -> tuple[CommitTrial, ...]:
        """Returns the last batches of the operation that landed or lost every try to other commits, oldest
        first."""

    def fleet_rewrites(self) -> tuple[CommitTrial, ...]:
        """Returns the newest rewrites of data files of all tables in the last days that landed, oldest first."""

    def fleet_spends(self, period_seconds: int) -> tuple[Spend, ...]:
        """Returns what each batch on data spent that ended in the period, and the bytes of each that began in it and
        has no outcome."""

    def past_work(
        self, table_uuids: Collection[str], days: int, each: int
    ) -> Mapping[str, tuple[PastWork, ...]]:
        """Returns the batches on data of the last days that reported an outcome, by table, at most the newest `each`."""

    def prune(self, table_uuid: str, keep_days: int) -> int:
        """Deletes records and ended work of a table that are older than `keep_days`, and the back-off of partitions that
        have been missing for so long. The newest record, open work, other back-off and fences stay. Returns the number of
        deleted rows."""

    def dropped_tables(self) -> tuple[DroppedTable, ...]:
        """Returns the tables that have work and no health, and that no owner has leased."""

    def prune_dropped(self, table_uuid: str, keep_days: int) -> int:
        """Deletes everything but the fence of a dropped table whose last work ended more than `keep_days` ago, unless an
        attempt is open. Returns the number of deleted rows."""


class HealthStore(Protocol):
    """Measurements and health of tables, and the histories that decisions need."""

    def put(self, measured: Measured) -> bool:
        """Stores health unless the stored health has a newer sequence number. Returns whether it stored it."""

    def put_unreadable(self, table_uuid: str, reading: PartitionHistory) -> None:
        """Stores how the table's metadata failed to be read. Its stored health no longer stands for the table as it is. The
        next stored health ends both. A table without stored health has the UUID `unmeasured_uuid`."""

    def get(self, table: TableId) -> Measured | None:
        """Returns the last stored health of the table with this name."""

    def get_all(self, tables: Collection[TableId]) -> Mapping[TableId, Measured]:
        """Returns the last stored health of those of the tables that have one."""

    def confirm(self, pointers: Mapping[str, str]) -> None:
        """Counts one more observation of each table, by UUID, whose stored health has this pointer: the table has
        not changed since."""

    def health_days(self, table_uuids: Collection[str]) -> Mapping[str, tuple[HealthDay, ...]]:
        """Returns the numbers of these tables by day, oldest first; at most 90 days each. A day without a new
        measurement has none."""

    def measurements(self, tables: Collection[TableId]) -> tuple[StoredMeasurement, ...]:
        """Returns what the stored health of these tables was measured from. It does not read the numbers."""

    def known_tables(self) -> tuple[KnownTable, ...]:
        """Returns the tables with stored health, by name."""

    def outdated_tables(self) -> tuple[str, ...]:
        """Returns the names of the tables whose health another version stored. They count as not measured."""

    def forget_table(self, table: TableId) -> None:
        """Deletes the stored health of a table that no longer exists. History and records stay."""

    def forget_unread(self, catalog: str, listed: Collection[TableId]) -> None:
        """Deletes how tables of the catalog that were never measured failed to be read, except of those that it lists."""

    def mark_governed(self, table: TableId) -> None:
        """Deletes the stored health of a table with read restrictions. Its records are returned without partition
        keys, paths and messages until new health is stored."""

    def missing_partitions(self, table: TableId) -> tuple[PartitionKey, ...]:
        """Returns the partition keys that earlier health of the table had and the stored health lacks."""

    def retired_partitions(self, table: TableId) -> tuple[PartitionKey, ...]:
        """Returns the partition keys that the last two or more successful observations lack."""

    def history(self, table_uuid: str, table: str, operation: Operation) -> TableHistory:
        """Returns back-off, quarantine, pause, use in this hour, unknown commits and the owner of a lease."""

    def histories(
        self, tables: Mapping[str, str], operations: Sequence[Operation] = DATA_OPERATIONS
    ) -> Mapping[tuple[str, Operation], TableHistory]:
        """Returns what `history` returns for each of the operations and tables, by UUID and operation.
        `tables` maps UUIDs to names. The number of statements does not grow with every table."""

    def set_partition_history(
        self, table_uuid: str, operation: str, histories: Mapping[PartitionKey, PartitionHistory]
    ) -> None:
        """Replaces back-off and quarantine of these partitions. `operation` may be `VERIFYING`."""


class Registry(Protocol):
    """Pauses, incidents, readers, locations, and waits for the budget of the fleet."""

    def now_ms(self) -> int:
        """Returns the time of the database's clock."""

    def installation(self) -> str:
        """Returns the id of this ledger, which identifies the installation in snapshot summaries. It never
        changes."""

    def pause(self, table: str, note: str, by: str = "") -> None:
        """Pauses a table. With table `*` it pauses all tables. `by` names the operator."""

    def pauses(self) -> tuple[StoredPause, ...]:
        """Returns the pauses in force: the fleet's first, then by name."""

    def resume(self, table: str, table_uuid: str | None = None) -> None:
        """Ends a pause. A table that was renamed after the pause, and not measured since, is found by
        `table_uuid`."""

    def pause_note(self, table_uuid: str, table: str) -> str | None:
        """Returns the note of the pause of the table or of the fleet. None without a pause."""

    def incidents(self) -> tuple[Incident, ...]:
        """Returns the open incidents, and those whose end a receiver has not taken yet."""

    def replace_incidents(self, lease: Lease, incidents: Sequence[Incident]) -> None:
        """Stores these incidents in place of all stored ones."""

    def readers(self, table_uuid: str) -> tuple[RegisteredReader, ...]:
        """Returns the registered readers of the table's changes, by name."""

    def put_reader(self, table_uuid: str, name: str, snapshot_id: int) -> None:
        """Registers a reader or stores its position, with the time of the database's clock."""

    def remove_reader(self, table_uuid: str, name: str) -> bool:
        """Deletes a reader. Returns whether it existed."""

    def location_owners(self, catalog: str) -> Mapping[TableId, StoredLocationOwner]:
        """Returns the last claims of the catalog's tables. Claims that another version stored are omitted."""

    def put_location_owners(
        self, catalog: str, stored: Mapping[TableId, StoredLocationOwner], dropped: Collection[TableId] = ()
    ) -> None:
        """Stores claims in place of earlier ones, and deletes those of dropped tables."""

    def fleet_waits(self) -> dict[WorkKey, FleetWait]:
        """Returns every partition that waits for the budget of the fleet."""

    def fleet_cycle_ms(self) -> int | None:
        """Returns when `replace_fleet_waits` was called last, by the database's clock. None after
        `replace_fleet_waits(None)`."""

    def replace_fleet_waits(self, waits: Mapping[WorkKey, FleetWait] | None) -> None:
        """Stores these waits in place of all stored ones, with the time of the cycle. None deletes the time, too: there is
        no budget."""


class Attestations(Protocol):
    """How far the commits of each table that claim to change no row are attested."""

    def get(self, table_uuid: str) -> Attestation | None:
        """Returns the attestation of the table. None before the first verdict."""

    def put(self, table_uuid: str, attested: Attestation) -> None:
        """Stores the attestation in place of an earlier one."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The parts of the ledger.

    Every write that takes a lease happens only while its owner and fence are current. Otherwise it raises
    FenceLostError. `close` closes the connections; the next call opens new ones.
    """

    leases: Leases
    work: Work
    records: Records
    health: HealthStore
    registry: Registry
    attestations: Attestations
    close: Callable[[], None]
