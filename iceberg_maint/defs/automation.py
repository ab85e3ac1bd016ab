"""The gate of automation: which partitions maintenance would be started for right now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.model.reasons import CHECK_OF, Verdict
from iceberg_maint.defs.names import PARTITION_CHECKS
from iceberg_maint.defs.stored_health import allows, stored_decision
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.runner.runtime import Runtime

MAX_RANGES = 8
"""Contiguous pieces requested per table and tick; each becomes one run."""
MAX_PARTITIONS = 500
"""Partitions requested per table and tick."""

_FAILED = AssetCheckExecutionRecordStatus.FAILED


def pick_ranges(
    order: Sequence[str],
    due: Mapping[str, float],
    max_ranges: int = MAX_RANGES,
    max_partitions: int = MAX_PARTITIONS,
) -> set[str]:
    """Of the contiguous pieces of due partitions, in Dagster's order, the heaviest within the
    caps. `due` maps partition → score. Scattered partitions would start one run each."""
    pieces: list[list[str]] = []
    open_piece = False
    for partition in order:
        if partition in due:
            if not open_piece:
                pieces.append([])
            pieces[-1].append(partition)
        open_piece = partition in due
    pieces.sort(key=lambda piece: -sum(due[p] for p in piece))
    picked: set[str] = set()
    for piece in pieces[:max_ranges]:
        picked.update(piece[: max_partitions - len(picked)])
    return picked


class MaintenanceDue(dg.AutomationCondition[dg.AssetKey]):
    """True for the partitions that `core.decisions.decide` would run, from stored health and history.

    It stands first in the condition, so that healthy tables cost one look at the ledger and no
    query of Dagster's storage. Back-off, quarantine, pauses, blackout hours, budgets and leases
    are part of the decision.
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
            "due by policy, not in back-off, quarantine or pause, not leased; at most "
            f"{MAX_RANGES} ranges and {MAX_PARTITIONS} partitions per tick"
        )

    def evaluate(self, context: dg.AutomationContext[dg.AssetKey]) -> dg.AutomationResult[dg.AssetKey]:
        """Narrows the candidates to what is due."""
        due = self.due()
        if not due:
            return dg.AutomationResult(context, true_subset=context.get_empty_subset())
        order = context.asset_graph_view.instance.get_dynamic_partitions(self._partitions)
        return dg.AutomationResult(
            context,
            true_subset=context.candidate_subset.compute_intersection_with_partition_keys(
                pick_ranges(order, due)
            ),
        )

    def due(self) -> dict[str, float]:
        """Partition → score of what would run now."""
        measured = self._runtime.ledger.health(self._table)
        if measured is None:
            return {}
        decision = stored_decision(self._runtime, measured)[1]
        if decision.verdict is not Verdict.RUN:
            return {}
        return {p.partition: p.score for p in decision.due()}


class HousekeepingDue(dg.AutomationCondition[dg.AssetKey]):
    """True when the last evaluation of a check of housekeeping failed and nothing holds the
    operation it asks for back: no pause, blackout, back-off, quarantine or lease.

    The ledger is asked first. Each check counts for its own operation only: else one in back-off
    would start runs for another that is not due. (`any_checks_match` with `allow`, once per check,
    does not do: it cuts down the asset graph's own set of checks at its first evaluation.)
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
            "a check failed, and its operation is enabled, not in back-off, quarantine or pause, not leased"
        )

    def evaluate(self, context: dg.AutomationContext[dg.AssetKey]) -> dg.AutomationResult[dg.AssetKey]:
        """All or nothing: the asset has no partitions."""
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
    """Due, and a check says so, or could not say, or none says anything, and not already on its way.

    Dagster knows no check of a partition that was observed between the launch of a run and its
    materialization: it takes the evaluation planned or made last, which is older than that.
    """
    failed = dg.AutomationCondition.check_failed() | dg.AutomationCondition.execution_failed()
    checks = dg.AssetSelection.checks(*(translator.get_check_key(table, name) for name in PARTITION_CHECKS))
    says_so = dg.AutomationCondition.any_checks_match(failed).allow(checks).with_label("a check failed")
    says_nothing = dg.AutomationCondition.all_checks_match(dg.AutomationCondition.missing()).allow(checks)
    return (
        MaintenanceDue(table, runtime, translator)
        & (says_so | says_nothing)
        & ~dg.AutomationCondition.in_progress()
    )
