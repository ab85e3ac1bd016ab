"""What the ledger stores: leases, batches, attempts, cursors, pauses, and what is known of tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from iceberg_maint.core.decisions.history import Pause
from iceberg_maint.core.model.codec import digest
from iceberg_maint.core.model.ids import Operation, PartitionKey, TableId
from iceberg_maint.core.model.location import LocationOwner
from iceberg_maint.core.outcomes.outcome import BatchOutcome
from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.ports.engine import WrittenFile


def unmeasured_uuid(table: TableId) -> str:
    """Returns what stands for the UUID of a table that was never measured: nothing has read it. Those of one catalog begin
    with `unmeasured_prefix`."""
    return f"{unmeasured_prefix(table.catalog)}{digest(str(table))[:40]}"


@cache
def unmeasured_prefix(catalog: str) -> str:
    """Returns how the UUIDs of a catalog's tables that were never measured begin."""
    return f"{digest(catalog)[:16]}-"


KEPT_DAYS = 90
"""Days of which the ledger keeps the health of a table."""


@dataclass(frozen=True, slots=True)
class HealthDay:
    """The last measurement of a table on one day (UTC, days since epoch): metrics by name."""

    day: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class StoredLocationOwner:
    """The locations that a table owns by its metadata file `pointer`, which was current at `current_ms` by the
    ledger's clock."""

    pointer: str
    owner: LocationOwner
    current_ms: int


class BatchStatus(StrEnum):
    """The status of a persisted batch. DONE is final. FAILED and SUPERSEDED are final unless a later plan has
    the batch again."""

    PLANNED = "PLANNED"
    STARTED = "STARTED"
    DONE = "DONE"
    FAILED = "FAILED"
    SUPERSEDED = "SUPERSEDED"
    UNKNOWN = "UNKNOWN"


class AttemptStep(StrEnum):
    """The last step of an attempt that has reported no outcome."""

    STARTED = "STARTED"
    INTENT = "INTENT"
    ATTEMPT = "ATTEMPT"


AttemptStatus = AttemptStep | BatchStatus
"""The status of an attempt: its last step, or with an outcome the status that it gave its batch."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to maintain one table until it expires. `fence` grows with every lease of the table. `crashed_owner` let the
    lease before it expire, and had its last heartbeat at `crashed_beat_ms`, by the database's clock."""

    table_uuid: str
    table: str
    owner: str
    fence: int
    ttl_seconds: int
    crashed_owner: str | None = None
    crashed_beat_ms: int = 0


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A persisted batch."""

    batch: Batch
    status: BatchStatus
    plan_id: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a batch.

    `tries` has the base snapshot id and the metadata location of each prepared swap. `tried_ms` is when the
    last of them was recorded, by the database's clock. `files` is None until the INTENT is recorded.
    """

    attempt_id: str
    batch_id: str
    table_uuid: str
    operation: Operation
    run_id: str
    fence: int
    token: str
    partitions: tuple[PartitionKey, ...]
    status: AttemptStatus
    tries: tuple[tuple[int, str], ...] = ()
    tried_ms: int | None = None
    files: tuple[WrittenFile, ...] | None = None
    proof: Proof | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of an attempt, and when it was recorded by the database's clock."""

    recorded_ms: int
    outcome: BatchOutcome


@dataclass(frozen=True, slots=True)
class Cursor:
    """The progress of an operation on a table: its last DONE batch, and the snapshot after it.

    `plan_id` names the window, which is the plan of that batch. `window_batches` counts the stored batches
    of that plan, `window_done` those that are DONE. Without a stored batch `plan_id` is None and `partitions`
    is empty.
    """

    operation: str
    plan_id: str | None
    window_batches: int
    window_done: int
    batch_id: str
    partitions: tuple[PartitionKey, ...]
    snapshot_id: int | None
    fence: int
    advanced_ms: int


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """A table without health: it was dropped, or never measured. `idle_seconds` is the time since its last work ended."""

    table_uuid: str
    name: str
    idle_seconds: int


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A table with stored health. `pointer` is the catalog's token at that health."""

    table: TableId
    table_uuid: str
    pointer: str
    observed_ms: int


@dataclass(frozen=True, slots=True)
class StoredMeasurement:
    """What a table's stored health was measured from: the catalog's pointer, the basis of the measurement
    (`Measured.basis`) and the table properties that set its policy."""

    table: TableId
    table_uuid: str
    pointer: str
    basis: str
    maintenance_properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StoredPause:
    """A pause in the ledger. `table` is the name that was paused, `*` for the fleet. `table_uuid`
    identifies the table after a rename; None for the fleet and for a name without stored health."""

    table: str
    table_uuid: str | None
    pause: Pause
