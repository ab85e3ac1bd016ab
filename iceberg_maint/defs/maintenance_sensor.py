"""The automation sensors: they evaluate the conditions of the tables and request runs.

No `from __future__ import annotations` here: Dagster reads the annotations of its functions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import dagster as dg
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster_shared.record import copy

from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.model.reasons import CHECK_OF
from iceberg_maint.defs.due_work import IN_SHARED_RUN, TickWork, read_due_work, read_failed_checks, tick
from iceberg_maint.defs.names import ENGINE_TAG, TABLE_TAG
from iceberg_maint.defs.sensors import TABLES_OF_FULL_INTERVAL, chunks, tick_interval
from iceberg_maint.defs.shared_runs import share_runs, tables_of_shared_runs
from iceberg_maint.defs.tick_observation import TickObservation
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.runner.fleet_pass import divide_budget
from iceberg_maint.runner.runtime import Runtime

TABLES_PER_SENSOR = 200
"""An automation sensor in user code accepts 500 assets at most, two per table. Its tick may take a minute."""
AUTOMATION_INTERVAL_SECONDS = 30
"""Seconds between two evaluations of automation at most. Each evaluation queries the ledger once per table."""
CHANGED_PER_TICK = 50
"""Assets without due work that a tick of the automation evaluates at most, because their reason has changed."""


class MaintenanceSensor(dg.AutomationConditionSensorDefinition):
    """An automation sensor whose runs have a tag with the name of their table. With an `observation` it first
    observes few small changed tables.

    A tick reads the due work of all tables at once. Dagster then evaluates the conditions of the assets with due
    work, and of those whose reason has changed: the evaluation of a condition costs far more than the decision.
    """

    def __init__(
        self,
        name: str,
        tables: Sequence[TableId],
        runtime: Runtime,
        translator: IcebergTranslator,
        observation: TickObservation | None,
        **settings: Any,
    ) -> None:
        self._assets = [
            _TableAssets(
                table,
                translator.get_asset_key(table),
                translator.get_housekeeping_key(table),
                {o: translator.get_housekeeping_check_key(table, c.value) for o, c in CHECK_OF.items()},
            )
            for table in tables
        ]
        keys = [key for assets in self._assets for key in (assets.data, assets.housekeeping)]
        super().__init__(name, target=dg.AssetSelection.assets(*keys), use_user_code_server=True, **settings)
        self._names = {key: str(a.table) for a in self._assets for key in (a.data, a.housekeeping)}
        self._runtime, self._observation = runtime, observation
        self._evaluated: dict[dg.AssetKey, str] = {}

    def evaluate_tick(self, context: dg.SensorEvaluationContext) -> SensorExecutionData:
        """Evaluates the conditions. A request of several tables gets no tag: it becomes a backfill, and each
        run of it adds its tag when it starts."""
        if self._observation is not None:
            self._observation.observe(context)
        divide_budget(self._runtime)
        in_shared_run = tables_of_shared_runs(context.instance)
        idle = [a.table for a in self._assets if in_shared_run.isdisjoint((a.data, a.housekeeping))]
        work = TickWork(
            dict.fromkeys((a.table for a in self._assets), IN_SHARED_RUN)
            | read_due_work(self._runtime, idle),
            read_failed_checks(context.instance, [c for a in self._assets for c in a.checks.values()]),
        )
        sentences = self._to_evaluate(work)
        narrowed = dg.AutomationConditionSensorDefinition(
            self.name,
            target=dg.AssetSelection.assets(*sentences),
            use_user_code_server=True,
            run_tags=self.run_tags,
        )
        with tick(work):
            data = narrowed.evaluate_tick(context)
        self._evaluated.update(sentences)
        small = {
            a.data: str(a.table)
            for a in self._assets
            if work.by_table[a.table].shares_run and work.by_table[a.table].partitions
        }
        requests = share_runs(data.run_requests or (), small, self.run_tags or {})
        return copy(data, run_requests=[self._tagged(request) for request in requests])

    def _to_evaluate(self, work: TickWork) -> dict[dg.AssetKey, str]:
        """Returns the assets to evaluate, each with the sentence that its evaluation shows: all that have due work,
        and some of the others whose sentence is another one than at their last evaluation."""
        due: dict[dg.AssetKey, str] = {}
        changed: dict[dg.AssetKey, str] = {}
        for assets in self._assets:
            own = work.by_table[assets.table]
            requested = [o for o in own.allowed if assets.checks[o] in work.failed]
            for key, is_due, sentence in (
                (assets.data, bool(own.partitions), own.sentence),
                (assets.housekeeping, bool(requested), " ".join(requested)),
            ):
                if is_due:
                    due[key] = sentence
                elif self._evaluated.get(key) != sentence:
                    changed[key] = sentence
        return due | dict(islice(changed.items(), CHANGED_PER_TICK))

    def _tagged(self, request: dg.RunRequest) -> dg.RunRequest:
        names = {self._names.get(key) for key in request.asset_selection or ()}
        name = names.pop() if len(names) == 1 else None
        return (
            request if name is None else request.with_replaced_attrs(tags={**request.tags, TABLE_TAG: name})
        )


@dataclass(frozen=True, slots=True)
class _TableAssets:
    """The assets of a table, and the check that requests each operation of its housekeeping."""

    table: TableId
    data: dg.AssetKey
    housekeeping: dg.AssetKey
    checks: Mapping[Operation, dg.AssetCheckKey]


def build_automation_sensors(
    tables: Sequence[TableId],
    runtime: Runtime,
    translator: IcebergTranslator,
    observation: TickObservation,
    status: dg.DefaultSensorStatus,
) -> list[dg.AutomationConditionSensorDefinition]:
    """Automation sensors over all tables.

    They run in the code location: the daemon does not know our own condition and would never evaluate it. In a
    location of few tables the sensor observes changes itself, so that no change waits for two ticks. With more
    tables only `table_changes` does: their pointers are read once.
    """
    observes = len(tables) <= TABLES_OF_FULL_INTERVAL
    return [
        MaintenanceSensor(
            f"maintenance_{number}",
            chunk,
            runtime,
            translator,
            observation if observes else None,
            default_status=status,
            minimum_interval_seconds=tick_interval(AUTOMATION_INTERVAL_SECONDS, len(tables)),
            run_tags={ENGINE_TAG: "spark", "dagster/max_retries": "2"},
            description="Requests the partitions whose maintenance is due, and the housekeeping that is due.",
        )
        for number, chunk in enumerate(chunks(tables, TABLES_PER_SENSOR))
    ]
