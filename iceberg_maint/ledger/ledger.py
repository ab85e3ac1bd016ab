"""`SqlLedger`: the ledger port on one database; each method is one transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import select

from iceberg_maint.core.alerts import Incident
from iceberg_maint.core.decisions.fleet_budget import Spend, WorkKey
from iceberg_maint.core.decisions.history import FleetWait, PartitionHistory, PastWork, TableHistory
from iceberg_maint.core.decisions.snapshot_retention import RegisteredReader
from iceberg_maint.core.health.changes import HealthDay
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import (
    DATA_OPERATIONS,
    READING,
    WHOLE_TABLE,
    Operation,
    PartitionKey,
    TableId,
)
from iceberg_maint.core.outcomes.outcome import BatchOutcome
from iceberg_maint.core.outcomes.record import Record, RunTrace, Settlement
from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.core.planning.batch_memory import MemoryUse
from iceberg_maint.core.planning.batch_trials import CommitTrial
from iceberg_maint.core.planning.plan import Plan
from iceberg_maint.core.removal.clock_skew import ClockMark
from iceberg_maint.ledger import (
    attempts,
    batches,
    dropped,
    fleet_spending,
    health_days,
    leases,
    records,
    registrations,
    table_health,
    table_histories,
)
from iceberg_maint.ledger import table_history as past
from iceberg_maint.ledger.database import Database
from iceberg_maint.ledger.health_days import UnpackedPartitions
from iceberg_maint.ledger.schema import db_now_ms, installation
from iceberg_maint.ports.engine import WrittenFile
from iceberg_maint.ports.stored import (
    Attempt,
    BatchStatus,
    Cursor,
    DroppedTable,
    KnownTable,
    Lease,
    Report,
    StoredBatch,
    StoredClaim,
    StoredMeasurement,
    StoredPause,
)

_NOW = select(db_now_ms())


class SqlLedger:
    """The ledger in the SQLite or PostgreSQL database at `url`; see `ports.ledger.Ledger`.

    Nothing is opened, created or migrated before the first call. Threads may share it. Raises
    ConfigurationError ICM-100 for another kind of URL and, from the first call, ICM-128 if the database
    cannot be used; OutOfOrderError for calls that break the order of a batch's rows.
    With `read_only` nothing is created, migrated or written.
    """

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self._database = Database(url, read_only=read_only)
        self._installation: str | None = None
        self._last_health = ("", "")
        self._unpacked = UnpackedPartitions()

    def close(self) -> None:
        """Closes the connections. The next call opens new ones."""
        self._database.close()

    def now_ms(self) -> int:
        with self._database.read() as conn:
            return conn.execute(_NOW).scalar_one()

    def installation(self) -> str:
        if self._installation is None:
            with self._database.read() as conn:
                self._installation = str(conn.execute(select(installation.c.id)).scalar_one())
        return self._installation

    # clocks
    def clock_mark(self, boot: str | None) -> ClockMark:
        with self._database.read() as conn:
            return registrations.clock_readings(conn, boot)

    def keep_clock_mark(self, boot: str | None, booted_ms: int | None, newest_ms: int) -> None:
        with self._database.write(f"clock {boot}") as conn:
            registrations.keep_clock(conn, boot, booted_ms, newest_ms)

    def accept_clock(self) -> None:
        with self._database.write("clock") as conn:
            registrations.accept_clock(conn)

    # leases
    def acquire_lease(
        self, table_uuid: str, table: str, owner: str, ttl_seconds: int, min_fence: int
    ) -> Lease | None:
        with self._database.write(table_uuid) as conn:
            return leases.acquire(conn, table_uuid, table, owner, ttl_seconds, min_fence)

    def lease_owner(self, table_uuid: str) -> tuple[str, int] | None:
        with self._database.read() as conn:
            return leases.owner_of(conn, table_uuid)

    def heartbeat(self, lease: Lease) -> bool:
        with self._database.write(lease.table_uuid) as conn:
            return leases.extend(conn, lease)

    def holds(self, lease: Lease) -> bool:
        with self._database.read() as conn:
            return leases.holds(conn, lease)

    def last_leased_name(self, table_uuid: str) -> str | None:
        with self._database.read() as conn:
            return leases.last_name(conn, table_uuid)

    def adopt_table(self, table_uuid: str, table: str) -> None:
        with self._database.write(table_uuid) as conn:
            leases.adopt(conn, table_uuid, table)

    def release_lease(self, lease: Lease) -> None:
        with self._database.write(lease.table_uuid) as conn:
            leases.release(conn, lease)

    # Dagster runs
    def record_run_heartbeat(self, run_id: str) -> None:
        with self._database.write(run_id) as conn:
            leases.record_heartbeat(conn, run_id)

    def end_run(self, run_id: str) -> None:
        with self._database.write(run_id) as conn:
            leases.end_run(conn, run_id)

    def run_heartbeats(self) -> Mapping[str, int]:
        with self._database.read() as conn:
            return leases.heartbeats(conn)

    # batches and attempts
    def save_plan(self, lease: Lease, plan: Plan, run_id: str) -> None:
        with self._database.write(lease.table_uuid) as conn:
            batches.save(conn, lease, plan, run_id)

    def open_batches(self, table_uuid: str, operation: Operation) -> tuple[StoredBatch, ...]:
        with self._database.read() as conn:
            return batches.open_batches(conn, table_uuid, operation)

    def open_operations(self, table_uuid: str) -> frozenset[Operation]:
        with self._database.read() as conn:
            return batches.open_operations(conn, table_uuid)

    def batch_of(self, attempt: Attempt) -> StoredBatch:
        with self._database.read() as conn:
            return batches.get(conn, attempt.batch_id)

    def snapshot_before_files(self, attempt: Attempt) -> int | None:
        with self._database.read() as conn:
            return attempts.snapshot_before_files(conn, attempt)

    def start_attempt(
        self, lease: Lease, batch_id: str, run_id: str, write_ahead: Mapping[PartitionKey, PartitionHistory]
    ) -> Attempt:
        with self._database.write(lease.table_uuid) as conn:
            return attempts.start(conn, lease, batch_id, run_id, write_ahead)

    def record_intent(
        self, lease: Lease, attempt_id: str, files: tuple[WrittenFile, ...], proof: Proof
    ) -> None:
        with self._database.write(lease.table_uuid) as conn:
            attempts.record_intent(conn, lease, attempt_id, files, proof)

    def record_try(
        self, lease: Lease, attempt_id: str, base_snapshot_id: int, metadata_location: str
    ) -> None:
        with self._database.write(lease.table_uuid) as conn:
            attempts.record_try(conn, lease, attempt_id, base_snapshot_id, metadata_location)

    def finish_attempt(
        self,
        lease: Lease,
        attempt_id: str,
        status: BatchStatus,
        outcome: BatchOutcome,
        histories: Mapping[PartitionKey, PartitionHistory],
    ) -> None:
        with self._database.write(lease.table_uuid) as conn:
            attempts.finish(conn, lease, attempt_id, status, outcome, histories)

    def open_attempts(self, table_uuid: str) -> tuple[Attempt, ...]:
        with self._database.read() as conn:
            return attempts.open_attempts(conn, table_uuid)

    def attempts_at(self, table_uuid: str, batch_id: str) -> tuple[Attempt, ...]:
        with self._database.read() as conn:
            return attempts.attempts_at(conn, table_uuid, batch_id)

    def uncommitted_output(self, lease: Lease, batch_id: str, within_seconds: int) -> Attempt | None:
        with self._database.read() as conn:
            return attempts.uncommitted_output(conn, lease, batch_id, within_seconds)

    def settle_attempt(
        self, lease: Lease, attempt_id: str, settlement: Settlement, status: BatchStatus
    ) -> None:
        with self._database.write(lease.table_uuid) as conn:
            attempts.settle(conn, lease, attempt_id, settlement, status)

    def close_batch(self, lease: Lease, batch_id: str, why: str) -> None:
        with self._database.write(lease.table_uuid) as conn:
            batches.close(conn, lease, batch_id, why)

    def cursors(self, table_uuid: str) -> Mapping[str, Cursor]:
        with self._database.read() as conn:
            return batches.cursors(conn, table_uuid)

    # history for decisions
    def history(self, table_uuid: str, table: str, operation: Operation) -> TableHistory:
        with self._database.read() as conn:
            return table_histories.read(conn, {table_uuid: table}, (operation,))[table_uuid, operation]

    def histories(
        self, tables: Mapping[str, str], operations: Sequence[Operation] = DATA_OPERATIONS
    ) -> Mapping[tuple[str, Operation], TableHistory]:
        with self._database.read() as conn:
            return table_histories.read(conn, tables, operations)

    def set_partition_history(
        self, table_uuid: str, operation: str, histories: Mapping[PartitionKey, PartitionHistory]
    ) -> None:
        with self._database.write(table_uuid) as conn:
            past.write(conn, table_uuid, operation, histories)

    def memory_uses(self, table_uuid: str, limit: int = 20) -> tuple[MemoryUse, ...]:
        with self._database.read() as conn:
            return past.memory_uses(conn, table_uuid, limit)

    def commit_trials(
        self, table_uuid: str, operation: Operation, limit: int = 100
    ) -> tuple[CommitTrial, ...]:
        with self._database.read() as conn:
            return past.commit_trials(conn, table_uuid, operation, limit)

    def last_report(self, table_uuid: str, operation: Operation) -> Report | None:
        with self._database.read() as conn:
            return past.last_report(conn, table_uuid, operation)

    def last_outcomes(
        self, table_uuids: Collection[str], operation: Operation, each: int
    ) -> Mapping[str, tuple[BatchOutcome, ...]]:
        with self._database.read() as conn:
            return table_histories.last_outcomes(conn, table_uuids, operation, each)

    # alerts
    def fleet_spends(self, period_seconds: int) -> tuple[Spend, ...]:
        with self._database.read() as conn:
            return fleet_spending.spends(conn, period_seconds)

    def fleet_rewrites(self, limit: int) -> tuple[CommitTrial, ...]:
        with self._database.read() as conn:
            return fleet_spending.rewrites(conn, limit)

    def past_work(
        self, table_uuids: Collection[str], days: int, each: int
    ) -> Mapping[str, tuple[PastWork, ...]]:
        with self._database.read() as conn:
            return fleet_spending.past_work(conn, table_uuids, days, each)

    def fleet_waits(self) -> dict[WorkKey, FleetWait]:
        with self._database.read() as conn:
            return fleet_spending.waits(conn)

    def fleet_passed_ms(self) -> int | None:
        with self._database.read() as conn:
            return fleet_spending.passed_ms(conn)

    def replace_fleet_waits(self, waits: Mapping[WorkKey, FleetWait]) -> None:
        with self._database.write("fleet waits") as conn:
            fleet_spending.replace_waits(conn, waits)

    def delete_fleet_waits(self) -> None:
        with self._database.write("fleet waits") as conn:
            fleet_spending.delete_waits(conn)

    def incidents(self) -> tuple[Incident, ...]:
        with self._database.read() as conn:
            return registrations.incidents(conn)

    def replace_incidents(self, lease: Lease, incidents: Sequence[Incident]) -> None:
        with self._database.write(lease.table_uuid) as conn:
            leases.require(conn, lease)
            registrations.replace_incidents(conn, incidents)

    def readers(self, table_uuid: str) -> tuple[RegisteredReader, ...]:
        with self._database.read() as conn:
            return registrations.readers_of_table(conn, table_uuid)

    def put_reader(self, table_uuid: str, name: str, snapshot_id: int) -> None:
        with self._database.write(table_uuid) as conn:
            registrations.put_reader(conn, table_uuid, name, snapshot_id)

    def remove_reader(self, table_uuid: str, name: str) -> bool:
        with self._database.write(table_uuid) as conn:
            return registrations.remove_reader(conn, table_uuid, name)

    def claims(self, catalog: str) -> Mapping[TableId, StoredClaim]:
        with self._database.read() as conn:
            return registrations.claims_of_catalog(conn, catalog)

    def put_claims(
        self, catalog: str, stored: Mapping[TableId, StoredClaim], dropped: Collection[TableId] = ()
    ) -> None:
        with self._database.write(f"claims {catalog}") as conn:
            registrations.put_claims(conn, catalog, stored, dropped)

    def pause(self, table: str, note: str, by: str = "") -> None:
        with self._database.write(f"pause {table}") as conn:
            past.set_pause(conn, table, note, by)

    def pauses(self) -> tuple[StoredPause, ...]:
        with self._database.read() as conn:
            return past.pauses(conn)

    def resume(self, table: str, table_uuid: str | None = None) -> None:
        with self._database.write(f"pause {table}") as conn:
            past.remove_pause(conn, table, table_uuid)

    def pause_note(self, table_uuid: str, table: str) -> str | None:
        with self._database.read() as conn:
            return past.pause_note(conn, table_uuid, table)

    # health and records
    def put_health(self, measured: Measured) -> bool:
        key = (measured.table_uuid, measured.metadata_location)
        if key == self._last_health:
            with self._database.read() as conn:
                if table_health.is_stored(conn, measured):
                    return True
        with self._database.write(measured.table_uuid, str(measured.table)) as conn:
            is_newest = table_health.put(conn, measured)
        self._last_health = key
        return is_newest

    def put_unreadable(self, table_uuid: str, reading: PartitionHistory) -> None:
        with self._database.write(table_uuid) as conn:
            past.write(conn, table_uuid, READING, {WHOLE_TABLE: reading})
            table_health.distrust(conn, table_uuid)

    def health(self, table: TableId) -> Measured | None:
        return self.healths((table,)).get(table)

    def healths(self, tables: Collection[TableId]) -> Mapping[TableId, Measured]:
        with self._database.read() as conn:
            return table_health.get_all(conn, tables, self._unpacked)

    def health_days(self, table_uuids: Collection[str]) -> Mapping[str, tuple[HealthDay, ...]]:
        with self._database.read() as conn:
            return health_days.read_days(conn, table_uuids)

    def measurements(self, tables: Collection[TableId]) -> tuple[StoredMeasurement, ...]:
        with self._database.read() as conn:
            return table_health.measurements(conn, tables)

    def confirm_health(self, pointers: Mapping[str, str]) -> None:
        with self._database.write(*sorted(pointers)) as conn:
            table_health.confirm(conn, pointers)

    def known_tables(self) -> tuple[KnownTable, ...]:
        with self._database.read() as conn:
            return table_health.known(conn)

    def outdated_tables(self) -> tuple[str, ...]:
        with self._database.read() as conn:
            return table_health.outdated(conn)

    def forget_table(self, table: TableId) -> None:
        with self._database.write(str(table)) as conn:
            table_health.forget(conn, table)

    def mark_governed(self, table: TableId) -> None:
        with self._database.write(str(table)) as conn:
            table_health.mark_governed(conn, table)

    def missing_partitions(self, table: TableId) -> tuple[PartitionKey, ...]:
        with self._database.read() as conn:
            return table_health.missing(conn, table)

    def retired_partitions(self, table: TableId) -> tuple[PartitionKey, ...]:
        with self._database.read() as conn:
            return table_health.retired(conn, table)

    def append_record(self, record: Record) -> None:
        with self._database.write(record.record_id) as conn:
            records.append(conn, record)

    def records(self, table: str | None, limit: int) -> tuple[Record, ...]:
        with self._database.read() as conn:
            return records.newest(conn, table, limit)

    def records_of_run(self, run_id: str) -> tuple[Record, ...]:
        with self._database.read() as conn:
            return records.of_run(conn, run_id)

    def last_proved(self, table: str) -> Record | None:
        with self._database.read() as conn:
            return records.last_proved(conn, table)

    def has_unrecorded_runs(self, table_uuid: str) -> bool:
        with self._database.read() as conn:
            return records.has_unrecorded(conn, table_uuid)

    def unrecorded_runs(self, lease: Lease) -> tuple[RunTrace, ...]:
        with self._database.read() as conn:
            return records.unrecorded(conn, lease)

    def prune(self, table_uuid: str, keep_days: int) -> int:
        with self._database.write(table_uuid) as conn:
            health_days.prune_days(conn, table_uuid, keep_days)
            return records.prune(conn, table_uuid, keep_days)

    def dropped_tables(self) -> tuple[DroppedTable, ...]:
        with self._database.read() as conn:
            return dropped.dropped_tables(conn)

    def prune_dropped(self, table_uuid: str, keep_days: int) -> int:
        with self._database.write(table_uuid) as conn:
            return dropped.delete_dropped_tables(conn, table_uuid, keep_days)
