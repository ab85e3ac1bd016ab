"""A Spark session that starts in the background before its first use."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import NoReturn

import dagster as dg

from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation, PartitionKey, TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import SUCCESSFUL, BatchOutcome, OperationOutcome, OutcomeStatus
from iceberg_maint.defs.assets.metadata import Metadata
from iceberg_maint.defs.assets.op_asset import omit_missing_outputs
from iceberg_maint.defs.assets.table_card import (
    MAX_CHARACTERS,
    PROOF,
    TableView,
    described,
    last_proof,
    proof_line,
    table_card,
)
from iceberg_maint.defs.automation.observations import store_run
from iceberg_maint.defs.names import CARD, FORCE_TAG, TABLE_TAG
from iceberg_maint.defs.runs.kept_connections import kept_connections
from iceberg_maint.defs.runs.run_context import ReportContext, RunContext
from iceberg_maint.defs.runs.table_report import ReportedRun, TableReports
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import IcebergMaintError, RefusedError
from iceberg_maint.loop.context import Context, EngineAccess
from iceberg_maint.loop.guards import TableTimeout
from iceberg_maint.loop.maintain import Event, Progress, Request, maintain
from iceberg_maint.report.certificate import Certificate, CertifiedRun, certificate_markdown, certificate_of
from iceberg_maint.report.deferrals import refusal
from iceberg_maint.report.formatting import outcome_sentence, progress_line


def start_early(engine: EngineAccess) -> None:
    """Begins to start the engine in another thread. Its first use waits for that, and raises what it raises again."""

    def start() -> None:
        with suppress(Exception):
            engine().start()

    # A daemon: a run that needs no engine after all ends without waiting for it.
    threading.Thread(target=start, name="start of Spark", daemon=True).start()


RETRIES = dg.RetryPolicy(max_retries=2, delay=30, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
"""Retries of errors that end by themselves: an unreachable catalog, another run's lease, a Spark that does
not start.

