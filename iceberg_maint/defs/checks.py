"""Asset checks: the findings of `core.health.thresholds` as check evaluations of Dagster.

A partitioned evaluation must name the materialization that it evaluates. Otherwise Dagster shows the
check as missing. The class for that is not public; only this module uses it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, cast

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData,
)
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from iceberg_maint.core.decisions.applicability import partition_findings
from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.decisions.publish_waits import publish_wait
from iceberg_maint.core.decisions.unsupported_types import (
    SPARK_4,
    column_list,
    row_readers,
    unsupported_columns,
)
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import Operation, PartitionKey, TableId
from iceberg_maint.core.model.reasons import CHECK_OF, SENTENCES, Check, Finding, Reason, Severity
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.removal.unlogged_metadata import sign
from iceberg_maint.defs.last_observation import finished_runs
from iceberg_maint.defs.limits import limits
from iceberg_maint.defs.metadata import housekeeping_check_metadata
from iceberg_maint.defs.names import (
    HOUSEKEEPING_CHECKS,
    NO_PROGRESS_CHECK,
    PARTITION_CHECKS,
    QUARANTINE_CHECK,
    TABLE_CHECKS,
)
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.ports.ledger import Report
from iceberg_maint.report.formatting import shortened
from iceberg_maint.report.holds import hold
from iceberg_maint.runner.assess import Assessment

MAX_FAILING = 500
"""Failing partitions reported to Dagster per table and observation at most, worst first.

Dagster stores about 30 evaluations per second. Automation requests at most this many partitions per tick.
"""
STALLED_AFTER = 2
"""Number of attempts in a row without effect, or without a report, that fails `no_progress`."""

NOT_MEASURED = "The table was not measured yet. The first observation is requested."

_SUCCESSFUL = (OutcomeStatus.IMPROVED, OutcomeStatus.NO_OP)
_DESCRIPTIONS = {
    Check.SMALL_FILES.value: "There are too few small files to gain from a rewrite.",
    Check.DELETE_FILES.value: "There are few enough deletes for fast reads.",
    Check.LAYOUT.value: "Files are sorted well enough for readers to skip most of them.",
    QUARANTINE_CHECK: "No partition is quarantined.",
    NO_PROGRESS_CHECK: "The table can be read, and its maintenance has an effect.",
    Check.MANIFESTS.value: "Manifests are few and well grouped enough for quick planning.",
    Check.SNAPSHOTS.value: "No snapshot is kept longer than its retention and its holders require.",
    Check.ORPHAN_FILES.value: "Storage was searched for orphan files recently.",
}


def check_specs(
    table: TableId, partitions: dg.PartitionsDefinition, translator: IcebergTranslator
) -> list[dg.AssetCheckSpec]:
    """The checks of one table. The partitioned ones use the table's own partitions."""
    key = translator.get_asset_key(table)
    return [
        dg.AssetCheckSpec(
            name,
            asset=key,
            description=_DESCRIPTIONS[name],
            partitions_def=partitions if name in PARTITION_CHECKS else None,
        )
        for name in (*PARTITION_CHECKS, *TABLE_CHECKS)
    ]


def partition_evaluations(
    instance: dg.DagsterInstance,
    translator: IcebergTranslator,
    measured: Measured,
    policy: Policy,
    now_ms: int,
    partitions: Collection[PartitionKey],
    held_by: str = "",
) -> Iterator[dg.AssetCheckEvaluation]:
    """The partitioned checks of these partitions. Partitions without files pass. `held_by` is what delays
    the due work of the table.

    Failing checks come last, because Dagster's list shows the last evaluation of a check.
    """
    key = translator.get_asset_key(measured.table)
    hindrance = _hindrance(measured, policy, now_ms)
    targets = _targets(instance, key, partitions)
    passing: list[dg.AssetCheckEvaluation] = []
    failing: list[dg.AssetCheckEvaluation] = []
    for partition in sorted(partitions):
        findings = _findings(measured, policy, now_ms, partition)
        health = measured.partitions.get(partition)
        for name in PARTITION_CHECKS:
            compared = tuple(limits(name, health, policy)) if health is not None else ()
            evaluation = _evaluation(
                key, name, partition, findings, compared, targets.get(partition), held_by, hindrance
            )
            (passing if evaluation.passed else failing).append(evaluation)
    yield from passing
    yield from failing


