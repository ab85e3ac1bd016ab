"""JSON documents of the command line: a contract (`docs/reference/contract.md`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any

from iceberg_maint.core.health.metrics import Measured, partition_metrics, table_metrics
from iceberg_maint.core.model.codec import to_data
from iceberg_maint.core.model.reasons import Decision, PartitionDecision
from iceberg_maint.core.outcomes.outcome import BatchOutcome, OperationOutcome
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.core.planning.plan import Batch, BatchBody, Plan
from iceberg_maint.core.planning.work import writer_reason
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.ports.stored import Cursor

Document = dict[str, Any]


def render(document: Document) -> str:
    """The document as text: two spaces, keys in the contract's order, no NaN. Characters that steer a terminal or change
    the text direction are escapes, so that all of it is printable but its line ends."""
    text = _text(document, "\n")
    lines = text.split("\n")
    if all(map(str.isprintable, lines)):
        return text
    return "\n".join(line if line.isprintable() else _printable(line) for line in lines)


def _text(value: object, line: str) -> str:
    """The text that `json.dumps` gives with an indent, which it writes without its C encoder. `line` begins a line at the
    depth of the value."""
    kind = type(value)
    if kind is str:
        return encode_basestring(value)  # type: ignore[arg-type]
    if kind is int:
        return str(value)
    if value is None:
        return "null"
    if isinstance(value, dict):
        inner = f"{line}  "
        members = [f"{encode_basestring(k)}: {_text(v, inner)}" for k, v in value.items()]
        return f"{{{inner}{f',{inner}'.join(members)}{line}}}" if members else "{}"
    if isinstance(value, (list, tuple)):
        inner = f"{line}  "
        return f"[{inner}{f',{inner}'.join([_text(v, inner) for v in value])}{line}]" if value else "[]"
    return json.dumps(value, allow_nan=False)


def _printable(line: str) -> str:
    return "".join(c if c.isprintable() else encode_basestring_ascii(c)[1:-1] for c in line)


def error_document(error: IcebergMaintError) -> Document:
    """A refusal or failure."""
    return {"code": error.code, "message": error.message, "fix": error.fix}


def unlisted_documents(errors: Mapping[str, IcebergMaintError]) -> list[Document]:
    """The errors of the catalogs that did not answer."""
    return [{"catalog": name, **error_document(error)} for name, error in errors.items()]


def health_document(measured: Measured) -> Document:
    """One table of `observe`: table metrics with the partitions' totals, then every partition."""
    return {
        "table": str(measured.table),
        "snapshot": measured.snapshot_id,
        "health": to_data({**partition_metrics(measured.total()), **table_metrics(measured.table_health)}),
        "partitions": [
            {"partition": key, "health": to_data(partition_metrics(health))}
            for key, health in sorted(measured.partitions.items())
        ],
    }


def outcome_document(outcome: OperationOutcome) -> Document:
    """One operation of `run`."""
    return {
        "operation": outcome.operation,
        "outcome": outcome.outcome.value,
        "reason": outcome.reason.value,
        "snapshot_before": outcome.snapshot_before,
        "snapshot_after": outcome.snapshot_after,
        "batches": [batch_document(b) for b in outcome.batches],
        "partitions": [
            {"partition": key, "outcome": status.value, "reason": reason.value}
            for key, status, reason in outcome.partitions
        ],
        "message": outcome.message,
    }


def batch_document(batch: BatchOutcome) -> Document:
    """One batch of `run`."""
    return {
        "batch_id": batch.batch_id,
        "partitions": list(batch.partitions),
        "outcome": batch.outcome.value,
        "reason": batch.reason.value,
        "input_files": batch.input_files,
        "output_files": batch.output_files,
        "input_bytes": batch.input_bytes,
        "output_bytes": batch.output_bytes,
        "delete_files_removed": batch.delete_files_removed,
        "seconds": batch.seconds,
        "snapshot_before": batch.snapshot_before,
        "snapshot_after": batch.snapshot_after,
        "commit_tries": batch.commit_tries,
        "wasted_bytes": batch.wasted_bytes,
        "proof": None if batch.proof is None else proof_document(batch.proof),
        "memory": to_data(batch.memory),
        "layout": to_data(batch.layout),
        "counts": dict(batch.counts),
        "retained": to_data(batch.retained),
        "unlogged": to_data(batch.unlogged),
        "predicted": to_data(batch.predicted),
        "cost": to_data(batch.cost),
        "engine": batch.engine or None,
        "message": batch.message,
    }


