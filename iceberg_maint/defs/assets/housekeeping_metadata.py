"""Metadata of housekeeping: its checks, what would be expired or removed, and the counts of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import dagster as dg

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Decision
from iceberg_maint.core.outcomes.outcome import OperationOutcome
from iceberg_maint.core.removal.orphan_rules import RetainedOrphans
from iceberg_maint.defs.assets.metadata import (
    WORST_PARTITIONS,
    Metadata,
    json_value,
    mebibytes,
    reason_value,
    text_value,
    utc_text,
)
from iceberg_maint.defs.names import APPROVE_TAG
from iceberg_maint.loop.assess import Assessment
from iceberg_maint.ports.stored import Report
from iceberg_maint.report.formatting import outcome_sentence, size


def housekeeping_check_metadata(
    assessment: Assessment,
    decision: Decision,
    last_scan: Report | None,
    last_expiry: Report | None = None,
) -> Metadata:
    """Metadata of a housekeeping check.

    It contains metrics and thresholds, the decision, what retains snapshots, and what would be
    rewritten, expired or removed. Orphans are those that the last orphan scan, `last_scan`, reported.
    """
    data: Metadata = {
        "verdict": text_value(decision.verdict.value),
        "reason": reason_value(decision.reason),
    }
    # A number to plot, also of a check that passes.
    if decision.operation is Operation.REWRITE_MANIFESTS:
        data |= _measure("manifests", assessment.measured.table_health.manifests)
    if decision.operation is Operation.EXPIRE_SNAPSHOTS:
        data |= _measure("expirable_snapshots", len(assessment.retention.expire))
    if decision.operation is Operation.REMOVE_ORPHAN_FILES:
        data["would_remove_files"] = dg.MetadataValue.int(0)
    for finding in (f for p in decision.partitions for f in p.findings):
        data |= _measure(finding.metric, finding.value)
        name, threshold = next(iter(_measure(finding.metric, finding.threshold).items()))
        data[f"{name}_threshold"] = threshold
    for name, value in sorted(decision.evidence.items()):
        data[name] = text_value(value)
    if decision.operation == Operation.EXPIRE_SNAPSHOTS:
        expire = [assessment.state.snapshot_by_id(i) for i in assessment.retention.expire]
        records = [
            dg.TableRecord(
                {
                    "snapshot": str(s.snapshot_id),
                    "operation": s.operation,
                    "committed": utc_text(s.timestamp_ms),
                }
            )
            for s in expire[:WORST_PARTITIONS]
            if s is not None
        ]
        columns = [dg.TableColumn(c, "string") for c in ("snapshot", "operation", "committed")]
        data["would_expire"] = dg.MetadataValue.table(records, schema=dg.TableSchema(columns))
        data["expirable_refs"] = text_value(", ".join(assessment.retention.expire_refs) or "none")
        if last_expiry is not None:
            data |= counts_metadata(last_expiry.outcome.counts)
    if decision.operation == Operation.REMOVE_ORPHAN_FILES and last_scan is not None:
        data |= _orphan_scan_metadata(last_scan, assessment.policy.remove_orphan_files.delete_after_seconds)
    return data


def _orphan_scan_metadata(last: Report, delete_after_seconds: int) -> Metadata:
    """The last orphan scan, and the files that a later scan may remove: number, size and times."""
    words = outcome_sentence(last.outcome.outcome, last.outcome.reason, ran=True)
    text = f"{last.outcome.outcome.value}, {last.outcome.reason.value}: {words}"
    data: Metadata = {
        "looked_for_orphans": dg.MetadataValue.timestamp(last.recorded_ms / 1000),
        "last_scan": text_value(f"{text} {last.outcome.message}".rstrip()),
        **counts_metadata(last.outcome.counts),
    }
    if last.outcome.unlogged is not None and last.outcome.unlogged.files:
        data["unlogged_metadata_files"] = dg.MetadataValue.int(last.outcome.unlogged.files)
    return data | retained_metadata(last.outcome.retained, delete_after_seconds)


def retained_metadata(retained: Sequence[RetainedOrphans] | None, delete_after_seconds: int) -> Metadata:
    """The orphans that a scan has left in the trash or for a person to approve.

    It contains the time from which each mark may be swept, and some of the paths. Empty if the scan
    reported none of this. Marks and paths are JSON: Dagster draws a table at its full width, and the page around it
    does not wrap.
    """
    if retained is None:
        return {}
    marks = [
        {
            "mark": h.mark_id,
            "files": h.files,
            "size": size(h.size_bytes),
            "written from": utc_text(h.oldest_ms) if h.oldest_ms is not None else "",
            "written to": utc_text(h.youngest_ms) if h.youngest_ms is not None else "",
            "swept from": utc_text(h.marked_ms + delete_after_seconds * 1000)
            if h.marked_ms
            else "once approved",
        }
        for h in retained[:WORST_PARTITIONS]
    ]
    paths = [{"mark": h.mark_id, "path": p} for h in retained for p in h.paths]
    digests = [h.mark_id for h in retained if h.marked_ms is None]
    tag = {"approve_by_run_tag": text_value(f"{APPROVE_TAG}: {digests[-1]}")} if digests else {}
    approval: Metadata = dict(tag)
    return approval | {
        "would_remove_files": dg.MetadataValue.int(sum(h.files for h in retained)),
        "would_remove_mib": mebibytes(sum(h.size_bytes for h in retained)),
        "would_remove": json_value(marks),
        "would_remove_paths": json_value(paths[:WORST_PARTITIONS]),
    }


def housekeeping_metadata(
    outcomes: Sequence[OperationOutcome], last_scan: Report | None, delete_after_seconds: int, run_id: str
) -> Metadata:
    """Metadata of the housekeeping asset's materialization: the counts of each operation in one run, and
    the orphans that the last orphan scan has left."""
    data: Metadata = {"run_id": text_value(run_id)}
    counts: dict[str, int] = {}
    for outcome in outcomes:
        words = outcome_sentence(outcome.outcome, outcome.reason, ran=bool(outcome.batches))
        text = f"{outcome.outcome.value}, {outcome.reason.value}: {words}"
        data[outcome.operation.value] = text_value(text)
        for batch in outcome.batches:
            # An expiry and an orphan scan both move and delete released files. What is retained at the end counts.
            for name, value in batch.counts.items():
                counts[name] = value + (0 if name.startswith("released_retained_") else counts.get(name, 0))
    data |= counts_metadata(counts)
    return data | (retained_metadata(last_scan.outcome.retained, delete_after_seconds) if last_scan else {})


def counts_metadata(counts: Mapping[str, int]) -> Metadata:
    """Numbers by name. Those that end with `_bytes` become MiB."""
    data: Metadata = {}
    for name, value in counts.items():
        data |= {name: dg.MetadataValue.int(value)} if not name.endswith("_bytes") else _measure(name, value)
    return data


def _measure(name: str, value: float) -> dict[str, dg.FloatMetadataValue]:
    """A number for plots; bytes in MiB."""
    if name.endswith("_bytes"):
        return {f"{name.removesuffix('_bytes')}_mib": mebibytes(value)}
    return {name: dg.MetadataValue.float(float(value))}
