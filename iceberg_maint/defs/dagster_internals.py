"""The private side of Dagster: every use of it in this project, with its reason and what breaks if Dagster changes it.

No other module imports `dagster._…`; `kept_connections` replaces methods of these storages. The tests of the two modules
fail when Dagster changes what they use.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

# A type of the public argument `target_materialization_data` of `dg.AssetCheckEvaluation`. Without the argument Dagster
# assigns the evaluation of a partition to an older state, and shows the check as missing.
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData as CheckTarget,
)

# A condition on one check by its key. The public `any_checks_match(…).allow(…)` removes the other checks from the set of
# the asset graph itself.
from dagster._core.definitions.declarative_automation.operators.dep_operators import EntityMatchesCondition

# What an own `evaluate_tick` of a sensor returns. A type only.
from dagster._core.definitions.sensor_definition import SensorExecutionData

# The filter of `DagsterInstance.get_backfills`. Without it an asset in a backfill counts as idle.
from dagster._core.execution.backfill import BulkActionsFilter, BulkActionStatus, PartitionBackfill

# Types in the methods that an own `dg.Executor`, a public class, implements. Types only.
from dagster._core.execution.context.system import PlanOrchestrationContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.retries import RetryMode

# Whether a job is that of all assets. Public is only the job of a loaded location. Without it a run that died before
# its first heartbeat stays started.
from dagster._core.remote_representation.code_location import is_implicit_asset_job_name

# The status of a stored evaluation. Public is only whether a check has passed, not that it is planned. Without it
# checks are stored again or stay as they were.
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus as CheckStatus

# The kind of storage, which no public property names. Without it several runs may write SQLite at once, and
# `kept_connections` keeps none.
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.event_log.sqlite import ConsolidatedSqliteEventLogStorage

# Public is the capture of output only as a setting of the whole instance, in its file.
from dagster._core.storage.noop_compute_log_manager import NoOpComputeLogManager
from dagster._core.storage.runs import SqliteRunStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from dagster._serdes import ConfigurableClassData

__all__ = [
    "SQLITE_BUSY_TIMEOUT_SECONDS",
    "CheckStatus",
    "CheckTarget",
    "EntityMatchesCondition",
    "ExecutionPlan",
    "PlanOrchestrationContext",
    "RetryMode",
    "SensorExecutionData",
    "SqliteEventLogStorage",
    "SqliteRunStorage",
    "delete_run_files",
    "executed_run",
    "is_implicit_asset_job_name",
    "stores_in_sqlite",
    "unfinished_backfills",
    "without_captured_output",
]

_EXECUTES_A_RUN = ("core_execute_run", "dagster_run")
"""The function of `dagster._grpc.impl` that every launcher's process calls, and its argument."""


def executed_run() -> dg.DagsterRun | None:
    """Returns the run that the calling process is about to execute. None in every other process.

    Dagster does not name to the definitions the run that loads them. If the function changes, each run loads all
    assets: 48 seconds with 10,000 tables.
    """
    function, variable = _EXECUTES_A_RUN
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == function and frame.f_globals.get("__name__") == "dagster._grpc.impl":
            run = frame.f_locals.get(variable)
            return run if isinstance(run, dg.DagsterRun) else None
        frame = frame.f_back
    return None


def stores_in_sqlite(instance: dg.DagsterInstance) -> bool:
    """Whether the instance stores its events in SQLite."""
    return isinstance(instance.event_log_storage, SqliteEventLogStorage | ConsolidatedSqliteEventLogStorage)


def delete_run_files(instance: dg.DagsterInstance, run_id: str) -> None:
    """Deletes the output of a deleted run, and its event log if that is a file of its own, as SQLite's is.
    `DagsterInstance.delete_run`, the public way, leaves both."""
    instance.compute_log_manager.delete_logs(prefix=[run_id])
    storage = instance.event_log_storage
    if isinstance(storage, SqliteEventLogStorage):
        for suffix in ("", "-wal", "-shm"):
            Path(f"{storage.path_for_shard(run_id)}{suffix}").unlink(missing_ok=True)


def unfinished_backfills(instance: dg.DagsterInstance) -> Sequence[PartitionBackfill]:
    """The backfills that may still start runs."""
    statuses = [BulkActionStatus.REQUESTED, BulkActionStatus.CANCELING]
    return instance.get_backfills(filters=BulkActionsFilter(statuses=statuses))


@contextmanager
def without_captured_output(instance: dg.DagsterInstance) -> Iterator[dg.DagsterInstance]:
    """The same instance, which captures no output of the steps of this process. To capture it, Dagster starts
    four processes that follow the output. In a code server it waits a minute for their end."""
    if not instance.is_persistent:
        yield instance
        return
    no_capture = ConfigurableClassData(NoOpComputeLogManager.__module__, NoOpComputeLogManager.__name__, "{}")
    with dg.DagsterInstance.from_ref(instance.get_ref()._replace(compute_logs_data=no_capture)) as other:
        yield other
