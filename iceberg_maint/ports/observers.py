"""The ports to observers of maintenance: the audit log and the receivers of telemetry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Decision
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Intent:
    """What a run is going to do to a table, before its first batch: who, what, why and the state before.

    `run_id` names the run, its machine and process. `reasons` are those of the batches.
    """

    run_id: str
    table: str
    table_uuid: str
    operation: Operation
    plan_id: str | None
    batch_ids: tuple[str, ...]
    reasons: tuple[str, ...]
    partitions: int
    input_files: int
    input_bytes: int
    snapshot_before: int | None
    policy_digest: str
    started_ms: int


class Audit(Protocol):
    """The append-only log of maintenance. Every method is called by the holder of the table's lease. `prunes`: old
    entries are removed."""

    prunes: bool

    def begin(self, intent: Intent) -> None:
        """Appends the records that the log lacks, then the intent. Raises RefusedError ICM-144 if the log cannot be
        written and the configuration requires it; otherwise a failure is logged."""

    def settle(self, table: str, table_uuid: str) -> bool:
        """Appends every record of the table that the log lacks. Returns whether the log has all of them. Does not
        raise: the ledger keeps what could not be appended, and the next run appends it."""

    def prune(self, table: str, table_uuid: str) -> None:
        """Removes the oldest entries of the table by the configured retention. The caller has checked that the clocks
        agree. Does not raise: a failure is logged, and the next run tries again."""

    def records(self, table: str | None, say: Callable[[str], None]) -> tuple[Record, ...]:
        """Returns the records of the log, newest first, of one table or of all. Says what the log lacks."""


class NoAudit:
    """Stands in where no audit log is configured."""

    prunes = False

    def begin(self, intent: Intent) -> None:
        """Does nothing."""

    def settle(self, table: str, table_uuid: str) -> bool:  # noqa: ARG002 - the port's signature
        """Does nothing. The log lacks nothing."""
        return True

    def prune(self, table: str, table_uuid: str) -> None:
        """Does nothing."""

    def records(self, table: str | None, say: Callable[[str], None]) -> tuple[Record, ...]:  # noqa: ARG002 - same
        """Raises ConfigurationError ICM-100."""
        raise ConfigurationError(
            "ICM-100", "the configuration has no section audit.", "set audit.location to a location."
        )


NO_AUDIT = NoAudit()
"""Where no audit log is configured."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The health of a table, with the histories and the decisions of its operations, in the same order."""

    measured: Measured
    observed_ms: int
    decisions: tuple[Decision, ...] = ()
    histories: tuple[TableHistory, ...] = ()


class Telemetry(Protocol):
    """Takes numbers and returns at once. Never raises: a receiver that is down, slow or full delays and fails
    nothing."""

    def operation_started(self, intent: Intent) -> None:
        """Reports what a run is going to do to a table."""

    def operation_ended(self, record: Record, observe: Callable[[], Observation | None]) -> None:
        """Reports one recorded operation. `observe` returns the table's health after it; an implementation
        that does not need it does not call it."""

    def table_observed(self, observation: Observation) -> None:
        """Reports one measurement of a table."""

    def close(self) -> None:
        """Waits a short, limited time until the numbers are delivered."""


class NoTelemetry:
    """Stands in where no receiver is configured."""

    def operation_started(self, intent: Intent) -> None:
        """Does nothing."""

    def operation_ended(self, record: Record, observe: Callable[[], Observation | None]) -> None:
        """Does nothing."""

    def table_observed(self, observation: Observation) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


NO_TELEMETRY = NoTelemetry()
"""Where no receiver is configured."""
