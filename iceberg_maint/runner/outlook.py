"""Outlook: one assessment of a table for the operations of a run that find nothing to do."""

from __future__ import annotations

from collections.abc import Sequence

from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation, TableId
from iceberg_maint.runner.assess import Assessment, assess
from iceberg_maint.runner.request import Request
from iceberg_maint.runner.runtime import Runtime


def assess_requested(
    table: TableId, request: Request, runtime: Runtime, operations: Sequence[Operation]
) -> Assessment:
    """Assesses these operations for the request. Raises what `assess` raises."""
    return assess(
        table,
        runtime,
        operations,
        requested=request.partitions,
        force=request.force,
        owner=request.run_id,
    )


class Outlook:
    """What the requested operations on a table have to do, read once for all operations on data and once for
    all of housekeeping.

    A run of a healthy table reads it twice instead of six times. An operation that has work takes the lease
    and assesses the table again, so a decision to work never rests on an outlook. `forget` drops it, because
    that work changes the table.
    """

    def __init__(self, table: TableId, request: Request, runtime: Runtime) -> None:
        self._table = table
        self._request = request
        self._runtime = runtime
        self._assessment: Assessment | None = None
        self._has_unsettled_work: bool | None = None
        self._open_operations: frozenset[Operation] | None = None

    def assessment(self, operation: Operation) -> Assessment:
        """The assessment of one requested operation. Raises what `assess` raises."""
        if self._assessment is None or operation not in (d.operation for d in self._assessment.decisions):
            is_data = operation in DATA_OPERATIONS
            kind = tuple(o for o in self._request.operations if (o in DATA_OPERATIONS) is is_data)
            self.forget()
            self._assessment = assess_requested(self._table, self._request, self._runtime, kind)
        return self._assessment.only((operation,))

    def rewrites_first(self) -> bool:
        """Whether the run rewrites small files before it converts equality deletes. An operation was assessed before."""
        assert self._assessment is not None, "assessed first"
        return self._assessment.rewrites_first()

    def has_unsettled_work(self) -> bool:
        """Whether the table has an open attempt, or a run that died before it was recorded: the next run
        settles and records both, whatever its operation."""
        if self._has_unsettled_work is None:
            assert self._assessment is not None, "assessed first"
            uuid = self._assessment.state.uuid
            ledger = self._runtime.ledger
            self._has_unsettled_work = bool(ledger.open_attempts(uuid)) or ledger.has_unrecorded_runs(uuid)
        return self._has_unsettled_work

    def has_open_batches(self, operation: Operation) -> bool:
        """Whether earlier runs have left batches of the operation."""
        if self._open_operations is None:
            assert self._assessment is not None, "assessed first"
            self._open_operations = self._runtime.ledger.open_operations(self._assessment.state.uuid)
        return operation in self._open_operations

    def forget(self) -> None:
        """Drops what was read."""
        self._assessment = None
        self._open_operations = None
        self._has_unsettled_work = None
