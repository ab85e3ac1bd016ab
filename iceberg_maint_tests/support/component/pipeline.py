"""A project of a load and two assets after it, with the maintenance of the table, on an instance: nothing is launched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg
from dagster._core.events import StepMaterializationData
from dagster._core.execution.api import create_execution_plan
from dagster._core.remote_origin import (
    InProcessCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from iceberg_maint import __version__
from iceberg_maint.component import Options, build_iceberg_maintenance_defs
from iceberg_maint.component.launch import Launcher, Receive
from iceberg_maint.component.pipeline import Pipeline, uses_in_progress
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.names import DUE_CHECK, NO_PROGRESS_CHECK, WAITS_CHECK

EVENTS = TableId.parse("lake.db.events")
KEY = dg.AssetKey(["iceberg_maint", "lake", "db", "events"])
PARTITIONS = "iceberg/lake.db.events"
STARTED: dict[str, Any] = {"kind": "started", "version": __version__}
DONE: dict[str, Any] = {"kind": "ended", "outcome": "done", "text": "", "seconds": None}
AUTOMATION = {"dagster/from_automation_condition": "true"}
DAYS = dg.DailyPartitionsDefinition("2026-11-01", end_date="2026-11-05")


@dg.asset(metadata={"dagster/table_name": "lake.db.events"})
def raw_events() -> None:
    """The asset that loads the table."""


@dg.asset(deps=[raw_events], partitions_def=DAYS)
def daily() -> None:
    """An asset that reads it."""


@dg.asset(deps=[daily])
def report() -> None:
    """An asset that does not."""


def health(*due: str, gone: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "kind": "health",
        "partitions": ["p=0", "p=1"],
        "gone": list(gone),
        "due": dict.fromkeys(due, 1.0),
        "due_operations": [],
        "sentence": "a reason",
    }


def materialization(partition: str) -> dict[str, Any]:
    return {
        "kind": "materialization",
        "housekeeping": False,
        "partition": partition,
        "description": None,
        "metadata": "{}",
    }


class PipelineProject:
    """A project of a loader, two assets after it, and the maintenance, on an instance."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        self.launched = 0
        instance.add_dynamic_partitions(PARTITIONS, ["p=0", "p=1"])

    def definitions(self, launcher: Launcher, wait_minutes: int = 60) -> dg.Definitions:
        own = dg.Definitions(assets=[raw_events, daily, report])
        options = Options(wait_minutes=wait_minutes)
        maintenance = build_iceberg_maintenance_defs([EVENTS], launcher, project=own, options=options)
        return dg.Definitions.merge(own, maintenance)

    def sends(
        self,
        *messages: dict[str, Any],
        asked: list[bool] | None = None,
        between: Callable[[], object] | None = None,
    ) -> Launcher:
        """A run that sends these messages. `asked` receives whether it must yield; `between` is called after the first one."""

        def launch(
            _context: dg.AssetExecutionContext,
            _arguments: Sequence[str],
            _extras: Mapping[str, Any],
            receive: Receive,
        ) -> int:
            self.launched += 1
            sent: list[dict[str, Any]] = []
            for number, message in enumerate(messages, 1):
                sent.append({"number": number, **message})
                must_yield = receive(sent)
                if asked is not None:
                    asked.append(must_yield)
                if number == 1 and between is not None:
                    between()
            return 0

        return launch

    def run(
        self,
        launcher: Launcher,
        tags: Mapping[str, str],
        wait_minutes: int = 60,
        partitions: Sequence[str] = ("p=0",),
    ) -> dg.ExecuteInProcessResult:
        job = self.definitions(launcher, wait_minutes).resolve_implicit_global_asset_job_def()
        limits = {
            "dagster/asset_partition_range_start": partitions[0],
            "dagster/asset_partition_range_end": partitions[-1],
        }
        return job.get_subset(asset_selection={KEY}).execute_in_process(
            instance=self.instance, tags={**tags, **limits}, raise_on_error=False
        )

    def observe(self, *due: str, wait_minutes: int = 60, tags: Mapping[str, str] | None = None) -> None:
        launcher = self.sends(STARTED, health(*due), DONE)
        job = self.definitions(launcher, wait_minutes).resolve_implicit_global_asset_job_def()
        check = dg.AssetCheckKey(KEY, NO_PROGRESS_CHECK)
        subset = job.get_subset(asset_selection=set(), asset_check_selection={check})
        assert subset.execute_in_process(instance=self.instance, tags=dict(tags or {})).success

    def begin(
        self, key: dg.AssetKey, status: dg.DagsterRunStatus = dg.DagsterRunStatus.STARTED
    ) -> dg.DagsterRun:
        job = self.definitions(self.sends()).resolve_implicit_global_asset_job_def()
        job = job.get_subset(asset_selection={key})
        tags = {"dagster/partition": "2026-11-02"} if key == daily.key else {}
        return self.instance.create_run_for_job(
            job,
            create_execution_plan(job, tags=tags),
            status=status,
            tags=tags,
            asset_selection=frozenset({key}),
        )

    def enqueue(self, key: dg.AssetKey) -> dg.DagsterRun:
        """A run that waits for its start."""
        job = self.definitions(self.sends()).resolve_implicit_global_asset_job_def()
        location = InProcessCodeLocationOrigin(LoadableTargetOrigin(module_name="host"))
        return self.instance.create_run_for_job(
            job.get_subset(asset_selection={key}),
            status=dg.DagsterRunStatus.QUEUED,
            asset_selection=frozenset({key}),
            remote_job_origin=RemoteJobOrigin(RemoteRepositoryOrigin(location, "host"), job.name),
        )

    def end(self, run: dg.DagsterRun, key: dg.AssetKey) -> None:
        """The end of a run that has materialized the asset."""
        done = StepMaterializationData(
            dg.AssetMaterialization(key, partition=run.tags.get("dagster/partition"))
        )
        event = dg.DagsterEvent("ASSET_MATERIALIZATION", run.job_name, event_specific_data=done)
        self.instance.report_dagster_event(event, run.run_id)
        ended = dg.DagsterEvent("PIPELINE_SUCCESS", run.job_name)
        self.instance.report_dagster_event(ended, run.run_id)

    def uses(self, *keys: dg.AssetKey) -> list[str]:
        return list(uses_in_progress(self.instance, Pipeline(dict.fromkeys(keys, ())), "own"))

    def due(self) -> dict[str, str]:
        check = dg.AssetCheckKey(KEY, DUE_CHECK)
        infos = self.instance.event_log_storage.get_asset_check_partition_info([check])
        return {str(i.partition_key): i.latest_execution_status.value for i in infos}

    def waits(self) -> dg.AssetCheckEvaluation:
        check = dg.AssetCheckKey(KEY, WAITS_CHECK)
        [record] = self.instance.event_log_storage.get_asset_check_execution_history(check, limit=1)
        assert record.evaluation is not None
        return record.evaluation