def outdated(
    instance: dg.DagsterInstance,
    translator: IcebergTranslator,
    measured: Measured,
    policy: Policy,
    now_ms: int,
    candidates: Sequence[PartitionKey],
) -> list[PartitionKey]:
    """Partitions whose checks in Dagster differ from their health.

    These are the `candidates` (worst first, at most `MAX_FAILING`) that fail and that Dagster does not
    show as failing, the partitions that Dagster shows as failing and that pass, and those whose last
    evaluation Dagster does not show: a run ended without it, or a later materialization made it stale.
    """
    keys = [translator.get_check_key(measured.table, name) for name in PARTITION_CHECKS]
    infos = [
        (info, info.partition_key)
        for info in instance.event_log_storage.get_asset_check_partition_info(keys)
        if info.partition_key is not None
    ]
    planned = AssetCheckExecutionRecordStatus.PLANNED
    pending = {i.latest_planned_run_id for i, _ in infos if i.latest_execution_status is planned}
    ended = finished_runs(instance, pending)
    existing = set(instance.get_dynamic_partitions(translator.get_partitions_name(measured.table)))
    shown: dict[tuple[PartitionKey, str], bool | None] = {}
    for info, partition in infos:
        status = info.latest_execution_status
        if partition not in existing or (status is planned and info.latest_planned_run_id not in ended):
            continue
        current = info.latest_target_materialization_storage_id == info.latest_materialization_storage_id
        passed = status is AssetCheckExecutionRecordStatus.SUCCEEDED
        shown[PartitionKey(partition), info.check_key.name] = (
            None if status is planned or not current else passed
        )
    partitions: dict[PartitionKey, None] = {}
    for partition in candidates[:MAX_FAILING]:
        failing = {f.check for f in _findings(measured, policy, now_ms, partition)}
        if any(name in failing and shown.get((partition, name)) is not False for name in PARTITION_CHECKS):
            partitions[partition] = None
    for (partition, name), passes in shown.items():
        if passes or partition in partitions:
            continue
        fails = any(f.check == name for f in _findings(measured, policy, now_ms, partition))
        if passes is None or not fails:
            partitions[partition] = None
    return list(partitions)


def housekeeping_check_specs(table: TableId, translator: IcebergTranslator) -> list[dg.AssetCheckSpec]:
    """The checks of a table's housekeeping, which concern the table as a whole."""
    key = translator.get_housekeeping_key(table)
    return [
        dg.AssetCheckSpec(name, asset=key, description=_DESCRIPTIONS[name]) for name in HOUSEKEEPING_CHECKS
    ]


def housekeeping_evaluations(
    assessment: Assessment,
    translator: IcebergTranslator,
    last_pass: Report | None,
    last_expiry: Report | None = None,
) -> Iterator[dg.AssetCheckEvaluation]:
    """The checks of the housekeeping operations that `assessment` decided on.

    A check passes if its operation is turned off or the table's owner forbids it. The metadata shows
    what would be removed, and what holds it. `last_pass` is the table's last orphan pass, and `last_expiry` its
    last expiry; the function does not read storage.
    """
    for decision in assessment.decisions:
        operation = decision.operation
        if operation not in CHECK_OF:
            continue
        findings = [f for p in decision.partitions for f in p.findings]
        turned_off = decision.reason in (Reason.DISABLED, Reason.GC_DISABLED)
        doubt = decision.evidence.get("clocks")
        passed = (not findings or turned_off) and doubt is None
        name = CHECK_OF[operation].value
        description = "; ".join(map(_sentence, findings)) or (
            SENTENCES[decision.reason] if turned_off else _passing(name, last_pass)
        )
        if findings and (delay := hold(decision)):
            description += f"; held by {delay}"
        if doubt is not None:
            description = f"{SENTENCES[Reason.CLOCKS_DISAGREE]}: {doubt}. {description}"
        if operation is Operation.REMOVE_ORPHAN_FILES:
            description += _waiting(last_pass)
        if pending := decision.evidence.get("pending"):
            description += f" Maintenance waits until {pending} is published."
        if holders := decision.evidence.get("held_by"):
            description += f" Held by {holders}."
        if operation is Operation.EXPIRE_SNAPSHOTS:
            description += _released(last_expiry)
        yield dg.AssetCheckEvaluation(
            asset_key=translator.get_housekeeping_key(assessment.state.table),
            check_name=name,
            passed=passed,
            severity=dg.AssetCheckSeverity.WARN,
            description=description,
            metadata=housekeeping_check_metadata(assessment, decision, last_pass, last_expiry),
        )