The code applies it, not the op's `retry_policy`: Dagster would then also retry a terminated run
(op_execution_error_boundary), which is final here. Failed batches wait by the ledger's back-off.
"""
_ORIGINS = {
    "dagster/sensor_name": "sensor",
    "dagster/schedule_name": "schedule",
    "dagster/backfill": "backfill",
}
ReportsFactory = Callable[[ReportContext, Context, IcebergTranslator], TableReports]
"""Makes the report of a table's health at the end of a run."""
_LOG_SECONDS = 6
"""Seconds between two lines of progress in Dagster's log, at least. Reports come more often."""
_TRANSIENT_CODES = frozenset({"ICM-104", "ICM-109", "ICM-128", "ICM-161"})


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What a run starts at most: so many batches, none after so many seconds, and none once it `must_yield` to others."""

    max_batches: int | None = None
    max_seconds: float | None = None
    must_yield: Callable[[], bool] = lambda: False


class TableRun(ABC):
    """A Dagster run that maintains one table. Subclasses choose the operations and report the events."""

    operations: Sequence[Operation] = DATA_OPERATIONS
    limits = RunLimits()

    def __init__(
        self,
        context: RunContext,
        table: TableId,
        loop_context: Context,
        translator: IcebergTranslator,
        reports: ReportsFactory = TableReports,
    ) -> None:
        self._context, self._table, self._translator = context, table, translator
        self._reports = reports
        self._loop_context = loop_context
        self._requested: frozenset[PartitionKey] | None = None
        self._sizes_before: tuple[int, ...] = ()
        self._started_ms = loop_context.clock.now_ms()
        self._batch_outcomes: list[tuple[Operation, BatchOutcome]] = []
        omit_missing_outputs(context.log)
        self._logged_seconds = 0.0

    def _maintain(self, partitions: frozenset[PartitionKey] | None = None) -> tuple[OperationOutcome, ...]:
        """Maintains these partitions, or all, with the operations of the class.

        If a user or the system terminates the run, it evaluates the checks and raises the interrupt with
        the completed work as its message.
        """
        context = self._context
        self._requested = partitions
        with kept_connections(context.instance):
            store_run(context.instance, self._translator.get_asset_key(self._table), context.run.run_id)
            if TABLE_TAG not in context.run.tags:
                context.instance.add_run_tags(context.run.run_id, {TABLE_TAG: str(self._table)})
        # Each retry of Dagster within a run has its own lease.
        retry = f"-{context.retry_number}" if context.retry_number else ""
        request = Request(
            run_id=context.run.run_id + retry,
            partitions=partitions,
            force=context.run.tags.get(FORCE_TAG) == "true",
            operations=tuple(self.operations),
            started_by=started_in_dagster(context.run.tags),
            max_batches=self.limits.max_batches,
            max_seconds=self.limits.max_seconds,
            must_yield=self.limits.must_yield,
        )
        measured = self._loop_context.ledger.health.get(self._table)
        self._sizes_before = measured.total().size_histogram if measured is not None else ()
        try:
            return maintain(self._table, request, self._loop_context, self._report)
        except TableTimeout as timeout:
            raise timeout.error from None
        except (dg.DagsterExecutionInterruptedError, KeyboardInterrupt) as interrupt:
            message = f"{self._table}: stopped in order: {self._progress()}, the rest resumes"
            context.log.warning(message)
            self._evaluate_planned()
            # Without the trace of the place in the work where the interrupt arrived.
            raise type(interrupt)(message) from None

    def _evaluate_planned(self) -> None:
        """Evaluates the checks of a run that stops early: what it planned and leaves without a result is grey in Dagster."""
        try:
            self._evaluate_stopped()
        except Exception as error:  # noqa: BLE001 - it must not take the place of the cause
            why = self._loop_context.process.redacted_error(error)
            self._context.log.warning(f"{self._table}: checks not evaluated: {type(why).__name__}: {why}")

    @abstractmethod
    def _progress(self) -> str:
        """What the run had done when it was terminated."""

    @abstractmethod
    def _evaluate_stopped(self) -> None:
        """Evaluates the checks of a run that was terminated or failed."""

    def _report_health(self, table_uuid: str) -> None:
        """Reports the table's health at the end of the run, as the observe job does. An error here does not
        change the result of the run: the sensor requests an observation."""
        try:
            reports = self._reports(self._context, self._loop_context, self._translator)
            committed = any(b.snapshot_after is not None for _, b in self._batch_outcomes)
            sizes_before = self._sizes_before if committed else ()
            reports.report(self._table, ReportedRun(sizes_before, self._last_proof(table_uuid)))
        except Exception as error:  # noqa: BLE001 - the maintenance is done
            why = self._loop_context.process.redacted_error(error)
            self._context.log.warning(f"{self._table}: health not reported: {type(why).__name__}: {why}")

    def _described(self, describe: Callable[[], str]) -> dg.MarkdownMetadataValue:
        return described(self._loop_context, self._context.log, self._table, describe)

    def _proof_metadata(self, table_uuid: str) -> Metadata:
        """The certificate of this run so far. It is logged too."""
        text = self._described(lambda: certificate_markdown(self._certificate(table_uuid)))
        self._context.log.info(text.value)
        # Behind a button, which opens it at its full width.
        return {PROOF: dg.MetadataValue.md(text.value.ljust(MAX_CHARACTERS + 1))}

    def _card_metadata(self, view: Callable[[], TableView], table_uuid: str, event: str = "") -> Metadata:
        """The table card at this moment. `event` says what happened to a partition."""

        def card() -> str:
            proof = self._last_proof(table_uuid) or last_proof(self._loop_context, str(self._table))
            run_id = self._context.run.run_id
            return table_card(
                replace(view(), before=self._sizes_before, proof=proof, event=event, run_id=run_id)
            )

        return {CARD: self._described(card)}

    def _last_proof(self, table_uuid: str) -> str:
        """The line of the proof of this run so far; empty without a commit."""
        proved = self._certificate(table_uuid)
        return proof_line(proved) if proved.committed else ""

    def _certificate(self, table_uuid: str) -> Certificate:
        """The certificate of the batches of this run so far."""
        run = self._context.run
        certified = CertifiedRun(
            run.run_id,
            str(self._table),
            table_uuid,
            started_in_dagster(run.tags),
            self._started_ms,
            self._loop_context.clock.now_ms(),
        )
        return certificate_of(certified, self._batch_outcomes)

    def _report(self, event: Event) -> None:
        """Reports an event to Dagster. Progress goes to the log, at most every `_LOG_SECONDS`."""
        if isinstance(event, Progress):
            now_seconds = self._loop_context.clock.monotonic_seconds()
            if now_seconds - self._logged_seconds < _LOG_SECONDS:
                return
            self._logged_seconds = now_seconds
            line = progress_line(event.step, event.batch, event.seconds, event.work)
            self._context.log.info(f"{event.operation}: {line}")
        else:
            with kept_connections(self._context.instance):
                self._observe(event)

    def _log_batch(self, outcome: BatchOutcome, line: str) -> None:
        """Logs the end of a batch. Only a failure is an error: work that other writers delayed is tried again."""
        log = self._context.log
        deferred = outcome.outcome is OutcomeStatus.DEFERRED
        write = log.info if outcome.outcome in SUCCESSFUL else log.warning if deferred else log.error
        write(line)

    @abstractmethod
    def _observe(self, event: Event) -> None:
        """Reports an event to Dagster."""

    def _end(self, outcome: OperationOutcome, failures: Sequence[str], *, waits: bool) -> None:
        """Logs the outcome. Raises Failure if an operation failed or a commit is unknown, RetryRequested
        if the run `waits` for a cause that ends by itself."""
        why = f"{outcome_sentence(outcome.outcome, outcome.reason, ran=bool(outcome.batches))}."
        if outcome.outcome is OutcomeStatus.UNSUPPORTED:
            why = str(self._refusal(outcome.reason) or outcome.message or why)
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
        return refusal(str(self._table), reason, self._loop_context.ledger.health.get(self._table))


def started_in_dagster(tags: Mapping[str, str]) -> str:
    """Who started the run, by its tags."""
    for tag, what in _ORIGINS.items():
        if tag in tags:
            return f"Dagster {what} {tags[tag]}"
    return f"{tags['user']} in Dagster" if "user" in tags else "a person in Dagster"


@contextmanager
def report_failures(
    context: RunContext, loop_context: Context, evaluate: Callable[[], None]
) -> Iterator[None]:
    """Turns errors into Failure, or into RetryRequested if they end by themselves, without secrets. Calls `evaluate` before.
    Interrupts pass through."""
    try:
        yield
    except IcebergMaintError as error:
        why = loop_context.process.redacted_error(error)
        evaluate()
        if error.code in _TRANSIENT_CODES:
            retry_later(context, str(why), why)
        raise dg.Failure(str(why), allow_retries=False) from why
    except Exception as error:  # noqa: BLE001 - a transient error is retried, three attempts in all
        why = loop_context.process.redacted_error(error)
        evaluate()
        retry_later(context, f"{type(why).__name__}: {why}", why)


def retry_later(context: RunContext, why: str, cause: Exception | None) -> NoReturn:
    """Requests a retry after a growing wait. Raises RetryRequested."""
    context.log.warning(f"{why} Dagster retries at most {RETRIES.max_retries} times.")
    raise dg.RetryRequested(
        max_retries=RETRIES.max_retries,
        seconds_to_wait=RETRIES.calculate_delay(context.retry_number + 1),
    ) from cause
