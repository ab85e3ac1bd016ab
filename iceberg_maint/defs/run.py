"""One maintenance run of one table, told to Dagster while it happens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import NoReturn

import dagster as dg

from iceberg_maint.core.health import PartitionHealth
from iceberg_maint.core.ids import TableId
from iceberg_maint.core.outcome import BatchOutcome, OperationOutcome, OutcomeStatus, together
from iceberg_maint.core.reasons import SENTENCES, Reason
from iceberg_maint.defs.checks import log_evaluations, partition_evaluations, table_evaluations
from iceberg_maint.defs.keys import FORCE_TAG, asset_key
from iceberg_maint.defs.lake import Lake, SessionFactory
from iceberg_maint.defs.metadata import Metadata, batch_metadata, nothing_due_metadata
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.maintain import BatchEnded, BatchStarted, Event, PlanReady, Request, maintain
from iceberg_maint.survey import survey

RETRIES = dg.RetryPolicy(max_retries=2, delay=30, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
"""For what passes by itself: an unreachable catalog, another run's lease, a Spark that will not
start. It is applied by hand: as the op's `retry_policy` Dagster would apply it to Terminate too
(op_execution_error_boundary), which is final here. Failed batches have the ledger's back-off."""
_PASSING_CODES = frozenset({"ICM-104", "ICM-109", "ICM-128"})
_DONE_WITHOUT_BATCH = frozenset({Reason.HEALTHY, Reason.EMPTY, Reason.NO_GAIN, Reason.OTHER_OPERATION})
_WELL = frozenset({OutcomeStatus.IMPROVED, OutcomeStatus.NO_OP})


