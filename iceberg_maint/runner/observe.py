"""Observes tables: measures those that have changed, and reports the numbers of all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import DATA_OPERATIONS, TableId
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.ports.telemetry import NO_TELEMETRY
from iceberg_maint.runner.assess import assess, report_observed, report_unchanged
from iceberg_maint.runner.runtime import Runtime
from iceberg_maint.runner.unchanged import UnchangedTable, look


def observe_tables(
    tables: Sequence[TableId], runtime: Runtime
) -> Iterator[tuple[TableId, Measured | IcebergMaintError]]:
    """Yields every table in order, with its health or with the error of its look. Decisions are made for the receivers
    of telemetry only."""
    reports = runtime.telemetry is not NO_TELEMETRY
    for table, unchanged in look(tables, runtime, observe=True, histories=reports):
        try:
            yield table, _observe(table, unchanged, runtime, reports=reports)
        except IcebergMaintError as error:
            yield table, error


def _observe(
    table: TableId, unchanged: UnchangedTable | None, runtime: Runtime, *, reports: bool
) -> Measured:
    if unchanged is not None:
        report_unchanged(unchanged, runtime)
        return unchanged.measured
    assessment = assess(table, runtime, DATA_OPERATIONS if reports else ())
    report_observed(assessment, runtime)
    return assessment.measured
