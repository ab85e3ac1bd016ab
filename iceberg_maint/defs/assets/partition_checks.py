"""The texts of the checks: the criterion of each, and a finding as a sentence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster_shared.serdes import serialize_value

from iceberg_maint.core.decisions.applicability import partition_findings
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.core.model.reasons import Finding, Severity
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.defs.assets.check_targets import materialization_targets
from iceberg_maint.defs.assets.metadata import text_value
from iceberg_maint.defs.assets.table_specs import DESCRIPTIONS
from iceberg_maint.defs.automation.observations import finished_runs
from iceberg_maint.defs.dagster_internals import CheckStatus, CheckTarget
from iceberg_maint.defs.names import PARTITION_CHECKS
from iceberg_maint.defs.runs.kept_connections import kept_connections, one_transaction
from iceberg_maint.defs.runs.run_context import ReportContext
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import printable
from iceberg_maint.report.comparisons import limits


def finding_sentence(finding: Finding) -> str:
    """The metric of a finding, its value and its threshold."""
    if finding.metric == "orphan_scans":
        return f"No search for orphan files has ended with success yet ({finding.threshold_key})"
    return f"{finding.metric} is {finding.value:g}, threshold {finding.threshold:g} ({finding.threshold_key})"


MAX_FAILING = 500
"""Failing partitions reported to Dagster per table and observation at most, worst first.