class MaintenanceRun:
    """Runs `maintain` for the partitions of a Dagster run and logs each one's materialization
    after its last committed batch, so that a crash loses none of what was done."""

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        table: TableId,
        lake: Lake,
        prefix: Sequence[str],
        session: SessionFactory,
    ) -> None:
        self._context = context
        self._table = table
        self._lake = lake
        self._prefix = prefix
        self._key = asset_key(table, prefix)
        self._tools = lake.tools(table, cache(lambda: lake.engine_of(session)))
        self._open: dict[str, set[str]] = {}
        self._batches: dict[str, list[BatchOutcome]] = {}
        self._before: dict[str, PartitionHealth] = {}
        self._told: set[str] = set()
        self._evaluated: set[str] = set()

    def __call__(self) -> None:
        """Raises Failure when a batch failed or its commit is unknown, RetryRequested for what
        passes by itself; interrupts pass through."""
        context = self._context
        requested = _requested(context)
        with failures_told(context, self._lake):
            if not context.selected_asset_keys:
                survey(self._table, self._lake.policy_of, self._tools)
                self._evaluate_all(requested or frozenset())
                return
            outcomes = maintain(
                self._table,
                self._lake.policy_of,
                Request(
                    run_id=run_id_of(context),
                    partitions=requested,
                    force=context.run.tags.get(FORCE_TAG) == "true",
                ),
                self._tools,
                self._observe,
            )
        self._finish(together(outcomes), requested)

    # while it runs

    def _observe(self, event: Event) -> None:
        log = self._context.log
        if isinstance(event, PlanReady):
            batches = (*event.resumed, *event.plan.batches)
            self._open = {}
            for batch in batches:
                for partition in batch.partitions:
                    self._open.setdefault(partition, set()).add(batch.batch_id)
            log.info(
                f"{event.plan.operation}, plan {event.plan.plan_id}: {len(batches)} batches ({len(event.resumed)} resumed), "
                f"{sum(b.input_files for b in batches)} files, "
                f"{sum(b.input_bytes for b in batches)} bytes"
            )
        elif isinstance(event, BatchStarted):
            batch = event.batch
            log.info(f"batch {batch.batch_id}: {batch.input_files} files of {', '.join(batch.partitions)}")
        elif isinstance(event, BatchEnded):
            self._batch_ended(event)

    def _batch_ended(self, event: BatchEnded) -> None:
        outcome = event.outcome
        line = f"batch {outcome.batch_id}: {outcome.outcome} ({outcome.reason}) {outcome.message}".rstrip()
        (self._context.log.info if outcome.outcome in _WELL else self._context.log.error)(line)
        finished = []
        for partition in outcome.partitions:
            self._before.setdefault(partition, event.before[partition])
            self._batches.setdefault(partition, []).append(outcome)
            waiting = self._open.get(partition, set())
            waiting.discard(outcome.batch_id)
            if not waiting and self._well(partition):
                self._materialize_batches(partition, event.after[partition])
                finished.append(partition)
        self._evaluate(finished)

    def _well(self, partition: str) -> bool:
        """Whether the partition's batches went well; a stale one counts by its successor."""
        counting = [b for b in self._batches.get(partition, ()) if b.reason is not Reason.STALE]
        return bool(counting) and all(b.outcome in _WELL for b in counting)

    def _materialize_batches(self, partition: str, after: PartitionHealth) -> None:
        batches = [b for b in self._batches[partition] if b.reason is not Reason.STALE]
        self._materialize(
            partition,
            batch_metadata(self._before[partition], after, batches, self._context.run.run_id),
        )

    def _materialize(self, partition: str, metadata: Metadata) -> None:
        self._told.add(partition)
        self._context.log_event(dg.AssetMaterialization(self._key, partition=partition, metadata=metadata))

    # afterwards

    def _finish(self, outcome: OperationOutcome, requested: frozenset[str] | None) -> None:
        log = self._context.log
        measured = self._lake.ledger.health(self._table)
        failures, retry = [], outcome.reason is Reason.LEASE_HELD
        for partition, status, reason in outcome.partitions:
            if partition in self._told or (requested is not None and partition not in requested):
                continue
            health = measured.partitions.get(partition) if measured else None
            ended = any(b.reason is not Reason.STALE for b in self._batches.get(partition, ()))
            if status is OutcomeStatus.NO_OP and not ended and reason in _DONE_WITHOUT_BATCH:
                if requested is not None:
                    self._materialize(
                        partition,
                        nothing_due_metadata(health or PartitionHealth(), reason, self._context.run.run_id),
                    )
            elif status in (OutcomeStatus.FAILED, OutcomeStatus.UNKNOWN):
                failures.append(f"{partition}: {status} ({reason}) {self._message(partition)}".rstrip())
            elif status is OutcomeStatus.UNSUPPORTED:
                log.error(f"{partition}: UNSUPPORTED ({reason}): {SENTENCES[reason]}; left as it is")
            else:
                retry = retry or reason is Reason.LEASE_HELD
                log.warning(f"{partition}: left ({reason}): {SENTENCES[reason]}")
        self._evaluate_all(requested if requested is not None else frozenset(self._batches))
        log.info(f"{self._table}: {outcome.outcome} ({outcome.reason}): {SENTENCES[outcome.reason]}")
        if failures or outcome.outcome in (OutcomeStatus.FAILED, OutcomeStatus.UNKNOWN):
            raise dg.Failure(
                f"{self._table}: {outcome.outcome} ({outcome.reason}). "
                + "; ".join(failures or [outcome.message]),
                allow_retries=False,
            )
        if retry:
            retry_later(
                self._context, outcome.message or f"{self._table}: {SENTENCES[Reason.LEASE_HELD]}", None
            )

    def _message(self, partition: str) -> str:
        return next((b.message for b in reversed(self._batches.get(partition, [])) if b.message), "")

    def _evaluate_all(self, requested: frozenset[str]) -> None:
        self._evaluate([p for p in sorted(requested) if p not in self._evaluated])
        measured = self._lake.ledger.health(self._table)
        if measured is not None:
            history = self._lake.history(measured)
            log_evaluations(self._context, table_evaluations(self._table, self._prefix, history))

    def _evaluate(self, partitions: Sequence[str]) -> None:
        measured = self._lake.ledger.health(self._table) if partitions else None
        if measured is None:
            return
        self._evaluated.update(partitions)
        evaluations = partition_evaluations(
            self._context.instance,
            self._prefix,
            measured,
            self._lake.stored_policy(measured),
            self._lake.clock.now_ms(),
            partitions,
        )
        log_evaluations(self._context, evaluations)


def run_id_of(context: dg.AssetExecutionContext) -> str:
    """The run's id; each of Dagster's retries within it owns a lease of its own."""
    return context.run.run_id + (f"-{context.retry_number}" if context.retry_number else "")


@contextmanager
def failures_told(context: dg.AssetExecutionContext, lake: Lake) -> Iterator[None]:
    """Turns what is raised into Failure, or RetryRequested for what passes by itself, without
    secrets. Interrupts pass through."""
    try:
        yield
    except IcebergMaintError as error:
        why = lake.tellable(error)
        if error.code in _PASSING_CODES:
            retry_later(context, str(why), why)
        raise dg.Failure(str(why), allow_retries=False) from why
    except Exception as error:  # noqa: BLE001 - a hiccup is tried again, three times in all
        why = lake.tellable(error)
        retry_later(context, f"{type(why).__name__}: {why}", why)


def retry_later(context: dg.AssetExecutionContext, why: str, cause: Exception | None) -> NoReturn:
    """Asks Dagster for a retry after a growing wait. Raises RetryRequested."""
    context.log.warning(f"{why} Tried again {RETRIES.max_retries} times at most.")
    raise dg.RetryRequested(
        max_retries=RETRIES.max_retries,
        seconds_to_wait=RETRIES.calculate_delay(context.retry_number + 1),
    ) from cause


def _requested(context: dg.AssetExecutionContext) -> frozenset[str] | None:
    """The run's partitions; None for a run of the table without a partition key."""
    partitioned = context.has_partition_key or context.has_partition_key_range
    return frozenset(context.partition_keys) if partitioned else None
