"""Reads the next table of a run, while the run writes the one before it."""

from __future__ import annotations

import threading
from contextlib import suppress

from iceberg_maint.core.model.ids import DATA_OPERATIONS, TableId
from iceberg_maint.core.model.reasons import Verdict
from iceberg_maint.runner.assess import make_plans
from iceberg_maint.runner.outlook import assess_requested
from iceberg_maint.runner.request import Request
from iceberg_maint.runner.runtime import Runtime

_WAIT_SECONDS = 5.0
"""A table that takes longer to read is read again by its own run, whose time is limited."""


class PreparedTable:
    """A table that a thread measures and plans. What it reads is in the memory of the table's runtime; every decision
    is made again by the run, under its lease."""

    def __init__(self, table: TableId, request: Request, runtime: Runtime) -> None:
        self._runtime = runtime
        self._own = runtime.of_one_run()
        # A daemon: a run that is terminated does not wait for it.
        self._thread = threading.Thread(
            target=self._read, args=(table, request), name=f"prepare {table}", daemon=True
        )
        self._thread.start()

    def runtime(self) -> Runtime:
        """Returns the runtime for the run of the table: with what was read, unless that takes too long."""
        self._thread.join(_WAIT_SECONDS)
        return self._runtime if self._thread.is_alive() else self._own

    def _read(self, table: TableId, request: Request) -> None:
        operations = tuple(o for o in request.operations if o in DATA_OPERATIONS)
        # The run reads the table again and reports what fails.
        with suppress(Exception):
            assessment = assess_requested(table, request, self._own, operations)
            due = [d.operation for d in assessment.decisions if d.verdict is Verdict.RUN]
            make_plans(assessment.only(due), self._own)
