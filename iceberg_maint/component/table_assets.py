"""The two assets of a table in a project of Dagster that loads the table: their checks, their automation, and their edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

import dagster as dg

from iceberg_maint.component.pipeline import Pipeline
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.assets.table_specs import (
    check_specs,
    housekeeping_check_specs,
    housekeeping_spec,
    table_spec,
)
from iceberg_maint.defs.dagster_internals import EntityMatchesCondition
from iceberg_maint.defs.names import DUE_CHECK, NO_PROGRESS_CHECK, WAITS_CHECK
from iceberg_maint.defs.translator import IcebergTranslator

_DUE_CRITERION = "No maintenance is due by policy, history and pauses."
_WAITS_CRITERION = "Due maintenance has not waited for loads and readers for longer than its limit."
_Condition = dg.AutomationCondition
OBSERVE_CRON = "*/30 * * * *"
"""When tables are measured that no load has changed: deletes age, and other programs write too."""


@dataclass(frozen=True, slots=True)
class TableAssets:
    """The specs of a table. The loaders of the `pipeline` are upstream of both. The names are the translator's."""

    table: TableId
    pipeline: Pipeline
    data: dg.AssetSpec
    housekeeping: dg.AssetSpec
    data_checks: tuple[dg.AssetCheckSpec, ...]
    housekeeping_checks: tuple[dg.AssetCheckSpec, ...]
    partitions: str
    pool: str


def table_assets(
    table: TableId,
    translator: IcebergTranslator,
    pipeline: Pipeline,
    observe_cron: str | None,
    *,
    blocking: bool,
) -> TableAssets:
    """The specs of a table. It is measured after its loads and at `observe_cron`; None: nothing starts by itself. The checks of thresholds are `blocking`, or not."""
    data_key, housekeeping_key = translator.get_asset_key(table), translator.get_housekeeping_key(table)
    loaders, waits = pipeline.loaders, dg.AssetCheckKey(data_key, WAITS_CHECK)
    due = None if observe_cron is None else _due(data_key, pipeline, waits)
    housekeeping_due = None
    if observe_cron is not None:
        housekeeping_due = _due(housekeeping_key, pipeline, waits) & ~_in_progress(data_key)
    # A load may have partitions of its own, which are not those of the files.
    deps = [dg.AssetDep(key, partition_mapping=dg.AllPartitionMapping()) for key in loaders]
    data = table_spec(table, translator, due).merge_attributes(deps=deps)
    housekeeping = housekeeping_spec(table, translator, housekeeping_due)
    partitioned = dg.DynamicPartitionsDefinition(name=translator.get_partitions_name(table))
    checks = [
        _as_wanted(spec, loaders, observe_cron, blocking=blocking) for spec in check_specs(table, translator)
    ]
    checks += [
        dg.AssetCheckSpec(DUE_CHECK, asset=data_key, description=_DUE_CRITERION, partitions_def=partitioned),
        dg.AssetCheckSpec(WAITS_CHECK, asset=data_key, description=_WAITS_CRITERION),
    ]
    own = dg.AssetCheckSpec(DUE_CHECK, asset=housekeeping_key, description=_DUE_CRITERION)
    return TableAssets(
        table,
        pipeline,
        data,
        housekeeping,
        tuple(checks),
        (*housekeeping_check_specs(table, translator), own),
        translator.get_partitions_name(table),
        translator.get_pool(table),
    )


def _as_wanted(
    spec: dg.AssetCheckSpec,
    loaders: Sequence[dg.AssetKey],
    observe_cron: str | None,
    *,
    blocking: bool,
) -> dg.AssetCheckSpec:
    """The check with its place in the automation: one of them is evaluated after each load, which measures the table."""
    observes = spec.name == NO_PROGRESS_CHECK
    return dg.AssetCheckSpec(
        spec.name,
        asset=spec.asset_key,
        description=spec.description,
        partitions_def=spec.partitions_def,
        blocking=blocking and spec.partitions_def is not None,
        additional_deps=loaders if observes else None,
        automation_condition=_observed(loaders, observe_cron)
        if observes and observe_cron is not None
        else None,
    )


def _observed(loaders: Sequence[dg.AssetKey], observe_cron: str) -> dg.AutomationCondition[Any]:
    """At the times of the schedule and once at first, and after each load, when no load is in progress."""
    begins = _requested(_Condition.missing().newly_true() | _Condition.cron_tick_passed(observe_cron))
    if loaders:
        chosen = dg.AssetSelection.assets(*loaders)
        loaded = _requested(_Condition.any_deps_match(_Condition.newly_updated()).allow(chosen))
        begins |= loaded & ~_Condition.any_deps_in_progress().allow(chosen)
    return begins & ~_Condition.in_progress()


def _requested(begins: dg.AutomationCondition[Any]) -> dg.AutomationCondition[Any]:
    """From its beginning until it is requested."""
    # A load that ends in the tick after a request may be newer than what the requested run reads.
    return begins.since(_Condition.newly_requested() & ~begins)


def _due(
    key: dg.AssetKey, pipeline: Pipeline, waits: dg.AssetCheckKey
) -> dg.AutomationCondition[dg.AssetKey]:
    """Due by the last measurement, and not in progress. It waits for loads and readers until the check `waits` fails."""
    due = _failed(dg.AssetCheckKey(key, DUE_CHECK), "maintenance is due") & ~_Condition.in_progress()
    if not pipeline.readers:
        return due
    # From a table the way to a reader leads over its loader, whose partitions map to those of both.
    used = reduce(or_, (_in_progress(loader, *readers) for loader, readers in pipeline.readers.items()))
    return due & (~used | _failed(waits, "waited too long"))


def _failed(check: dg.AssetCheckKey, label: str) -> dg.AutomationCondition[Any]:
    matches = EntityMatchesCondition[Any, Any](key=check, operand=_Condition.check_failed())
    return matches.with_label(label)


def _in_progress(key: dg.AssetKey, *readers: dg.AssetKey) -> dg.AutomationCondition[Any]:
    operand: dg.AutomationCondition[Any] = _Condition.in_progress()
    for reader in readers:
        operand |= _in_progress(reader)
    matches = EntityMatchesCondition[Any, Any](key=key, operand=operand)
    return matches.with_label(f"{' or '.join(k.to_user_string() for k in (key, *readers))} is in progress")
