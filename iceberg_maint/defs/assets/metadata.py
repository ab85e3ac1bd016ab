"""Metadata of events, typed and with short labels, so that the UI plots the numbers.

Dagster draws one line per label, so a partition's number must not have the label of its table's number. A
label of more than 30 characters would cover the column beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.decisions.table_decision import verdict_on
from iceberg_maint.core.health.metrics import (
    Measured,
    PartitionHealth,
    partition_metrics,
    table_metrics,
)
from iceberg_maint.core.model.codec import to_data
from iceberg_maint.core.model.ids import ALL_OPERATIONS, Operation
from iceberg_maint.core.model.reasons import SENTENCES, Decision, PartitionDecision, Reason
from iceberg_maint.core.outcomes.outcome import BatchOutcome, OperationOutcome, OutcomeStatus
from iceberg_maint.core.removal.orphan_rules import RetainedOrphans
from iceberg_maint.defs.names import APPROVE_TAG
from iceberg_maint.errors import printable
from iceberg_maint.loop.assess import Assessment
from iceberg_maint.ports.stored import Cursor, Report
from iceberg_maint.report.certificate import verdict_text
from iceberg_maint.report.formatting import outcome_sentence, size
from iceberg_maint.report.page import markdown_code
from iceberg_maint.report.verdicts import verdict_sentence

WORST_PARTITIONS = 20
"""Rows of the table on the health page, partitions named of a cursor, and partition observations per table at most."""
_MEBIBYTE = 1024 * 1024

Metadata = dict[str, Any]


def text_value(text: str) -> dg.TextMetadataValue:
    """A text for an event. Names and errors within it may hold characters that steer a terminal: their escapes replace them."""
    return dg.MetadataValue.text(printable(text))


def json_value(data: object) -> dg.JsonMetadataValue:
    """JSON for an event, its texts as those of `text_value`."""
    return dg.MetadataValue.json(_printable(data))


def _printable(data: object) -> Any:
    if isinstance(data, str):
        return printable(data)
    if isinstance(data, Mapping):
        return {printable(str(name)): _printable(value) for name, value in data.items()}
    return [_printable(item) for item in data] if isinstance(data, list | tuple) else data


def partition_metadata(health: PartitionHealth, decision: PartitionDecision | None) -> Metadata:
    """Metadata of one partition's observation."""
    data: Metadata = {f"partition_{name}": value for name, value in _figures(health).items()}
    data["partition_metrics"] = json_value(partition_metrics(health))
    if decision is not None:
        data["verdict"] = text_value(decision.verdict.value)
        data["reason"] = _reason(decision.reason)
    return data


def table_metadata(
    assessment: Assessment, cursors: Mapping[str, Cursor], deferred_by: str = "", advice: str = ""
) -> Metadata:
    """The health page of a table: what holds its due work, totals, the worst partitions, decision, policy
    and cursors. `advice` is what a run would do in mode advise."""
    measured, history, decision = assessment.measured, assessment.history, assessment.decision
    unhealthy = sum(1 for p in decision.partitions if p.findings)
    quarantined = sum(1 for h in history.partitions.values() if h.quarantined)
    backlog = decision.backlog()
    total = measured.total()
    return {
        **({"deferred_by": text_value(deferred_by)} if deferred_by else {}),
        **failure_metadata(history),
        **({"advice": text_value(advice)} if advice else {}),
        **_figures(total),
        **_row_count(total, "dagster/row_count"),
        "dagster/uri": text_value(assessment.state.location),
        "partitions": dg.MetadataValue.int(len(measured.partitions)),
        "unhealthy_partitions": dg.MetadataValue.int(unhealthy),
        "due_partitions": dg.MetadataValue.int(len(backlog)),
        "due_mib": mebibytes(sum(p.candidate_bytes for p in backlog)),
        "quarantined": dg.MetadataValue.int(quarantined),
        "snapshots": dg.MetadataValue.int(measured.table_health.snapshots),
        "manifests": dg.MetadataValue.int(measured.table_health.manifests),
        "worst_partitions": worst_partitions(measured, decision),
        "decision": dg.MetadataValue.md(decision_text(decision)),
        # In a JSON that Dagster shows on demand: a text of its length would widen the page, and cut the card.
        "metrics": json_value(
            {
                **partition_metrics(total),
                **table_metrics(measured.table_health),
                "metadata_location": measured.metadata_location,
            }
        ),
        "policy": json_value(to_data(assessment.policy)),
        "snapshot": text_value(str(measured.snapshot_id)),
        **cursor_metadata(cursors, ALL_OPERATIONS),
    }


