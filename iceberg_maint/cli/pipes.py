"""Commands that Dagster launched in this environment over Dagster Pipes: `run` and `observe` of one table then report to it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from iceberg_maint.cli.command import terminated_by_signals
from iceberg_maint.cli.context import Session

if TYPE_CHECKING:
    from iceberg_maint.loop.context import Context

_LAUNCHED = "DAGSTER_PIPES_CONTEXT"
"""The variable that Dagster sets in a process that it launched."""


def launched_by_dagster() -> bool:
    """Whether this process reports to a Dagster."""
    return _LAUNCHED in os.environ


def report_to_dagster(
    session: Session, names: Sequence[str], overrides: Mapping[str, str], *, observes: bool
) -> int:
    """Maintains or `observes` one table as the launching Dagster says, and returns the exit code. Raises UsageError for
    another number of tables."""
    from iceberg_maint.defs.runs.pipes_run import INTERRUPT, report_run
    from iceberg_maint.wiring.adapters import end_process

    if len(names) != 1:
        raise click.UsageError("a command that Dagster launched needs exactly one TABLE.")

    @contextmanager
    def start() -> Iterator[Context]:
        context = session.context(overrides).ended_by(end_process)
        with terminated_by_signals(context.engine.cancel, end_process, INTERRUPT):
            yield context

    return report_run(start, names[0], observes=observes)
