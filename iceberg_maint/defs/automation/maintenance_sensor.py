"""The automation sensors: which assets a tick evaluates, and which of their runs are put together."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from typing import Any

import dagster as dg
from dagster_shared.record import copy

from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.model.reasons import CHECK_OF
from iceberg_maint.defs.automation.due_work import (
    IN_SHARED_RUN,
    DueWork,
    TickWork,
    read_due_work,
    read_failed_checks,
    tick,
)
from iceberg_maint.defs.automation.sensors import TABLES_OF_FULL_INTERVAL, chunks, tick_interval
from iceberg_maint.defs.automation.tick_observation import WORK_SECONDS, TickObservation, TickTime
from iceberg_maint.defs.dagster_internals import SensorExecutionData
from iceberg_maint.defs.instance import UNFINISHED_STATUSES
from iceberg_maint.defs.names import ENGINE_TAG, SHARED_TAG, TABLE_TAG
from iceberg_maint.defs.runs.kept_connections import kept_connections
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.fleet.budget import divide_budget
from iceberg_maint.report.formatting import shortened

TABLES_PER_SHARED_RUN = 50
"""Tables in one shared run at most. The work of a run that dies is divided among later ones."""


def tables_of_shared_runs(instance: dg.DagsterInstance) -> frozenset[dg.AssetKey]:
    """Returns the assets of the shared runs that have not ended. Dagster counts no partition of theirs as in progress:
    such a run has no partition key."""
    runs = instance.get_runs(dg.RunsFilter(statuses=UNFINISHED_STATUSES, tags={SHARED_TAG: "true"}))
    return frozenset(key for run in runs for key in run.asset_selection or ())


def share_runs(
    requests: Sequence[dg.RunRequest], small: Mapping[dg.AssetKey, str], tags: Mapping[str, str]
) -> Iterator[dg.RunRequest]:
    """Yields the requests, with those for the assets of `small` tables, given as key → name, put together. The others
    stay as they are, and so does everything if fewer than two small tables are requested."""
    shared = sorted({key for request in requests for key in _keys(request) if key in small})
    if len(shared) < 2:
        yield from requests
        return
    for request in requests:
        if (rest := _without(request, shared.__contains__)) is not None:
            yield rest
    for start in range(0, len(shared), TABLES_PER_SHARED_RUN):
        keys = shared[start : start + TABLES_PER_SHARED_RUN]
        names = shortened([small[key] for key in keys])
        yield dg.RunRequest(asset_selection=keys, tags={**tags, SHARED_TAG: "true", TABLE_TAG: names})


def _keys(request: dg.RunRequest) -> Collection[dg.AssetKey]:
    subset = request.asset_graph_subset
    return subset.asset_keys if subset is not None else request.asset_selection or ()


def _without(request: dg.RunRequest, is_shared: Callable[[dg.AssetKey], bool]) -> dg.RunRequest | None:
    """Returns what the request asks for beside the shared assets; None if that is nothing."""
    keys = [key for key in _keys(request) if not is_shared(key)]
    if not keys:
        return None
    subset = request.asset_graph_subset
    if subset is None:
        return request.with_replaced_attrs(asset_selection=keys)
    partitions = {k: s for k, s in subset.partitions_subsets_by_asset_key.items() if not is_shared(k)}
    rest = subset._replace(partitions_subsets_by_asset_key=partitions)
    return dg.RunRequest.for_asset_graph_subset(rest, request.tags)


TABLES_PER_SENSOR = 200
"""An automation sensor in user code accepts 500 assets at most, two per table. Its tick may take a minute."""
AUTOMATION_INTERVAL_SECONDS = 30
"""Seconds between two evaluations of automation at most. Each evaluation queries the ledger once per table."""
CHANGED_PER_TICK = 50
"""Assets without due work that a tick of the automation evaluates at most, because their reason has changed."""
_TABLES_AT_FIRST = 5
"""Tables whose due work a tick reads whatever that takes."""
_LEAST_SECONDS = 0.005
"""The evaluation of the two assets of a table with few partitions takes so long at least."""
_PARTITIONS_PER_UNIT = 100
"""Due partitions that take about as long as a table."""
_RUN_TAGS = {
    ENGINE_TAG: "spark",
    "dagster/max_retries": "2",
    "dagster/retry_on_asset_or_op_failure": "false",
}
"""Dagster runs again what crashed. Failed work waits by the ledger's back-off: by Dagster's default an instance would
repeat it at once, until the partition is in quarantine."""


_SELECTED: ContextVar[dg.AssetSelection | None] = ContextVar("iceberg_maint_selected", default=None)


class MaintenanceSensor(dg.AutomationConditionSensorDefinition):
    """An automation sensor whose runs have a tag with the name of their table. With an `observation` it first
    observes few small changed tables.

    A tick reads the due work of all tables at once. Dagster then evaluates the conditions of the assets with due
    work, and of those whose reason has changed: the evaluation of a condition costs far more than the decision. What does
    not fit into the time of a tick is done in the next ones. A new process begins again with the first table.
    """

    def __init__(
        self,
        name: str,
        tables: Sequence[TableId],
        context: Context,
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
        self._context, self._observation = context, observation
        self._evaluated: dict[dg.AssetKey, str] = {}
        self._evaluated_at: dict[dg.AssetKey, int] = {}
        self._seconds_per_unit, self._ticks, self._next = _LEAST_SECONDS, 0, 0

    @property
    def asset_selection(self) -> dg.AssetSelection:
        """The assets of the sensor; within a tick those to evaluate. Another definition of each tick would warn that sensors in
        user code are beta."""
        return _SELECTED.get() or super().asset_selection

    def evaluate_tick(self, context: dg.SensorEvaluationContext) -> SensorExecutionData:
        """Evaluates the conditions. A request of several tables gets no tag: it becomes a backfill, and each
        run of it adds its tag when it starts."""
        time = TickTime(self._context.clock)
        if self._observation is not None:
            self._observation.observe(context, time)
        divide_budget(self._context)
        with kept_connections(context.instance):
            work = self._read_work(context.instance, time)
            sentences = self._to_evaluate(work)
            began = self._context.clock.monotonic_seconds()
            selected = _SELECTED.set(dg.AssetSelection.assets(*sentences))
            try:
                with tick(work):
                    data = super().evaluate_tick(context)
            finally:
                _SELECTED.reset(selected)
        self._learn(work, sentences, self._context.clock.monotonic_seconds() - began)
        self._evaluated.update(sentences)
        small = {
            a.data: str(a.table)
            for a in self._assets
            if (own := work.by_table.get(a.table)) and own.shares_run and own.partitions
        }
        requests = share_runs(data.run_requests or (), small, self.run_tags or {})
        return copy(data, run_requests=[self._tagged(request) for request in requests])

    def _read_work(self, instance: dg.DagsterInstance, time: TickTime) -> TickWork:
        """The due work of the tables, from the one on with which the last tick ended, until the time of the tick is over."""
        in_shared_run = tables_of_shared_runs(instance)
        ordered = self._assets[self._next :] + self._assets[: self._next]
        by_table: dict[TableId, DueWork] = {}
        checks: list[dg.AssetCheckKey] = []
        for part in time.parts(ordered, _TABLES_AT_FIRST):
            idle = [a.table for a in part if in_shared_run.isdisjoint((a.data, a.housekeeping))]
            by_table |= dict.fromkeys((a.table for a in part), IN_SHARED_RUN)
            by_table |= read_due_work(self._context, idle)
            checks += [c for a in part for c in a.checks.values()]
        self._next = (self._next + len(by_table)) % len(self._assets) if self._assets else 0
        return TickWork(by_table, read_failed_checks(instance, checks))

    def _to_evaluate(self, work: TickWork) -> dict[dg.AssetKey, str]:
        """Returns the assets to evaluate, each with the sentence that its evaluation shows: those that have due work, as
        long as the tick's time allows by the time that earlier ones took, and some of the others whose sentence is another
        one than at their last evaluation. What does not fit comes first in a later tick."""
        due: dict[dg.AssetKey, str] = {}
        changed: dict[dg.AssetKey, str] = {}
        seconds = 0.0
        for assets in sorted(self._assets, key=lambda a: self._evaluated_at.get(a.data, 0)):
            if (own := work.by_table.get(assets.table)) is None:
                continue
            requested = [o for o in own.allowed if assets.checks[o] in work.failed]
            cost = self._seconds_per_unit * _units(own)
            fits = seconds == 0 or seconds + cost <= WORK_SECONDS
            if fits and (own.partitions or requested):
                seconds += cost
            for key, is_due, sentence in (
                (assets.data, bool(own.partitions), own.sentence),
                (assets.housekeeping, bool(requested), " ".join(requested)),
            ):
                if is_due and fits:
                    due[key] = sentence
                elif not is_due and self._evaluated.get(key) != sentence:
                    changed[key] = sentence
        return due | dict(islice(changed.items(), CHANGED_PER_TICK))

    def _learn(self, work: TickWork, evaluated: Collection[dg.AssetKey], seconds: float) -> None:
        """Learns how long an evaluation takes on this machine, and keeps the order of the evaluations."""
        self._ticks += 1
        units = 0.0
        for assets in self._assets:
            if assets.data in evaluated or assets.housekeeping in evaluated:
                self._evaluated_at[assets.data] = self._ticks
                units += _units(work.by_table[assets.table])
        if units:
            self._seconds_per_unit = max(_LEAST_SECONDS, seconds / units)

    def _tagged(self, request: dg.RunRequest) -> dg.RunRequest:
        names = {self._names.get(key) for key in request.asset_selection or ()}
        name = names.pop() if len(names) == 1 else None
        return (
            request if name is None else request.with_replaced_attrs(tags={**request.tags, TABLE_TAG: name})
        )


def _units(work: DueWork) -> float:
    """What the evaluation of a table costs, in tables with one due partition."""
    return 1 + len(work.partitions) / _PARTITIONS_PER_UNIT


@dataclass(frozen=True, slots=True)
class _TableAssets:
    """The assets of a table, and the check that requests each operation of its housekeeping."""

    table: TableId
    data: dg.AssetKey
    housekeeping: dg.AssetKey
    checks: Mapping[Operation, dg.AssetCheckKey]


def build_automation_sensors(
    tables: Sequence[TableId],
    context: Context,
    translator: IcebergTranslator,
    observation: TickObservation,
) -> list[dg.AutomationConditionSensorDefinition]:
    """Automation sensors over all tables.

    They run in the code location: the daemon does not know our own condition and would never evaluate it. In a
    location of few tables the sensor observes changes itself, so that no change waits for two ticks. With more
    tables only `table_changes` does: their pointers are read once.
    """
    observes = len(tables) <= TABLES_OF_FULL_INTERVAL
    return [
        MaintenanceSensor(
            "due_maintenance" if number == 1 else f"due_maintenance_{number}",
            chunk,
            context,
            translator,
            observation if observes else None,
            default_status=dg.DefaultSensorStatus.RUNNING,
            minimum_interval_seconds=tick_interval(AUTOMATION_INTERVAL_SECONDS, len(tables)),
            run_tags=_RUN_TAGS,
            description="Requests the partitions whose maintenance is due, and the housekeeping that is due.",
        )
        for number, chunk in enumerate(chunks(tables, TABLES_PER_SENSOR), start=1)
    ]