def failure_metadata(history: TableHistory) -> Metadata:
    """The verdict on a table. Empty without a failure."""
    failure = verdict_sentence(verdict_on(True, history.faults))
    return {"failure": text_value(failure)} if failure else {}


def unmeasured_metadata() -> Metadata:
    """Metadata of a table that Dagster has never observed."""
    return {"status": text_value("not measured yet")}


def cursor_metadata(cursors: Mapping[str, Cursor], operations: Sequence[Operation]) -> Metadata:
    """How far each of the operations has come: window, batch and snapshot. Snapshot ids are texts, because they
    exceed what a browser holds as a number."""
    # JSON: Dagster would draw a table at its full width, and the card above it would not wrap.
    records = [
        {
            "operation": c.operation,
            "window": c.plan_id or "",
            "window batches": c.window_batches,
            "window done": c.window_done,
            "batch": c.batch_id,
            "partitions": ", ".join(c.partitions[:WORST_PARTITIONS]),
            "snapshot": str(c.snapshot_id),
            "advanced": _utc(c.advanced_ms),
        }
        for c in cursors.values()
        if c.operation in operations
    ]
    return {"cursors": json_value(records)}


def batch_metadata(
    before: PartitionHealth,
    after: PartitionHealth,
    batches: Sequence[BatchOutcome],
    uncounted: Sequence[BatchOutcome],
    operations: Mapping[str, Operation],
    run_id: str,
) -> Metadata:
    """Metadata of one partition's materialization: the result of its batches in one run.

    A batch may hold several partitions. Labels that start with `batch_` are figures of whole batches, of
    those that no other materialization counts (`uncounted`), so that sums over partitions are right.
    `operations` has the operation of each batch by its id.
    """
    first, last = batches[0], batches[-1]
    data: Metadata = {}
    figures_after = _figures(after)
    for name, value in _figures(before).items():
        data[f"{name}_before"] = value
        data[f"{name}_after"] = figures_after[name]
    proofs = [verdict_text(operations[b.batch_id], b.proof) for b in batches if b.proof is not None]
    return data | {
        **_row_count(after, "dagster/partition_row_count"),
        "outcome": text_value(last.outcome.value),
        "reason": _reason(last.reason),
        "batches": dg.MetadataValue.int(len(batches)),
        **_batch_figures(uncounted),
        "batch_ids": text_value(" ".join(b.batch_id for b in batches)),
        "snapshot_before": text_value(str(first.snapshot_before)),
        "snapshot_after": text_value(str(last.snapshot_after)),
        "proof": text_value("; ".join(proofs) or "none"),
        "run_id": text_value(run_id),
    }


def _batch_figures(batches: Sequence[BatchOutcome]) -> Metadata:
    if not batches:
        return {}
    return {
        "batch_input_files": dg.MetadataValue.int(sum(b.input_files for b in batches)),
        "batch_output_files": dg.MetadataValue.int(sum(b.output_files for b in batches)),
        "batch_input_mib": mebibytes(sum(b.input_bytes for b in batches)),
        "batch_output_mib": mebibytes(sum(b.output_bytes for b in batches)),
        "batch_delete_files_removed": dg.MetadataValue.int(sum(b.delete_files_removed for b in batches)),
        "batch_seconds": dg.MetadataValue.float(round(sum(b.seconds for b in batches), 3)),
        "commit_tries": dg.MetadataValue.int(sum(b.commit_tries for b in batches)),
    }