Dagster stores about 30 evaluations per second. Automation requests at most this many partitions per tick.
"""

_ENDED = (CheckStatus.SUCCEEDED, CheckStatus.FAILED)


@dataclass(frozen=True, slots=True)
class CheckedTable:
    """The health of a table, which its checks judge by its policy at a time. `deferred_by` is what holds its due work."""

    measured: Measured
    policy: Policy
    now_ms: int
    deferred_by: str = ""

    def findings(self, partition: PartitionKey) -> tuple[Finding, ...]:
        """The findings of a partition. A partition without files has none."""
        if partition not in self.measured.partitions:
            return ()
        return partition_findings(self.measured, partition, self.policy, self.now_ms)


def partition_evaluations(
    instance: dg.DagsterInstance,
    translator: IcebergTranslator,
    checked: CheckedTable,
    partitions: Collection[PartitionKey],
) -> list[dg.AssetCheckEvaluation]:
    """The partitioned checks of these partitions.

    Failing checks come last, because Dagster's list shows the last evaluation of a check.
    """
    table = checked.measured.table
    targets = materialization_targets(instance, translator.get_asset_key(table), partitions)
    keys = [translator.get_check_key(table, name) for name in PARTITION_CHECKS]
    evaluations = []
    for partition in sorted(partitions):
        findings = checked.findings(partition)
        for key in keys:
            evaluations.append(_evaluation(checked, key, partition, findings, targets.get(partition)))
    return sorted(evaluations, key=lambda e: not e.passed)


def outdated(
    instance: dg.DagsterInstance,
    translator: IcebergTranslator,
    checked: CheckedTable,
    candidates: Sequence[PartitionKey],
) -> list[PartitionKey]:
    """Partitions whose checks in Dagster differ from their health.

    These are the `candidates` (worst first, at most `MAX_FAILING`) that fail and that Dagster does not
    show as failing, the partitions that Dagster shows as failing and that pass, and those whose last
    evaluation Dagster does not show: a run ended without it, or a later materialization made it stale.
    """
    table = checked.measured.table
    keys = [translator.get_check_key(table, name) for name in PARTITION_CHECKS]
    infos = [
        (info, info.partition_key)
        for info in instance.event_log_storage.get_asset_check_partition_info(keys)
        if info.partition_key is not None
    ]
    planned = CheckStatus.PLANNED
    pending = {i.latest_planned_run_id for i, _ in infos if i.latest_execution_status is planned}
    ended = finished_runs(instance, pending)
    existing = set(instance.get_dynamic_partitions(translator.get_partitions_name(table)))
    shown: dict[tuple[PartitionKey, str], bool | None] = {}
    for info, partition in infos:
        status = info.latest_execution_status
        if partition not in existing or (status is planned and info.latest_planned_run_id not in ended):
            continue
        current = info.latest_target_materialization_storage_id == info.latest_materialization_storage_id
        passed = status is CheckStatus.SUCCEEDED
        shown[PartitionKey(partition), info.check_key.name] = (
            None if status is planned or not current else passed
        )
    partitions: dict[PartitionKey, None] = {}
    for partition in candidates[:MAX_FAILING]:
        failing = {f.check for f in checked.findings(partition)}
        if any(name in failing and shown.get((partition, name)) is not False for name in PARTITION_CHECKS):
            partitions[partition] = None
    for (partition, name), passes in shown.items():
        if passes or partition in partitions:
            continue
        fails = any(f.check == name for f in checked.findings(partition))
        if passes is None or not fails:
            partitions[partition] = None
    return list(partitions)


def changed_evaluations(
    instance: dg.DagsterInstance, evaluations: Collection[dg.AssetCheckEvaluation]
) -> list[dg.AssetCheckEvaluation]:
    """The evaluations of checks without partitions that differ from the last ones, or that Dagster would not show: it hides
    those that are older than the last materialization of their asset. The others would store the same again."""
    latest = instance.event_log_storage.get_latest_asset_check_execution_by_key(
        [e.asset_check_key for e in evaluations]
    )
    assets = instance.get_asset_records(sorted({e.asset_key for e in evaluations})) if latest else []
    materialized = {
        r.asset_entry.asset_key: last for r in assets if (last := r.asset_entry.last_materialization_record)
    }

    def is_shown(evaluation: dg.AssetCheckEvaluation) -> bool:
        record = latest.get(evaluation.asset_check_key)
        if record is None or record.status not in _ENDED:
            return False
        last = materialized.get(evaluation.asset_key)
        current = last is None or last.run_id == record.run_id or last.timestamp < record.create_timestamp
        return current and serialize_value(record.evaluation) == serialize_value(evaluation)

    return [e for e in evaluations if not is_shown(e)]


def log_evaluations(
    context: ReportContext,
    evaluations: Iterable[dg.AssetCheckEvaluation],
) -> None:
    """Logs evaluations from any op."""
    with kept_connections(context.instance):
        known = list(evaluations)
        with one_transaction(context.instance):
            for evaluation in known:
                context.log_event(evaluation)


def _evaluation(
    checked: CheckedTable,
    key: dg.AssetCheckKey,
    partition: PartitionKey,
    findings: tuple[Finding, ...],
    target: CheckTarget | None,
) -> dg.AssetCheckEvaluation:
    name, health = key.name, checked.measured.partitions.get(partition)
    shown: dict[str, tuple[float, float]] = {}
    if health is not None:
        shown = limits(name, health, checked.measured, checked.policy, checked.now_ms)
    own_findings = [f for f in findings if f.check == name]
    severe = any(f.severity is Severity.ERROR for f in own_findings)
    metadata: dict[str, dg.MetadataValue[Any]] = {}
    shown |= {f.metric: (f.value, f.threshold) for f in own_findings}
    for metric, (value, threshold) in shown.items():
        metadata[metric] = dg.MetadataValue.float(float(value))
        metadata[f"{metric}_threshold"] = dg.MetadataValue.float(float(threshold))
    if not metadata:
        # Dagster says nothing useful in place of a plot without a number.
        metadata["findings"] = dg.MetadataValue.int(0)
    sentences = [finding_sentence(f) for f in own_findings]
    if sentences and not severe:
        sentences.insert(0, "warning, not due")
    if sentences and checked.deferred_by:
        metadata["deferred_by"] = text_value(checked.deferred_by)
        sentences.append(f"deferred by {checked.deferred_by}")
    return dg.AssetCheckEvaluation(
        asset_key=key.asset_key,
        check_name=name,
        partition=partition,
        passed=not own_findings,
        severity=dg.AssetCheckSeverity.ERROR if severe or not own_findings else dg.AssetCheckSeverity.WARN,
        description=printable("; ".join(sentences)) if sentences else DESCRIPTIONS[name],
        metadata=metadata,
        target_materialization_data=target,
    )
