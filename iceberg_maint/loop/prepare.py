"""Prepares the operations of a run: what they need, and the next table while this one is written."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation, TableId
from iceberg_maint.core.model.reasons import Verdict
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.spark_memory import NeededMemory, needed_memory, setting_text
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.loop.assess import Assessment, assess, make_plans
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.request import Request


def assess_requested(
    table: TableId, request: Request, context: Context, operations: Sequence[Operation]
) -> Assessment:
    """Assesses these operations for the request. Raises what `assess` raises."""
    return assess(
        table,
        context,
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

    def __init__(self, table: TableId, request: Request, context: Context) -> None:
        self._table = table
        self._request = request
        self._context = context
        self._assessment: Assessment | None = None
        self._has_unsettled_work: bool | None = None
        self._open_operations: frozenset[Operation] | None = None

    def assessment(self, operation: Operation) -> Assessment:
        """The assessment of one requested operation. Raises what `assess` raises."""
        if self._assessment is None or operation not in (d.operation for d in self._assessment.decisions):
            is_data = operation in DATA_OPERATIONS
            kind = tuple(o for o in self._request.operations if (o in DATA_OPERATIONS) is is_data)
            self.forget()
            self._assessment = assess_requested(self._table, self._request, self._context, kind)
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
            ledger = self._context.ledger
            self._has_unsettled_work = bool(
                ledger.work.open_attempts(uuid)
            ) or ledger.records.has_unrecorded_runs(uuid)
        return self._has_unsettled_work

    def has_open_batches(self, operation: Operation) -> bool:
        """Whether earlier runs have left batches of the operation."""
        if self._open_operations is None:
            assert self._assessment is not None, "assessed first"
            self._open_operations = self._context.ledger.work.open_operations(self._assessment.state.uuid)
        return operation in self._open_operations

    def forget(self) -> None:
        """Drops what was read."""
        self._assessment = None
        self._open_operations = None
        self._has_unsettled_work = None


_log = logging.getLogger(__name__)


def memory_of_plans(batches: Iterable[Batch], policy: Policy, context: Context) -> NeededMemory | None:
    """What the batches need; None if the settings of Spark are another program's."""
    declared = context.engine.spark.memory
    if declared is None:
        return None
    return needed_memory(batches, declared, policy.equality_deletes.memory)


def shortage(table: str, needed: NeededMemory | None, context: Context) -> IcebergMaintError | None:
    """The warning ICM-165 for settings that declare less than is needed; None if they suffice."""
    if needed is None or context.engine.spark.memory is None:
        return None
    short = [s for s in needed.settings(context.engine.spark.memory) if s.is_short]
    if not short:
        return None
    declared = ", ".join(f"{s.name} = {setting_text(s.declared_bytes)}" for s in short)
    enough = ", ".join(f"{s.name} = {setting_text(s.needed_bytes)}" for s in short if s.needed_bytes)
    less = "take on less per batch (windows.max_partitions_per_batch, windows.max_files_per_batch)"
    return IcebergMaintError(
        "ICM-165",
        f"{table}: the equality deletes of a planned batch need more memory than {declared}.",
        f"set {enough} under spark.conf, or {less}."
        if enough
        else f"raise equality_deletes.memory, or {less}.",
    )


def recorded_shortages(tables: Iterable[TableId], context: Context) -> Iterator[str]:
    """One text for each table whose last batch with equality deletes ran out of memory, by the ledger."""
    for table in tables:
        measured = context.ledger.health.get(table)
        uses = () if measured is None else context.ledger.records.memory_uses(measured.table_uuid, 1)
        if uses and uses[0].exceeded:
            yield (
                f"{table}: the last batch with equality deletes ran out of memory at an estimate of "
                f"{setting_text(uses[0].estimated_bytes)}."
            )


def warn_of_memory(table: str, batches: Iterable[Batch], policy: Policy, context: Context) -> None:
    """Logs ICM-165 if the batches need more than is declared."""
    warning = shortage(table, memory_of_plans(batches, policy, context), context)
    if warning is not None:
        _log.warning("%s", warning)


_WAIT_SECONDS = 5.0
"""A table that takes longer to read is read again by its own run, whose time is limited."""


class PreparedTable:
    """A table that a thread measures and plans. What it reads is in the memory of the table's context; every decision
    is made again by the run, under its lease."""

    def __init__(self, table: TableId, request: Request, context: Context) -> None:
        self._context = context
        self._own = context.of_one_run()
        # A daemon: a run that is terminated does not wait for it.
        self._thread = threading.Thread(
            target=self._read, args=(table, request), name=f"prepare {table}", daemon=True
        )
        self._thread.start()

    def context(self) -> Context:
        """Returns the context for the run of the table: with what was read, unless that takes too long."""
        self._thread.join(_WAIT_SECONDS)
        return self._context if self._thread.is_alive() else self._own

    def _read(self, table: TableId, request: Request) -> None:
        operations = tuple(o for o in request.operations if o in DATA_OPERATIONS)
        # The run reads the table again and reports what fails.
        with suppress(Exception):
            assessment = assess_requested(table, request, self._own, operations)
            due = [d.operation for d in assessment.decisions if d.verdict is Verdict.RUN]
            make_plans(assessment.only(due), self._own)
