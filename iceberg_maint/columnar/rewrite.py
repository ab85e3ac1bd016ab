"""Runs a task of the columnar engine."""

from __future__ import annotations

from iceberg_maint.columnar.task import RewriteResult, RewriteTask


def rewrite(task: RewriteTask) -> RewriteResult:
    """Writes the output file of a task and proves it. Commits nothing.

    Raises UnsupportedColumnError before it writes, WrongInputError if an input does not hold what the task states.
    """
    raise NotImplementedError(task.output_path)
