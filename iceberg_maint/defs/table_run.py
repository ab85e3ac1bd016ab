"""One Dagster run over one table: calls `maintain`, reports its events, and ends the run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NoReturn

import dagster as dg

from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation, PartitionKey, TableId
from iceberg_maint.core.model.reasons import SENTENCES, Reason
from iceberg_maint.core.outcomes.outcome import OperationOutcome, OutcomeStatus
from iceberg_maint.defs.last_observation import store_run
from iceberg_maint.defs.names import FORCE_TAG
from iceberg_maint.defs.observe import Observation
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import IcebergMaintError, RefusedError
from iceberg_maint.report.progress_line import progress_line
from iceberg_maint.report.refusals import refusal
from iceberg_maint.runner.maintain import Event, Progress, Request, maintain
from iceberg_maint.runner.runtime import Runtime, SessionFactory

RETRIES = dg.RetryPolicy(max_retries=2, delay=30, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
"""Retries of errors that end by themselves: an unreachable catalog, another run's lease, a Spark that does
not start.

The code applies it, not the op's `retry_policy`: Dagster would then also retry a terminated run
(op_execution_error_boundary), which is final here. Failed batches wait by the ledger's back-off.
"""
SUCCESSFUL = frozenset({OutcomeStatus.IMPROVED, OutcomeStatus.NO_OP})
"""Outcomes that are logged without an error."""
_LOG_SECONDS = 6
"""Seconds between two lines of progress in Dagster's log, at least. Reports come more often."""
_TRANSIENT_CODES = frozenset({"ICM-104", "ICM-109", "ICM-128"})


class TableRun(ABC):
    """A Dagster run that maintains one table. Subclasses choose the operations and report the events."""

    operations: Sequence[Operation] = DATA_OPERATIONS

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        table: TableId,
        runtime: Runtime,
        translator: IcebergTranslator,
        session: SessionFactory,
    ) -> None:
        self._context, self._table, self._translator = context, table, translator
        self._runtime = runtime.on_session(session)
        self._requested: frozenset[PartitionKey] | None = None
        self._logged_seconds = 0.0

    def _maintain(self, partitions: frozenset[PartitionKey] | None = None) -> tuple[OperationOutcome, ...]:
        """Maintains these partitions, or all, with the operations of the class.

        If a user or the system terminates the run, it evaluates the checks and raises the interrupt with
        the completed work as its message.
        """
        context = self._context
        self._requested = partitions
        store_run(context.instance, self._translator.get_asset_key(self._table), context.run.run_id)
        # Each retry of Dagster within a run has its own lease.
        retry = f"-{context.retry_number}" if context.retry_number else ""
        request = Request(
            run_id=context.run.run_id + retry,
            partitions=partitions,
            force=context.run.tags.get(FORCE_TAG) == "true",
            operations=tuple(self.operations),
            started_by=_origin(context.run.tags),
        )
        try:
            return maintain(self._table, request, self._runtime, self._report)
        except (dg.DagsterExecutionInterruptedError, KeyboardInterrupt) as interrupt:
            message = f"{self._table}: stopped in order: {self._progress()}, the rest resumes"
            context.log.warning(message)
            try:
                self._evaluate_stopped()
            except Exception as error:  # noqa: BLE001 - an error must not take the place of the interrupt
                why = self._runtime.redacted_error(error)
                context.log.warning(f"{self._table}: checks not evaluated: {type(why).__name__}: {why}")
            # Without the trace of the place in the work where the interrupt arrived.
            raise type(interrupt)(message) from None

    @abstractmethod
    def _progress(self) -> str:
        """What the run had done when it was terminated."""

    @abstractmethod
    def _evaluate_stopped(self) -> None:
        """Evaluates the checks of a run that was terminated."""

    def _report_health(self) -> None:
        """Reports the table's health at the end of the run, as the observe job does. An error here does not
        change the result of the run: the sensor requests an observation."""
        try:
            observation = Observation(self._context, [self._table], self._runtime, self._translator)
            observation.observe_table(self._table)
        except Exception as error:  # noqa: BLE001 - the maintenance is done
            why = self._runtime.redacted_error(error)
            self._context.log.warning(f"{self._table}: health not reported: {type(why).__name__}: {why}")

    def _report(self, event: Event) -> None:
        """Reports an event to Dagster. Progress goes to the log, at most every `_LOG_SECONDS`."""
        if isinstance(event, Progress):
            now_seconds = self._runtime.clock.monotonic_seconds()
            if now_seconds - self._logged_seconds < _LOG_SECONDS:
                return
            self._logged_seconds = now_seconds
            line = progress_line(event.step, event.batch, event.seconds, event.work)
            self._context.log.info(f"{event.operation}: {line}")
        else:
            self._observe(event)

    @abstractmethod
    def _observe(self, event: Event) -> None:
        """Reports an event to Dagster."""

    def _end(self, outcome: OperationOutcome, failures: Sequence[str], *, waits: bool) -> None:
        """Logs the outcome. Raises Failure if an operation failed or a commit is unknown, RetryRequested
        if the run `waits` for a cause that ends by itself."""
        why = f"{SENTENCES[outcome.reason]}."
        if outcome.outcome is OutcomeStatus.UNSUPPORTED:
            why = str(self._refusal(outcome.reason) or why)
        self._context.log.info(f"{self._table}: {outcome.outcome} ({outcome.reason}): {why}")
        if failures or outcome.outcome in (OutcomeStatus.FAILED, OutcomeStatus.UNKNOWN):
            raise dg.Failure(
                f"{self._table}: {outcome.outcome} ({outcome.reason}). "
                + ("; ".join(failures) or outcome.message),
                allow_retries=False,
            )
        if waits:
            why = outcome.message or f"{self._table}: {self._refusal(Reason.LEASE_HELD)}"
            retry_later(self._context, why, None)

    def _refusal(self, reason: Reason) -> RefusedError | None:
        return refusal(str(self._table), reason, self._runtime.ledger.health(self._table))


def _origin(tags: Mapping[str, str]) -> str:
    """Who started the Dagster run, by its tags: a sensor, a schedule, a backfill, or a person."""
    for tag in ("sensor_name", "schedule_name", "backfill"):
        if name := tags.get(f"dagster/{tag}"):
            return f"Dagster, {tag.removesuffix('_name')} {name}"
    person = tags.get("user")
    return f"Dagster, {person}" if person else "Dagster, a person"


@contextmanager
def report_failures(context: dg.AssetExecutionContext, runtime: Runtime) -> Iterator[None]:
    """Turns errors into Failure, or into RetryRequested if they end by themselves, without secrets.
    Interrupts pass through."""
    try:
        yield
    except IcebergMaintError as error:
        why = runtime.redacted_error(error)
        if error.code in _TRANSIENT_CODES:
            retry_later(context, str(why), why)
        raise dg.Failure(str(why), allow_retries=False) from why
    except Exception as error:  # noqa: BLE001 - a transient error is retried, three attempts in all
        why = runtime.redacted_error(error)
        retry_later(context, f"{type(why).__name__}: {why}", why)


def retry_later(context: dg.AssetExecutionContext, why: str, cause: Exception | None) -> NoReturn:
    """Requests a retry after a growing wait. Raises RetryRequested."""
    context.log.warning(f"{why} Dagster retries at most {RETRIES.max_retries} times.")
    raise dg.RetryRequested(
        max_retries=RETRIES.max_retries,
        seconds_to_wait=RETRIES.calculate_delay(context.retry_number + 1),
    ) from cause
