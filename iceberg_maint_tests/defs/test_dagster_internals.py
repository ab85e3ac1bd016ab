"""What this project uses of Dagster's private side is as it expects. These tests fail when Dagster changes it."""

from __future__ import annotations

import inspect
import re
import typing
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.storage.dagster_run import FINISHED_STATUSES
from dagster._grpc import impl

from iceberg_maint.defs import dagster_internals as internals
from iceberg_maint.defs.instance import ENDED_STATUSES, UNFINISHED_STATUSES

pytestmark = pytest.mark.slow

PACKAGE = Path(internals.__file__).resolve().parent.parent


def test_private_modules_of_dagster_are_imported_in_one_module_only() -> None:
    private = re.compile(r"^\s*(from|import) dagster\w*\._", re.MULTILINE)
    importers = {
        str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob("*.py") if private.search(p.read_text("utf-8"))
    }
    assert importers == {"defs/dagster_internals.py"}


def test_types_of_public_signatures_are_those_of_the_module() -> None:
    execute = inspect.signature(dg.Executor.execute).parameters
    assert execute["plan_context"].annotation in (
        "PlanOrchestrationContext",
        internals.PlanOrchestrationContext,
    )
    assert execute["execution_plan"].annotation in ("ExecutionPlan", internals.ExecutionPlan)
    assert isinstance(dg.in_process_executor.executor_creation_fn, typing.Callable)
    ticks = typing.get_type_hints(dg.AutomationConditionSensorDefinition.evaluate_tick)
    assert ticks["return"] is internals.SensorExecutionData
    assert "run_requests" in internals.SensorExecutionData.__annotations__
    targets = inspect.signature(dg.AssetCheckEvaluation.__new__).parameters
    assert "target_materialization_data" in targets
    assert list(internals.CheckTarget._fields) == ["storage_id", "run_id", "timestamp"]


def test_statuses_of_runs_and_evaluations_are_known() -> None:
    assert {s.value for s in internals.CheckStatus} == {"PLANNED", "SUCCEEDED", "FAILED"}
    assert {*ENDED_STATUSES, *UNFINISHED_STATUSES} == set(dg.DagsterRunStatus)
    assert set(ENDED_STATUSES) == set(FINISHED_STATUSES)


def test_job_of_all_assets_is_implicit_and_another_one_is_not() -> None:
    job = dg.Definitions(assets=[dg.AssetSpec("a")]).resolve_implicit_global_asset_job_def()
    assert internals.is_implicit_asset_job_name(job.name)
    assert not internals.is_implicit_asset_job_name("observe_iceberg")


def test_process_of_a_run_calls_the_function_with_the_run() -> None:
    function, variable = internals._EXECUTES_A_RUN
    code = getattr(impl, function).__code__
    assert variable in code.co_varnames


def test_storage_of_an_instance_is_told_by_its_kind(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as stored:
        assert internals.stores_in_sqlite(stored)
    with dg.DagsterInstance.ephemeral() as in_memory:
        assert not internals.stores_in_sqlite(in_memory)


@pytest.mark.parametrize(
    ("status", "unfinished"),
    [
        (BulkActionStatus.REQUESTED, True),
        (BulkActionStatus.CANCELING, True),
        (BulkActionStatus.COMPLETED_SUCCESS, False),
        (BulkActionStatus.CANCELED, False),
    ],
)
def test_backfill_that_may_start_runs_is_unfinished(status: BulkActionStatus, unfinished: bool) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        backfill = PartitionBackfill(
            "b",
            status,
            from_failure=False,
            tags={},
            backfill_timestamp=0.0,
            asset_selection=[dg.AssetKey("a")],
        )
        instance.add_backfill(backfill)
        ids = [b.backfill_id for b in internals.unfinished_backfills(instance)]
        assert ids == (["b"] if unfinished else [])


def test_instance_without_captured_output_has_the_same_storage_and_captures_nothing(tmp_path: Path) -> None:
    with (
        dg.DagsterInstance.local_temp(str(tmp_path)) as stored,
        internals.without_captured_output(stored) as quiet,
    ):
        assert quiet.root_directory == stored.root_directory
        assert type(quiet.compute_log_manager).__name__ == "NoOpComputeLogManager"