def _released(last_expiry: Report | None) -> str:
    """What the last expiry says of the files that expiries released."""
    if last_expiry is None:
        return ""
    counts = last_expiry.outcome.counts
    files, size_bytes = (counts.get(f"released_held_{what}", 0) for what in ("files", "bytes"))
    held = f" {files} released files ({size_bytes} bytes) are in the trash." if files else ""
    return f"{held} {last_expiry.outcome.message}".rstrip()


def _passing(name: str, last_pass: Report | None) -> str:
    """The criterion of a check that passes, or why no search for orphan files is due although the last one
    was refused or failed."""
    refused = last_pass is not None and last_pass.outcome.outcome not in _SUCCESSFUL
    if name == Check.ORPHAN_FILES.value and refused:
        return "No search for orphan files is due. The last one did not end with success."
    return _DESCRIPTIONS[name]


def _waiting(last_pass: Report | None) -> str:
    if last_pass is None:
        return ""
    files = sum(h.files for h in (last_pass.outcome.held or ()))
    waiting = f" {files} files are in the trash or wait for approval." if files else ""
    refused = last_pass.outcome.reason is Reason.REFUSED
    message = last_pass.outcome.message if refused else sign(last_pass.outcome.unlogged)
    return f"{waiting} {message}".rstrip()


def table_evaluations(
    table: TableId, translator: IcebergTranslator, history: TableHistory
) -> Iterator[dg.AssetCheckEvaluation]:
    """The table checks, from the ledger's history."""
    quarantined = sorted(p for p, h in history.partitions.items() if h.quarantined)
    yield _table_evaluation(
        table,
        translator,
        QUARANTINE_CHECK,
        quarantined,
        f"Quarantined until a person runs iceberg-maint release: {shortened(quarantined)}.",
        dg.AssetCheckSeverity.ERROR,
    )
    stalled = sorted(
        p
        for p, h in history.partitions.items()
        if not h.quarantined and max(h.ineffective, h.crashes) >= STALLED_AFTER
    )
    why = f"{STALLED_AFTER} or more attempts in a row without effect: {shortened(stalled) or 'none'}."
    if history.unknown_commits:
        why = f"{history.unknown_commits} commit(s) are neither confirmed nor refuted. {why}"
    yield _table_evaluation(
        table,
        translator,
        NO_PROGRESS_CHECK,
        stalled or ["unknown"] * min(1, history.unknown_commits),
        why,
        dg.AssetCheckSeverity.WARN,
    )


def log_evaluations(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    evaluations: Iterable[dg.AssetCheckEvaluation],
) -> None:
    """Logs evaluations from any op. Dagster accepts them, although its annotation does not name them."""
    for evaluation in evaluations:
        context.log_event(cast("Any", evaluation))


def unreadable_evaluation(
    table: TableId, translator: IcebergTranslator, error: str
) -> dg.AssetCheckEvaluation:
    """The failed check `no_progress` of a table that could not be read."""
    return _table_evaluation(
        table, translator, NO_PROGRESS_CHECK, [error], error, dg.AssetCheckSeverity.ERROR
    )


def unmeasured_evaluation(table: TableId, translator: IcebergTranslator) -> dg.AssetCheckEvaluation:
    """The check `no_progress` of a table that Dagster has never observed, as a warning."""
    return _table_evaluation(
        table, translator, NO_PROGRESS_CHECK, ["unmeasured"], NOT_MEASURED, dg.AssetCheckSeverity.WARN
    )


