"""Automation conditions: the partitions and tables for which Dagster starts maintenance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from iceberg_maint.core.model.ids import Operation, PartitionKey, TableId
from iceberg_maint.core.model.reasons import CHECK_OF
from iceberg_maint.defs.automation.due_work import due_work, failed_checks
from iceberg_maint.defs.automation.ranges import MAX_PARTITIONS, MAX_RANGES, pick_ranges
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.loop.context import Context

DATA_FIRST_SECONDS = 3600
"""Housekeeping waits at most this long for a rewrite of the data that is due."""


class _Labelled(dg.AutomationCondition[dg.AssetKey]):
    """A condition whose label in Dagster's evaluation is the reason of its last result."""

    label = ""

    def get_label(self) -> str | None:
        """The reason. Dagster identifies the condition by its name, not by this."""
        return self.label or None


class MaintenanceDue(_Labelled):
    """True for the partitions that `core.decisions.decide` would run, from stored health and history.

    Dagster evaluates it first. A healthy table therefore costs no query of Dagster's storage. The decision includes back-off, quarantine, pauses, blackout hours, budgets
    and leases.
    """

    def __init__(self, table: TableId, context: Context, translator: IcebergTranslator) -> None:
        self._table, self._context = table, context
        self._partitions = translator.get_partitions_name(table)

    @property
    def name(self) -> str:
        return "maintenance_due"

    @property
    def description(self) -> str:
        """The rule and the reason. Dagster stores an evaluation if this text changed."""
        return (
            "Due by policy, not in back-off, quarantine or pause, not leased; at most "
            f"{MAX_RANGES} ranges and {MAX_PARTITIONS} partitions per tick. {self.label}"
        ).rstrip()

    def evaluate(self, context: dg.AutomationContext[dg.AssetKey]) -> dg.AutomationResult[dg.AssetKey]:
        """Narrows the candidates to the due partitions."""
        due = self.due()
        if not due:
            return dg.AutomationResult(context, true_subset=context.get_empty_subset())
        order = context.asset_graph_view.instance.get_dynamic_partitions(self._partitions)
        return dg.AutomationResult(
            context,
            true_subset=context.candidate_subset.compute_intersection_with_partition_keys(
                pick_ranges([PartitionKey(key) for key in order], due)
            ),
        )

    def due(self) -> Mapping[PartitionKey, float]:
        """Partition → score of the partitions that would run now. Sets the label."""
        work = due_work(self._context, self._table)
        self.label = f"maintenance due: {work.sentence}"
        return work.partitions


class HousekeepingDue(_Labelled):
    """True if the last evaluation of a housekeeping check failed and nothing delays its operation: no
    pause, blackout, back-off, quarantine or lease.

    While a rewrite of the table's data is due, it waits for the rewrite, at most `DATA_FIRST_SECONDS`: data
    that is always due must not let snapshots and manifests grow without end.

    Each check counts for its own operation only. Otherwise a check whose
    operation is in back-off would start runs for another operation that is not due. (One
    `any_checks_match` with `allow` per check is no alternative: its first evaluation removes checks from
    the asset graph's own set.)
    """

    def __init__(self, table: TableId, context: Context, translator: IcebergTranslator) -> None:
        self._table, self._context = table, context
        self._checks = {
            operation: translator.get_housekeeping_check_key(table, check.value)
            for operation, check in CHECK_OF.items()
        }

    @property
    def name(self) -> str:
        return "housekeeping_due"

    @property
    def description(self) -> str:
        """The rule and the reason. Dagster stores an evaluation if this text changed."""
        return (
            "A check failed, and its operation is enabled, not in back-off, quarantine or pause, not leased. "
            f"A due rewrite of the data comes first. {self.label}"
        ).rstrip()

    def evaluate(self, context: dg.AutomationContext[dg.AssetKey]) -> dg.AutomationResult[dg.AssetKey]:
        """True or false for the whole asset: it has no partitions. The cursor is the time since which the
        housekeeping waits for a rewrite of the data."""
        due = self.due(context.asset_graph_view.instance)
        names = ", ".join(o.value for o in due) or "nothing"
        cursor, waits = None, False
        if due and due_work(self._context, self._table).partitions:
            now_ms = self._context.clock.now_ms()
            cursor = context.cursor or str(now_ms)
            waits = now_ms - int(cursor) < DATA_FIRST_SECONDS * 1000
        self.label = f"housekeeping due: {names}{', after the due rewrite of the data' if waits else ''}"
        subset = context.candidate_subset if due and not waits else context.get_empty_subset()
        return dg.AutomationResult(context, true_subset=subset, cursor=cursor)

    def due(self, instance: dg.DagsterInstance) -> tuple[Operation, ...]:
        """The operations that would run now."""
        checks = {o: self._checks[o] for o in due_work(self._context, self._table).allowed}
        failed = failed_checks(instance, checks.values())
        return tuple(o for o, check in checks.items() if check in failed)


def maintenance_condition(
    table: TableId, context: Context, translator: IcebergTranslator
) -> dg.AutomationCondition[dg.AssetKey]:
    """Due and not in progress, whatever the result of the last check evaluation.

    The checks show the same health. A run that was terminated leaves evaluations without a result, so a
    condition on checks would stop the automation of its partitions.
    """
    due = MaintenanceDue(table, context, translator) & not_in_progress()
    return due.with_label("maintenance is due and not in progress")


def not_in_progress() -> dg.AutomationCondition[Any]:
    """No run or backfill works on the asset."""
    in_progress = dg.AutomationCondition.in_progress().with_label("a run is in progress")
    return (~in_progress).with_label("no run is in progress")


def housekeeping_condition(
    table: TableId, loop_context: Context, translator: IcebergTranslator
) -> dg.AutomationCondition[dg.AssetKey]:
    """A check requests an operation, nothing delays that operation, and neither the data nor the
    housekeeping of the table is in progress."""
    of_data = dg.AutomationCondition.any_deps_in_progress().with_label(
        "a run of the table's data is in progress"
    )
    due = (
        HousekeepingDue(table, loop_context, translator)
        & not_in_progress()
        & (~of_data).with_label("no run of the table's data is in progress")
    )
    return due.with_label("housekeeping is due and nothing is in progress")
