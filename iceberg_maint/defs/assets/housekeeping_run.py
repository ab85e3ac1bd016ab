"""The run of a table's housekeeping asset: manifests, snapshots and orphan files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import dagster as dg

from iceberg_maint.core.model.ids import ALL_OPERATIONS, HOUSEKEEPING_OPERATIONS, WHOLE_TABLE, Operation
from iceberg_maint.core.model.reasons import CHECK_OF, Reason
from iceberg_maint.core.outcomes.outcome import (
    SUCCESSFUL,
    BatchOutcome,
    OperationOutcome,
    OutcomeStatus,
    combine_outcomes,
)
from iceberg_maint.defs.assets.check_targets import last_results
from iceberg_maint.defs.assets.housekeeping_metadata import housekeeping_metadata
from iceberg_maint.defs.assets.metadata import cursor_metadata
from iceberg_maint.defs.assets.partition_checks import log_evaluations
from iceberg_maint.defs.assets.table_card import assessed_view
from iceberg_maint.defs.assets.table_checks import housekeeping_evaluations
from iceberg_maint.defs.automation.due_work import last_expiry, last_orphan_scan
from iceberg_maint.defs.names import APPROVE_TAG
from iceberg_maint.defs.runs.table_run import TableRun, report_failures
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.loop.assess import Assessment, assess
from iceberg_maint.loop.maintain import BatchEnded, Event, OperationEnded, PlanReady, Request, maintain
from iceberg_maint.ports.stored import Cursor, Report
from iceberg_maint.report.formatting import counted

_NOTHING_TO_DO = frozenset({Reason.HEALTHY})


class HousekeepingRun(TableRun):
    """Runs `maintain` for a table's housekeeping. The materialization reports what each operation did."""

    operations = HOUSEKEEPING_OPERATIONS
    _done = 0

    def __call__(self) -> None:
        """Raises Failure if an operation failed, was refused with a code or its commit is unknown, RetryRequested for an error
        that ends by itself. Interrupts pass through."""
        outcomes: tuple[OperationOutcome, ...] = ()
        with report_failures(self._context, self._loop_context, self._evaluate_planned):
            if self._context.selected_asset_keys:
                approved = self._context.run.tags.get(APPROVE_TAG)
                outcomes = self._maintain() if approved is None else self._approve(approved)
            assessment = assess(self._table, self._loop_context, ALL_OPERATIONS)
            last_scan = last_orphan_scan(self._loop_context, assessment.state.uuid)
            last = last_expiry(self._loop_context, assessment.state.uuid)
            evaluations = housekeeping_evaluations(assessment, self._translator, last_scan, last)
            log_evaluations(self._context, evaluations)
            if outcomes:
                cursors = self._loop_context.ledger.work.cursors(assessment.state.uuid)
                self._materialize(outcomes, assessment, last_scan, cursors)
        if outcomes:
            self._report_health(assessment.state.uuid)
            whole = combine_outcomes(outcomes)
            failures = [_sentence(b) for o in outcomes for b in o.batches if b.outcome not in SUCCESSFUL]
            failed = whole.outcome in (OutcomeStatus.FAILED, OutcomeStatus.UNKNOWN) or any(
                o.outcome is OutcomeStatus.UNSUPPORTED and o.reason is Reason.REFUSED for o in outcomes
            )
            self._end(whole, failures if failed else (), waits=whole.reason is Reason.LEASE_HELD)

    def _approve(self, digest: str) -> tuple[OperationOutcome, ...]:
        """Runs an orphan scan now, due or not, that moves exactly the orphans of the scan with this digest."""
        storage = self._loop_context.storage
        approving = replace(
            self._loop_context,
            storage=replace(
                storage, orphan_files=lambda table: storage.orphan_files(table).approving(digest)
            ),
        )
        request = Request(self._context.run.run_id, force=True, operations=(Operation.REMOVE_ORPHAN_FILES,))
        return maintain(self._table, request, approving, self._report)

    def _observe(self, event: Event) -> None:
        log = self._context.log
        if isinstance(event, PlanReady):
            batches = counted(len(event.plan.batches), "batch", "batches")
            log.info(f"{event.plan.operation}, plan {event.plan.plan_id}: {batches}")
        elif isinstance(event, BatchEnded):
            self._log_batch(event.outcome, _sentence(event.outcome))
        elif isinstance(event, OperationEnded):
            self._done += 1

    def _progress(self) -> str:
        return f"{self._done} of {counted(len(self.operations), 'operation')} done"

    def _evaluate_stopped(self) -> None:
        try:
            assessment = assess(self._table, self._loop_context, HOUSEKEEPING_OPERATIONS)
        except IcebergMaintError:
            names = (check.value for check in CHECK_OF.values())
            keys = [self._translator.get_housekeeping_check_key(self._table, name) for name in names]
            log_evaluations(self._context, last_results(self._context.instance, keys))
            raise
        last_scan = last_orphan_scan(self._loop_context, assessment.state.uuid)
        log_evaluations(self._context, housekeeping_evaluations(assessment, self._translator, last_scan))

    def _materialize(
        self,
        outcomes: tuple[OperationOutcome, ...],
        assessment: Assessment,
        last_scan: Report | None,
        cursors: Mapping[str, Cursor],
    ) -> None:
        self._batch_outcomes = [(o.operation, b) for o in outcomes for b in o.batches]
        uuid = assessment.state.uuid
        proof = self._proof_metadata(uuid) if self._batch_outcomes else {}
        if not _complete(outcomes):
            return
        run_id = self._context.run.run_id
        delete_after_seconds = assessment.policy.remove_orphan_files.delete_after_seconds
        metadata = self._card_metadata(lambda: assessed_view(self._loop_context, assessment), uuid)
        metadata |= housekeeping_metadata(outcomes, last_scan, delete_after_seconds, run_id)
        metadata |= proof
        metadata |= cursor_metadata(cursors, HOUSEKEEPING_OPERATIONS)
        self._context.log_event(
            dg.AssetMaterialization(self._translator.get_housekeeping_key(self._table), metadata=metadata)
        )


def _complete(outcomes: Sequence[OperationOutcome]) -> bool:
    """Whether a batch ran and did not only lose to other writers, or no operation that is turned on was due.

    A paused, delayed, refused or only advised operation makes the housekeeping incomplete.
    """
    if any(b.outcome is not OutcomeStatus.DEFERRED for o in outcomes for b in o.batches):
        return True
    enabled = [o for o in outcomes if o.reason is not Reason.DISABLED]
    return bool(enabled) and all(
        o.outcome is OutcomeStatus.NO_OP and (o.reason in _NOTHING_TO_DO or _gains_nothing(o))
        for o in enabled
    )


def _gains_nothing(outcome: OperationOutcome) -> bool:
    """Whether the operation was due and its plan was empty."""
    return any(reason is Reason.NO_GAIN for _, _, reason in outcome.partitions)


def _sentence(batch: BatchOutcome) -> str:
    counts = ", ".join(f"{value} {name}" for name, value in batch.counts.items() if value)
    scope = "table" if batch.partitions == (WHOLE_TABLE,) else ", ".join(batch.partitions)
    return f"batch {batch.batch_id} of the {scope}: {batch.outcome} ({batch.reason}) {counts} {batch.message}".rstrip()
