"""The port to telemetry: receivers of the numbers of runs and of observed tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.reasons import Decision
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.ports.audit import Intent


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
        ...

    def operation_ended(self, record: Record, observe: Callable[[], Observation | None]) -> None:
        """Reports one recorded operation. `observe` returns the table's health after it; an implementation
        that does not need it does not call it."""
        ...

    def table_observed(self, observation: Observation) -> None:
        """Reports one measurement of a table."""
        ...

    def close(self) -> None:
        """Waits a short, limited time until the numbers are delivered."""
        ...


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
