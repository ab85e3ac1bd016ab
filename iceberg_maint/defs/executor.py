"""The executor of our runs: Dagster's in-process executor with a run heartbeat in the ledger.

No `from __future__ import annotations` here: Dagster reads the annotations of its functions.
"""

from collections.abc import Iterator

import dagster as dg
from dagster._core.execution.context.system import PlanOrchestrationContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.retries import RetryMode

from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.telemetry import NO_TELEMETRY, Telemetry
from iceberg_maint.runner.lease import run_heartbeat
from iceberg_maint.runner.watchdog import End, answered_signals


def build_executor(
    ledger: Ledger, telemetry: Telemetry = NO_TELEMETRY, end: End | None = None
) -> dg.ExecutorDefinition:
    """One process per run, so that one run has one Spark session. It has the configuration of Dagster's own. `end` ends the
    process of a run that does not answer a termination; None in other processes."""

    def make(context: dg.InitExecutorContext) -> dg.Executor:
        create = dg.in_process_executor.executor_creation_fn
        assert create is not None  # Dagster's in-process executor has one
        return HeartbeatExecutor(create(context), ledger, telemetry, end)

    return dg.ExecutorDefinition(
        name=dg.in_process_executor.name,
        config_schema=dg.in_process_executor.config_schema.as_field(),
        executor_creation_fn=make,
        description="Executes all steps in one process and records a heartbeat in the ledger.",
    )


class HeartbeatExecutor(dg.Executor):
    """Executes with another executor, and records the heartbeat that `lost_runs` reads. At the end it waits a
    limited time for the receivers of telemetry."""

    def __init__(
        self,
        inner: dg.Executor,
        ledger: Ledger,
        telemetry: Telemetry = NO_TELEMETRY,
        end: End | None = None,
    ) -> None:
        self._inner, self._ledger, self._telemetry, self._end = inner, ledger, telemetry, end

    @property
    def retries(self) -> RetryMode:
        """The retry mode of the other executor."""
        return self._inner.retries

    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Iterator[dg.DagsterEvent]:
        """Yields Dagster's events. The heartbeat starts before the first."""
        with run_heartbeat(self._ledger, plan_context.run_id), answered_signals(self._end):
            try:
                yield from self._inner.execute(plan_context, execution_plan)
            finally:
                self._telemetry.close()