def nothing_due_metadata(health: PartitionHealth, reason: Reason, run_id: str) -> Metadata:
    """Metadata of a partition without work: requested, or examined as healthy by an observation."""
    return {f"{name}_after": value for name, value in _figures(health).items()} | {
        **_row_count(health, "dagster/partition_row_count"),
        "outcome": text_value(OutcomeStatus.NO_OP.value),
        "reason": _reason(reason),
        "run_id": text_value(run_id),
    }


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
        "reason": _reason(decision.reason),
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
                {"snapshot": str(s.snapshot_id), "operation": s.operation, "committed": _utc(s.timestamp_ms)}
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
            "written from": _utc(h.oldest_ms) if h.oldest_ms is not None else "",
            "written to": _utc(h.youngest_ms) if h.youngest_ms is not None else "",
            "swept from": _utc(h.marked_ms + delete_after_seconds * 1000) if h.marked_ms else "once approved",
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


def _utc(at_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"  # damaged metadata: a year that no calendar has


def worst_partitions(measured: Measured, decision: Decision) -> dg.JsonMetadataValue:
    """The worst partitions with their numbers and decisions."""
    ranked = [p for p in rank(decision) if p.partition in measured.partitions]
    columns = ("data_files", "small_files", "delete_files", "delete_ratio")
    records: list[dict[str, object]] = []
    for item in ranked[:WORST_PARTITIONS]:
        metrics = partition_metrics(measured.partitions[item.partition])
        numbers = {c: _plain(metrics[c]) for c in columns}
        records.append(
            {
                "partition": item.partition,
                **numbers,
                "verdict": item.verdict.value,
                "reason": item.reason.value,
            }
        )
    return json_value(records)


def rank(decision: Decision) -> list[PartitionDecision]:
    """Worst first: by score, then those with findings, then by key."""
    return sorted(decision.partitions, key=lambda p: (-p.score, not p.findings, p.partition))


def decision_text(decision: Decision) -> str:
    """The decision in Markdown: verdict, reason, evidence, partitions by reason."""
    lines = [f"**{decision.verdict.value}**: {SENTENCES[decision.reason]}"]
    lines += [f"- {name}: {markdown_code(value)}" for name, value in sorted(decision.evidence.items())]
    counts: dict[tuple[str, Reason], int] = {}
    for p in decision.partitions:
        key = (p.verdict.value, p.reason)
        counts[key] = counts.get(key, 0) + 1
    lines += [
        f"- {count} x {verdict} `{reason.value}`: {SENTENCES[reason]}"
        for (verdict, reason), count in sorted(counts.items())
    ]
    return "\n".join(lines)


def _figures(health: PartitionHealth) -> Metadata:
    """The few numbers that a person follows over time, in units."""
    return {
        "files": dg.MetadataValue.int(health.data_files),
        "small_files": dg.MetadataValue.int(health.small_files),
        "delete_files": dg.MetadataValue.int(health.delete_files),
        "deleted_percent": dg.MetadataValue.float(round(100 * health.delete_ratio, 2)),
        "size_mib": mebibytes(health.data_bytes),
        "rows": dg.MetadataValue.int(health.records),
    }


def _row_count(health: PartitionHealth, label: str) -> Metadata:
    """The number of rows under a label of Dagster's own. None beside deletes: metadata says not how many rows they delete."""
    return {} if health.delete_files else {label: dg.MetadataValue.int(health.records)}


def mebibytes(size_bytes: float) -> dg.FloatMetadataValue:
    """MiB, to four significant digits."""
    return dg.MetadataValue.float(float(f"{size_bytes / _MEBIBYTE:.4g}"))


def _plain(value: object) -> int | float:
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return round(value, 6)
    raise TypeError(f"{value!r} is no number.")


def _reason(reason: Reason) -> dg.TextMetadataValue:
    return text_value(f"{reason.value}: {SENTENCES[reason]}")
