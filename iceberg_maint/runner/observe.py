"""Observes tables: measures those that have changed, and reports the numbers of all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import DATA_OPERATIONS, TableId
from iceberg_maint.errors import IcebergMaintError, with_code
from iceberg_maint.ports.telemetry import NO_TELEMETRY
from iceberg_maint.runner.assess import assess, report_observed, report_unchanged
from iceberg_maint.runner.fleet_look import Looked, in_order, look
from iceberg_maint.runner.runtime import Runtime
from iceberg_maint.runner.unchanged import UnchangedTable


def observe_tables(
    tables: Sequence[TableId], runtime: Runtime
) -> Iterator[tuple[TableId, Measured | IcebergMaintError]]:
    """Yields every table in order, with its health or with the error of its look. Health is stored as soon as a table is
    read. Decisions are made for the receivers of telemetry only."""
    return in_order(tables, _observed(tables, runtime))


def _observed(
    tables: Sequence[TableId], runtime: Runtime
) -> Iterator[tuple[TableId, Measured | IcebergMaintError]]:
    reports = runtime.telemetry is not NO_TELEMETRY
    for table, looked in look(tables, runtime, observe=True, histories=reports):
        try:
            yield table, _observe(table, looked, runtime, reports=reports)
        except Exception as error:  # noqa: BLE001 - one table must not stop the others
            yield table, with_code(error)


def _observe(
    table: TableId, looked: Looked, runtime: Runtime, *, reports: bool
) -> Measured | IcebergMaintError:
    if isinstance(looked, IcebergMaintError):
        return looked
    if isinstance(looked, UnchangedTable):
        report_unchanged(looked, runtime)
        return looked.measured
    assessment = assess(table, runtime, DATA_OPERATIONS if reports else (), reading=looked)
    report_observed(assessment, runtime)
    return assessment.measured
