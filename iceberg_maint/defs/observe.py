"""The observe job: measures tables, updates their partition keys, and reports their health to Dagster.

No `from __future__ import annotations` here: Dagster reads the annotations of op functions.
"""

from collections.abc import Sequence

import dagster as dg

from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import CYCLE, DATA_OPERATIONS, TableId
from iceberg_maint.defs.checks import (
    housekeeping_evaluations,
    log_evaluations,
    outdated,
    partition_evaluations,
    table_evaluations,
    unreadable_evaluation,
)
from iceberg_maint.defs.instance import busy_assets, initialize_pools
from iceberg_maint.defs.metadata import (
    WORST_PARTITIONS,
    label,
    partition_metadata,
    rank,
    table_metadata,
)
from iceberg_maint.defs.names import OBSERVE_JOB
from iceberg_maint.defs.stored_health import last_expiry, last_orphan_pass, read_pointers
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import IcebergMaintError, UnknownTableError
from iceberg_maint.runner.assess import Assessment, assess
from iceberg_maint.runner.runtime import Runtime

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
    runtime: Runtime,
    translator: IcebergTranslator,
    executor: dg.ExecutorDefinition,
) -> dg.JobDefinition:
    """One op over all tables: the start of a run costs more than the measurement of a table."""

    @dg.op(name="observe_tables")
    def observe_tables(context: dg.OpExecutionContext, config: ObserveConfig) -> None:
        names = set(config.tables)
        chosen = [t for t in tables if not names or str(t) in names]
        for name in sorted(names - {str(t) for t in chosen}):
            context.log.warning(f"{name} is no table of this code location; it is left out.")
        initialize_pools(context.instance, chosen, translator)
        Observation(context, tables, runtime, translator).observe(chosen, changed_only=config.changed_only)

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
    """One pass over some of the `loaded` tables. A table that cannot be read is reported and does not
    stop the others."""

    def __init__(
        self,
        context: dg.OpExecutionContext,
        loaded: Sequence[TableId],
        runtime: Runtime,
        translator: IcebergTranslator,
    ) -> None:
        self._context = context
        self._loaded = loaded
        self._instance = context.instance
        self._runtime = runtime
        self._translator = translator
        self._busy = busy_assets(context.instance)

    def observe(self, tables: Sequence[TableId], *, changed_only: bool) -> None:
        """Raises Failure if no due table could be read, and no other table of the code location is known
        to be readable. A single broken table has its own check."""
        failed = 0
        todo = self._due(tables) if changed_only else tables
        for table in todo:
            try:
                self._observe_table(table)
            except UnknownTableError as why:
                self._gone(table, why)
            except Exception as why:  # noqa: BLE001 - one table must not stop the others
                failed += 1
                self._unreadable(table, why)
        self._context.log.info(f"{len(tables)} tables, {len(todo)} measured or tried, {failed} unreadable")
        if failed and failed == len(todo) and not self._reads_any_but(todo):
            raise dg.Failure(f"None of {failed} tables could be read.", allow_retries=False)

    def _reads_any_but(self, tables: Sequence[TableId]) -> bool:
        """Whether the pointer of another table in its catalog is the pointer that was measured last."""
        others = set(self._loaded).difference(tables)
        pointers = read_pointers(self._runtime, others)
        return any(
            k.table in others and pointers.get(k.table) == k.pointer
            for k in self._runtime.ledger.known_tables()
        )

    def _due(self, tables: Sequence[TableId]) -> list[TableId]:
        """Tables that changed, are new to the ledger or to Dagster, or were measured long ago.

        The tables of a catalog that does not answer are due too, so that its error becomes visible.
        """
        known = {k.table: k for k in self._runtime.ledger.known_tables()}
        pointers = read_pointers(self._runtime, tables)
        oldest_ms = self._runtime.ledger.now_ms() - OBSERVE_AGAIN_AFTER_MS
        return [
            t
            for t in tables
            if t not in known
            or pointers.get(t) != known[t].pointer
            or known[t].observed_ms <= oldest_ms
            or not self._instance.get_dynamic_partitions(self._translator.get_partitions_name(t))
        ]

    def _observe_table(self, table: TableId) -> None:
        before = self._runtime.ledger.health(table)
        assessment = assess(table, self._runtime, CYCLE)
        data = assessment.only(DATA_OPERATIONS)
        self._sync_partitions(data.measured)
        self._log_partitions(data, before)
        self._log_checks(data)
        last_pass = last_orphan_pass(self._runtime, assessment.state.uuid)
        last = last_expiry(self._runtime, assessment.state.uuid)
        cursors = self._runtime.ledger.cursors(assessment.state.uuid)
        log_evaluations(
            self._context, housekeeping_evaluations(assessment, self._translator, last_pass, last)
        )
        # The table's event comes last and has its own labels: Dagster plots the last hundred events of an asset.
        self._context.log_event(
            dg.AssetObservation(
                self._translator.get_asset_key(table),
                description=f"{data.decision.verdict.value} ({data.decision.reason.value})",
                metadata=table_metadata(data.measured, data.policy, data.history, data.decision, cursors),
            )
        )

    def _sync_partitions(self, measured: Measured) -> None:
        """Adds new keys. Deletes keys that the ledger has retired, unless a run uses the asset."""
        name = self._translator.get_partitions_name(measured.table)
        known = set(self._instance.get_dynamic_partitions(name))
        if new := sorted(set(measured.partitions) - known):
            self._instance.add_dynamic_partitions(name, new)
        retired = known & set(self._runtime.ledger.retired_partitions(measured.table))
        retired -= set(measured.partitions)
        if not retired or self._busy(self._translator.get_asset_key(measured.table)):
            return
        for key in sorted(retired):
            self._instance.delete_dynamic_partition(name, key)

    def _log_partitions(self, assessment: Assessment, before: Measured | None) -> None:
        """Observes the worst unhealthy partitions, then changed ones.

        Only few: Dagster plots the last hundred events of an asset.
        """
        old = before.partitions if before is not None else {}
        measured = assessment.measured.partitions
        ranked = [p for p in rank(assessment.decision) if p.partition in measured]
        unhealthy = [p for p in ranked if p.findings]
        changed = [
            p
            for p in ranked
            if not p.findings and p.partition in old and old[p.partition] != measured[p.partition]
        ]
        for p in reversed((unhealthy + changed)[:WORST_PARTITIONS]):
            self._context.log_event(
                dg.AssetObservation(
                    self._translator.get_asset_key(assessment.measured.table),
                    partition=p.partition,
                    metadata=partition_metadata(measured[p.partition], p),
                )
            )

    def _log_checks(self, assessment: Assessment) -> None:
        now_ms = self._runtime.clock.now_ms()
        unhealthy = [p.partition for p in rank(assessment.decision) if p.findings]
        stale = outdated(
            self._instance, self._translator, assessment.measured, assessment.policy, now_ms, unhealthy
        )
        evaluations = partition_evaluations(
            self._instance, self._translator, assessment.measured, assessment.policy, now_ms, stale
        )
        log_evaluations(self._context, evaluations)
        log_evaluations(
            self._context, table_evaluations(assessment.measured.table, self._translator, assessment.history)
        )

    def _gone(self, table: TableId, why: UnknownTableError) -> None:
        """The catalog has no such table. Its partitions stay until the table list drops it."""
        self._context.log.warning(f"{table}: {self._runtime.masked(str(why))}")
        if table not in self._runtime.catalog_of(table).tables():
            self._runtime.ledger.forget_table(table)

    def _unreadable(self, table: TableId, error: Exception) -> None:
        why = self._runtime.redacted_error(error)
        known = isinstance(why, IcebergMaintError)
        text = str(why) if known else f"{type(why).__name__}: {why}"
        self._context.log.error(f"{table}: {text}", exc_info=None if known else why)
        log_evaluations(self._context, [unreadable_evaluation(table, self._translator, text)])
        self._context.log_event(
            dg.AssetObservation(
                self._translator.get_asset_key(table),
                metadata={label("table_error"): dg.MetadataValue.text(text)},
            )
        )
