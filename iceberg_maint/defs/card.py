"""The table card of an observation or a materialization: its facts from the ledger."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import dagster as dg

from iceberg_maint.core.health.metrics import Measured, PartitionHealth
from iceberg_maint.core.model.ids import Operation, PartitionKey, TableId
from iceberg_maint.core.model.reasons import Decision
from iceberg_maint.defs.stored_health import stored_policy
from iceberg_maint.ports.stored import Report
from iceberg_maint.report.certificate import certificates
from iceberg_maint.report.markdown_page import markdown_text
from iceberg_maint.report.table_card import TableView, proof_line
from iceberg_maint.runner.assess import Assessment
from iceberg_maint.runner.runtime import Runtime
from iceberg_maint.runner.stored_decisions import stored_decisions

CARD = "card"
"""Label of the card: the same on a table's observations and materializations, so that one page shows one card."""
PROOF = "proof_certificate"
"""Label of the certificate on the last materialization of a run."""
_RECORDS = 12
"""Newest records of a table in which the last proof is searched: two cycles."""


def described(
    runtime: Runtime, log: logging.Logger, table: TableId, describe: Callable[[], str]
) -> dg.MarkdownMetadataValue:
    """A Markdown text that describes work. An error in it must not change the work: it is logged, and the text
    says so."""
    try:
        return dg.MetadataValue.md(describe())
    except Exception as error:  # noqa: BLE001 - the work goes on
        why = runtime.redacted_error(error)
        text = f"{table}: not described: {type(why).__name__}: {why}"
        log.warning(text)
        return dg.MetadataValue.md(markdown_text(text))


def assessed_view(runtime: Runtime, assessment: Assessment) -> TableView:
    """The view of a table that was just assessed."""
    return TableView(
        runtime.clock.now_ms(),
        assessment.measured,
        assessment.policy,
        assessment.decisions,
        assessment.histories,
        _last_reports(runtime, assessment.measured, assessment.decisions),
    )


def stored_view(
    runtime: Runtime, measured: Measured, after: Mapping[PartitionKey, PartitionHealth]
) -> TableView:
    """The view of a table from stored health, in which the partitions `after` were maintained since."""
    partitions = {**measured.partitions, **after}
    current = replace(measured, partitions={k: h for k, h in partitions.items() if h.data_files})
    policy, now_ms = stored_policy(runtime, measured), runtime.clock.now_ms()
    histories, decisions = stored_decisions(current, policy, runtime.ledger, now_ms, runtime.row_types)
    return TableView(
        now_ms, current, policy, decisions, histories, _last_reports(runtime, current, decisions)
    )


def last_proof(runtime: Runtime, table: str) -> str:
    """The line of the last proof in the newest records; empty if none of them has a commit."""
    proofs = [c for c in certificates(runtime.ledger.records(table, _RECORDS)) if c.committed]
    return proof_line(proofs[-1]) if proofs else ""


def _last_reports(
    runtime: Runtime, measured: Measured, decisions: Sequence[Decision]
) -> dict[Operation, Report]:
    reports = {d.operation: runtime.ledger.last_report(measured.table_uuid, d.operation) for d in decisions}
    return {operation: report for operation, report in reports.items() if report is not None}
