"""The observe job: measures tables, updates their partition keys, and reports their health to Dagster.

No `from __future__ import annotations` here: Dagster reads the annotations of op functions.
"""

from collections.abc import Sequence

import dagster as dg

from iceberg_maint.core.model.ids import (
    TableId,
)
from iceberg_maint.defs.automation.due_work import (
    read_pointers,
)
from iceberg_maint.defs.automation.observations import (
    read_signs,
)
from iceberg_maint.defs.instance import initialize_pools
from iceberg_maint.defs.names import OBSERVE_JOB
from iceberg_maint.defs.runs.kept_connections import kept_connections
from iceberg_maint.defs.runs.table_report import TableReports
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import UnknownTableError
from iceberg_maint.loop.context import Context
from iceberg_maint.report.formatting import counted

OBSERVE_AGAIN_AFTER_MS = 6 * 3600 * 1000
"""An unchanged table is measured again after this time: deletes age, and the policy may change."""


class ObserveConfig(dg.Config):
    """The tables to measure.

    `tables`: full names; empty for all tables of this code location. `changed_only`: leave out tables
    that have not changed since the last measurement.
    """

    tables: list[str] = []  # noqa: RUF012 - pydantic copies defaults
    changed_only: bool = True


def build_observe_job(
    tables: Sequence[TableId],
    loop_context: Context,
    translator: IcebergTranslator,
    executor: dg.ExecutorDefinition,
) -> dg.JobDefinition:
    """One op over all tables: the start of a run costs more than the measurement of a table."""

    @dg.op(name="observe_tables")
    def observe_tables(context: dg.OpExecutionContext, config: ObserveConfig) -> None:
        names = set(config.tables)
        chosen = [t for t in tables if not names or str(t) in names]
        for name in sorted(names - {str(t) for t in chosen}):
            context.log.warning(f"{name} is no table of this code location and is not observed.")
        with kept_connections(context.instance):
            initialize_pools(context.instance, chosen, translator)
        Observation(context, tables, loop_context, translator).observe(
            chosen, changed_only=config.changed_only
        )

    @dg.job(
        name=OBSERVE_JOB,
        executor_def=executor,
        tags={"dagster/priority": "10"},
        description="Measures tables from metadata, without Spark, and evaluates their checks.",
    )
    def observe_iceberg() -> None:
        observe_tables()

    return observe_iceberg


class Observation:
    """The observation of some of the `loaded` tables. A table that cannot be read is reported and does not
    stop the others."""

    def __init__(
        self,
        context: dg.OpExecutionContext,
        loaded: Sequence[TableId],
        loop_context: Context,
        translator: IcebergTranslator,
    ) -> None:
        self._context, self._loaded, self._loop_context = context, loaded, loop_context
        self._translator = translator

    def observe(self, tables: Sequence[TableId], *, changed_only: bool) -> None:
        """Raises Failure if no due table could be read, and no other table of the code location is known
        to be readable. A single broken table has its own check."""
        reports = TableReports(self._context, self._loop_context, self._translator)
        failed = 0
        todo = self._due(tables) if changed_only else tables
        for table in todo:
            try:
                reports.report(table)
            except UnknownTableError as why:
                self._gone(table, why)
            except Exception as why:  # noqa: BLE001 - one table must not stop the others
                failed += 1
                reports.report_unreadable(table, why)
        self._context.log.info(
            f"{counted(len(tables), 'table')}, {len(todo)} measured or tried, {failed} unreadable"
        )
        if failed and failed == len(todo) and not self._reads_any_but(todo):
            raise dg.Failure(f"None of {failed} tables could be read.", allow_retries=False)

    def _reads_any_but(self, tables: Sequence[TableId]) -> bool:
        """Whether the pointer of another table in its catalog is the pointer that was measured last."""
        others = set(self._loaded).difference(tables)
        pointers = read_pointers(self._loop_context, others)
        return any(
            k.table in others and pointers.get(k.table) == k.pointer
            for k in self._loop_context.ledger.health.known_tables()
        )

    def _due(self, tables: Sequence[TableId]) -> list[TableId]:
        """Tables that changed since Dagster observed them, are new to the ledger or to Dagster, or were
        observed long ago.

        The tables of a catalog that does not answer are due too, so that its error becomes visible.
        """
        known = {k.table for k in self._loop_context.ledger.health.known_tables()}
        oldest_ms = self._loop_context.ledger.registry.now_ms() - OBSERVE_AGAIN_AFTER_MS
        return [
            s.table
            for s in read_signs(tables, self._loop_context, self._context.instance, self._translator)
            if s.table not in known
            or s.pointer is None
            or s.last is None
            or s.changed()
            or s.last.observed_ms <= oldest_ms
        ]

    def _gone(self, table: TableId, why: UnknownTableError) -> None:
        """The catalog has no such table. Its partitions stay until the table list drops it."""
        self._context.log.warning(f"{table}: {self._loop_context.process.masked(str(why))}")
        if table not in self._loop_context.catalogs.of(table).tables():
            self._loop_context.ledger.health.forget_table(table)
