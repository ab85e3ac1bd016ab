"""A run: its request, the events that it reports, and what it has done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from iceberg_maint.core.decisions.table_decision import Step
from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation, PartitionKey
from iceberg_maint.core.model.reasons import Decision, Reason
from iceberg_maint.core.outcomes.outcome import BatchOutcome, OperationOutcome
from iceberg_maint.core.planning.plan import Batch, Plan
from iceberg_maint.loop.assess import Assessment
from iceberg_maint.loop.context import Context
from iceberg_maint.ports.clock import Clock
from iceberg_maint.ports.engine import WorkProgress


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


class CurrentStep:
    """What an operation does now, for its progress. Another thread reads it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.enter("measuring")

    def enter(self, step: str, batch: Batch | None = None) -> None:
        """Notes what the operation does from now on."""
        self.name, self.batch = step, batch
        self._started_seconds = self._clock.monotonic_seconds()

    @property
    def seconds(self) -> float:
        """Since when the operation does it."""
        return self._clock.monotonic_seconds() - self._started_seconds


@dataclass(frozen=True, slots=True)
class Run:
    """One operation of a request: who asked for it, when it began, and what receives its events. `calls_before` are the calls of
    catalogs before it. `started_seconds` are those of the whole request."""

    step: Step
    request: Request
    context: Context
    observer: Observer
    started_seconds: float
    started_ms: int
    calls_before: int
    current: CurrentStep

    @property
    def operation(self) -> Operation:
        """The operation."""
        return self.step.operation


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why an operation ended before its work did. `failed`: an error or the time of the table ended it, not a person or
    the system."""

    reason: Reason
    message: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Results:
    """What an operation has done so far. `assessment` is the last that was planned, `snapshot_before` of the first.
    Outcomes before the one with number `replanned` were planned again. `leftovers` are due partitions that the plan leaves
    out. `message` is of files that are refused."""

    assessment: Assessment
    snapshot_before: int | None
    outcomes: tuple[BatchOutcome, ...] = ()
    replanned: int = 0
    plan_id: str | None = None
    leftovers: Mapping[PartitionKey, Reason] = field(default_factory=dict)
    message: str = ""
    stopped: Stopped | None = None

    @classmethod
    def on(cls, assessment: Assessment, stopped: Stopped | None = None) -> Results:
        """Returns the work on an assessment before its first batch."""
        return cls(assessment, assessment.decision.snapshot_id, stopped=stopped)

    def leaving(self, partitions: Iterable[PartitionKey], reason: Reason) -> Results:
        """Returns the work that leaves out these partitions too."""
        return replace(self, leftovers={**self.leftovers, **dict.fromkeys(partitions, reason)})

    def stop(self, reason: Reason, message: str = "", *, failed: bool = False) -> Results:
        """Returns the work that ends here."""
        return replace(self, stopped=Stopped(reason, message, failed))

    def final_outcomes(self) -> tuple[BatchOutcome, ...]:
        """Returns the outcomes that count. A stale batch that was planned again counts by the new plan only."""
        return tuple(
            o for n, o in enumerate(self.outcomes) if o.reason is not Reason.STALE or n >= self.replanned
        )


PROGRESS_SECONDS = 4
"""Seconds between two reports."""
_LAST_REPORT_SECONDS = 5


@contextmanager
def progress_reports(run: Run, table: str, every_seconds: float = PROGRESS_SECONDS) -> Iterator[None]:
    """Reports what the operation does now until the body ends, from a thread of its own.

    A report that fails does not end the operation, and the next one tries again. No report follows the body's
    end, unless an observer or an engine that does not answer blocks one.
    """
    stop = threading.Event()

    def report_until_stopped() -> None:
        while not stop.wait(every_seconds):
            with suppress(Exception):
                report = _progress(run, table)
                if not stop.is_set():
                    run.observer(report)

    thread = threading.Thread(target=report_until_stopped, name=f"progress {table}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(_LAST_REPORT_SECONDS)


def _progress(run: Run, table: str) -> Progress:
    batch = run.current.batch
    work = run.context.engine.progress() if batch is not None else None
    return Progress(table, run.operation, run.current.name, batch, round(run.current.seconds, 1), work)
