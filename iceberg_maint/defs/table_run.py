"""One run of Dagster's over one table: `maintain` called, told while it happens, and its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import NoReturn

import dagster as dg

from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation, TableId
from iceberg_maint.core.model.reasons import SENTENCES, Reason
from iceberg_maint.core.outcomes.outcome import OperationOutcome, OutcomeStatus
from iceberg_maint.defs.context import Lake, SessionFactory
from iceberg_maint.defs.names import FORCE_TAG
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.runner.maintain import Event, Request, maintain

RETRIES = dg.RetryPolicy(max_retries=2, delay=30, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
"""For what passes by itself: an unreachable catalog, another run's lease, a Spark that will not
start. It is applied by hand: as the op's `retry_policy` Dagster would apply it to Terminate too
(op_execution_error_boundary), which is final here. Failed batches have the ledger's back-off."""
WELL = frozenset({OutcomeStatus.IMPROVED, OutcomeStatus.NO_OP})
"""What is reported as it happens without an error."""
_PASSING_CODES = frozenset({"ICM-104", "ICM-109", "ICM-128"})


class TableRun(ABC):
    """A run of Dagster's that maintains one table; its kinds say of what they tell, and when."""

    operations: Sequence[Operation] = DATA_OPERATIONS

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        table: TableId,
        lake: Lake,
        translator: IcebergTranslator,
        session: SessionFactory,
    ) -> None:
        self._context, self._table, self._lake, self._translator = context, table, lake, translator
        self._tools = lake.tools(table, cache(lambda: lake.engine_of(session)))

    def _maintain(self, partitions: frozenset[str] | None = None) -> tuple[OperationOutcome, ...]:
        """The kind's operations, on these partitions or on all."""
        context = self._context
        # Each of Dagster's retries within a run owns a lease of its own.
        retry = f"-{context.retry_number}" if context.retry_number else ""
        request = Request(
            run_id=context.run.run_id + retry,
            partitions=partitions,
            force=context.run.tags.get(FORCE_TAG) == "true",
            operations=tuple(self.operations),
        )
        return maintain(self._table, self._lake.policy_of, request, self._tools, self._observe)

    @abstractmethod
    def _observe(self, event: Event) -> None:
        """Tells Dagster what has just happened."""

    def _end(self, outcome: OperationOutcome, failures: Sequence[str], *, waits: bool) -> None:
        """Says how it ended. Raises Failure where something failed or a commit is unknown,
        RetryRequested where it `waits` for what passes by itself."""
        self._context.log.info(
            f"{self._table}: {outcome.outcome} ({outcome.reason}): {SENTENCES[outcome.reason]}"
        )
        if failures or outcome.outcome in (OutcomeStatus.FAILED, OutcomeStatus.UNKNOWN):
            raise dg.Failure(
                f"{self._table}: {outcome.outcome} ({outcome.reason}). "
                + ("; ".join(failures) or outcome.message),
                allow_retries=False,
            )
        if waits:
            retry_later(
                self._context, outcome.message or f"{self._table}: {SENTENCES[Reason.LEASE_HELD]}", None
            )


@contextmanager
def report_failures(context: dg.AssetExecutionContext, lake: Lake) -> Iterator[None]:
    """Turns what is raised into Failure, or RetryRequested for what passes by itself, without
    secrets. Interrupts pass through."""
    try:
        yield
    except IcebergMaintError as error:
        why = lake.redacted_error(error)
        if error.code in _PASSING_CODES:
            retry_later(context, str(why), why)
        raise dg.Failure(str(why), allow_retries=False) from why
    except Exception as error:  # noqa: BLE001 - a hiccup is tried again, three times in all
        why = lake.redacted_error(error)
        retry_later(context, f"{type(why).__name__}: {why}", why)


def retry_later(context: dg.AssetExecutionContext, why: str, cause: Exception | None) -> NoReturn:
    """Asks Dagster for a retry after a growing wait. Raises RetryRequested."""
    context.log.warning(f"{why} Tried again {RETRIES.max_retries} times at most.")
    raise dg.RetryRequested(
        max_retries=RETRIES.max_retries,
        seconds_to_wait=RETRIES.calculate_delay(context.retry_number + 1),
    ) from cause