def _table_evaluation(
    table: TableId,
    translator: IcebergTranslator,
    name: str,
    problems: Sequence[str],
    why: str,
    severity: dg.AssetCheckSeverity,
) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=translator.get_asset_key(table),
        check_name=name,
        passed=not problems,
        severity=severity,
        description=why if problems else _DESCRIPTIONS[name],
        metadata={"problems": dg.MetadataValue.int(len(problems))},
    )


def _findings(
    measured: Measured, policy: Policy, now_ms: int, partition: PartitionKey
) -> tuple[Finding, ...]:
    if partition not in measured.partitions:
        return ()
    return partition_findings(measured, partition, policy, now_ms)


def _evaluation(
    key: dg.AssetKey,
    name: str,
    partition: PartitionKey,
    findings: tuple[Finding, ...],
    compared: tuple[tuple[str, float, float], ...],
    target: AssetCheckEvaluationTargetMaterializationData | None,
    held_by: str,
    hindrance: str,
) -> dg.AssetCheckEvaluation:
    own_findings = [f for f in findings if f.check == name]
    severe = any(f.severity is Severity.ERROR for f in own_findings)
    metadata: dict[str, dg.MetadataValue[Any]] = {}
    numbers = [(f.metric, f.value, f.threshold) for f in own_findings] or compared
    for metric, value, threshold in numbers:
        # Texts: Dagster would plot the numbers of all partitions of the check as one line.
        metadata[metric] = dg.MetadataValue.text(f"{value:g}")
        metadata[f"{metric}_threshold"] = dg.MetadataValue.text(f"{threshold:g}")
    sentences = [_sentence(f) for f in own_findings]
    if sentences and not severe:
        sentences.insert(0, "warning, not due")
    if sentences and held_by:
        metadata["held_by"] = dg.MetadataValue.text(held_by)
        sentences.append(f"held by {held_by}")
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=name,
        partition=partition,
        passed=not own_findings,
        severity=dg.AssetCheckSeverity.ERROR if severe or not own_findings else dg.AssetCheckSeverity.WARN,
        description="; ".join(sentences) + hindrance if sentences else _DESCRIPTIONS[name],
        metadata=metadata,
        target_materialization_data=target,
    )


def _hindrance(measured: Measured, policy: Policy, now_ms: int) -> str:
    """Why no partition of the table is maintained although its check fails."""
    readers = row_readers(Operation.REWRITE_DATA_FILES, policy.rewrite_data_files.strategy, SPARK_4)
    if columns := unsupported_columns(measured.uncommon_types, readers):
        return f". No operation on data can read column {column_list(columns)} (ICM-134)"
    wait = publish_wait(measured.pending_publishes, policy, now_ms)
    return f". Maintenance waits until {wait.names} is published" if wait is not None else ""


def _targets(
    instance: dg.DagsterInstance, key: dg.AssetKey, partitions: Collection[PartitionKey]
) -> dict[str, AssetCheckEvaluationTargetMaterializationData]:
    """Each partition's latest materialization.

    Without it Dagster assigns the evaluation to an older state and shows the check as missing.
    """
    latest = instance.get_latest_storage_id_by_partition(
        key, dg.DagsterEventType.ASSET_MATERIALIZATION, partitions=set(partitions)
    )
    if not latest:
        return {}
    latest_ids = dg.AssetRecordsFilter(asset_key=key, storage_ids=list(latest.values()))
    records = instance.fetch_materializations(latest_ids, limit=len(latest)).records
    materializations = {r.storage_id: r for r in records}
    return {
        partition: AssetCheckEvaluationTargetMaterializationData(
            storage_id=storage_id,
            run_id=materializations[storage_id].run_id,
            timestamp=materializations[storage_id].timestamp,
        )
        for partition, storage_id in latest.items()
        if storage_id in materializations
    }


def _sentence(finding: Finding) -> str:
    if finding.metric == "orphan_scans":
        return f"Storage was never searched for orphan files ({finding.threshold_key})"
    return f"{finding.metric} is {finding.value:g}, threshold {finding.threshold:g} ({finding.threshold_key})"
