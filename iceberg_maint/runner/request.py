"""Request, events and run: the input of one run, the events that it reports, and its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation, PartitionKey
from iceberg_maint.core.model.reasons import Decision, Reason
from iceberg_maint.core.outcomes.outcome import BatchOutcome, OperationOutcome
from iceberg_maint.core.planning.plan import Batch, Plan
from iceberg_maint.ports.engine import WorkProgress
from iceberg_maint.runner.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Request:
    """The operations to run on one table, in this order. `run_id` is unique per process run and owns the
    lease. `max_batches` limits the batches of all operations together. `started_by` is who started the run."""

    run_id: str
    partitions: frozenset[PartitionKey] | None = None
    max_batches: int | None = None
    force: bool = False
    operations: tuple[Operation, ...] = DATA_OPERATIONS
    started_by: str | None = None


@dataclass(frozen=True, slots=True)
class PlanReady:
    """A plan was made. The `resumed` batches of earlier runs are executed first."""

    plan: Plan
    decision: Decision
    resumed: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class BatchStarted:
    """A batch is about to be executed."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class BatchEnded:
    """A batch ended. `before` and `after` are the health of its partitions."""

    outcome: BatchOutcome
    before: Mapping[PartitionKey, PartitionHealth]
    after: Mapping[PartitionKey, PartitionHealth]


@dataclass(frozen=True, slots=True)
class OperationEnded:
    """An operation ended. The next one may follow."""

    outcome: OperationOutcome


@dataclass(frozen=True, slots=True)
class Progress:
    """An operation is still at work: on `step` since this many seconds. With a batch, `work` is the progress of
    the engine. Reported every few seconds, from another thread than the other events."""

    table: str
    operation: Operation
    step: str
    batch: Batch | None
    seconds: float
    work: WorkProgress | None


Event = PlanReady | BatchStarted | BatchEnded | OperationEnded | Progress
Observer = Callable[[Event], None]


@dataclass(slots=True)
class Run:
    """The state of one operation while it runs. `before_conversion` is that of its `Step`. `failed`:
    an error or the time of the table ended it, not a person or the system."""

    operation: Operation
    request: Request
    runtime: Runtime
    observer: Observer
    started_seconds: float
    started_ms: int
    outcomes: list[BatchOutcome] = field(default_factory=list)
    replanned: int = 0
    stopped_by: Reason | None = None
    plan_id: str | None = None
    leftovers: dict[PartitionKey, Reason] = field(default_factory=dict)
    message: str = ""
    failed: bool = False
    step: str = "measuring"
    batch: Batch | None = None
    step_started_seconds: float = 0.0
    calls_before: int = 0
    before_conversion: bool = False

    def enter(self, step: str, batch: Batch | None = None) -> None:
        """Notes what the operation does from now on, for its progress."""
        self.step, self.batch = step, batch
        self.step_started_seconds = self.runtime.clock.monotonic_seconds()
