"""Automation conditions: the partitions and tables for which Dagster starts maintenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from iceberg_maint.core.model.ids import Operation, PartitionKey, TableId
from iceberg_maint.core.model.reasons import CHECK_OF, Verdict
from iceberg_maint.defs.names import PARTITION_CHECKS
from iceberg_maint.defs.stored_health import allows, stored_decision
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.runner.runtime import Runtime

MAX_RANGES = 8
"""Contiguous ranges requested per table and tick at most; each becomes one run."""
MAX_PARTITIONS = 500
"""Partitions requested per table and tick at most."""

_FAILED = AssetCheckExecutionRecordStatus.FAILED


def pick_ranges(
    order: Sequence[PartitionKey],
    due: Mapping[PartitionKey, float],
    max_ranges: int = MAX_RANGES,
    max_partitions: int = MAX_PARTITIONS,
) -> set[PartitionKey]:
    """The contiguous ranges of due partitions with the highest scores, within both limits.

    `order` is Dagster's order of the partitions; `due` maps partition → score. Every range becomes one
    run, so scattered partitions need one run each.
    """
    pieces: list[list[PartitionKey]] = []
    open_piece = False
    for partition in order:
        if partition in due:
            if not open_piece:
                pieces.append([])
            pieces[-1].append(partition)
        open_piece = partition in due
    pieces.sort(key=lambda piece: -sum(due[p] for p in piece))
    picked: set[PartitionKey] = set()
    for piece in pieces[:max_ranges]:
        picked.update(piece[: max_partitions - len(picked)])
    return picked


class MaintenanceDue(dg.AutomationCondition[dg.AssetKey]):
    """True for the partitions that `core.decisions.decide` would run, from stored health and history.

    Dagster evaluates it first. A healthy table therefore costs one query of the ledger and no query
    of Dagster's storage. The decision includes back-off, quarantine, pauses, blackout hours, budgets
    and leases.
    """

    def __init__(self, table: TableId, runtime: Runtime, translator: IcebergTranslator) -> None:
        self._table, self._runtime = table, runtime
        self._partitions = translator.get_partitions_name(table)

    @property
    def name(self) -> str:
        return "maintenance_due"

    @property
    def description(self) -> str:
        return (
            "Due by policy, not in back-off, quarantine or pause, not leased; at most "
            f"{MAX_RANGES} ranges and {MAX_PARTITIONS} partitions per tick."
        )

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

    def due(self) -> dict[PartitionKey, float]:
        """Partition → score of the partitions that would run now."""
        measured = self._runtime.ledger.health(self._table)
        if measured is None:
            return {}
        decision = stored_decision(self._runtime, measured)[1]
        if decision.verdict is not Verdict.RUN:
            return {}
        return {p.partition: p.score for p in decision.due()}


class HousekeepingDue(dg.AutomationCondition[dg.AssetKey]):
    """True if the last evaluation of a housekeeping check failed and nothing delays its operation: no
    pause, blackout, back-off, quarantine or lease.

    It queries the ledger first. Each check counts for its own operation only. Otherwise a check whose
    operation is in back-off would start runs for another operation that is not due. (One
    `any_checks_match` with `allow` per check is no alternative: its first evaluation removes checks from
    the asset graph's own set.)
    """

    def __init__(self, table: TableId, runtime: Runtime, translator: IcebergTranslator) -> None:
        self._table, self._runtime = table, runtime
        self._checks = {
            operation: translator.get_housekeeping_check_key(table, check.value)
            for operation, check in CHECK_OF.items()
        }

    @property
    def name(self) -> str:
        return "housekeeping_due"

    @property
    def description(self) -> str:
        return (
            "A check failed, and its operation is enabled, not in back-off, quarantine or pause, not leased."
        )

    def evaluate(self, context: dg.AutomationContext[dg.AssetKey]) -> dg.AutomationResult[dg.AssetKey]:
        """True or false for the whole asset: it has no partitions."""
        due = self.due(context.asset_graph_view.instance)
        subset = context.candidate_subset if due else context.get_empty_subset()
        return dg.AutomationResult(context, true_subset=subset)

    def due(self, instance: dg.DagsterInstance) -> tuple[Operation, ...]:
        """The operations that would run now."""
        measured = self._runtime.ledger.health(self._table)
        if measured is None:
            return ()
        allowed = [o for o in self._checks if allows(self._runtime, measured, o)]
        if not allowed:
            return ()
        keys = [self._checks[o] for o in allowed]
        latest = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
        return tuple(
            o
            for o, key in zip(allowed, keys, strict=True)
            if (record := latest.get(key)) is not None and record.status is _FAILED
        )


def maintenance_condition(
    table: TableId, runtime: Runtime, translator: IcebergTranslator
) -> dg.AutomationCondition[dg.AssetKey]:
    """Due, not in progress, and a check failed, could not be evaluated, or no check was evaluated.

    Dagster knows no check of a partition that was observed between the launch of a run and its
    materialization: it uses the newest evaluation that was planned or made, and that one is older.
    """
    failed = dg.AutomationCondition.check_failed() | dg.AutomationCondition.execution_failed()
    checks = dg.AssetSelection.checks(*(translator.get_check_key(table, name) for name in PARTITION_CHECKS))
    any_check_failed = (
        dg.AutomationCondition.any_checks_match(failed).allow(checks).with_label("a check failed")
    )
    no_check_evaluated = dg.AutomationCondition.all_checks_match(dg.AutomationCondition.missing()).allow(
        checks
    )
    return (
        MaintenanceDue(table, runtime, translator)
        & (any_check_failed | no_check_evaluated)
        & ~dg.AutomationCondition.in_progress()
    )
