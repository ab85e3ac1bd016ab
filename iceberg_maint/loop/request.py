"""A run: its request, the events that it reports, and what it does now."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from iceberg_maint.core.decisions.table_decision import Step
from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation, PartitionKey
from iceberg_maint.core.model.reasons import Decision
from iceberg_maint.core.outcomes.outcome import BatchOutcome, OperationOutcome
from iceberg_maint.core.planning.plan import Batch, Plan
from iceberg_maint.loop.context import Context
from iceberg_maint.ports.clock import Clock
from iceberg_maint.ports.engine import WorkProgress


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Request:
    """The operations to run on one table, in this order. `run_id` is unique per process run and owns the
    lease. `max_batches` limits the batches of all operations together. No batch starts after `max_seconds`, and an orphan
    scan ends then. `started_by` is who started the run. No batch starts once `must_yield` says so."""

    run_id: str
    partitions: frozenset[PartitionKey] | None = None
    max_batches: int | None = None
    force: bool = False
    operations: tuple[Operation, ...] = DATA_OPERATIONS
    started_by: str | None = None
    max_seconds: float | None = None
    must_yield: Callable[[], bool] = _never


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
