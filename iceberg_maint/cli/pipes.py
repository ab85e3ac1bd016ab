"""`--pipes`: `run` and `observe` of one table report to the Dagster that launched this process over Dagster Pipes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from iceberg_maint.cli.command import terminated_by_signals
from iceberg_maint.cli.context import Session

if TYPE_CHECKING:
    from iceberg_maint.defs.runs.table_run import RunLimits
    from iceberg_maint.loop.context import Context

_LAUNCHED = "DAGSTER_PIPES_CONTEXT"
"""The variable that Dagster sets in a process that it launched. It alone says nothing: a child of such a process has it too."""


def pipes_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--pipes`."""
    return click.option(
        "--pipes", is_flag=True, help="Report to the Dagster that launched this process by Dagster Pipes."
    )(function)


def report_to_dagster(
    session: Session, names: Sequence[str], overrides: Mapping[str, str], limits: RunLimits | None = None
) -> int:
    """Maintains one table within the limits, or without them observes it, as the launching Dagster says. Returns the exit
    code. Raises UsageError for another number of tables, and without a Dagster."""
    from iceberg_maint.defs.runs.pipes_run import INTERRUPT, report_run
    from iceberg_maint.wiring.adapters import end_process

    if len(names) != 1:
        raise click.UsageError("--pipes needs exactly one TABLE.")
    if _LAUNCHED not in os.environ:
        raise click.UsageError(f"--pipes needs a launch by Dagster Pipes: {_LAUNCHED} is not set.")

    @contextmanager
    def start() -> Iterator[Context]:
        context = session.context(overrides).ended_by(end_process)
        with terminated_by_signals(context.engine.cancel, end_process, INTERRUPT):
            yield context

    return report_run(start, names[0], limits)
