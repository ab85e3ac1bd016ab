"""Metadata of events, typed and with short labels, so that the UI plots the numbers.

Dagster draws one line per label, so a partition's number must not have the label of its table's number. A
label of more than 30 characters would cover the column beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
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
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.outcomes.outcome import BatchOutcome, OutcomeStatus
from iceberg_maint.errors import printable
from iceberg_maint.loop.assess import Assessment
from iceberg_maint.ports.stored import Cursor
from iceberg_maint.report.certificate import verdict_text
from iceberg_maint.report.page import markdown_code
from iceberg_maint.report.verdicts import verdict_sentence

WORST_PARTITIONS = 20
"""Rows of the table on the health page, partitions named of a cursor, and partition observations per table at most."""
MAX_COLUMNS, MAX_TYPE_CHARACTERS = 500, 200
"""Of a schema in an event."""
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
        data["reason"] = reason_value(decision.reason)
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
            "advanced": utc_text(c.advanced_ms),
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
    strategies = filter(None, (b.engine or (b.cost.strategy if b.cost else "") for b in batches))
    notes = dict.fromkeys(b.message for b in batches if b.message)
    return data | {
        **_row_count(after, "dagster/partition_row_count"),
        "outcome": text_value(last.outcome.value),
        "reason": reason_value(last.reason),
        "batches": dg.MetadataValue.int(len(batches)),
        **_batch_figures(uncounted),
        "batch_ids": text_value(" ".join(b.batch_id for b in batches)),
        "snapshot_before": text_value(str(first.snapshot_before)),
        "snapshot_after": text_value(str(last.snapshot_after)),
        "proof": text_value("; ".join(proofs) or "none"),
        "strategy": text_value(", ".join(dict.fromkeys(strategies)) or "none"),
        **({"notes": text_value("; ".join(notes))} if notes else {}),
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
        "reason": reason_value(reason),
        "run_id": text_value(run_id),
    }


def utc_text(at_ms: int) -> str:
    """The time to the minute."""
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


def column_schema(state: TableState) -> Metadata:
    """The columns of the table under a label of Dagster's own, which it shows of the last materialization."""
    columns = [
        dg.TableColumn(printable(name), printable(text[:MAX_TYPE_CHARACTERS]))
        for name, text in islice(state.columns.items(), MAX_COLUMNS)
    ]
    schema = dg.MetadataValue.table_schema(dg.TableSchema(columns))
    return {"dagster/column_schema": schema} if columns else {}


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


def reason_value(reason: Reason) -> dg.TextMetadataValue:
    """A reason with its sentence."""
    return text_value(f"{reason.value}: {SENTENCES[reason]}")