def proof_document(proof: Proof) -> Document:
    """A proof."""
    data: Document = to_data(proof)
    return data


def decision_document(decision: Decision) -> Document:
    """A decision with its partitions, worst first."""
    return {
        "operation": decision.operation,
        "verdict": decision.verdict.value,
        "reason": decision.reason.value,
        "until_ms": decision.until_ms,
        "evidence": dict(sorted(decision.evidence.items())),
        "partitions": [partition_document(p) for p in decision.partitions],
    }


def partition_document(partition: PartitionDecision) -> Document:
    """What was decided for one partition, with the thresholds it crosses."""
    data: Document = to_data(partition)
    return data


def plan_document(plan: Plan, decision: Decision, seconds: float | None) -> Document:
    """One operation of `plan`: the object `run` would execute, and why."""
    return {
        "operation": plan.operation,
        "estimate_seconds": seconds,
        "decision": decision_document(decision),
        "plan": {
            "plan_id": plan.plan_id,
            "snapshot": plan.snapshot_id,
            "input_files": plan.input_files,
            "input_bytes": plan.input_bytes,
            "batches": [_planned_batch(b) for b in plan.batches],
            "leftovers": to_data(plan.leftovers),
        },
    }


def _planned_batch(batch: Batch) -> Document:
    body = BatchBody.of(batch)
    return {
        "batch_id": batch.batch_id,
        "operation": body.operation.value,
        "strategy": body.strategy,
        "partitions": list(batch.partitions),
        "reasons": [r.value for r in batch.reasons],
        "input_files": batch.input_files,
        "input_bytes": batch.input_bytes,
        "expected_output_files": batch.expected_output_files,
        "target_file_size_bytes": batch.target_file_size_bytes,
        "groups": to_data(body.groups),
        "equality_deletes": to_data(body.equality_deletes),
        "position_deletes": to_data(body.position_deletes),
        "memory": to_data(body.memory),
        "layout": to_data(body.layout),
        "strategy_reason": writer_reason(batch.work),
        "manifests": list(body.manifests),
        "snapshots": list(body.snapshots),
        "refs": list(body.refs),
    }


def record_document(record: Record) -> Document:
    """One record of `history`."""
    return {
        "record_id": record.record_id,
        "run_id": record.run_id,
        "table": record.table,
        "table_uuid": record.table_uuid,
        "started_ms": record.started_ms,
        "ended_ms": record.ended_ms,
        "plan_id": record.plan_id,
        "policy_digest": record.policy_digest,
        "versions": dict(sorted(record.versions.items())),
        "started_by": record.started_by,
        "catalog_calls": record.catalog_calls,
        **outcome_document(record.outcome),
    }


def cursor_document(cursor: Cursor) -> Document:
    """One cursor of `why`."""
    return {
        "operation": cursor.operation,
        "plan_id": cursor.plan_id,
        "window_batches": cursor.window_batches,
        "window_done": cursor.window_done,
        "batch_id": cursor.batch_id,
        "partitions": list(cursor.partitions),
        "snapshot": cursor.snapshot_id,
        "fence": cursor.fence,
        "advanced_ms": cursor.advanced_ms,
    }


def values_document(values: Mapping[str, object], sources: Mapping[str, str]) -> list[Document]:
    """Effective policy values with their sources, in key order."""
    return [{"key": k, "value": to_data(v), "source": sources[k]} for k, v in values.items()]
