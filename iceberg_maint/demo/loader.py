"""A scheduled job around a function that loads data, for a code location beside the maintainer.

No `from __future__ import annotations` here: Dagster reads the annotations of op functions.
"""

from collections.abc import Callable, Sequence

import dagster as dg


def build_loader(name: str, load: Callable[[], Sequence[str]], cron: str, description: str) -> dg.Definitions:
    """A job of one op, and its schedule, which runs from the first load on. `load` returns sentences for the
    run's log."""

    @dg.op(name=f"{name}_load", description=description)
    def load_data(context: dg.OpExecutionContext) -> None:
        for line in load():
            context.log.info(line)

    @dg.job(name=name, executor_def=dg.in_process_executor, description=description)
    def load_job() -> None:
        load_data()

    schedule = dg.ScheduleDefinition(
        name=f"{name}_schedule",
        job=load_job,
        cron_schedule=cron,
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )
    return dg.Definitions(jobs=[load_job], schedules=[schedule])
