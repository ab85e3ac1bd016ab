"""Maintains a table's data and reports each partition to Dagster when it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

import dagster as dg

from iceberg_maint.core.health.metrics import Measured, PartitionHealth
from iceberg_maint.core.model.ids import DATA_OPERATIONS, PartitionKey, TableId, command_line
from iceberg_maint.core.model.reasons import SENTENCES, Reason, Verdict
from iceberg_maint.core.outcomes.outcome import (
    SUCCESSFUL,
    BatchOutcome,
    OperationOutcome,
    OutcomeStatus,
    combine_outcomes,
)
from iceberg_maint.defs.assets.metadata import (
    Metadata,
    batch_metadata,
    column_schema,
    cursor_metadata,
    nothing_due_metadata,
    rank,
)
from iceberg_maint.defs.assets.partition_checks import CheckedTable, log_evaluations, partition_evaluations
from iceberg_maint.defs.assets.table_card import TableView, stored_view
from iceberg_maint.defs.assets.table_checks import table_evaluations
from iceberg_maint.defs.automation.due_work import stored_decision, stored_policy, unknown_partitions
from iceberg_maint.defs.runs.kept_connections import kept_connections
from iceberg_maint.defs.runs.run_context import RunContext
from iceberg_maint.defs.runs.table_report import TableReports
from iceberg_maint.defs.runs.table_run import ReportsFactory, TableRun, report_failures, start_early
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.loop.assess import assess
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.maintain import BatchEnded, BatchStarted, Event, PlanReady
from iceberg_maint.report.deferrals import deferral, refusal
from iceberg_maint.report.formatting import counted, number, outcome_sentence, size

_DONE_WITHOUT_BATCH = frozenset({Reason.HEALTHY, Reason.NO_GAIN, Reason.OTHER_OPERATION})


class MaintenanceRun(TableRun):
    """Runs `maintain` for the partitions of a Dagster run.

    It logs a partition's materialization after the partition's last committed batch, so that a crash
    loses no report of committed work.
    """

    def __init__(
        self,
        context: RunContext,
        table: TableId,
        loop_context: Context,
        translator: IcebergTranslator,
        reports: ReportsFactory = TableReports,
    ) -> None:
        super().__init__(context, table, loop_context, translator, reports)
        self._key = translator.get_asset_key(table)
        self._table_uuid, self._operation = "", DATA_OPERATIONS[0]
        self._open: dict[PartitionKey, set[str]] = {}
        self._batches: dict[PartitionKey, list[BatchOutcome]] = {}
        self._before: dict[PartitionKey, PartitionHealth] = {}
        self._after: dict[PartitionKey, PartitionHealth] = {}
        self._counted: set[str] = set()
        self._materialized: set[PartitionKey] = set()
        self._evaluated: set[PartitionKey] = set()

    def __call__(self) -> None:
        """Raises Failure if a batch failed or its commit is unknown, RetryRequested for an error that
        ends by itself. Interrupts pass through."""
        context = self._context
        requested = self._requested = _requested(context)
        with report_failures(context, self._loop_context, self._evaluate_planned):
            if not context.selected_asset_keys:
                assess(self._table, self._loop_context)
                self._evaluate_all(requested or frozenset())
                return
            unknown = self._unknown(requested or frozenset())
            existing = None if requested is None else requested - unknown
            if existing != frozenset():
                self._start_spark()
            outcomes = () if existing == frozenset() else self._maintain(existing)
        with kept_connections(context.instance):
            if outcomes:
                self._finish(combine_outcomes(outcomes), existing, unknown)
            else:
                self._drop(unknown)

    def _start_spark(self) -> None:
        """Starts Spark if work is due by stored health. Spark then starts while the run measures and plans."""
        measured = self._loop_context.ledger.health.get(self._table)
        if measured is not None and stored_decision(self._loop_context, measured)[1].verdict is Verdict.RUN:
            start_early(self._loop_context.engine)

    def _unknown(self, requested: frozenset[PartitionKey]) -> frozenset[PartitionKey]:
        """The requested keys that no partition of the table has or had. Their checks pass: nothing is wrong
        with the table."""
        if not requested:
            return requested
        keys = unknown_partitions(self._loop_context, self._table, requested)
        if keys or self._loop_context.ledger.health.get(self._table) is None:
            # A partition may be newer than the stored health.
            assess(self._table, self._loop_context)
            keys = unknown_partitions(self._loop_context, self._table, requested)
        self._evaluate(sorted(keys), self._loop_context.ledger.health.get(self._table))
        return frozenset(keys)

    def _drop(self, unknown: frozenset[PartitionKey]) -> None:
        """Deletes these keys from the asset's partitions. Raises Failure that names them."""
        if not unknown:
            return
        name = self._translator.get_partitions_name(self._table)
        for key in sorted(unknown):
            self._context.instance.delete_dynamic_partition(name, key)
        listed = ", ".join(repr(key) for key in sorted(unknown))
        raise dg.Failure(
            f"ICM-126 {self._table} has and had no partition {listed}. The key was deleted from the asset's "
            f"partitions. Fix: list the keys with `{command_line('observe', str(self._table))}`.",
            allow_retries=False,
        )

    # during the run

    def _observe(self, event: Event) -> None:
        log = self._context.log
        if isinstance(event, PlanReady):
            batches = (*event.resumed, *event.plan.batches)
            self._table_uuid, self._operation = event.plan.table_uuid, event.plan.operation
            self._open = {}
            for batch in batches:
                for partition in batch.partitions:
                    self._open.setdefault(partition, set()).add(batch.batch_id)
            log.info(
                f"{event.plan.operation}, plan {event.plan.plan_id}: {counted(len(batches), 'batch', 'batches')} "
                f"({number(len(event.resumed))} resumed), {counted(sum(b.input_files for b in batches), 'file')}, "
                f"{size(sum(b.input_bytes for b in batches))}"
            )
        elif isinstance(event, BatchStarted):
            batch = event.batch
            log.info(
                f"batch {batch.batch_id}: {counted(batch.input_files, 'file')} of {', '.join(batch.partitions)}"
            )
        elif isinstance(event, BatchEnded):
            self._batch_ended(event)

    def _batch_ended(self, event: BatchEnded) -> None:
        outcome = event.outcome
        line = f"batch {outcome.batch_id}: {outcome.outcome} ({outcome.reason}) {outcome.message}".rstrip()
        self._log_batch(outcome, line)
        finished = []
        self._batch_outcomes.append((self._operation, outcome))
        cursors = cursor_metadata(self._loop_context.ledger.work.cursors(self._table_uuid), DATA_OPERATIONS)
        for partition in outcome.partitions:
            self._before.setdefault(partition, event.before[partition])
            self._batches.setdefault(partition, []).append(outcome)
            waiting = self._open.get(partition, set())
            waiting.discard(outcome.batch_id)
            if not waiting and self._succeeded(partition):
                self._after[partition] = event.after[partition]
                finished.append(partition)
        plan_ended = not any(self._open.values())
        measured = self._loop_context.ledger.health.get(self._table)
        view = self._view(measured)
        for partition in finished:
            # Earlier ones have none: it would repeat all batches on each partition.
            is_last = plan_ended and partition == finished[-1]
            proof = self._proof_metadata(self._table_uuid) | self._schema() if is_last else {}
            card = self._card(view, _became(partition, self._before[partition], event.after[partition]))
            self._materialize_batches(partition, event.after[partition], card, cursors | proof)
        self._evaluate(finished, measured)

    def _schema(self) -> Metadata:
        """The present columns. Empty if the table cannot be read now: the run goes on."""
        try:
            return column_schema(self._loop_context.catalogs.pin(self._table))
        except IcebergMaintError:
            return {}

    def _view(self, measured: Measured | None) -> Callable[[], TableView] | None:
        """The view of the table at this moment, which is computed once. None without stored health."""
        if measured is None:
            return None
        return cache(partial(stored_view, self._loop_context, measured, dict(self._after)))

    def _card(self, view: Callable[[], TableView] | None, event: str) -> Metadata:
        return {} if view is None else self._card_metadata(view, self._table_uuid, event)

    def _succeeded(self, partition: PartitionKey) -> bool:
        """Whether all batches of the partition succeeded. The successor of a stale batch counts in its place."""
        counting = [b for b in self._batches.get(partition, ()) if b.reason is not Reason.STALE]
        return bool(counting) and all(b.outcome in SUCCESSFUL for b in counting)

    def _materialize_batches(
        self, partition: PartitionKey, after: PartitionHealth, card: Metadata, cursors: Metadata
    ) -> None:
        batches = [b for b in self._batches[partition] if b.reason is not Reason.STALE]
        uncounted = [b for b in batches if b.batch_id not in self._counted]
        self._counted.update(b.batch_id for b in uncounted)
        run_id, before = self._context.run.run_id, self._before[partition]
        operations = {b.batch_id: operation for operation, b in self._batch_outcomes}
        self._materialize(
            partition,
            card | batch_metadata(before, after, batches, uncounted, operations, run_id) | cursors,
        )

    def _materialize(self, partition: PartitionKey, metadata: Metadata) -> None:
        self._materialized.add(partition)
        self._context.log_event(dg.AssetMaterialization(self._key, partition=partition, metadata=metadata))

    # after the run

    def _progress(self) -> str:
        planned = self._materialized | set(self._open) | set(self._batches)
        total = len(planned if self._requested is None else self._requested)
        return f"{len(self._materialized)} of {counted(total, 'partition')} done"

    def _evaluate_stopped(self) -> None:
        self._evaluate_all(frozenset(self._open) if self._requested is None else self._requested)

    def _finish(
        self,
        outcome: OperationOutcome,
        requested: frozenset[PartitionKey] | None,
        unknown: frozenset[PartitionKey],
    ) -> None:
        log = self._context.log
        measured = self._loop_context.ledger.health.get(self._table)
        failures, retry = [], outcome.reason is Reason.LEASE_HELD
        view = self._view(measured)
        for partition, status, reason in outcome.partitions:
            if partition in self._materialized or (requested is not None and partition not in requested):
                continue
            health = measured.partitions.get(partition) if measured else None
            ended = any(b.reason is not Reason.STALE for b in self._batches.get(partition, ()))
            if status is OutcomeStatus.NO_OP and not ended and reason in _DONE_WITHOUT_BATCH:
                if requested is not None:
                    self._materialize(
                        partition,
                        self._card(view, f"`{partition}`: nothing to do.")
                        | nothing_due_metadata(health or PartitionHealth(), reason, self._context.run.run_id),
                    )
            elif status in (OutcomeStatus.FAILED, OutcomeStatus.UNKNOWN):
                failures.append(f"{partition}: {status} ({reason}) {self._message(partition)}".rstrip())
            elif status is OutcomeStatus.UNSUPPORTED:
                refused = refusal(str(self._table), reason, measured)
                why = refused or self._message(partition) or f"{SENTENCES[reason]}."
                log.error(f"{partition}: UNSUPPORTED ({reason}): {why}")
            else:
                retry = retry or reason is Reason.LEASE_HELD
                why = outcome_sentence(outcome.outcome, reason, ran=False)
                log.warning(f"{partition}: not maintained ({reason}): {why}")
        self._evaluate_all(requested if requested is not None else frozenset(self._batches))
        if self._batch_outcomes and any(b.outcome not in SUCCESSFUL for _, b in self._batch_outcomes):
            self._proof_metadata(self._table_uuid)
        self._report_health(self._table_uuid)
        self._end(outcome, failures, waits=retry)
        self._drop(unknown)

    def _message(self, partition: PartitionKey) -> str:
        return next((b.message for b in reversed(self._batches.get(partition, [])) if b.message), "")

    def _evaluate_all(self, requested: frozenset[PartitionKey]) -> None:
        measured = self._loop_context.ledger.health.get(self._table)
        if measured is None:
            return
        history, decision = stored_decision(self._loop_context, measured)
        # Of a run without a partition key Dagster shows the evaluation that it planned, until one of any partition follows.
        partitions = requested or {p.partition for p in rank(decision)[:1]}
        self._evaluate([p for p in sorted(partitions) if p not in self._evaluated], measured)
        attested = self._loop_context.ledger.attestations.get(measured.table_uuid)
        log_evaluations(self._context, table_evaluations(self._table, self._translator, history, attested))

    def _evaluate(self, partitions: Sequence[PartitionKey], measured: Measured | None) -> None:
        if measured is None or not partitions:
            return
        self._evaluated.update(partitions)
        checked = CheckedTable(
            measured,
            stored_policy(self._loop_context, measured),
            self._loop_context.clock.now_ms(),
            deferral(stored_decision(self._loop_context, measured)[1]),
        )
        evaluations = partition_evaluations(self._context.instance, self._translator, checked, partitions)
        log_evaluations(self._context, evaluations)


def _became(partition: PartitionKey, before: PartitionHealth, after: PartitionHealth) -> str:
    return (
        f"`{partition}`: {counted(before.data_files, 'data file')} and "
        f"{counted(before.delete_files, 'delete file')} became {number(after.data_files)} and "
        f"{number(after.delete_files)}, {size(after.data_bytes)}."
    )


def _requested(context: RunContext) -> frozenset[PartitionKey] | None:
    """The run's partitions; None for a run of the table without a partition key."""
    partitioned = context.has_partition_key or context.has_partition_key_range
    return frozenset(map(PartitionKey, context.partition_keys)) if partitioned else None
